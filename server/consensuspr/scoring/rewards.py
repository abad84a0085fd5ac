"""The paper's rewards (section 4.2) as pure, vectorised functions of Acc, NCR and epoch.

Acc and NCR are (n,) numbers in [0, 1].  NaN in, NaN out: an unknown one makes an unknown reward
exactly where the formula needs it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Literal, TypeAlias, TypedDict, Unpack

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


# A reward with its default settings.
RewardName: TypeAlias = Literal["linear", "max", "curriculum", "outcome"]


class NcrKind(StrEnum):
    """What a node adds to NCR."""

    PLAIN = "plain"  # each the same, as in equation 1
    WEIGHTED = "weighted"  # each the weight that the dataset stores
    POSITION = "position"  # each its place in right solutions, 0 at the start, 1 at the end


class CodeCredit(StrEnum):
    """When a statement in program code reaches a node: the core's choices, without importing it."""

    WRITTEN = "written"  # if the response writes its result
    COMPUTED = "computed"  # always


class Unanswered(StrEnum):
    """The NCR of a response without a marked final answer."""

    NCR = "ncr"  # as of any other response
    ZERO = "zero"  # 0, except in the curriculum's first stage

    @classmethod
    def in_training(cls, reward: RewardKind | str) -> Unanswered:
        """Return the default of trainers: zero for rewards that combine NCR with Acc."""
        return cls.ZERO if reward in (RewardKind.LINEAR, RewardKind.MAX) else cls.NCR


class NcrOptions(TypedDict, total=False):
    """The options of every kind of reward; see :class:`RewardSpec`."""

    guard: bool
    statements: bool
    final_nodes: bool
    ncr: NcrKind | str
    after_think: bool
    code: CodeCredit | str
    unanswered: Unanswered | str


def outcome(acc: Values) -> Rewards:
    """Return Acc alone, the baseline that the paper densifies."""
    return np.asarray(acc, dtype=np.float64)


def linear(acc: Values, ncr: Values, alpha: float = 0.5) -> Rewards:
    """Return ``alpha * acc + (1 - alpha) * ncr`` (equation 3), with alpha in [0, 1]."""
    _check_alpha(alpha)
    acc = np.asarray(acc, dtype=np.float64)
    ncr = np.asarray(ncr, dtype=np.float64)
    return alpha * acc + (1.0 - alpha) * ncr


def maximum(acc: Values, ncr: Values) -> Rewards:
    """Return ``max(acc, ncr)`` (equation 4); NaN where either is NaN."""
    return np.maximum(np.asarray(acc, dtype=np.float64), np.asarray(ncr, dtype=np.float64))


