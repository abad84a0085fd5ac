"""What a caller asks of a batch besides the rollouts themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from operator import index
from typing import Self, SupportsIndex, TypeVar

from consensuspr.errors import InputError
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import AnswerRule, OnUndecided

E = TypeVar("E", bound=StrEnum)

MAX_UINT32 = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class ScoreOptions:
    """How a batch is to be scored; hashable, so that equal calls can share a request.

    Attributes:
        reward: how acc and ncr are combined.
        epoch: training epoch counted from 0, the phase of the curriculum.
        dataset: name of the dataset; None where the server has exactly one.
        answer_rule: how answers are found and compared; None for the dataset's own rule.
        on_undecided: what an undecided answer does to the reward.
        include_spans: whether to say where each node was first hit.
    """

    reward: RewardSpec = field(default_factory=RewardSpec.linear)
    epoch: int = 0
    dataset: str | None = None
    answer_rule: AnswerRule | None = None
    on_undecided: OnUndecided = OnUndecided.COUNT_WRONG
    include_spans: bool = False

    @classmethod
    def checked(
        cls,
        reward: RewardSpec,
        epoch: int = 0,
        dataset: str | None = None,
        answer_rule: AnswerRule | str | None = None,
        on_undecided: OnUndecided | str = OnUndecided.COUNT_WRONG,
        include_spans: bool = False,
    ) -> Self:
        """Return the options that a caller gave, names turned into members.

        Raises:
            InputError: a value has a wrong type, names no member, or does not fit the
                protocol's uint32.
        """
        if not isinstance(reward, RewardSpec):
            raise InputError(f"reward must be a RewardSpec, got {type(reward).__name__}")
        for name, value in (("epoch", epoch), ("switch_epoch", reward.switch_epoch)):
            # The type first: to ask for a protocol takes longer than all the rest, and a trainer
            # asks for every sample.
            whole = type(value) is int or isinstance(value, SupportsIndex)
            if not whole or not 0 <= index(value) <= MAX_UINT32:
                raise InputError(f"{name} must be a number in [0, {MAX_UINT32}], got {value!r}")
        return cls(
            reward=reward,
            epoch=index(epoch),
            dataset=dataset or None,
            answer_rule=None if answer_rule is None else _member(AnswerRule, answer_rule),
            on_undecided=_member(OnUndecided, on_undecided),
            include_spans=include_spans,
        )


def _member(members: type[E], value: str) -> E:
    try:
        return members(value)
    except ValueError:
        names = ", ".join(members)
        raise InputError(f"{members.__name__} must be one of {names}, got {value!r}") from None
