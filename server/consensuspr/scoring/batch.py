"""The working state of one call: what is known of each rollout so far.

Columns rather than an object for each rollout: the scan, the answer check and the rewards
take and give columns, and a batch holds thousands of rollouts.
"""

from __future__ import annotations

import logging
import operator
import time
from collections.abc import Sequence
from typing import NoReturn

from consensuspr.errors import DeadlineExceeded, InputError
from consensuspr.scoring.answers import Verdict
from consensuspr.scoring.limits import Limits
from consensuspr.scoring.types import Rollout, Status

_log = logging.getLogger(__name__)

# A defect that hits every rollout of a batch of thousands says the same thousands of times.
MAX_TRACEBACKS = 5


class Batch:
    """Rollouts and, position by position, what became of them.

    Attributes:
        rollouts: the batch.
        limits: bounds on one rollout.
        deadline: :func:`time.monotonic` value, None where there is none.
        status: OK until something is found.
        messages: one sentence where the status is not OK.
        tokens: checked token counts, None where not given.
        truths: the ground truth that applies, None where unknown or not to be checked.
        num_nodes, num_matched, matched, spans: of the nodes, where they were matched.
        verdicts: of the answers that were checked.
    """

    def __init__(self, rollouts: Sequence[Rollout], limits: Limits, deadline: float | None) -> None:
        """Check the types of all fields and start with nothing known.

        Raises:
            InputError: a field of a rollout has a wrong type.
        """
        count = len(rollouts)
        self.rollouts = rollouts
        self.limits = limits
        self.deadline = deadline
        self.tokens = [_checked_tokens(rollout, at) for at, rollout in enumerate(rollouts)]
        self.status = [Status.OK] * count
        self.messages = [""] * count
        self.truths: list[str | None] = [None] * count
        self.num_nodes = [0] * count
        self.num_matched = [0] * count
        self.matched: list[tuple[bool, ...]] = [()] * count
        self.spans: list[tuple[tuple[int, int] | None, ...] | None] = [None] * count
        self.verdicts: list[Verdict | None] = [None] * count
        self._defects = 0

    def __len__(self) -> int:
        """Return the number of rollouts."""
        return len(self.rollouts)

    def fail(self, at: int, status: Status, message: str) -> None:
        """Set the status of one rollout."""
        self.status[at] = status
        self.messages[at] = message

    def defect(self, at: int, what: str) -> None:
        """Set INTERNAL for one rollout; to be called while the exception is handled."""
        self._defects += 1
        if self._defects <= MAX_TRACEBACKS:
            rollout = self.rollouts[at]
            _log.exception(
                "%s failed for rollout %r of problem %r",
                what, rollout.rollout_id, rollout.problem_id,
            )  # fmt: skip
        self.fail(at, Status.INTERNAL, f"{what} failed by a defect; the log has the details")

    def check_deadline(self, work: str) -> None:
        """Raise DeadlineExceeded if the deadline has passed; ``work`` says before what."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise DeadlineExceeded(
                f"the deadline passed before {work} of {len(self)} rollouts was done"
            )


def _checked_tokens(rollout: Rollout, at: int) -> int | None:
    """Return the token count of a rollout whose fields all have sound types."""
    if not isinstance(rollout.response, (str, bytes)):
        _wrong(at, "response", "str or bytes", rollout.response)
    if not isinstance(rollout.problem_id, str):
        _wrong(at, "problem_id", "str", rollout.problem_id)
    if rollout.ground_truth is not None and not isinstance(rollout.ground_truth, str):
        _wrong(at, "ground_truth", "str or None", rollout.ground_truth)
    if rollout.nodes is not None and not hasattr(rollout.nodes, "__len__"):
        _wrong(at, "nodes", "a sequence or None", rollout.nodes)
    if rollout.num_tokens is None:
        return None
    try:
        tokens = operator.index(rollout.num_tokens)
    except TypeError:
        _wrong(at, "num_tokens", "int or None", rollout.num_tokens)
    return tokens if tokens > 0 else None


def _wrong(at: int, field: str, wanted: str, got: object) -> NoReturn:
    raise InputError(f"rollouts[{at}].{field} must be {wanted}, got {type(got).__name__}")
