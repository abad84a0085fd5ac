"""The curriculum's epoch from a trainer's state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from consensuspr.client.training import EpochClock, RewardSettings
from consensuspr.client.trl import consensus_reward, progress
from consensuspr.errors import InputError


@dataclass
class State:
    """What a trainer tells."""

    epoch: float | None
    global_step: int = 0


CURRICULUM = RewardSettings(reward="curriculum")


@pytest.mark.parametrize(
    ("settings", "state", "epoch"),
    [
        ({}, State(None), 0),
        ({}, State(0), 0),
        ({}, State(0.99), 0),
        ({}, State(1.0), 1),
        ({}, State(2.5), 2),
        ({"epoch": 3}, State(0.1), 3),
        ({"epoch": 3}, None, 3),
        ({"steps_per_epoch": 10}, State(0.1, 9), 0),
        ({"steps_per_epoch": 10}, State(0.1, 10), 1),
    ],
)
def test_which_epoch(settings: dict[str, int], state: State | None, epoch: int) -> None:
    clock = EpochClock(RewardSettings(reward="curriculum", **settings))
    assert clock.epoch_of(*progress(state)) == epoch


def test_the_state_of_a_trainer_at_every_step_of_its_epochs() -> None:
    """``epoch + steps done / steps`` never rounds up to the next epoch, nor stays below."""
    clock = EpochClock(CURRICULUM)
    for steps in (1, 3, 7, 49, 999, 10_007):
        for epoch in (0, 1, 9, 1000):
            for done in {0, 1, steps // 2, steps - 1} - {steps}:
                assert clock.epoch_of(*progress(State(epoch + done / steps))) == epoch


async def test_a_curriculum_never_guesses() -> None:
    reward = consensus_reward(reward="curriculum")
    with pytest.raises(InputError, match="reward=curriculum needs the epoch, and this trainer"):
        await reward(prompts=["Q"], completions=["A"], problem_id=["p"])
    assert EpochClock(RewardSettings(reward="linear")).epoch_of(*progress(None)) == 0


async def test_the_epoch_may_have_been_planned_with_the_data(address: str) -> None:
    """For a trainer that tells nothing; one that does is believed."""
    reward = consensus_reward(address=address, reward="curriculum", switch_epoch=1)

    async def rewards(epochs: list[Any], state: State | None = None) -> list[float | None]:
        completions, ids = ["1+1=2 Answer: 3"] * 2, ["toy/1"] * 2
        return await reward(
            ["Q"] * 2, completions, problem_id=ids, epoch=epochs, trainer_state=state
        )

    assert await rewards([0, 1]) == [0.5, 0.0]
    assert await rewards([1, 1], State(0.0)) == [0.5, 0.5]
    with pytest.raises(InputError, match=r"epoch of a row must be a whole number from 0, got 1\.5"):
        await rewards([0, 1.5])


def test_the_switch_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = EpochClock(CURRICULUM)
    for epoch in (0.0, 0.5, 1.0, 1.5, 0.9):
        clock.epoch_of(*progress(State(epoch, int(10 * epoch))))
    assert [record.getMessage() for record in caplog.records] == [
        "curriculum: NCR is rewarded from here on (epoch 0, step 1, switch_epoch 1)",
        "curriculum: Acc is rewarded from here on (epoch 1, step 11, switch_epoch 1)",
    ]
