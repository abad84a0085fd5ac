"""Answers before times: a contender that is wrong is not measured."""

from __future__ import annotations

from collections.abc import Sequence


class WrongAnswerError(Exception):
    """A contender's answer is not the known one; the text names both."""


def require(
    contender: str, found: Sequence[Sequence[bool]], expected: Sequence[Sequence[bool]]
) -> None:
    """Demand that ``contender`` found just the nodes that each text is known to reach.

    ``found`` and ``expected`` hold one row a text with one flag a node.  Raises
    WrongAnswerError, which names the first text that differs.
    """
    if len(found) != len(expected):
        raise WrongAnswerError(
            f"{contender} answered for {len(found)} texts, and there are {len(expected)}"
        )
    for index, (row, known) in enumerate(zip(found, expected, strict=True)):
        if list(row) != list(known):
            raise WrongAnswerError(
                f"{contender} found nodes {_indexes(row)} in text {index}, which reaches "
                f"{_indexes(known)} of {len(known)}"
            )


def _indexes(row: Sequence[bool]) -> list[int]:
    return [index for index, flag in enumerate(row) if flag]
