"""What verl's configuration says: the reward's settings, the overlong penalty, steps an epoch.

Read without verl, from plain values or omegaconf's containers.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeGuard

from consensuspr.client.training import EpochClock, RewardSettings
from consensuspr.errors import InputError

SOURCE = "reward.reward_kwargs"

INSTALL_VERL = 'pip install "consensuspr[verl]", in a checkout pip install ".[verl]"'

# Before a mode of verl's V1 trainer (trainer.v1.trainer_mode): the same with our figures.
OUR_TRAINERS = "consensuspr_"

# What step credit is switched on by, and the estimator that uses it.  No name of verl's own: its V1
# trainer gives the estimator "grpo" a path on which all tokens of a response have the advantage
# of the first.
STEP_CREDIT_MANAGER = "consensuspr.client.verl.step_credit.StepCreditManager"
STEP_ESTIMATOR = "consensuspr_step"

# verl's own keys in the same place.
_OVERLONG = ("max_resp_len", "overlong_buffer_cfg")
_BUFFER_KEYS = ("enable", "len", "penalty_factor", "log")


def verl_is_installed() -> bool:
    """Tell whether ``python -m verl…`` finds verl: among what is installed, or in this folder."""
    here = importlib.machinery.PathFinder.find_spec("verl", [os.getcwd()])
    # A folder of that name without __init__.py, such as a clone of verl beside, is no package.
    return any(spec and spec.origin for spec in (importlib.util.find_spec("verl"), here))


@dataclass(frozen=True, slots=True)
class OverlongPenalty:
    """DAPO's soft overlong punishment, as verl's own DAPO manager computes it.

    With a buffer of ``len`` tokens before the longest response ``max_resp_len``: nothing up to
    the buffer, then linearly down to ``-penalty_factor`` at ``max_resp_len`` (and on, where a
    response is longer).

    Attributes:
        free_tokens: response length without penalty, ``max_resp_len - len``.
        buffer_tokens: over how many tokens it grows by one ``factor``.
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
        unknown = [key for key in buffer if key not in _BUFFER_KEYS]
        if unknown:
            known = ", ".join(_BUFFER_KEYS)
            raise InputError(
                f"unknown setting {unknown[0]!r} in overlong_buffer_cfg; known: {known}"
            )
        if not buffer.get("enable", False):
            return None
        length, factor = buffer.get("len"), buffer.get("penalty_factor", 1.0)
        if not _is_count(length):
            raise InputError(
                f"overlong_buffer_cfg.len must be a number of tokens of 1 or more, got {length!r}"
            )
        if not _is_count(max_resp_len) or max_resp_len < length:
            raise InputError(
                f"max_resp_len must be a number of tokens of at least overlong_buffer_cfg.len"
                f" ({length}), got {max_resp_len!r}"
            )
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not factor >= 0:
            raise InputError(
                f"overlong_buffer_cfg.penalty_factor must be a number of 0 or more, got {factor!r}"
            )
        return cls(max_resp_len - length, length, float(factor))

    def __call__(self, num_tokens: int) -> float:
        """Return the penalty of a response, 0 or less."""
        exceeding = num_tokens - self.free_tokens
        return min(-exceeding / self.buffer_tokens * self.factor, 0.0)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


@dataclass(frozen=True, slots=True)
class ManagerConfig:
    """What a reward manager needs of verl's configuration.

    Attributes:
        overlong: None where it is off.
        number: key of the samples of which verl makes a number before it looks (the metric of
            ``algorithm.filter_groups``), so that it may not be None.
    """

    settings: RewardSettings
    overlong: OverlongPenalty | None
    number: str | None = None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Read the whole configuration of a verl run.

        Raises:
            InputError: a setting is unknown or wrong.
        """
        given = _plain(select(config, "reward", "reward_kwargs"))
        if given is None:
            given = {}
        if not isinstance(given, dict):
            raise InputError(f"{SOURCE} must hold settings by name, got {given!r}")
        overlong = OverlongPenalty.of(*(given.get(key) for key in _OVERLONG))
        settings = {key: value for key, value in given.items() if key not in _OVERLONG}
        groups = select(config, "algorithm", "filter_groups")
        number = select(groups, "metric") if select(groups, "enable") else None
        return cls(RewardSettings.of(settings, SOURCE), overlong, number)


def epoch_clock(config: Mapping[str, Any], settings: RewardSettings, version: str) -> EpochClock:
    """Return the clock of a verl run.

    verl says the step with each sample, and the number of steps only where it has planned
    whole epochs: ``total_training_steps`` of the optimiser, which counts an update for each
    mini-batch between two weight syncs of the asynchronous trainers.

    Args:
        config: of the run, as reward workers get it: the trainer has filled it in.
        settings: of the reward.
        version: of verl.

    Raises:
        InputError: the reward needs the epoch, and it cannot be known.
    """
    needed = settings.needs_epoch if settings.epoch is None else None
    if needed and _without_steps(config, version):
        raise InputError(
            f"{needed} needs the training step, and this trainer of verl {version} does"
            " not tell the reward its step; use verl 0.9.1 or newer with trainer.use_v1=True, or"
            " run one stage after the other with a fixed epoch"
        )
    return EpochClock(settings, *_steps_per_epoch(config))


def _steps_per_epoch(config: Mapping[str, Any]) -> tuple[int | None, str]:
    """Return the steps in an epoch, or None and the reason."""
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


def _without_steps(config: Mapping[str, Any], version: str) -> bool:
    """Tell whether samples of this trainer come without their step."""
    if version.startswith("0.7."):
        return True
    return select(config, "trainer", "use_v1") is False


def trainer_mode(config: Any) -> str:
    """Return the mode of verl's trainer, whether or not it is the one with our figures."""
    return str(select(config, "trainer", "v1", "trainer_mode")).removeprefix(OUR_TRAINERS)


def select(config: Any, *path: str) -> Any:
    """Return what stands at a path of a configuration, None where nothing does."""
    for key in path:
        if not isinstance(config, Mapping) and not hasattr(config, "get"):
            return None
        config = config.get(key)
        if config is None:
            return None
    return config


def _plain(value: Any) -> Any:
    """Return omegaconf's containers as dicts and lists."""
    if hasattr(value, "items"):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        return value
    return [_plain(item) for item in value]
