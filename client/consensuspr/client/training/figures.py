"""The figures of a step's samples for a trainer's own log.

Means are over the samples that have the value: a sample without nodes has no NCR.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

# Before each name in a trainer's log.
METRICS = "consensuspr"

MEANS = ("acc", "ncr", "ncr_raw", "tpn", "unanswered")
# Data sources with figures of their own.  The first ones keep their names for the whole run, since
# a tracker keeps every name; the samples of further ones count as OTHER_SOURCES.
MAX_SOURCES = 32
OTHER_SOURCES = "other"
_named_sources: set[str] = set()
# Steps of each of the two means that StepWatch compares, and the rise of NCR that it warns of.
WATCHED_STEPS = 20
_RISE = 0.1

_CHANNELS = ("by_pattern", "by_statement", "by_code", "by_equation")

Sample: TypeAlias = Mapping[str, Any]


def figures(
    samples: Sequence[Sample],
    sources: Sequence[str | None],
    groups: Sequence[object] | None = None,
) -> dict[str, float]:
    """Return the figures of some samples, by the names that they have in a log.

    ``acc``, ``ncr``, ``ncr_raw``, ``tpn``: means.  ``ncr_of_right``, ``ncr_of_wrong``: mean NCR of
    the samples whose answer is right or wrong.  ``equal_groups``: share of the groups of two
    samples or more whose rewards are all equal, penalties included; GRPO learns nothing from them.
    ``source/NAME/FIGURE``: those but ``ncr_raw`` and ``tpn`` for each data source, of the process's
    first 32; the samples of further ones are together in ``source/other``.
    ``unanswered``: share of the samples without a marked final answer.  ``guarded``: share of the
    samples with nodes whose NCR the guard lowered.  ``with_nodes``: share of samples with nodes.
    ``by_pattern``, ``by_statement``, ``by_code``, ``by_equation``: share of the reached nodes that
    were reached so.  ``status/NAME``: share of the samples with a status other than OK.  A figure
    without samples is absent, not 0.

    Args:
        samples: as :meth:`ScoredSample.fields` describes them; one without a score has its
            ``status`` alone.
        sources: data source of each sample, None without one.
        groups: of each sample, if the trainer compares the rewards of a group and does not log
            how many are equal.
    """
    if not samples:
        return {}
    found = _outcomes(samples, groups)
    for name in MEANS:
        found |= _mean(name, [sample.get(name) for sample in samples])
    with_nodes = [sample for sample in samples if sample.get("num_nodes")]
    found["with_nodes"] = len(with_nodes) / len(samples)
    guards = [sample["guard"] for sample in with_nodes]
    found |= _mean("guarded", [None if guard is None else guard < 1.0 for guard in guards])
    reached = {name: sum(sample[name] for sample in with_nodes) for name in _CHANNELS}
    total = sum(reached.values())
    if total:
        found |= {name: count / total for name, count in reached.items()}
    statuses = Counter(sample["status"] for sample in samples)
    found |= {f"status/{s}": n / len(samples) for s, n in statuses.items() if s != "OK"}
    for frequent, _ in Counter(filter(None, sources)).most_common(MAX_SOURCES):
        if len(_named_sources) < MAX_SOURCES:
            _named_sources.add(frequent)
    members: defaultdict[str, list[int]] = defaultdict(list)
    for at, source in enumerate(sources):
        if source:
            members[source if source in _named_sources else OTHER_SOURCES].append(at)
    for name, own in sorted(members.items()):
        part = _outcomes([samples[at] for at in own], groups and [groups[at] for at in own])
        found |= {f"source/{name}/{figure}": value for figure, value in part.items()}
    return {f"{METRICS}/{name}": value for name, value in found.items()}


def _outcomes(samples: Sequence[Sample], groups: Sequence[object] | None) -> dict[str, float]:
    """Return the figures that are also made for each data source."""
    pairs = [(sample.get("acc"), sample.get("ncr")) for sample in samples]
    found = _mean("acc", [acc for acc, _ in pairs])
    found |= _mean("ncr", [ncr for _, ncr in pairs])
    found |= _mean("ncr_of_right", [ncr for acc, ncr in pairs if acc == 1.0])
    found |= _mean("ncr_of_wrong", [ncr for acc, ncr in pairs if acc == 0.0])
    rewards: defaultdict[object, list[float]] = defaultdict(list)
    for group, sample in zip(groups or (), samples, strict=bool(groups)):
        if "score" in sample:
            rewards[group].append(sample["score"] + sample["overlong_penalty"])
    compared = [values for values in rewards.values() if len(values) > 1]
    return found | _mean("equal_groups", [min(values) == max(values) for values in compared])


def _mean(name: str, values: Sequence[float | None]) -> dict[str, float]:
    """Return the mean of the known values by its name, nothing if there are none."""
    known = [value for value in values if value is not None]
    return {name: math.fsum(known) / len(known)} if known else {}


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
