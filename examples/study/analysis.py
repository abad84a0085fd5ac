"""The statistics of the study, which `PLAN.md` fixes, and the tables of its page.

Seeds pair the arms: the same warm start, order of problems and stream of random numbers.  The
exact sign-flip test compares all ways to put the signs of the paired differences.  The primary
contrasts are corrected by Holm; everything else has intervals and no tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import fmean, median, stdev
from typing import Any, TypeAlias

import numpy as np
from scipy import stats

from benchmarks.markdown import table

from .arms import ARMS, BUILT, CONTRASTS, NUM_WARM_STARTS, PRIMARY, SECOND_CONTRASTS
from .task import STYLES

LEVEL = 0.95
# Of the primary contrasts together.
SIGNIFICANCE = 0.05
# A smaller difference in accuracy is of no interest.
OF_INTEREST = 0.02
# Accuracy on the held-out curve that counts as reached.
THRESHOLD = 0.3
# Results are rounded to five decimals, so that a difference of two is off by so much at most.
_ROUNDING = 1e-5

Result = Mapping[str, Any]
# A figure of one run.
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
    # Sums that differ by the rounding of results alone count as equal: of 2,048 answers, sums that
    # are not equal differ by 2 / 2048, four times as much as rounding makes of twelve pairs.
    rounding = 2 * count * _ROUNDING
    return float(np.mean(np.abs(sums) >= abs(math.fsum(differences)) - rounding))


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
        spread: the standard deviation of the differences.
    """

    pairs: int
    mean: float
    low: float
    high: float
    spread: float

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
        return cls(count, mean, mean - half, mean + half, spread)

    @property
    def standardised(self) -> float:
        """The mean in standard deviations of the differences."""
        return self.mean / self.spread if self.spread else math.nan

    def shown(self, write: Callable[[float], str] | None = None) -> str:
        """Return the mean in points or as ``write`` writes it, with its interval if it has one."""
        write = write or _points
        if math.isnan(self.low):
            return write(self.mean)
        return f"{write(self.mean)} ({write(self.low)} to {write(self.high)})"


def at_end(name: str, problems: str | None = None) -> Measure:
    """Return the measure of a figure at the end.

    By default on the held-out problems, and of the second study on the selection problems.
    """

    def measure(result: Result) -> float:
        usual = "selection" if result["run"]["kind"] == "second" else "held-out"
        return float(result["final"][problems or usual][name])

    return measure


# The primary outcome, and the same on longer chains.
accuracy, longer = at_end("acc"), at_end("acc", "longer")


def area(result: Result) -> float:
    """Return the mean height of the held-out accuracy curve."""
    steps, curve = result["curve"]["step"], result["curve"]["acc"]
    return float(np.trapezoid(curve, steps) / (steps[-1] - steps[0]))


def steps_to(result: Result, threshold: float = THRESHOLD) -> float:
    """Return the step where the held-out curve first reaches a height, infinite if never."""
    points = list(zip(result["curve"]["step"], result["curve"]["acc"], strict=True))
    if points[0][1] >= threshold:
        return float(points[0][0])
    for (step, before), (next_step, after) in pairwise(points):
        if after >= threshold:
            return float(step + (threshold - before) / (after - before) * (next_step - step))
    return math.inf


class Results:
    """The runs that counted, by arm and seed, and on which problems they were evaluated."""

    def __init__(self, results: Sequence[Result], problems: str = "held-out") -> None:
        self.problems = problems
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


@dataclass(frozen=True)
class Contrast:
    """A primary contrast.

    Attributes:
        p, corrected: by sign flips, and after Holm.
    """

    arm: str
    other: str
    effect: Effect
    p: float
    corrected: float

    @property
    def verdict(self) -> str:
        """The plan's words for such an interval and such a p."""
        low, high = self.effect.low, self.effect.high
        within = low > -OF_INTEREST and high < OF_INTEREST
        if self.corrected < SIGNIFICANCE:
            side = "above" if self.effect.mean > 0 else "below"
            if within:
                return f"{side}, by less than two points"
            sure = low >= OF_INTEREST or high <= -OF_INTEREST
            return f"{side} by two points or more" if sure else f"{side}"
        if within:
            return "no difference of two points"
        if not low <= 0 <= high:
            return "open: not shown by the test"
        return "open" if high >= OF_INTEREST else "no gain of two points"


