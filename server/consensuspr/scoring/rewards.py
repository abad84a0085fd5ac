"""The paper's rewards (section 4.2) as pure, vectorised functions of Acc, NCR and epoch.

NaN in, NaN out: an unknown Acc or NCR makes an unknown reward exactly where the
formula needs it, so that a missing value can never become a number by accident.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from consensuspr.errors import InputError

Values: TypeAlias = npt.ArrayLike
Rewards: TypeAlias = npt.NDArray[np.float64]


class RewardKind(StrEnum):
    """How Acc and NCR are combined."""

    LINEAR = "linear"
    MAX = "max"
    CURRICULUM = "curriculum"
    OUTCOME = "outcome"


def outcome(acc: Values) -> Rewards:
    """Return Acc alone, the baseline that the paper densifies."""
    return np.asarray(acc, dtype=np.float64)


def linear(acc: Values, ncr: Values, alpha: float = 0.5) -> Rewards:
    """Return ``alpha * acc + (1 - alpha) * ncr`` (equation 3).

    Args:
        acc: (n,) accuracies, 0 or 1; NaN where unknown.
        ncr: (n,) node coverage rates in [0, 1]; NaN where unknown.
        alpha: weight of the outcome, in [0, 1].

    Raises:
        InputError: alpha is not a number in [0, 1].
    """
    _check_alpha(alpha)
    acc = np.asarray(acc, dtype=np.float64)
    ncr = np.asarray(ncr, dtype=np.float64)
    return alpha * acc + (1.0 - alpha) * ncr


def maximum(acc: Values, ncr: Values) -> Rewards:
    """Return ``max(acc, ncr)`` (equation 4); NaN where either is NaN."""
    return np.maximum(np.asarray(acc, dtype=np.float64), np.asarray(ncr, dtype=np.float64))


def curriculum(acc: Values, ncr: Values, epoch: int, switch_epoch: int = 1) -> Rewards:
    """Return NCR before ``switch_epoch`` and Acc from it on (section 4.2, curriculum learning).

    Args:
        acc: (n,) accuracies; not looked at in the process stage.
        ncr: (n,) node coverage rates; not looked at in the outcome stage.
        epoch: training epoch, counted from 0.
        switch_epoch: first epoch of the outcome stage; the paper switches after the first.

    Raises:
        InputError: epoch or switch_epoch is negative or no whole number.
    """
    _check_epoch("epoch", epoch)
    _check_epoch("switch_epoch", switch_epoch)
    stage = ncr if epoch < switch_epoch else acc
    return np.asarray(stage, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class RewardSpec:
    """Which reward to compute; build it with one of the named constructors.

    Raises:
        InputError: the kind is unknown, alpha is not in [0, 1] or switch_epoch is negative.
    """

    kind: RewardKind
    alpha: float = 0.5
    switch_epoch: int = 1

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "kind", RewardKind(self.kind))
        except ValueError:
            known = ", ".join(RewardKind)
            raise InputError(f"the reward must be one of {known}, got {self.kind!r}") from None
        _check_alpha(self.alpha)
        _check_epoch("switch_epoch", self.switch_epoch)

    @classmethod
    def linear(cls, alpha: float = 0.5) -> RewardSpec:
        """Weigh the outcome with ``alpha`` and the process with ``1 - alpha``."""
        return cls(RewardKind.LINEAR, alpha=alpha)

    @classmethod
    def maximum(cls) -> RewardSpec:
        """Take the larger of Acc and NCR."""
        return cls(RewardKind.MAX)

    @classmethod
    def curriculum(cls, switch_epoch: int = 1) -> RewardSpec:
        """Reward the process before ``switch_epoch``, the outcome from it on."""
        return cls(RewardKind.CURRICULUM, switch_epoch=switch_epoch)

    @classmethod
    def outcome(cls) -> RewardSpec:
        """Reward the final answer alone."""
        return cls(RewardKind.OUTCOME)

    def compute(self, acc: Values, ncr: Values, epoch: int = 0) -> Rewards:
        """Return the (n,) rewards; NaN where a value that the formula needs is NaN."""
        match self.kind:
            case RewardKind.LINEAR:
                return linear(acc, ncr, self.alpha)
            case RewardKind.MAX:
                return maximum(acc, ncr)
            case RewardKind.CURRICULUM:
                return curriculum(acc, ncr, epoch, self.switch_epoch)
            case RewardKind.OUTCOME:
                return outcome(acc)


def _check_alpha(alpha: float) -> None:
    try:
        sound = 0.0 <= alpha <= 1.0
    except TypeError:
        sound = False
    if not sound:
        raise InputError(f"alpha must be a number in [0, 1], got {alpha!r}")


def _check_epoch(name: str, epoch: int) -> None:
    if not isinstance(epoch, (int, np.integer)) or epoch < 0:
        raise InputError(f"{name} must be a whole number of 0 or more, got {epoch!r}")
