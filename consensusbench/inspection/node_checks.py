"""What can be said of one node by looking at it alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from consensusbench.extraction.truth import Truth, truth_of
from consensusbench.inspection.findings import Code
from consensuspr.core import normalize
from consensuspr.data import Node

# Text of a finding that is about this node.
Remark = tuple[Code, str]

# What a matcher takes off the ends of an expression; nothing left means no pattern.
_SET_ASIDE: Final = " .,;:?"
_BARE: Final = re.compile(r"[=≈]?-?(\d+(?:\.\d+)?(?:/\d+)?)")

# Below this many digits a value alone is met by chance: of 5,276 solutions of GSM8K a bare
# number hits every twentieth of another problem.
DISTINCTIVE_DIGITS: Final = 3
LOW_SUPPORT: Final = 2


def pattern_of(expression: str) -> str:
    """Return what a matcher looks for, empty where it looks for nothing."""
    return normalize(expression).strip(_SET_ASIDE)


def check_node(node: Node, derived: Sequence[str]) -> Iterator[Remark]:
    """Yield what is wrong with a node.

    Args:
        node: as the dataset has it.
        derived: the forms that it is matched by besides its expressions.
    """
    patterns = {text: pattern_of(text) for text in (*node.expressions, *derived)}
    yield from _check_patterns(node, patterns)
    yield from _check_arithmetic(node.expressions)
    if node.support is not None and node.support < LOW_SUPPORT:
        yield (
            Code.LOW_SUPPORT,
            f"has support {node.support}: a consensus takes at least {LOW_SUPPORT} rollouts",
        )


def _check_patterns(node: Node, patterns: dict[str, str]) -> Iterator[Remark]:
    empty = [text for text in node.expressions if not patterns[text]]
    if not any(patterns.values()):
        yield (
            Code.UNMATCHABLE_NODE,
            f"can never be matched, {_quoted(node.expressions[0])} is empty in normal form; "
            "write it with numbers, letters or a formula, or drop the node",
        )
        return
    if empty:
        yield (
            Code.EMPTY_EXPRESSION,
            f"the expression {_quoted(empty[0])} is empty in normal form and never matches; drop "
            "it",
        )
    single = [text for text, pattern in patterns.items() if len(pattern) == 1]
    if single:
        yield (
            Code.SINGLE_CHARACTER,
            f"{_quoted(single[0])} is one character in normal form and stands in nearly every "
            "response; use the equation that it is the result of",
        )
    bare = [text for text, pattern in patterns.items() if len(pattern) > 1 and _is_small(pattern)]
    if bare:
        yield (
            Code.BARE_VALUE,
            f"{_quoted(bare[0])} is a value of fewer than {DISTINCTIVE_DIGITS} digits alone, which "
            "is met by chance; use the equation that it is the result of",
        )


def _is_small(pattern: str) -> bool:
    found = _BARE.fullmatch(pattern)
    if found is None:
        return False
    digits = found[1].replace(".", "").replace("/", "").lstrip("0")
    return len(digits) < DISTINCTIVE_DIGITS


def _check_arithmetic(expressions: Sequence[str]) -> Iterator[Remark]:
    truths = {text: truth_of(text) for text in expressions}
    for text, truth in truths.items():
        if truth is Truth.FALSE:
            yield (
                Code.FALSE_EQUALITY,
                f"{_quoted(text)} is false, and a response is rewarded for it; correct or drop it",
            )
            break
    rounded = [text for text, truth in truths.items() if truth is Truth.ROUNDED]
    if rounded and Truth.TRUE not in truths.values():
        yield (
            Code.ROUNDED_EQUALITY,
            f"{_quoted(rounded[0])} is rounded; a response that keeps other digits is not matched: "
            "add the exact value",
        )


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:59] + "…")