# Arms that are compared: the first less the second.
Compared: TypeAlias = Sequence[tuple[str, str]]


def contrasts(results: Results, of: Compared = CONTRASTS) -> list[Contrast]:
    """Return the primary contrasts."""
    pairs = [results.differences(arm, other, accuracy) for arm, other in of]
    single = [sign_flip(differences) for differences in pairs]
    return [
        Contrast(arm, other, Effect.of(differences), p, corrected)
        for (arm, other), differences, p, corrected in zip(
            of, pairs, single, holm(single), strict=True
        )
    ]


def _by_start(results: Results, arm: str, other: str) -> list[float]:
    """Return the mean difference in accuracy at each warm start that has pairs."""
    starts = [results.differences(arm, other, accuracy, start) for start in range(NUM_WARM_STARTS)]
    return [fmean(of_start) for of_start in starts if of_start]


def primary_table(results: Results, of: Compared = CONTRASTS) -> str:
    """Return the primary contrasts, as Markdown."""
    head = ("contrast", "pairs", "difference in Acc", "95 % interval", "SD", "standardised", "p")
    return table(
        (*head, "p (Holm)", "by warm start", "says"),
        [
            (
                f"{contrast.arm} − {contrast.other}",
                str(contrast.effect.pairs),
                _points(contrast.effect.mean),
                f"{_points(contrast.effect.low)} to {_points(contrast.effect.high)}",
                _plain(100 * contrast.effect.spread, 1),
                _plain(contrast.effect.standardised),
                f"{contrast.p:.4f}",
                f"{contrast.corrected:.4f}",
                ", ".join(map(_points, _by_start(results, contrast.arm, contrast.other))),
                contrast.verdict,
            )
            for contrast in contrasts(results, of)
        ],
    )


def most_used_style(result: Result) -> float:
    """Return the share of responses in the most used style."""
    return max(at_end(style)(result) for style in STYLES)


WATCHED: dict[str, Measure] = {
    "right throughout": at_end("throughout"),
    "NCR": at_end("ncr"),
    "NCR of wrong answers": at_end("ncr_wrong"),
    "equations": at_end("stated"),
    "duplicates": at_end("duplicates"),
    "tokens": at_end("tokens"),
    "most used style": most_used_style,
}
# Below this a number is the rounding of sums.
NOISE = 1e-9
# Means of counts, not shares.
_COUNTED = ("equations", "tokens")
LONGER = "Acc, longer"
BESIDE: dict[str, Measure] = {"Acc": accuracy, LONGER: longer, "area": area, **WATCHED}
# Compared beside the primary contrasts.
OTHER_CONTRASTS = (
    *((arm, "outcome") for arm in PRIMARY if arm not in ("linear", "outcome")),
    *((arm, "outcome") for arm in BUILT),
    *((BUILT[0], other) for other in BUILT[1:]),
    # At equal rates.
    ("linear", "outcome-1e-4"),
    *(("linear-3e-4", arm) for arm in ("outcome", "shuffled", "random")),
    ("outcome-1e-4", "permuted"),
    # Of one arm at both rates.
    ("linear-3e-4", "linear"),
    ("outcome", "outcome-1e-4"),
    # Of one rate each.
    *((f"linear-{alpha}", "linear-3e-4") for alpha in ("0.1", "0.25", "0.75")),
    *((arm, "linear-3e-4") for arm in ("format", "step-credit", "grown")),
    *((arm, "linear") for arm in ("max", "curriculum", "roomy")),
    ("unguarded", "roomy"),
)


SECOND_BESIDE = (*SECOND_CONTRASTS, ("shuffled", "outcome"), ("random", "outcome"))


def beside_table(results: Results, of: Compared = (*CONTRASTS, *OTHER_CONTRASTS)) -> str:
    """Return contrasts in all figures, with intervals and without tests, as Markdown."""
    # The second study was not evaluated on longer chains.
    names = [name for name in BESIDE if name != LONGER or results.problems == "held-out"]
    count = partial(_plain, digits=2, sign=True)

    def cell(arm: str, other: str, name: str) -> str:
        effect = Effect.of(results.differences(arm, other, BESIDE[name]))
        return effect.shown(count if name in _COUNTED else None)

    rows = [
        (
            f"{arm} − {other}",
            *(cell(arm, other, name) for name in names),
            ", ".join(map(_points, _by_start(results, arm, other))),
        )
        for arm, other in of
    ]
    return table(["contrast", *names, "Acc, by warm start"], rows)


