"""Settings of a reward in training: what is taken, and the one sentence for what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from consensuspr.client.training import RewardSettings
from consensuspr.errors import InputError
from consensuspr.scoring.rewards import RewardSpec


def read(**values: Any) -> RewardSettings:
    return RewardSettings.of(values, "reward_kwargs")


def test_the_defaults_are_those_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONSENSUSPR_ADDRESS", raising=False)
    settings = read()
    assert settings.spec == RewardSpec.linear(0.5)
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
    ("values", "spec"),
    [
        ({"reward": "linear", "alpha": 0.3}, RewardSpec.linear(0.3)),
        ({"reward": "max"}, RewardSpec.maximum()),
        ({"reward": "curriculum", "switch_epoch": 2}, RewardSpec.curriculum(2)),
        ({"reward": "outcome"}, RewardSpec.outcome()),
    ],
)
def test_every_reward_can_be_asked_for(values: dict[str, Any], spec: RewardSpec) -> None:
    asked = read(**values).spec
    assert asked.kind == spec.kind
    assert asked.compute(1.0, 0.25, 1) == spec.compute(1.0, 0.25, 1)


@pytest.mark.parametrize(
    ("value", "read_as"),
    [("raise", "raise"), (0, 0.0), ("0.0", 0.0), (-1.5, -1.5)],
)
def test_an_unscorable_sample_fails_or_gets_a_number(value: object, read_as: object) -> None:
    assert read(on_unscorable=value).on_unscorable == read_as


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"alhpa": 1}, "unknown setting 'alhpa' in reward_kwargs; did you mean 'alpha'?"),
        ({"zzz": 1}, "unknown setting 'zzz' in reward_kwargs; known: address, reward,"),
        ({"alpha": 1.5}, "reward_kwargs.alpha: input should be less than or equal to 1, got 1.5"),
        ({"address": "nowhere"}, "reward_kwargs.address: "),
        ({"reward": "best"}, "reward_kwargs.reward: input should be 'linear', 'max'"),
        ({"epoch": -1}, "reward_kwargs.epoch: input should be greater than or equal to 0"),
        ({"timeout_s": 0}, "reward_kwargs.timeout_s: input should be greater than 0, got 0"),
        (
            {"on_unscorable": "zero"},
            "on_unscorable: must be 'raise' or a finite number, got 'zero'",
        ),
        ({"on_unscorable": "nan"}, "on_unscorable: must be 'raise' or a finite number, got 'nan'"),
        ({"on_unscorable": None}, "on_unscorable: must be 'raise' or a finite number, got None"),
        ({"on_unavailable": "zero"}, "on_unavailable: input should be 'wait' or 'raise'"),
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


def test_settings_can_be_shared_between_samples() -> None:
    assert hash(read(score_log=Path("x"))) == hash(read(score_log="x"))
