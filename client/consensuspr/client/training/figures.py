"""The figures of a step's samples for a trainer's own log.

Means are over the samples that have the value: a sample without nodes has no NCR.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any

# Before each name in a trainer's log.
METRICS = "consensuspr"

MEANS = ("acc", "ncr", "ncr_raw", "guard", "tpn", "unanswered")
# Steps of each of the two means that StepWatch compares, and the rise of NCR that it warns of.
WATCHED_STEPS = 20
_RISE = 0.1

_CHANNELS = ("by_pattern", "by_statement", "by_code", "by_equation")


def figures(samples: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the figures of some samples, by the names that they have in a log.

    ``acc``, ``ncr``, ``ncr_raw``, ``guard``, ``tpn``: means. ``unanswered``: share of the samples
    without a marked final answer. ``guarded``: share of the samples with nodes whose NCR the guard
    lowered.  ``with_nodes``: share of samples with nodes.
    ``by_pattern``, ``by_statement``, ``by_code``, ``by_equation``: share of the reached nodes that
    were reached so.
    ``status/NAME``: share of the samples with a status other than OK.  A figure without samples is
    absent, not 0.

    Args:
        samples: as :meth:`ScoredSample.fields` describes them; one without a score has its
            ``status`` alone.
    """
    samples = list(samples)
    if not samples:
        return {}
    found: dict[str, float] = {}
    for name in MEANS:
        values = [sample[name] for sample in samples if sample.get(name) is not None]
        if values:
            found[name] = math.fsum(values) / len(values)
    with_nodes = [sample for sample in samples if sample.get("num_nodes")]
    found["with_nodes"] = len(with_nodes) / len(samples)
    factors = [sample["guard"] for sample in with_nodes if sample["guard"] is not None]
    if factors:
        found["guarded"] = sum(factor < 1.0 for factor in factors) / len(factors)
    reached = {name: sum(sample[name] for sample in with_nodes) for name in _CHANNELS}
    total = sum(reached.values())
    if total:
        found |= {name: count / total for name, count in reached.items()}
    statuses = Counter(sample["status"] for sample in samples)
    found |= {f"status/{s}": n / len(samples) for s, n in statuses.items() if s != "OK"}
    return {f"{METRICS}/{name}": value for name, value in found.items()}


class StepWatch:
    """Detects that NCR rises over the steps of a run while Acc does not."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, float]] = deque(maxlen=2 * WATCHED_STEPS)

    def add(self, step: Mapping[str, float]) -> str | None:
        """Take the figures of a step; return a warning, at most one in 40 steps.

        Args:
            step: figures by the names of :func:`figures`.  A step without NCR or Acc is skipped.
        """
        ncr, acc = (step.get(f"{METRICS}/{name}") for name in ("ncr", "acc"))
        if ncr is None or acc is None:
            return None
        self._steps.append((ncr, acc))
        if len(self._steps) < 2 * WATCHED_STEPS:
            return None
        before, now = [*self._steps][:WATCHED_STEPS], [*self._steps][WATCHED_STEPS:]
        ncr_before, acc_before, ncr_now, acc_now = (
            math.fsum(values) / WATCHED_STEPS
            for part in (before, now)
            for values in zip(*part, strict=True)
        )
        if ncr_now - ncr_before < _RISE or acc_now > acc_before:
            return None
        self._steps.clear()
        return (
            f"mean NCR rose from {ncr_before:.2f} to {ncr_now:.2f} over the last"
            f" {2 * WATCHED_STEPS} steps, and mean Acc did not ({acc_before:.2f}, then"
            f" {acc_now:.2f}; means of {WATCHED_STEPS} steps):"
            " the policy may name nodes without solving the problem. Read samples of the score log"
            " (consensuspr explain RUN --step N --worst 3)"
        )