def arms_table(results: Results) -> str:
    """Return all arms with their figures, means over seeds, as Markdown."""
    shown = WATCHED | {f"in {style}": at_end(style) for style in STYLES}
    shown["without end"] = at_end("unended")
    with_longer = results.problems == "held-out"
    if with_longer:
        shown["without end, longer"] = at_end("unended", "longer")
    reach = f"steps to {THRESHOLD:.0%}"
    head = ["arm", "seeds", "Acc", "less outcome", *[LONGER] * with_longer, "area", reach, *shown]
    rows = []
    for arm in results.arms:
        against = "–"
        if arm != "outcome" and (differences := results.differences(arm, "outcome", accuracy)):
            against = Effect.of(differences).shown()
        reached = results.values(arm, steps_to)
        middle = median(reached)
        row = [
            arm,
            str(len(reached)),
            f"{fmean(results.values(arm, accuracy)):.1%}",
            against,
            *([f"{fmean(results.values(arm, longer)):.1%}"] if with_longer else []),
            f"{fmean(results.values(arm, area)):.3f}",
            "never" if math.isinf(middle) else f"{middle:.0f}",
        ]
        for name, measure in shown.items():
            mean = fmean(results.values(arm, measure))
            row.append(f"{mean:.1f}" if name in _COUNTED else f"{mean:.1%}")
        rows.append(row)
    return table(head, rows)


def verl_table(results: Results, verl: Sequence[Result], step: int) -> str:
    """Return the planned runs in verl beside the loop's curves at a step, and whether they agree.

    By the plan they do if the order of the arms' means is the same and each difference to the
    outcome lies in the loop's interval.
    """
    reached: dict[str, dict[int, float]] = {}
    for result in verl:
        run = result["run"]
        reached.setdefault(run["arm"], {})[run["seed"]] = result["validation"]["acc"][-1]
    loop = {
        arm: {
            seed: float(run["curve"]["acc"][run["curve"]["step"].index(step)])
            for seed, run in sorted(results.by_arm[arm].items())
        }
        for arm in results.arms
        if arm in reached
    }
    same = {
        arm: {seed: acc for seed, acc in accs.items() if seed in reached[arm]}
        for arm, accs in loop.items()
    }
    ours, theirs = (sorted(loop, key=lambda arm: fmean(of[arm].values())) for of in (loop, reached))
    agree = in_order = ours == theirs
    rows = []
    for arm in loop:
        row, effects, inside = [arm, str(len(reached[arm]))], [], "–"
        for by_arm in (reached, same, loop):
            differences = [
                acc - by_arm["outcome"][seed]
                for seed, acc in by_arm[arm].items()
                if seed in by_arm["outcome"]
            ]
            effects.append(Effect.of(differences))
            row.append(f"{fmean(by_arm[arm].values()):.1%}")
            row.append("–" if arm == "outcome" else effects[-1].shown())
        if arm != "outcome":
            within = effects[2].low <= effects[0].mean <= effects[2].high
            agree, inside = agree and within, "yes" if within else "no"
        rows.append([*row, inside])
    head = (
        "arm", "seeds in verl", "Acc in verl", "less outcome",
        f"Acc in the loop at step {step}, these seeds", "less outcome",
        "all its seeds", "less outcome", "in this interval",
    )  # fmt: skip
    return (
        f"{table(head, rows)}\n\nThe order of the arms' means is"
        f" {'the same' if in_order else 'not the same'}: by the plan's rule they"
        f" {'agree' if agree else 'do not agree'}."
    )


def _points(difference: float) -> str:
    return _plain(100 * difference, 1, sign=True)


def _plain(number: float, digits: int = 2, *, sign: bool = False) -> str:
    if math.isnan(number):
        return "–"
    # A number that rounds to 0 keeps its sign, so that an interval shows whether it holds 0.
    exact = 0.0 if abs(number) < NOISE else number
    return f"{exact:{'+' if sign else ''}.{digits}f}".replace("-", "−")
