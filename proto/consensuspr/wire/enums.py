"""Enumerations of the protocol and of the scoring room, paired by name.

A protobuf enum is open: a newer peer may send a number that this release does not know.
``decode_*`` turns such a number into an :class:`InputError`; it never falls back to a
default, because a default would score by a rule that nobody asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol, TypeVar

from consensuspr.errors import InputError
from consensuspr.scoring.rewards import RewardKind
from consensuspr.scoring.types import AnswerRule, OnUndecided, Status
from consensuspr.v1 import scoring_pb2 as pb

E = TypeVar("E", bound=StrEnum)
N = TypeVar("N", bound=int, covariant=True)


class _Wrapper(Protocol[N]):
    """What is used of a generated enum: the number of a name."""

    def Value(self, name: str) -> N: ...


def _pair(members: type[E], wrapper: _Wrapper[N], prefix: str) -> dict[E, N]:
    """Pair each member with the message enum's value of the same name."""
    return {member: wrapper.Value(f"{prefix}_{member.name}") for member in members}


STATUS_TO_WIRE = _pair(Status, pb.Status, "STATUS")
ANSWER_RULE_TO_WIRE = _pair(AnswerRule, pb.AnswerRule, "ANSWER_RULE")
ON_UNDECIDED_TO_WIRE = _pair(OnUndecided, pb.OnUndecided, "ON_UNDECIDED")
REWARD_KIND_TO_WIRE = _pair(RewardKind, pb.RewardKind, "REWARD_KIND")

_STATUSES: dict[int, Status] = {n: s for s, n in STATUS_TO_WIRE.items()}
_ANSWER_RULES: dict[int, AnswerRule] = {n: r for r, n in ANSWER_RULE_TO_WIRE.items()}
_ON_UNDECIDED: dict[int, OnUndecided] = {n: u for u, n in ON_UNDECIDED_TO_WIRE.items()}
_REWARD_KINDS: dict[int, RewardKind] = {n: k for k, n in REWARD_KIND_TO_WIRE.items()}


def decode_status(number: int) -> Status:
    """Return the status.

    Raises:
        InputError: the number is not one of this protocol version.
    """
    return _decode("status", _STATUSES, number)


def decode_answer_rule(number: int) -> AnswerRule | None:
    """Return the rule, None where it is unspecified: the dataset's own.

    Raises:
        InputError: the number is not one of this protocol version.
    """
    return None if number == 0 else _decode("answer_rule", _ANSWER_RULES, number)


def decode_on_undecided(number: int) -> OnUndecided:
    """Return what undecided answers do, COUNT_WRONG where it is unspecified.

    Raises:
        InputError: the number is not one of this protocol version.
    """
    return (
        OnUndecided.COUNT_WRONG if number == 0 else _decode("on_undecided", _ON_UNDECIDED, number)
    )


def decode_reward_kind(number: int) -> RewardKind:
    """Return the kind of reward, LINEAR where it is unspecified.

    Raises:
        InputError: the number is not one of this protocol version.
    """
    return RewardKind.LINEAR if number == 0 else _decode("reward.kind", _REWARD_KINDS, number)


def _decode(field: str, known: Mapping[int, E], number: int) -> E:
    try:
        return known[number]
    except KeyError:
        names = ", ".join(f"{n} ({member.name})" for n, member in sorted(known.items()))
        raise InputError(f"{field} must be one of {names}, got {number}") from None
