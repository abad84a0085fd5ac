"""Whether a response's final answer is right: rules ``auto``, ``dapo``, ``boxed``, ``gsm8k``.

Two strings in, a verdict out; nothing here knows problems, nodes or RPC.  Nearly all
answers are decided in microseconds (:mod:`.compare`); the rest goes to math-verify in
processes that are killed when their budget is spent (:mod:`.pool`).  The rules are in
``docs/concepts/answers.md``.  Names resolve on first use: an answer process must not load
the verifier, the core and numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consensuspr.lazy import lazy_names

if TYPE_CHECKING:
    from consensuspr.scoring.answers.verifier import (
        ANSWER_VERSION,
        AnswerStatus,
        AnswerVerifier,
        Verdict,
        has_marked_answer,
        verify_answer,
    )

__all__ = [
    "ANSWER_VERSION",
    "AnswerStatus",
    "AnswerVerifier",
    "Verdict",
    "has_marked_answer",
    "verify_answer",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".verifier": "ANSWER_VERSION AnswerStatus AnswerVerifier Verdict has_marked_answer"
        " verify_answer"
    },
)
