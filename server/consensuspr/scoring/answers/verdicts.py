"""The verdict on one response."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class AnswerStatus(StrEnum):
    """Whether a verdict was reached."""

    DECIDED = "DECIDED"
    """Answer and ground truth were compared; ``correct`` is True or False."""

    NO_ANSWER = "NO_ANSWER"
    """The rule finds no answer in the response; ``correct`` is False."""

    UNDECIDED = "UNDECIDED"
    """No verdict within the limits; ``correct`` is None and ``method`` names the limit."""


class Verdict(NamedTuple):
    """The verdict on one response.

    Attributes:
        correct: True or False where decided, None where undecided.
        answer: the answer taken from the response, None where none was found.
        status: read it before ``correct``.
        method: what decided (``canonical``, ``rational``, ``numeric``, ``algebraic``,
            ``text``, ``elements``, ``symbolic``, ``dapo``, ``dapo-boxed``), ``none`` where no
            answer was found, or the limit that was met (``budget``, ``memory``, ``crash``,
            ``screened``, ``length``, ``killed``, ``load``, ``no-ground-truth``).
    """

    correct: bool | None
    answer: str | None
    status: AnswerStatus
    method: str


def decided(correct: bool, answer: str, method: str) -> Verdict:
    """Return the verdict of a finished comparison."""
    return Verdict(correct, answer, AnswerStatus.DECIDED, method)


def undecided(answer: str | None, limit: str) -> Verdict:
    """Return the verdict where ``limit`` stopped the comparison."""
    return Verdict(None, answer, AnswerStatus.UNDECIDED, limit)


NO_ANSWER = Verdict(False, None, AnswerStatus.NO_ANSWER, "none")
