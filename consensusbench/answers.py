"""Checks of the answers of rollouts offline."""

from __future__ import annotations

from collections.abc import Sequence

from consensuspr.scoring import AnswerVerifier

# Methods of verdicts that a busy machine left undecided, not the answer.
_OF_THE_MACHINE = ("load", "killed")


def verify_patiently(
    verifier: AnswerVerifier, ground_truths: Sequence[str], responses: Sequence[str], rule: str
) -> list[bool | None]:
    """Return which responses are correct; None is undecided.

    An answer that the load of the machine left undecided is checked once more.
    """
    verdicts = verifier.verify_batch(ground_truths, responses, rule)
    again = [at for at, found in enumerate(verdicts) if found.method in _OF_THE_MACHINE]
    if again:
        truths, texts = [ground_truths[at] for at in again], [responses[at] for at in again]
        for at, found in zip(again, verifier.verify_batch(truths, texts, rule), strict=True):
            verdicts[at] = found
    return [found.correct for found in verdicts]
