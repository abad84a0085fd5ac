"""The answer check of a batch.

All answers go to the verifier in one call: it decides nearly all of them in microseconds
and overlaps the rest in its workers, where portions would wait for each other's budgets.
The verifier looks at the deadline itself.
"""

from __future__ import annotations

from consensuspr.errors import DeadlineExceeded
from consensuspr.scoring.answers import AnswerVerifier, Verdict
from consensuspr.scoring.batch import Batch
from consensuspr.scoring.types import AnswerRule, Status

_NOT_CHECKED = frozenset((Status.OVERSIZE, Status.UNKNOWN_PROBLEM, Status.INTERNAL))


def verify_answers(batch: Batch, verifier: AnswerVerifier, rule: AnswerRule) -> None:
    """Check the answer of every rollout whose ground truth is known; sets the verdicts.

    Raises:
        DeadlineExceeded: the batch's deadline passed.
    """
    batch.check_deadline("the answer check")
    checked = [
        at
        for at, status in enumerate(batch.status)
        if status not in _NOT_CHECKED and batch.truths[at] is not None
    ]
    for at, verdict in zip(checked, _verdicts(batch, checked, verifier, rule), strict=True):
        batch.verdicts[at] = verdict
    batch.check_deadline("the answer check")


def _verdicts(
    batch: Batch, checked: list[int], verifier: AnswerVerifier, rule: AnswerRule
) -> list[Verdict | None]:
    if not checked:
        return []
    truths = [batch.truths[at] or "" for at in checked]
    responses = [batch.rollouts[at].response for at in checked]
    try:
        verdicts = verifier.verify_batch(truths, responses, rule=rule, deadline=batch.deadline)
    except DeadlineExceeded:
        raise
    except Exception:
        # One of them is to blame: find it, and spare the others.
        return [_one(batch, at, verifier, rule) for at in checked]
    if any(verdict.method == "deadline" for verdict in verdicts):
        raise DeadlineExceeded("the deadline passed before all answers were checked")
    return list(verdicts)


def _one(batch: Batch, at: int, verifier: AnswerVerifier, rule: AnswerRule) -> Verdict | None:
    batch.check_deadline("the answer check")
    try:
        return verifier.verify(batch.truths[at] or "", batch.rollouts[at].response, rule)
    except Exception:
        batch.defect(at, "the answer check")
        return None
