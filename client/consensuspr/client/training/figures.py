"""What the samples of a step come to: the figures that a trainer's own log shows of a reward.

Means are over the samples where a value is known: a sample without nodes has no NCR.  Where a
trainer keeps what the reward said of each sample, :func:`figures` makes them of that, and knows
more; where an adapter has the samples themselves, :func:`means` does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from consensuspr.client.training.source import ScoredSample, UnscorableSample

Outcome: TypeAlias = ScoredSample | UnscorableSample

# Before each name in a trainer's log.
METRICS = "consensuspr"

_MEANS = ("acc", "ncr", "ncr_raw", "guard", "tpn")
_CHANNELS = ("by_pattern", "by_statement", "by_code")


def figures(samples: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the figures of some samples, by the names that they have in a log.

    ``acc``, ``ncr``, ``ncr_raw``, ``guard``, ``tpn``: means. ``guarded``: share of the samples with
    nodes whose NCR the guard lowered.  ``with_nodes``: share of samples with nodes.
    ``by_pattern``, ``by_statement``, ``by_code``: share of the reached nodes that were reached so.
    ``status/NAME``: share of the samples with a status other than OK.  What has no sample is not
    there, rather than 0.

    Args:
        samples: as :meth:`ScoredSample.fields` describes them.
    """
    samples = list(samples)
    if not samples:
        return {}
    found = _known_means(lambda name: [one[name] for one in samples])
    factors = [one["guard"] for one in samples if one["num_nodes"] and one["guard"] is not None]
    if factors:
        found["guarded"] = sum(factor < 1.0 for factor in factors) / len(factors)
    found["with_nodes"] = sum(one["num_nodes"] > 0 for one in samples) / len(samples)
    reached = {name: sum(one[name] for one in samples) for name in _CHANNELS}
    total = sum(reached.values())
    if total:
        found |= {name: count / total for name, count in reached.items()}
    statuses = Counter(one["status"] for one in samples)
    found |= {f"status/{s}": n / len(samples) for s, n in statuses.items() if s != "OK"}
    return _named(found)


def means(outcomes: Iterable[Outcome]) -> dict[str, float]:
    """Return the figures of a batch for a trainer's log, by their names there.

    Each is the mean over the samples that have the value; ``unscorable`` is the share of those
    without a reward of the formula.
    """
    outcomes = list(outcomes)
    found = _known_means(lambda name: [figure(one, name) for one in outcomes])
    if outcomes:
        missing = sum(
            isinstance(one, UnscorableSample) or one.score.reward is None for one in outcomes
        )
        found["unscorable"] = missing / len(outcomes)
    return _named(found)


def figure(outcome: Outcome, name: str) -> Any:
    """Return a value of a score by its name, None where there is none; the status as a text."""
    if isinstance(outcome, UnscorableSample):
        return str(outcome.status) if name == "status" else None
    value = getattr(outcome.score, name)
    return str(value) if name == "status" else value


def _known_means(values_of: Callable[[str], Iterable[float | None]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in _MEANS:
        values = [value for value in values_of(name) if value is not None]
        if values:
            found[name] = math.fsum(values) / len(values)
    return found


def _named(found: Mapping[str, float]) -> dict[str, float]:
    return {f"{METRICS}/{name}": value for name, value in found.items()}
