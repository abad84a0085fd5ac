"""All rollouts of a set put into their classes and counted by model and data source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from consensusbench.diagnosis.classes import (
    DEFAULT_THRESHOLDS,
    Diagnosis,
    Thresholds,
    Verdict,
    classify,
)
from consensusbench.diagnosis.readings import Reading, scored_reading
from consensusbench.diagnosis.references import References
from consensusbench.evaluation.scored import ScoredRollout, ScoredSet


@dataclass(slots=True)
class DiagnosisReport:
    """What the rollouts of a set are.

    Attributes:
        verdicts: one for each rollout, in order.
        groups: counts by (model, data source), in the order of first appearance.
        total: counts of all.
        thresholds: that decided.
    """

    verdicts: list[Verdict]
    thresholds: Thresholds
    groups: dict[tuple[str, str], Counter[Diagnosis]] = field(default_factory=dict)
    total: Counter[Diagnosis] = field(default_factory=Counter)

    def examples(self, diagnosis: Diagnosis, count: int) -> list[int]:
        """Return places of at most ``count`` rollouts of a class, spread over all of them."""
        places = [at for at, one in enumerate(self.verdicts) if one.diagnosis is diagnosis]
        if len(places) <= count:
            return places
        return [places[at * len(places) // count] for at in range(count)]

    def to_json(self) -> dict[str, Any]:
        """Return counts and shares as plain values; shares are of the scored rollouts."""
        return {
            "rollouts": len(self.verdicts),
            "thresholds": asdict(self.thresholds),
            "total": counts_to_json(self.total),
            "groups": [
                {"model": model, "data_source": source, **counts_to_json(counts)}
                for (model, source), counts in self.groups.items()
            ],
        }


def scored_count(counts: Counter[Diagnosis]) -> int:
    """Return how many rollouts of a group have a class other than unscored."""
    return counts.total() - counts[Diagnosis.UNSCORED]


def share(counts: Counter[Diagnosis], diagnosis: Diagnosis) -> float | None:
    """Return the share of a class among the scored rollouts of a group.

    Of ``UNSCORED`` it is the share among all; None where there is nothing to be a share of.
    """
    of = counts.total() if diagnosis is Diagnosis.UNSCORED else scored_count(counts)
    return counts[diagnosis] / of if of else None


def counts_to_json(counts: Counter[Diagnosis]) -> dict[str, Any]:
    """Return counts and shares of a group by class."""
    return {
        "counts": {one.value: counts[one] for one in Diagnosis},
        "shares": {one.value: share(counts, one) for one in Diagnosis},
    }


def diagnose(
    scored: ScoredSet,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
    readings: Sequence[Reading] | None = None,
) -> DiagnosisReport:
    """Put every rollout of a set into its class.

    Args:
        scored: with spans; without them no tail is known.
        thresholds: where the classes begin.
        readings: of :func:`~consensusbench.diagnosis.readings.read_answers`; None for what the
            scores say, which knows no format errors.
    """
    if readings is None:
        readings = [scored_reading(rollout) for rollout in scored.rollouts]
    references = References(
        rollout
        for rollout, reading in zip(scored.rollouts, readings, strict=True)
        if reading.asked or reading.lenient
    )
    report = DiagnosisReport([], thresholds)
    for rollout, reading in zip(scored.rollouts, readings, strict=True):
        verdict = classify(
            rollout,
            scored.facts(rollout),
            right=reading.asked,
            right_leniently=reading.lenient,
            reference=references.of(rollout),
            thresholds=thresholds,
        )
        report.verdicts.append(verdict)
        _count(report, rollout, verdict.diagnosis)
    return report


def _count(report: DiagnosisReport, rollout: ScoredRollout, diagnosis: Diagnosis) -> None:
    group = (rollout.model, rollout.data_source)
    report.groups.setdefault(group, Counter())[diagnosis] += 1
    report.total[diagnosis] += 1
