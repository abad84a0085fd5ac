"""Which epoch a step belongs to, and what happens where nobody knows."""

from __future__ import annotations

import logging

import pytest

from consensuspr.client.training import EpochClock, RewardSettings
from consensuspr.errors import InputError

CURRICULUM = RewardSettings(reward="curriculum")


@pytest.mark.parametrize(
    ("step", "epoch"),
    [(0, 0), (1, 0), (12, 0), (13, 1), (24, 1), (25, 2), (-1, 0)],
)
def test_an_epoch_is_so_many_steps_counted_from_one(step: int, epoch: int) -> None:
    assert EpochClock(CURRICULUM, 12, "").epoch_of(step) == epoch


def test_the_setting_goes_before_what_the_trainer_tells() -> None:
    settings = RewardSettings(reward="curriculum", steps_per_epoch=5)
    assert EpochClock(settings, 12, "").epoch_of(6) == 1


def test_a_fixed_epoch_needs_no_steps() -> None:
    settings = RewardSettings(reward="curriculum", epoch=3)
    assert EpochClock(settings, None, "nobody knows").epoch_of(None) == 3


def test_a_curriculum_without_a_known_epoch_does_not_start() -> None:
    with pytest.raises(InputError, match=r"needs the epoch, which cannot be known: nobody knows"):
        EpochClock(CURRICULUM, None, "nobody knows")


def test_a_curriculum_does_not_guess_the_step_of_a_sample() -> None:
    with pytest.raises(InputError, match="the sample came without it"):
        EpochClock(CURRICULUM, 12, "").epoch_of(None)


def test_other_rewards_need_no_epoch() -> None:
    assert EpochClock(RewardSettings(), None, "nobody knows").epoch_of(None) == 0


def test_each_stage_is_announced_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = EpochClock(CURRICULUM, 10, "")
    with caplog.at_level(logging.WARNING):
        for step in (0, 1, 10, 11, 10, 12, 9, 25):
            clock.epoch_of(step)
    assert [record.message for record in caplog.records] == [
        "curriculum: NCR is rewarded from here on (epoch 0, step 0, switch_epoch 1)",
        "curriculum: Acc is rewarded from here on (epoch 1, step 11, switch_epoch 1)",
    ]
