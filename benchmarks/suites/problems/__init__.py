"""Datasets from a thousand problems to a million: when they are ready, and what they take.

Loading from each format, with equal forms stored and without; mapping a prepared dataset; the
first and a later touch of a problem; a server of two workers.  Every load is in a process of its
own, and none is timed before its digest is that of all others of the same content.

Not covered: matching itself (the core), rewards, other machines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.harness.measure import Context
    from benchmarks.harness.results import SuiteResult


def run(context: Context) -> SuiteResult:
    """Measure datasets; to 100,000 problems, or with ``full`` to a million."""
    # Not above: the measured processes import this package too, and shall have little in memory.
    from benchmarks.suites.problems.measuring import FULL, QUICK, measure

    return measure(context, FULL if context.full else QUICK)
