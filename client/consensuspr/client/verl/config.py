"""Settings of the reward in verl's configuration; read without verl."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from consensuspr.client.training import EpochClock, RewardSettings
from consensuspr.errors import InputError

SOURCE = "reward.reward_kwargs"

INSTALL_VERL = 'pip install "consensuspr[verl]", in a checkout pip install ".[verl]"'

# Prefix of a mode of verl's V1 trainer (trainer.v1.trainer_mode): the same with our figures.
OUR_TRAINERS = "consensuspr_"

# The estimator needs its own name: verl's V1 trainer gives "grpo" a path on which all tokens
# of a response have the advantage of the first.
STEP_CREDIT_MANAGER = "consensuspr.client.verl.step_credit.StepCreditManager"
STEP_ESTIMATOR = "consensuspr_step"

# Top groups of the reward settings before verl 0.7; 0.9 accepts their keys and reads none of them.
OLD_GROUPS = ("custom_reward_function", "reward_model", "sandbox_fusion")
# Their keys whose place below the group ``reward`` is another one.
_MOVED = {
    "reward_model.reward_manager": "reward_manager.name",
    "reward_model.reward_loop_source": "reward_manager.source",
    "reward_model.reward_loop_module_path": "reward_manager.module.path",
    "reward_model.reward_loop_class_name": "reward_manager.name",
    "reward_model.reward_kwargs": "reward_kwargs",
    "reward_model.num_workers": "num_workers",
}

# verl's own keys in the same place.
OVERLONG = ("max_resp_len", "overlong_buffer_cfg")
BUFFER_KEYS = ("enable", "len", "penalty_factor", "log")

# In the same place, by our trainer: nobody asked for this score log, so a worker can go without.
OPTIONAL_LOG = "score_log_is_optional"


def key_now(old: str) -> str:
    """Return the key that verl 0.9 reads, of one in :data:`OLD_GROUPS`."""
    for before, now in _MOVED.items():
        if old == before or old.startswith(f"{before}."):
            return f"reward.{now}{old.removeprefix(before)}"
    return f"reward.{old}"


def verl_is_installed() -> bool:
    """Return whether ``python -m verl…`` finds verl, installed or in this folder."""
    here = importlib.machinery.PathFinder.find_spec("verl", [os.getcwd()])
    # A folder without __init__.py, such as a clone of verl beside, is not a package.
    return any(spec and spec.origin for spec in (importlib.util.find_spec("verl"), here))


@dataclass(frozen=True, slots=True)
class OverlongPenalty:
    """DAPO's soft overlong punishment, as verl's own DAPO manager computes it.

    Attributes:
        free_tokens: response length without penalty, ``max_resp_len - len``.
        buffer_tokens: tokens over which the penalty grows by one ``factor``.
        factor: penalty at ``max_resp_len``.
    """

    free_tokens: int
    buffer_tokens: int
    factor: float

    @classmethod
    def of(cls, max_resp_len: object, buffer: Mapping[str, Any] | None) -> Self | None:
        """Read verl's ``max_resp_len`` and ``overlong_buffer_cfg``; None: no penalty.

        Raises:
            InputError: a key is unknown, missing or out of range.
        """
        if buffer is None:
            return None
        for key in buffer:
            if key not in BUFFER_KEYS:
                known = ", ".join(BUFFER_KEYS)
                raise InputError(f"unknown setting {key!r} in overlong_buffer_cfg; known: {known}")
        if not buffer.get("enable", False):
            return None
        length = _count("overlong_buffer_cfg.len", buffer.get("len"), 1)
        longest = _count("max_resp_len", max_resp_len, length)
        factor = buffer.get("penalty_factor", 1.0)
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not factor >= 0:
            raise InputError(
                f"overlong_buffer_cfg.penalty_factor must be a number of 0 or more, got {factor!r}"
            )
        return cls(longest - length, length, float(factor))

    def __call__(self, num_tokens: int) -> float:
        """Return the penalty of a response, 0 or less."""
        exceeding = num_tokens - self.free_tokens
        return min(-exceeding / self.buffer_tokens * self.factor, 0.0)


def _count(name: str, value: object, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} must be a number of tokens of at least {least}, got {value!r}")
    return value


@dataclass(frozen=True, slots=True)
class ManagerConfig:
    """The settings of a reward manager.

    Attributes:
        overlong: None if it is off.
        number: figure that verl reads as a number (the metric of ``algorithm.filter_groups``), so
            that it must not be None.
        optional_log: whether a worker that cannot open its score log goes on without.
    """

    settings: RewardSettings
    overlong: OverlongPenalty | None
    number: str | None = None
    optional_log: bool = False

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Read the whole configuration of a verl run.

        Raises:
            InputError: a setting is unknown or wrong.
        """
        given = _plain(select(config, "reward", "reward_kwargs"))
        given = {} if given is None else given
        if not isinstance(given, dict):
            raise InputError(f"{SOURCE} must hold settings by name, got {given!r}")
        overlong = OverlongPenalty.of(*(given.get(key) for key in OVERLONG))
        not_ours = (*OVERLONG, OPTIONAL_LOG)
        settings = {key: value for key, value in given.items() if key not in not_ours}
        groups = select(config, "algorithm", "filter_groups")
        number = select(groups, "metric") if select(groups, "enable") else None
        optional_log = given.get(OPTIONAL_LOG) is True
        return cls(RewardSettings.of(settings, SOURCE), overlong, number, optional_log)