def curriculum(acc: Values, ncr: Values, epoch: int, switch_epoch: int = 1) -> Rewards:
    """Return NCR before ``switch_epoch`` and Acc from it on (section 4.2, curriculum learning).

    Epochs are counted from 0; the paper switches after the first.
    """
    _check_epoch("epoch", epoch)
    _check_epoch("switch_epoch", switch_epoch)
    stage = ncr if epoch < switch_epoch else acc
    return np.asarray(stage, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class RewardSpec:
    """Which reward to compute, and of which NCR; build it with one of the named constructors.

    ``guard=False`` and ``statements=False`` together are the paper's own NCR (equation 1); the
    defaults deviate from it (``docs/concepts/reward.md``).

    Attributes:
        kind: how Acc and NCR are combined.
        alpha: weight of Acc in the linear reward.
        switch_epoch: first epoch in which the curriculum rewards Acc.
        guard: NCR falls where a response states far more than a solution needs
            (:mod:`consensuspr.scoring.guard`).
        statements: a node is reached by a true statement of its value too, not by its
            expressions alone.
        final_nodes: whether nodes that state the final answer count.
        ncr: what a node adds.
        after_think: score what follows the last ``</think>`` alone, nodes, guard and answer; of a
            response without one nothing is scored, since nothing was answered yet.
        code: a statement in program code reaches a node if the response writes its result
            (``written``), or always (``computed``).
        unanswered: NCR of a response without a final answer that a mark announces (``\\boxed``,
            ``####``, ``Answer:``, "answer is", as the answer rule accepts them): its NCR, or 0.
            Before ``switch_epoch`` the curriculum keeps the paper's NCR.

    Raises:
        InputError: a choice is unknown, alpha is not in [0, 1], switch_epoch is negative, or a
            flag is not a bool.
    """

    kind: RewardKind
    alpha: float = 0.5
    switch_epoch: int = 1
    guard: bool = True
    statements: bool = True
    final_nodes: bool = True
    ncr: NcrKind | str = NcrKind.PLAIN
    after_think: bool = False
    code: CodeCredit | str = CodeCredit.WRITTEN
    unanswered: Unanswered | str = Unanswered.NCR

    def __post_init__(self) -> None:
        for name, kinds, subject in (
            ("kind", RewardKind, "the reward"), ("ncr", NcrKind, "ncr"),
            ("code", CodeCredit, "code"), ("unanswered", Unanswered, "unanswered"),
        ):  # fmt: skip
            given = getattr(self, name)
            try:
                object.__setattr__(self, name, kinds(given))
            except ValueError:
                known = ", ".join(kinds)
                raise InputError(f"{subject} must be one of {known}, got {given!r}") from None
        _check_alpha(self.alpha)
        _check_epoch("switch_epoch", self.switch_epoch)
        for name in ("guard", "statements", "final_nodes", "after_think"):
            given = getattr(self, name)
            if not isinstance(given, (bool, np.bool_)):
                raise InputError(f"{name} must be True or False, got {given!r}")
            object.__setattr__(self, name, bool(given))

    @classmethod
    def of(cls, reward: RewardSpec | RewardName) -> RewardSpec:
        """Return a reward as it is, or that of a name with its default settings.

        Raises:
            InputError: there is no reward of that name.
        """
        if isinstance(reward, RewardSpec):
            return reward
        kinds = {kind.value: kind for kind in RewardKind}
        if not isinstance(reward, str) or reward not in kinds:
            names = ", ".join(map(repr, kinds))
            raise InputError(f"reward must be {names} or a RewardSpec, got {reward!r:.80}")
        return cls(kinds[reward])

    def __repr__(self) -> str:
        """Return the call that makes it: ``RewardSpec.linear(alpha=0.5)``."""
        own = {RewardKind.LINEAR: "alpha", RewardKind.CURRICULUM: "switch_epoch"}.get(self.kind)
        given = []
        for each in fields(self)[1:]:
            value = getattr(self, each.name)
            if each.name == own or value != each.default:
                shown = value.value if isinstance(value, StrEnum) else value
                given.append(f"{each.name}={shown!r}")
        name = "maximum" if self.kind is RewardKind.MAX else self.kind.value
        return f"RewardSpec.{name}({', '.join(given)})"

    @classmethod
    def linear(cls, alpha: float = 0.5, **counted: Unpack[NcrOptions]) -> RewardSpec:
        """Weigh the outcome with ``alpha`` and the process with ``1 - alpha``."""
        return cls(RewardKind.LINEAR, alpha=alpha, **counted)

    @classmethod
    def maximum(cls, **counted: Unpack[NcrOptions]) -> RewardSpec:
        """Take the larger of Acc and NCR."""
        return cls(RewardKind.MAX, **counted)

    @classmethod
    def curriculum(cls, switch_epoch: int = 1, **counted: Unpack[NcrOptions]) -> RewardSpec:
        """Reward the process before ``switch_epoch``, the outcome from it on."""
        return cls(RewardKind.CURRICULUM, switch_epoch=switch_epoch, **counted)

    @classmethod
    def outcome(cls, **counted: Unpack[NcrOptions]) -> RewardSpec:
        """Reward the final answer alone."""
        return cls(RewardKind.OUTCOME, **counted)

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

    def formula(self, epoch: int | None = 0) -> str:
        """Return how the reward is computed, for people; epoch None: in all epochs."""
        match self.kind:
            case RewardKind.LINEAR:
                return f"{self.alpha:g} · Acc + {1 - self.alpha:g} · NCR"
            case RewardKind.MAX:
                return "max(Acc, NCR)"
            case RewardKind.CURRICULUM:
                if epoch is None:
                    return f"NCR, from epoch {self.switch_epoch} Acc (curriculum)"
                stage = "NCR" if epoch < self.switch_epoch else "Acc"
                return f"{stage} (curriculum, epoch {epoch}, switch at {self.switch_epoch})"
            case RewardKind.OUTCOME:
                return "Acc"

    def terms(self, acc: float, ncr: float, epoch: int = 0) -> dict[str, float]:
        """Return what Acc and NCR each add to the reward; their sum is the reward."""
        if self.kind is RewardKind.MAX:
            return {"acc": acc, "ncr": 0.0} if acc >= ncr else {"acc": 0.0, "ncr": ncr}
        weight = self.ncr_weight(epoch)
        share = self.alpha if self.kind is RewardKind.LINEAR else 1 - weight
        return {"acc": share * acc, "ncr": weight * ncr}

    def zeroes_unanswered(self, epoch: int = 0) -> bool:
        """Return whether NCR is 0 without a marked final answer."""
        first_stage = self.kind is RewardKind.CURRICULUM and epoch < self.switch_epoch
        return self.unanswered == Unanswered.ZERO and not first_stage

    def ncr_weight(self, epoch: int = 0) -> float:
        """Return what an NCR of 1 adds to the reward where Acc adds nothing."""
        return float(self.compute(0.0, 1.0, epoch))


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
