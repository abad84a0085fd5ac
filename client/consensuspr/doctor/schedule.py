"""How many steps there will be, and at which of them the curriculum switches."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from consensuspr.client.training import EpochClock, RewardSettings
from consensuspr.client.verl.config import epoch_clock
from consensuspr.doctor.findings import Finding, fail, ok, skip, warn
from consensuspr.doctor.manager import Reward, release
from consensuspr.doctor.verl_run import SYNC_TRAINER_OF_0_8, VerlRun
from consensuspr.errors import InputError


def check_schedule(run: VerlRun, reward: Reward, train_rows: int | None) -> Iterator[Finding]:
    """Say how many steps the planned run has, and when a curriculum switches.

    Args:
        run: the planned run.
        reward: of it.
        train_rows: rows of all training files; None where they could not be counted.
    """
    steps_per_epoch = _steps_per_epoch(run, train_rows)
    if steps_per_epoch is None:
        yield skip("schedule", "the training rows or data.train_batch_size are not known")
    elif steps_per_epoch == 0:
        yield fail(
            "schedule",
            f"{train_rows:,} training rows do not fill one batch of"
            f" {run.get('data.train_batch_size')}",
            "lower data.train_batch_size",
        )
        return
    else:
        yield ok("schedule", _shown(run, steps_per_epoch))
    if reward.settings.reward == "curriculum":
        yield _curriculum(run, reward, steps_per_epoch)


def _steps_per_epoch(run: VerlRun, train_rows: int | None) -> int | None:
    batch = run.get("data.train_batch_size")
    if train_rows is None or not isinstance(batch, int) or batch < 1:
        return None
    most = run.get("data.train_max_samples")
    if isinstance(most, int) and most > 0:
        train_rows = min(train_rows, most)
    return train_rows // batch


def _shown(run: VerlRun, steps_per_epoch: int) -> str:
    epochs, total = run.get("trainer.total_epochs"), run.get("trainer.total_training_steps")
    steps = f"{steps_per_epoch:,} steps in an epoch"
    if run.get("data.filter_overlong_prompts") is True:
        steps = f"at most {steps} (data.filter_overlong_prompts)"
    if total is not None:
        return f"{steps}, {total:,} steps in all (trainer.total_training_steps)"
    return f"{steps}, {epochs} epochs" if isinstance(epochs, int) else steps


def _curriculum(run: VerlRun, reward: Reward, steps_per_epoch: int | None) -> Finding:
    check, settings = "curriculum", reward.settings
    try:
        _clock(run, reward, steps_per_epoch)
    except InputError as error:
        return fail(check, str(error), "")
    if settings.epoch is not None:
        stage = "Acc" if settings.epoch >= settings.switch_epoch else "NCR"
        return ok(check, f"epoch={settings.epoch} is fixed: {stage} is rewarded all the time")
    steps = settings.steps_per_epoch or steps_per_epoch
    if steps is None:
        return skip(check, "the step at which it switches cannot be known without training rows")
    return _switch(run, settings, steps, steps_per_epoch)


def _switch(run: VerlRun, settings: RewardSettings, steps: int, planned: int | None) -> Finding:
    check, switch = "curriculum", settings.switch_epoch * steps + 1
    epochs = run.get("trainer.total_epochs")
    last = run.get("trainer.total_training_steps")
    if last is None and planned is not None and isinstance(epochs, int):
        last = planned * epochs
    if isinstance(last, int) and switch > last:
        return warn(
            check,
            f"it would switch at step {switch:,}, and training ends with step {last:,}: only NCR"
            " is ever rewarded",
            "lower switch_epoch, or train for more epochs",
        )
    if planned is not None and steps != planned:
        return warn(
            check,
            f"steps_per_epoch={steps:,} is set, by its rows the run has {planned:,}; it switches"
            f" to Acc at step {switch:,}",
            "leave steps_per_epoch out, unless this is meant",
        )
    return ok(check, f"switches from NCR to Acc at step {switch:,} of {last or 'unknown'}")


def _clock(run: VerlRun, reward: Reward, steps_per_epoch: int | None) -> EpochClock:
    """Make the clock that training would make.

    Raises:
        InputError: the epoch cannot be known.
    """
    settings = reward.settings
    if not reward.by_manager:
        return EpochClock(settings, None, "a reward function does not see the training step")
    old = release(run)[:2] == (0, 8) and run.trainer != SYNC_TRAINER_OF_0_8
    if old and settings.epoch is None:
        raise InputError(
            f"reward=curriculum needs the training step, and {run.trainer} of verl {run.version}"
            f" does not tell it; use {SYNC_TRAINER_OF_0_8} or verl 0.9.1, or run one stage"
            " after the other with a fixed epoch"
        )
    # Where the rows are not known, any number will do: the question is whether verl will tell it.
    planned = _as_trainer_fills_it(run.config, steps_per_epoch or 1)
    return epoch_clock(planned, settings, run.version or "")


def _as_trainer_fills_it(config: Mapping[str, Any], steps_per_epoch: int) -> Any:
    """Return the configuration with the optimiser's steps, which verl fills in from its data."""
    planned: Any = copy.deepcopy(dict(config))
    trainer = planned.get("trainer") or {}
    epochs, total = trainer.get("total_epochs"), trainer.get("total_training_steps")
    v1 = trainer.get("v1") or {}
    updates = (v1.get(v1.get("trainer_mode")) or {}).get("parameter_sync_step") or 1
    if total is None and isinstance(epochs, int):
        total = steps_per_epoch * epochs
    actor = planned.setdefault("actor_rollout_ref", {}).setdefault("actor", {})
    actor.setdefault("optim", {})["total_training_steps"] = (
        total * updates if isinstance(total, int) else None
    )
    return planned