def epoch_clock(config: Mapping[str, Any], settings: RewardSettings, version: str) -> EpochClock:
    """Return the clock of a run of a version of verl; the trainer has filled the configuration in.

    Raises:
        InputError: the reward needs the epoch, and it cannot be known.
    """
    needed = settings.needs_epoch if settings.epoch is None else None
    without_steps = version.startswith("0.7.") or select(config, "trainer", "use_v1") is False
    if needed and without_steps:
        raise InputError(
            f"{needed} needs the training step, and this trainer of verl {version} does"
            " not pass the reward its step; use verl 0.9.1 or newer with trainer.use_v1=True, or"
            " run one stage after the other with a fixed epoch"
        )
    return EpochClock(settings, *_steps_per_epoch(config))


def _steps_per_epoch(config: Mapping[str, Any]) -> tuple[int | None, str]:
    """Return the steps in an epoch, or None and the reason.

    The asynchronous trainers count an update for each mini-batch between two weight syncs.
    """
    if select(config, "trainer", "total_training_steps") is not None:
        return None, "trainer.total_training_steps is set, so that epochs may be cut short"
    epochs = select(config, "trainer", "total_epochs")
    updates = select(config, "actor_rollout_ref", "actor", "optim", "total_training_steps")
    if not isinstance(epochs, int) or epochs < 1:
        return None, f"trainer.total_epochs is {epochs!r}"
    mode = trainer_mode(config)
    updates_per_step = select(config, "trainer", "v1", mode, "parameter_sync_step") or 1
    if not isinstance(updates, int) or updates < epochs * updates_per_step:
        return None, f"actor.optim.total_training_steps is {updates!r}"
    return updates // updates_per_step // epochs, ""


def trainer_mode(config: Any) -> str:
    """Return the mode of verl's trainer, without our prefix."""
    return str(select(config, "trainer", "v1", "trainer_mode")).removeprefix(OUR_TRAINERS)


def select(config: Any, *path: str) -> Any:
    """Return the value at a path of a configuration, None if there is none."""
    for key in path:
        config = config.get(key) if hasattr(config, "get") else None
        if config is None:
            return None
    return config


def file_names(files: Any) -> tuple[str, ...]:
    """Return the names in ``data.train_files`` or ``data.val_files``: one, a list, or none."""
    return (files,) if isinstance(files, str) else tuple(map(str, files or ()))


def _plain(value: Any) -> Any:
    """Return omegaconf's containers as dicts and lists."""
    if hasattr(value, "items"):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        return value
    return [_plain(item) for item in value]
