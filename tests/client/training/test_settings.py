"""Settings of a reward in training, and the epoch of a step."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from consensuspr.client.training import EpochClock, RewardSettings
from consensuspr.errors import InputError
from consensuspr.scoring.rewards import RewardSpec


def read(**values: Any) -> RewardSettings:
    return RewardSettings.of(values, "reward_kwargs")


def test_the_defaults_are_those_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONSENSUSPR_ADDRESS", raising=False)
    settings = read()
    assert settings.spec == RewardSpec.linear(0.5, code="written", unanswered="zero")
    assert settings.switch_epoch == 1
    assert settings.address == "127.0.0.1:50051"
    assert (settings.on_unavailable, settings.on_unscorable) == ("wait", "raise")


def test_the_environment_names_the_server_where_the_settings_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CONSENSUSPR_ADDRESS", "node7:1234")
    assert read().address == "node7:1234"
    assert read(address="node8:1").address == "node8:1"


@pytest.mark.parametrize(
    ("values", "unanswered"),
    [
        ({"reward": "max"}, "zero"),
        ({"reward": "curriculum"}, "ncr"),
        ({"unanswered": "ncr"}, "ncr"),
        ({"reward": "curriculum", "unanswered": "zero"}, "zero"),
    ],
)
def test_unanswered_is_zero_where_ncr_is_added_to_acc(
    values: dict[str, Any], unanswered: str
) -> None:
    assert read(**values).spec.unanswered == unanswered


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"alhpa": 1}, "unknown setting 'alhpa' in reward_kwargs; did you mean 'alpha'?"),
        ({"zzz": 1}, "unknown setting 'zzz' in reward_kwargs; known: reward, alpha,"),
        ({"alpha": 1.5}, "reward_kwargs.alpha: must be at most 1, got 1.5"),
        ({"address": "nowhere"}, "reward_kwargs.address: "),
        ({"reward": "best"}, "reward_kwargs.reward: must be 'linear', 'max'"),
        ({"timeout_s": 0}, "reward_kwargs.timeout_s: must be more than 0, got 0"),
        (
            {"on_unscorable": "zero"},
            "on_unscorable: must be 'raise' or a finite number, got 'zero'",
        ),
        ({"on_unscorable": "nan"}, "on_unscorable: must be 'raise' or a finite number, got 'nan'"),
        ({"on_unscorable": True}, "on_unscorable: must be 'raise' or a finite number, got True"),
        ({"on_unavailable": "zero"}, "on_unavailable: must be 'wait' or 'raise'"),
        ({"problem_id_format": "{id}"}, "must hold {index} and of data_source, index, split"),
        ({"problem_id_format": "{index"}, "must be a format string, got '{index'"),
        ({"problem_id_format": "{index.real}"}, "must hold {index}"),
    ],
)
def test_a_wrong_setting_is_one_sentence_that_names_it(
    values: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError) as error:
        read(**values)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("values", "environment", "address"),
    [
        ({}, "", "127.0.0.1:50051"),
        ({}, "s:1", "s:1"),
        ({"dataset_path": "d.jsonl"}, "", None),
        ({"dataset_path": "d.jsonl"}, "s:1", "s:1"),
        ({"dataset_path": "d.jsonl", "address": "s:2"}, "s:1", "s:2"),
    ],
)
def test_the_address_that_is_not_set(
    values: dict[str, Any], environment: str, address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSENSUSPR_ADDRESS", environment)
    assert read(**values).address == address


CURRICULUM = RewardSettings(reward="curriculum")


@pytest.mark.parametrize(
    ("step", "epoch"), [(0, 0), (1, 0), (12, 0), (13, 1), (24, 1), (25, 2), (-1, 0)]
)
def test_an_epoch_is_so_many_steps_counted_from_one(step: int, epoch: int) -> None:
    assert EpochClock(CURRICULUM, 12, "").epoch_of(step) == epoch


def test_the_setting_goes_before_the_trainers_steps() -> None:
    settings = RewardSettings(reward="curriculum", steps_per_epoch=5)
    assert EpochClock(settings, 12, "").epoch_of(6) == 1


def test_a_curriculum_does_not_guess_its_epoch() -> None:
    with pytest.raises(InputError, match=r"needs the epoch, which cannot be known: nobody knows"):
        EpochClock(CURRICULUM, None, "nobody knows")
    with pytest.raises(InputError, match="the sample came without it"):
        EpochClock(CURRICULUM, 12, "").epoch_of(None)


def test_each_stage_is_announced_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = EpochClock(CURRICULUM, 10, "")
    with caplog.at_level(logging.WARNING):
        for step in (0, 1, 10, 11, 10, 12, 9, 25):
            clock.epoch_of(step)
    assert [record.message for record in caplog.records] == [
        "curriculum: NCR is rewarded from here on (epoch 0, step 0, switch_epoch 1)",
        "curriculum: Acc is rewarded from here on (epoch 1, step 11, switch_epoch 1)",
    ]
