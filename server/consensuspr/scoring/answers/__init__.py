"""Whether a response's final answer is right: rules ``auto``, ``dapo``, ``boxed``, ``gsm8k``.

Two strings in, a verdict out; nothing here knows problems, nodes or RPC.  Nearly all
answers are decided in microseconds (:mod:`.compare`); the rest goes to math-verify in worker
processes that are killed when their budget is spent (:mod:`.pool`).  ``docs/answers.md``
tells the rules, the limits and what was measured.
"""

from __future__ import annotations

from consensuspr.scoring.answers.sandbox import ANSWER_VERSION, AnswerStatus, Verdict
from consensuspr.scoring.answers.verifier import AnswerVerifier, verify_answer

__all__ = ["ANSWER_VERSION", "AnswerStatus", "AnswerVerifier", "Verdict", "verify_answer"]
