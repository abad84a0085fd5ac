"""How a request wants to be scored, from the query of its URL.

A trainer posts to one fixed URL, so the settings of a run stand in it:
``/openrlhf?reward=linear&alpha=0.5&dataset=math``.  Whatever is misspelt, given twice or has
no effect beside the rest is refused: a run that trains on another reward than its command
line says is found out at the worst time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from consensuspr.errors import InputError
from consensuspr.scoring.rewards import RewardKind, RewardSpec
from consensuspr.scoring.types import AnswerRule, OnUndecided
from consensuspr.wire.options import MAX_UINT32, ScoreOptions

_COMMON = (
    "reward", "alpha", "switch_epoch", "epoch", "dataset", "answer_rule", "on_undecided",
    "on_unscorable",
)  # fmt: skip
# Of which only one reward makes use.
_BELONGS_TO = {
    "alpha": RewardKind.LINEAR,
    "switch_epoch": RewardKind.CURRICULUM,
    "epoch": RewardKind.CURRICULUM,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the URL says.

    Attributes:
        options: how the batch is scored.
        on_unscorable: reward of what cannot be scored; None: the request fails.
        choices: the settings of one shape, by name.
    """

    options: ScoreOptions
    on_unscorable: float | None = None
    choices: Mapping[str, str] = field(default_factory=dict)


def read_settings(
    query: Sequence[tuple[str, str]], choices: Mapping[str, Sequence[str]]
) -> Settings:
    """Read the query of a URL.

    Args:
        query: names and values as given.
        choices: values that each further setting may have, the default first.

    Raises:
        InputError: a setting is unknown, given twice, has no effect, or a value is wrong.
    """
    known = (*_COMMON, *choices)
    given: dict[str, str] = {}
    for name, value in query:
        if name not in known:
            raise InputError(f"unknown setting {name!r} in the URL; there are {', '.join(known)}")
        if name in given:
            raise InputError(f"the setting {name!r} is in the URL twice")
        given[name] = value
    kind = _one_of("reward", given.get("reward", RewardKind.LINEAR), tuple(RewardKind))
    for name, owner in _BELONGS_TO.items():
        if name in given and kind != owner:
            raise InputError(f"{name} has no effect with reward={kind}, only with {owner}")
    if kind == RewardKind.CURRICULUM and "epoch" not in given:
        raise InputError(
            "reward=curriculum needs epoch=N in the URL: the request does not tell how far"
            " training is, and the epoch is never guessed"
        )
    on_unscorable = given.get("on_unscorable")
    rule = given.get("answer_rule")
    if rule is not None:
        _one_of("answer_rule", rule, tuple(AnswerRule))
    undecided = _one_of(
        "on_undecided", given.get("on_undecided", OnUndecided.COUNT_WRONG), tuple(OnUndecided)
    )
    reward = RewardSpec(
        RewardKind(kind),
        alpha=_number("alpha", given.get("alpha", "0.5")),
        switch_epoch=_epoch("switch_epoch", given.get("switch_epoch", "1")),
    )
    options = ScoreOptions(
        reward=reward,
        epoch=_epoch("epoch", given.get("epoch", "0")),
        dataset=given.get("dataset") or None,
        answer_rule=None if rule is None else AnswerRule(rule),
        on_undecided=OnUndecided(undecided),
    )
    return Settings(
        options,
        None if on_unscorable is None else _number("on_unscorable", on_unscorable),
        {name: _one_of(name, given.get(name, of[0]), of) for name, of in choices.items()},
    )


def _one_of(name: str, value: str, known: Sequence[str]) -> str:
    if value not in known:
        raise InputError(f"{name} must be one of {', '.join(known)}, got {value!r}")
    return value


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{name} must be a finite number, got {text!r}")
    return number


def _epoch(name: str, text: str) -> int:
    # Not int(): that takes "1_0", " 1" and other digits than these.
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= MAX_UINT32):
        raise InputError(f"{name} must be a whole number in [0, {MAX_UINT32}], got {text!r}")
    return int(text)
