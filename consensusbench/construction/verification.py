"""Which rollouts are correct: decided by the answer verifier, or by their labels.

An answer that is not decided is not correct.  One that a busy machine left open is asked
again: nobody waits for a build as a trainer waits for a reward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from consensuspr.scoring.answers import AnswerVerifier, Verdict

MAX_REPEATS = 5
_BUSY = ("load", "deadline")


class Judge(Protocol):
    """Says of rollouts whether they are correct."""

    def judge(self, truths: Sequence[str], texts: Sequence[str], rule: str) -> list[bool | None]:
        """Return for each True, False, or None where it was not decided."""
        ...


class VerifyingJudge:
    """Verifies final answers.

    Args:
        verifier: of answers.
    """

    def __init__(self, verifier: AnswerVerifier) -> None:
        self._verifier = verifier

    def judge(self, truths: Sequence[str], texts: Sequence[str], rule: str) -> list[bool | None]:
        verdicts = self._verifier.verify_batch(truths, texts, rule)
        for _ in range(MAX_REPEATS):
            busy = [at for at, verdict in enumerate(verdicts) if _left_open(verdict)]
            if not busy:
                break
            again = self._verifier.verify_batch(
                [truths[at] for at in busy], [texts[at] for at in busy], rule
            )
            for at, verdict in zip(busy, again, strict=True):
                verdicts[at] = verdict
        return [verdict.correct for verdict in verdicts]


def _left_open(verdict: Verdict) -> bool:
    return verdict.correct is None and verdict.method in _BUSY
