"""What a problem that fails does to a build.

One that takes too long is left out: a hostile text must not hang a build, nor end it.  One that
fails otherwise (a model without a usable reply, a defect) ends it, because the same may hold for
others; but only after all the others have been tried, so that what they cost is not lost, and
the next run finds them in the journal.
"""

from __future__ import annotations

from consensusbench.construction.values import Group, Result
from consensuspr.data import OnError
from consensuspr.errors import ConsensusPRError

# So many failures are no longer about single problems.
MAX_FAILURES = 20


class FailurePolicy:
    """Counts failures, and ends a build over them.

    Args:
        on_error: ``skip`` leaves problems that fail out of the dataset.
    """

    def __init__(self, on_error: OnError) -> None:
        self._skip = on_error == "skip"
        self._failed = 0
        self._first = ""

    def look_at(self, group: Group, result: Result) -> None:
        """Count a result.

        Raises:
            ConsensusPRError: too many have failed.
        """
        failure = result.failure
        if self._skip or failure is None or failure.reason == "time_limit":
            return
        self._failed += 1
        self._first = self._first or f"problem {group.problem.problem_id[:80]!r}: {failure.detail}"
        if self._failed >= MAX_FAILURES:
            self.conclude()

    def conclude(self) -> None:
        """Raise ConsensusPRError where a problem failed that is not to be left out."""
        if not self._failed:
            return
        one = self._failed == 1
        raise ConsensusPRError(
            f"{self._first} ({self._failed:,} {'problem' if one else 'problems'} failed; the "
            "extracted ones are kept and the same command goes on with them, --on-error skip "
            f"leaves {'it' if one else 'them'} out)"
        )
