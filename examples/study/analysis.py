"""The statistics of the study: fixed in `PLAN.md` before any run that counts.

Seeds pair the arms: the same warm start, order of problems and stream of random numbers.  If an
arm's name meant nothing, each pair's difference would be as likely with the other sign; the test
looks at all ways to put the signs (4,096 for twelve pairs), and assumes nothing else.  The
primary contrasts are corrected by Holm, and tested once, when all of their runs are there: a look
at p while they come in is another test.  Everything else is shown with intervals and not tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import numpy as np
from scipy import stats

from .arms import ARMS, CONTRASTS, NUM_WARM_STARTS

LEVEL = 0.95
# Accuracy on the held-out curve that counts as reached.
THRESHOLD = 0.3

Result = Mapping[str, Any]
# Of one run, a figure.
Measure = Callable[[Result], float]


def sign_flip(differences: Sequence[float]) -> float:
    """Return the two-sided p of the exact sign-flip test of a mean of 0.

    Raises:
        ValueError: there are no differences, or so many that the exact test is not for them.
    """
    count = len(differences)
    if not 1 <= count <= 20:
        raise ValueError(f"the exact test takes 1 to 20 differences, got {count}")
    signs = 1 - 2 * ((np.arange(2**count)[:, None] >> np.arange(count)) & 1)
    sums = signs @ np.asarray(differences)
    # Sums that differ by rounding alone count as equal.
    return float(np.mean(np.abs(sums) >= abs(math.fsum(differences)) - 1e-12))


def holm(values: Sequence[float]) -> list[float]:
    """Return p values corrected for being several, in their order."""
    corrected = [0.0] * len(values)
    highest = 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        highest = max(highest, min(1.0, (len(values) - rank) * values[place]))
        corrected[place] = highest
    return corrected


@dataclass(frozen=True)
class Effect:
    """A mean of paired differences.

    Attributes:
        low, high: ends of the 95 % interval by Student's t.
        standardised: the mean over the standard deviation of the differences.
    """

    pairs: int
    mean: float
    low: float
    high: float
    standardised: float

    @classmethod
    def of(cls, differences: Sequence[float]) -> Effect:
        """Return the effect; fewer than two pairs have no interval."""
        mean, count = fmean(differences), len(differences)
        spread = stdev(differences) if count > 1 else math.nan
        half = (
            float(stats.t.ppf((1 + LEVEL) / 2, count - 1)) * spread / math.sqrt(count)
            if count > 1
            else math.nan
        )
        standardised = mean / spread if spread else math.nan
        return cls(count, mean, mean - half, mean + half, standardised)


def accuracy(result: Result) -> float:
    """Return the primary outcome: accuracy on the held-out problems at the end."""
    return float(result["final"]["held-out"]["acc"])


def longer(result: Result) -> float:
    """Return the accuracy on longer chains at the end."""
    return float(result["final"]["longer"]["acc"])


def area(result: Result) -> float:
    """Return the mean height of the held-out accuracy curve."""
    steps, curve = result["curve"]["step"], result["curve"]["acc"]
    return float(np.trapezoid(curve, steps) / (steps[-1] - steps[0]))


def steps_to(result: Result, threshold: float = THRESHOLD) -> float:
    """Return where the held-out curve first reaches a height, between its points by a line.

    Infinite where it never does.
    """
    steps, curve = result["curve"]["step"], result["curve"]["acc"]
    if curve[0] >= threshold:
        return float(steps[0])
    for number in range(1, len(steps)):
        before, after = curve[number - 1], curve[number]
        if after >= threshold:
            part = (threshold - before) / (after - before)
            return float(steps[number - 1] + part * (steps[number] - steps[number - 1]))
    return math.inf


class Results:
    """The runs that counted, by arm and seed."""

    def __init__(self, results: Sequence[Result]) -> None:
        self.by_arm: dict[str, dict[int, Result]] = {}
        for result in results:
            run = result["run"]
            self.by_arm.setdefault(run["arm"], {})[run["seed"]] = result

    @property
    def arms(self) -> list[str]:
        """The arms that have runs, in the order of the plan."""
        return [name for name in ARMS if name in self.by_arm]

    def values(self, arm: str, measure: Measure) -> list[float]:
        return [measure(result) for _, result in sorted(self.by_arm[arm].items())]

    def differences(
        self, arm: str, other: str, measure: Measure, warm_start: int | None = None
    ) -> list[float]:
        """Return arm less other, for the seeds that both have; of one warm start, or of all."""
        ours, theirs = self.by_arm.get(arm, {}), self.by_arm.get(other, {})
        return [
            measure(ours[seed]) - measure(theirs[seed])
            for seed in sorted(ours.keys() & theirs)
            if warm_start is None or seed % NUM_WARM_STARTS == warm_start
        ]


def primary_table(results: Results, seeds: int) -> str:
    """Return the contrasts that were to decide, as Markdown; tested if each has so many seeds."""
    found = [results.differences(arm, other, accuracy) for arm, other in CONTRASTS]
    single, corrected = ["–"] * len(found), ["–"] * len(found)
    if all(len(differences) == seeds for differences in found):
        tested = [sign_flip(differences) for differences in found]
        single = [f"{p:.4f}" for p in tested]
        corrected = [f"{p:.4f}" for p in holm(tested)]
    lines = [
        "| contrast | pairs | difference in Acc | 95 % interval | standardised | p | p (Holm) |"
        " by warm start |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for number, ((arm, other), differences) in enumerate(zip(CONTRASTS, found, strict=True)):
        if not differences:
            continue
        effect = Effect.of(differences)
        by_start = [
            fmean(of_start)
            for start in range(NUM_WARM_STARTS)
            if (of_start := results.differences(arm, other, accuracy, start))
        ]
        lines.append(
            f"| {arm} − {other} | {effect.pairs} | {_points(effect.mean)} |"
            f" {_points(effect.low)} to {_points(effect.high)} | {_plain(effect.standardised)} |"
            f" {single[number]} | {corrected[number]} | {', '.join(map(_points, by_start))} |"
        )
    return "\n".join(lines)


WATCHED = {
    "throughout": "right throughout",
    "ncr": "NCR",
    "ncr_wrong": "NCR of wrong answers",
    "stated": "equations",
    "duplicates": "duplicates",
    "tokens": "tokens",
    "code": "code",
}


def arms_table(results: Results) -> str:
    """Return all arms with what was watched, means over seeds, as Markdown."""
    head = [
        "arm",
        "seeds",
        "Acc",
        "less outcome",
        "Acc, longer",
        "area",
        f"steps to {THRESHOLD:.0%}",
        *WATCHED.values(),
    ]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for arm in results.arms:
        against = "–"
        if arm != "outcome" and (differences := results.differences(arm, "outcome", accuracy)):
            effect = Effect.of(differences)
            against = f"{_points(effect.mean)} ({_points(effect.low)} to {_points(effect.high)})"
        reached = sorted(results.values(arm, steps_to))
        median = reached[(len(reached) - 1) // 2]
        row = [
            arm,
            str(len(reached)),
            f"{fmean(results.values(arm, accuracy)):.1%}",
            against,
            f"{fmean(results.values(arm, longer)):.1%}",
            f"{fmean(results.values(arm, area)):.3f}",
            "never" if math.isinf(median) else f"{median:.0f}",
        ]
        for name in WATCHED:
            mean = fmean(r["final"]["held-out"][name] for r in results.by_arm[arm].values())
            row.append(f"{mean:.1f}" if name in ("stated", "tokens") else f"{mean:.1%}")
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def seeds_table(results: Results) -> str:
    """Return the accuracy of every run, as Markdown."""
    seeds = sorted({seed for runs in results.by_arm.values() for seed in runs})
    lines = [f"| arm | {' | '.join(map(str, seeds))} |", f"|{' --- |' * (len(seeds) + 1)}"]
    for arm in results.arms:
        runs = results.by_arm[arm]
        cells = [f"{accuracy(runs[seed]):.1%}" if seed in runs else "" for seed in seeds]
        lines.append(f"| {arm} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _points(difference: float) -> str:
    if math.isnan(difference):
        return "–"
    return f"{100 * difference:+.1f}".replace("-", "−")


def _plain(number: float) -> str:
    return "–" if math.isnan(number) else f"{number:.2f}"
