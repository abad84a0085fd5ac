"""Reading verl's configuration: settings, the overlong penalty, steps in an epoch."""

from __future__ import annotations

from typing import Any

import pytest

from consensuspr.client.training import RewardSettings
from consensuspr.client.verl.config import ManagerConfig, OverlongPenalty, epoch_clock
from consensuspr.errors import InputError


def run_config(
    total_epochs: Any = 2,
    total_training_steps: Any = None,
    updates: Any = 24,
    use_v1: bool | None = True,
    mode: str = "sync",
) -> dict[str, Any]:
    """A run as its reward workers see it."""
    trainer: dict[str, Any] = {
        "total_epochs": total_epochs,
        "total_training_steps": total_training_steps,
        "v1": {"trainer_mode": mode, "separate_async": {"parameter_sync_step": 4}, "sync": {}},
    }
    if use_v1 is not None:
        trainer["use_v1"] = use_v1
    return {
        "trainer": trainer,
        "actor_rollout_ref": {"actor": {"optim": {"total_training_steps": updates}}},
    }


CURRICULUM = RewardSettings(reward="curriculum")


@pytest.mark.parametrize(
    ("config", "last_step_of_epoch_0"),
    [
        (run_config(), 12),
        (run_config(total_epochs=1), 24),
        (run_config(total_epochs=5, updates=27), 5),
        (run_config(mode="separate_async", updates=96), 12),
    ],
)
def test_the_epoch_follows_from_the_planned_steps(
    config: dict[str, Any], last_step_of_epoch_0: int
) -> None:
    clock = epoch_clock(config, CURRICULUM, "0.9.1")
    assert clock.epoch_of(last_step_of_epoch_0) == 0
    assert clock.epoch_of(last_step_of_epoch_0 + 1) == 1


@pytest.mark.parametrize(
    ("config", "version", "sentence"),
    [
        (run_config(total_training_steps=100), "0.9.1", "trainer.total_training_steps is set"),
        (run_config(updates=-1), "0.9.1", "actor.optim.total_training_steps is -1"),
        (run_config(total_epochs=None), "0.9.1", "trainer.total_epochs is None"),
        (
            run_config(use_v1=False),
            "0.9.1",
            "this trainer of verl 0.9.1 does not pass the reward its step",
        ),
        (
            run_config(use_v1=None),
            "0.7.1",
            "this trainer of verl 0.7.1 does not pass the reward its step",
        ),
    ],
)
def test_a_curriculum_of_unknown_epoch_does_not_start(
    config: dict[str, Any], version: str, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        epoch_clock(config, CURRICULUM, version)
    # Other rewards, and a fixed epoch, need not know.
    epoch_clock(config, RewardSettings(), version)
    epoch_clock(config, RewardSettings(reward="curriculum", epoch=1), version)


def test_settings_and_overlong_penalty_are_read_from_one_place() -> None:
    buffer = {"enable": True, "len": 512, "penalty_factor": 1.0, "log": False}
    given = {"alpha": 0.3, "max_resp_len": 4096, "overlong_buffer_cfg": buffer}
    read = ManagerConfig.of({"reward": {"reward_kwargs": given}})
    assert read.settings.alpha == 0.3
    assert read.overlong is not None and read.overlong(4096) == -1.0
    assert ManagerConfig.of({"reward": {}}).settings == RewardSettings()


BUFFER = {"enable": True, "len": 512, "penalty_factor": 1.0, "log": False}


@pytest.mark.parametrize(
    ("tokens", "penalty"),
    [(0, 0.0), (3584, 0.0), (3585, -1 / 512), (3840, -0.5), (4096, -1.0), (4352, -1.5)],
)
def test_it_grows_within_the_buffer(tokens: int, penalty: float) -> None:
    penalise = OverlongPenalty.of(4096, BUFFER)
    assert penalise is not None
    assert penalise(tokens) == penalty


@pytest.mark.parametrize(
    ("max_resp_len", "buffer", "sentence"),
    [
        (None, BUFFER, "max_resp_len must be .* at least 512, got None"),
        (511, BUFFER, "got 511"),
        (4096, {**BUFFER, "len": 0}, "overlong_buffer_cfg.len must be .* at least 1, got 0"),
        (4096, {"enable": True}, "overlong_buffer_cfg.len must be .* got None"),
        (4096, {**BUFFER, "penalty_factor": -1}, "penalty_factor must be .* got -1"),
        (4096, {**BUFFER, "lenn": 1}, "unknown setting 'lenn' in overlong_buffer_cfg"),
    ],
)
def test_what_cannot_be_meant_is_refused(max_resp_len: Any, buffer: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        OverlongPenalty.of(max_resp_len, buffer)
