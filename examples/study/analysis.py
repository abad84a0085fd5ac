"""The statistics of the study: fixed in `PLAN.md` before any run that counts.

Seeds pair the arms: the same warm start, order of problems and stream of random numbers.  If an
arm's name meant nothing, each pair's difference would be as likely with the other sign; the test
looks at all ways to put the signs (4,096 for twelve pairs), and assumes nothing else.  The
primary contrasts are corrected by Holm, and tested once, when all of their runs are there: a look
at p while they come in is another test.  Everything else is shown with intervals and not tested.

Words about results are made here too, by the rules of the plan, so that they follow from the
numbers and from nothing else: `finding` for the question, `against_table` for what was to count
against the reward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median, stdev
from typing import Any, TypeAlias

import numpy as np
from scipy import stats

from .arms import ARMS, BUILT, CONTRASTS, NUM_WARM_STARTS, PRIMARY, SECOND, SECOND_CONTRASTS
from .task import STYLES

LEVEL = 0.95
# Of the primary contrasts together.
SIGNIFICANCE = 0.05
# A smaller difference in accuracy is of no interest.
OF_INTEREST = 0.02
# Accuracy on the held-out curve that counts as reached.
THRESHOLD = 0.3
# A mean of so many standard deviations is found in 84 of 100 studies of twelve pairs.
FOUND_MOSTLY = 1.2
# Results are rounded to five decimals, so that a difference of two is off by so much at most.
_ROUNDING = 1e-5

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

    @property
    def shown(self) -> str:
        """In points, with the interval if it has one."""
        return self.told(_points)

    def told(self, write: Callable[[float], str]) -> str:
        """Return the mean, with the interval if it has one, as `write` writes a number."""
        if math.isnan(self.low):
            return write(self.mean)
        return f"{write(self.mean)} ({write(self.low)} to {write(self.high)})"


def accuracy(result: Result) -> float:
    """Return the primary outcome: accuracy on the held-out problems at the end.

    In the second study on the selection problems.
    """
    return at_end("acc")(result)


def at_end(name: str) -> Measure:
    """Return the measure of what was watched at the end, on the problems of :func:`accuracy`."""

    def measure(result: Result) -> float:
        problems = "selection" if result["run"]["kind"] == "second" else "held-out"
        return float(result["final"][problems][name])

    return measure


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
    """The runs that counted, by arm and seed, and on which problems they were evaluated."""

    def __init__(self, results: Sequence[Result], problems: str = "held-out") -> None:
        self.problems = problems
        self.by_arm: dict[str, dict[int, Result]] = {}
        self.steps = 0
        for result in results:
            run = result["run"]
            self.by_arm.setdefault(run["arm"], {})[run["seed"]] = result
            self.steps = run["steps"]

    @property
    def all(self) -> list[Result]:
        """Every run."""
        return [result for runs in self.by_arm.values() for result in runs.values()]

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
    """A primary contrast, of the pairs that there are.

    Attributes:
        p, corrected: by sign flips, and after Holm; None until all runs are there.
    """

    arm: str
    other: str
    effect: Effect
    p: float | None
    corrected: float | None

    @property
    def above(self) -> bool:
        """Whether the test says that the arm is above the other."""
        return self.tells and self.effect.mean > 0

    @property
    def tells(self) -> bool:
        """Whether the test finds a difference."""
        return self.corrected is not None and self.corrected < SIGNIFICANCE

    @property
    def verdict(self) -> str:
        """What the plan says of such an interval and such a p."""
        low, high = self.effect.low, self.effect.high
        if self.corrected is None:
            return "not tested yet"
        within = low > -OF_INTEREST and high < OF_INTEREST
        if self.tells:
            side = "above" if self.above else "below"
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


def contrasts(results: Results, seeds: int, of: Compared = CONTRASTS) -> list[Contrast]:
    """Return the contrasts that were to decide and have pairs; tested if each has so many."""
    pairs = [results.differences(arm, other, accuracy) for arm, other in of]
    tested: list[float | None] = [None] * len(pairs)
    corrected: list[float | None] = [None] * len(pairs)
    if all(len(differences) == seeds for differences in pairs):
        single = [sign_flip(differences) for differences in pairs]
        tested, corrected = [*single], [*holm(single)]
    return [
        Contrast(arm, other, Effect.of(differences), p, by_holm)
        for (arm, other), differences, p, by_holm in zip(of, pairs, tested, corrected, strict=True)
        if differences
    ]


def finding(results: Results, seeds: int) -> str:
    """Return what was found, in three sentences, or that it is too early to say."""
    found = contrasts(results, seeds)
    there = sum(len(results.by_arm.get(arm, {})) for arm in PRIMARY)
    if not found or any(contrast.p is None for contrast in found):
        return (
            f"Of the {seeds * len(PRIMARY)} runs of the primary arms {there} are there. Nothing is"
            " tested before all are, and nothing is found."
        )
    chains = Effect.of(results.differences("linear", "outcome", longer))
    beyond = (
        "ahead there" if chains.low > 0 else "behind there" if chains.high < 0 else "open there"
    )
    return (
        f"{_told(results, found)}"
        f" On longer chains than it was trained on, `linear` is at"
        f" {fmean(results.values('linear', longer)):.1%} and `outcome` at"
        f" {fmean(results.values('outcome', longer)):.1%}, {chains.shown} points: {beyond}."
    )


def second_finding(results: Results, seeds: int) -> str:
    """Return what the second study found, or that it is too early to say."""
    found = contrasts(results, seeds, SECOND_CONTRASTS)
    if len(found) < len(SECOND_CONTRASTS) or any(contrast.p is None for contrast in found):
        there = f"{len(results.all)} of its {seeds * len(SECOND)} runs"
        return f"There are {there}. Nothing is tested before all are, and nothing is found."
    by_start = ", ".join(map(_points, _by_start(results, "linear", "outcome")))
    areas = {other: results.differences("linear", other, area) for _, other in SECOND_CONTRASTS}
    higher = ", ".join(
        f"{Effect.of(differences).shown} than of {other} (in {sum(x > 0 for x in differences)} of"
        f" {len(differences)} seeds)"
        for other, differences in areas.items()
    )
    reached = {arm: f"{median(results.values(arm, steps_to)):.0f}" for arm in ("linear", "outcome")}
    return (
        f"{_told(results, found)} At the three warm starts, `linear` less `outcome` is {by_start}."
        f"\n\nBeside it, and not tested: the mean height of `linear`'s curve is, in points, more by"
        f" {higher}; half of its runs are at {THRESHOLD:.0%} by step {reached['linear']}, of"
        f" `outcome` by step {reached['outcome']}."
    )


def _told(results: Results, found: Sequence[Contrast]) -> str:
    """Return what tested contrasts say: of linear with the outcome first, then with controls."""
    first, controls = found[0], found[1:]
    ends = {arm: fmean(results.values(arm, accuracy)) for arm in ("linear", "outcome")}
    against = ", ".join(
        f"{contrast.effect.shown} against {contrast.other} ({contrast.verdict})"
        for contrast in controls
    )
    if not first.above:
        meaning = "no lead over the outcome is shown, and so none that the nodes could explain"
    elif all(contrast.above for contrast in controls):
        meaning = "the lead needs nodes that mean something"
    else:
        meaning = "so the lead is not shown to be the meaning of the nodes"
    return (
        f"**After {results.steps} steps `linear` answers {ends['linear']:.1%} of the"
        f" {results.problems} problems rightly and `outcome` {ends['outcome']:.1%}:"
        f" {_points(first.effect.mean)} points, 95 % interval {_points(first.effect.low)} to"
        f" {_points(first.effect.high)}, p"
        f" {_p(first.corrected)} after Holm: {_sentence(first.verdict)}.**"
        f" Of `linear` with controls whose nodes mean nothing, the differences are {against}:"
        f" {meaning}."
    )


def _sentence(verdict: str) -> str:
    return "the question is open" if verdict == "open" else verdict


def _by_start(results: Results, arm: str, other: str) -> list[float]:
    """Return the mean difference in accuracy at each warm start that has pairs."""
    starts = [results.differences(arm, other, accuracy, start) for start in range(NUM_WARM_STARTS)]
    return [fmean(of_start) for of_start in starts if of_start]


def primary_table(results: Results, seeds: int, of: Compared = CONTRASTS) -> str:
    """Return the contrasts that were to decide, as Markdown."""
    lines = [
        "| contrast | pairs | difference in Acc | 95 % interval | SD | standardised | p | p (Holm)"
        " | by warm start | says |",
        f"|{' --- |' * 10}",
    ]
    for contrast in contrasts(results, seeds, of):
        effect = contrast.effect
        by_start = _by_start(results, contrast.arm, contrast.other)
        lines.append(
            f"| {contrast.arm} − {contrast.other} | {effect.pairs} | {_points(effect.mean)} |"
            f" {_points(effect.low)} to {_points(effect.high)} |"
            f" {_plain(100 * effect.spread, 1)} | {_plain(effect.standardised)} |"
            f" {_p(contrast.p)} | {_p(contrast.corrected)} |"
            f" {', '.join(map(_points, by_start))} | {contrast.verdict} |"
        )
    return "\n".join(lines)


def power_text(results: Results, seeds: int) -> str:
    """Return what the test could have found, from the spread that was seen."""
    found = contrasts(results, seeds)
    if not found or any(contrast.p is None for contrast in found):
        return ""
    could = ", ".join(
        f"{100 * FOUND_MOSTLY * contrast.effect.spread:.1f} against {contrast.other}"
        for contrast in found
    )
    starts = [
        results.differences("linear", "outcome", accuracy, start)
        for start in range(NUM_WARM_STARTS)
    ]
    means = [fmean(of_start) for of_start in starts if of_start]
    alike = all(mean > 0 for mean in means) or all(mean < 0 for mean in means)
    signs = "of one sign" if alike else "not of one sign"
    # Pooled: each warm start about its own mean.
    rest = sum((x - fmean(of_start)) ** 2 for of_start in starts for x in of_start)
    within = math.sqrt(rest / max(1, sum(map(len, starts)) - len(means)))
    return (
        f"With the standard deviations that were seen (SD), the strictest of Holm's levels finds in"
        f" 84 of 100 such studies a difference of, in points: {could}. By warm start, linear less"
        f" outcome is {signs}; about the means of the starts the SD is {100 * within:.1f}."
    )


def most_used_style(result: Result) -> float:
    """Return the part of responses that are in the style that most are in."""
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
# Those that are means of counts, not parts.
_COUNTED = ("equations", "tokens")
LONGER = "Acc, longer"
BESIDE: dict[str, Measure] = {"Acc": accuracy, LONGER: longer, "area": area, **WATCHED}
# What is compared beside the primary contrasts, where it was run.
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
    """Return contrasts in all that was watched, with intervals and without tests, as Markdown."""
    # The second study was not evaluated on longer chains.
    names = [name for name in BESIDE if name != LONGER or results.problems == "held-out"]
    reach = f"sooner at {THRESHOLD:.0%}"
    head = ["contrast", *names, "Acc, by warm start", "larger area", reach]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for arm, other in of:
        if not results.differences(arm, other, accuracy):
            continue
        areas = results.differences(arm, other, area)
        ours, theirs = results.by_arm[arm], results.by_arm[other]
        sooner = sum(steps_to(ours[at]) < steps_to(theirs[at]) for at in ours.keys() & theirs)
        cells = [
            *(_effect_of(results, arm, other, name) for name in names),
            ", ".join(map(_points, _by_start(results, arm, other))),
            *(f"{number} of {len(areas)}" for number in (sum(x > 0 for x in areas), sooner)),
        ]
        lines.append(f"| {arm} − {other} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _effect_of(results: Results, arm: str, other: str, name: str) -> str:
    effect = Effect.of(results.differences(arm, other, BESIDE[name]))
    if name not in _COUNTED:
        return effect.shown
    return effect.told(partial(_plain, digits=2, sign=True))


def against_table(results: Results, seeds: int) -> str:
    """Return what the plan says would count against the reward, and whether it came, as Markdown.

    A difference that was not to be tested counts as there if its interval lies on that side of 0.
    """
    found = contrasts(results, seeds)
    if not found or any(contrast.p is None for contrast in found):
        return ""
    lead = found[0]
    lines = _against_lead(found)
    of = partial(_effect, results, "linear", "outcome")

    def row(what: str, shown: str, says: str) -> None:
        lines.append(f"| {what} | {shown} | {says} |")

    ncr = of(at_end("ncr"))
    assert ncr is not None
    row(
        "a lead on NCR alone",
        f"NCR {ncr.shown}",
        "**yes**" if ncr.low > 0 and not lead.above else "no",
    )
    for what, effect in (
        ("a lead that is not there on longer chains", of(longer)),
        ("... or with built nodes", _effect(results, BUILT[0], "outcome", accuracy)),
    ):
        says = "not run" if effect is None else "no" if effect.low > 0 else "**yes**"
        if effect is not None and not lead.above:
            says = "no lead is shown"
        row(what, effect.shown if effect else "–", says)
    more = {name: of(BESIDE[name]) for name in ("equations", "duplicates", "tokens")}
    row(
        "more equations, duplicates or tokens in its place",
        "; ".join(f"{name} {_effect_of(results, 'linear', 'outcome', name)}" for name in more),
        "no"
        if lead.above or not any(effect and effect.low > 0 for effect in more.values())
        else "**yes**",
    )
    guarded = {
        name: _effect(results, "unguarded", "roomy", BESIDE[name])
        for name in ("Acc", "equations", "duplicates", "tokens")
    }
    there = [effect for effect in guarded.values() if effect is not None]
    differ = any(effect.low > 0 or effect.high < 0 for effect in there)
    row(
        "unguarded no different from roomy",
        "; ".join(f"{name} {_effect_of(results, 'unguarded', 'roomy', name)}" for name in guarded)
        if there
        else "–",
        "not run" if not there else "no" if differ else "**yes**",
    )
    return "\n".join(lines)


def second_against_table(results: Results, seeds: int) -> str:
    """Return what would count against the reward by the second plan, as Markdown.

    A lead on NCR alone would by the first, which holds where the second says nothing.
    """
    found = contrasts(results, seeds, SECOND_CONTRASTS)
    if len(found) < len(SECOND_CONTRASTS) or any(contrast.p is None for contrast in found):
        return ""
    ncr = Effect.of(results.differences("linear", "outcome", at_end("ncr")))
    starts = _by_start(results, "linear", "outcome")
    says = "**yes**" if min(starts) <= 0 else "no"
    return "\n".join(
        [
            *_against_lead(found),
            f"| a lead on NCR alone | NCR {ncr.shown} |"
            f" {'**yes**' if ncr.low > 0 and not found[0].above else 'no'} |",
            "| a lead that is not there at one of the three warm starts |"
            f" {', '.join(map(_points, starts))} |"
            f" {says if found[0].above else 'no lead is shown'} |",
        ]
    )


def _against_lead(found: Sequence[Contrast]) -> list[str]:
    """Return the head of a table of what counts against, and what both plans begin with."""
    lead, controls = found[0], found[1:]
    missed = any(not contrast.above for contrast in controls)
    *first, last = [contrast.other for contrast in controls]
    shown = "; ".join(f"{contrast.other}: {contrast.effect.shown}" for contrast in controls)
    says = "no lead is shown" if not lead.above else "**yes**" if missed else "no"
    return [
        "| what was to count against | found | |",
        "| --- | --- | --- |",
        f"| linear not above outcome | {lead.effect.shown} | {'no' if lead.above else '**yes**'} |",
        f"| above outcome, but not above {', '.join(first)} and {last} | {shown} | {says} |",
    ]


def _effect(results: Results, arm: str, other: str, measure: Measure) -> Effect | None:
    differences = results.differences(arm, other, measure)
    return Effect.of(differences) if differences else None


def arms_table(results: Results) -> str:
    """Return all arms with what was watched, means over seeds, as Markdown."""
    shown = WATCHED | {f"in {style}": at_end(style) for style in STYLES}
    shown["without end"] = at_end("unended")
    with_longer = results.problems == "held-out"
    if with_longer:
        shown["without end, longer"] = lambda result: float(result["final"]["longer"]["unended"])
    reach = f"steps to {THRESHOLD:.0%}"
    head = ["arm", "seeds", "Acc", "less outcome", *[LONGER] * with_longer, "area", reach, *shown]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for arm in results.arms:
        against = "–"
        if arm != "outcome" and (differences := results.differences(arm, "outcome", accuracy)):
            against = Effect.of(differences).shown
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
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def seeds_table(results: Results, measure: Measure = accuracy) -> str:
    """Return a share, else the accuracy, of every run, as Markdown."""
    return _by_seed(
        {
            (arm, seed): f"{measure(run):.1%}"
            for arm in results.arms
            for seed, run in results.by_arm[arm].items()
        }
    )


def _by_seed(cells: Mapping[tuple[str, int], str]) -> str:
    """Return cells of arms and seeds as Markdown, the arms in their order."""
    seeds = sorted({seed for _, seed in cells})
    lines = [f"| arm | {' | '.join(map(str, seeds))} |", f"|{' --- |' * (len(seeds) + 1)}"]
    for arm in dict.fromkeys(arm for arm, _ in cells):
        lines.append(f"| {arm} | {' | '.join(cells.get((arm, seed), '') for seed in seeds)} |")
    return "\n".join(lines)


def rates_table(tries: Sequence[Result], chosen: Mapping[str, float]) -> str:
    """Return what was tried to choose learning rates, as Markdown: Acc of each seed."""
    rates = sorted({result["run"]["learning_rate"] for result in tries})
    lines = [
        f"| arm | {' | '.join(f'{rate:g}' for rate in rates)} | chosen |",
        f"|{' --- |' * (len(rates) + 2)}",
    ]
    for arm in ARMS:
        of_arm = [result for result in tries if result["run"]["arm"] == arm]
        if not of_arm:
            continue
        cells = []
        for rate in rates:
            accs = [
                f"{result['final']['selection']['acc']:.1%}"
                for result in sorted(of_arm, key=lambda result: int(result["run"]["seed"]))
                if result["run"]["learning_rate"] == rate
            ]
            cells.append(", ".join(accs))
        lines.append(f"| {arm} | {' | '.join(cells)} | {_rate(chosen.get(arm))} |")
    return "\n".join(lines)


def verl_table(results: Results, verl: Sequence[Result], step: int, planned: int) -> str:
    """Return the planned runs in verl beside the loop's curves at a step, and whether they agree.

    By the plan they do if the order of the arms' means is the same and each difference to the
    outcome lies in the loop's interval; that is said when all are there that were planned.
    """
    reached = _verl_accs(verl)
    loop = _loop_accs(results, reached, step)
    same = {
        arm: {seed: acc for seed, acc in accs.items() if seed in reached[arm]}
        for arm, accs in loop.items()
    }
    lines = [
        f"| arm | seeds in verl | Acc in verl | less outcome | Acc in the loop at step {step},"
        " these seeds | less outcome | all its seeds | less outcome | in this interval |",
        f"|{' --- |' * 9}",
    ]
    known, agree = len(loop) > 1, _in_order(reached, loop) == _in_order(loop, loop)
    order = "the same" if agree else "not the same"
    for arm in loop:
        row = [arm, str(len(reached[arm]))]
        effects = []
        for by_arm in (reached, same, loop):
            effect = None if arm == "outcome" else _of_pairs(by_arm[arm], by_arm.get("outcome", {}))
            effects.append(effect)
            row.append(f"{fmean(by_arm[arm].values()):.1%}" if by_arm[arm] else "–")
            row.append("–" if effect is None else effect.shown)
        theirs, _, ours = effects
        inside = "–"
        if theirs is not None and ours is not None:
            known = known and not math.isnan(ours.low)
            within = ours.low <= theirs.mean <= ours.high
            agree = agree and within
            if not math.isnan(ours.low):
                inside = "yes" if within else "no"
        lines.append(f"| {' | '.join([*row, inside])} |")
    says = "they agree" if agree else "they do not agree"
    if len(verl) < planned:
        lines += [
            "",
            f"{len(verl)} of {planned} runs are there: too few to say whether they agree.",
        ]
    elif known:
        lines += ["", f"The order of the arms' means is {order}: by the plan's rule {says}."]
    return "\n".join(lines)


def verl_starts_table(results: Results, verl: Sequence[Result], step: int) -> str:
    """Return runs in verl less the loop's of the same arm and seed, by warm start.

    At the end, and on the problems that they were trained on, over all steps up to the last: both
    count every response that was sampled.  Beside the range of verl's runs stands that of all the
    loop's of these arms and that start.
    """
    ends, heights = _verl_pairs(results, verl, step)
    loop = _loop_accs(results, _verl_accs(verl), step)
    lines = [
        "| warm start | runs | Acc at the end, verl | loop | verl less loop | verl's runs |"
        " the loop's | Acc in training, verl | loop | verl less loop |",
        f"|{' --- |' * 10}",
    ]
    for start in range(NUM_WARM_STARTS):
        runs = [(arm, seed) for arm, seed in ends if seed % NUM_WARM_STARTS == start]
        if not runs:
            continue
        theirs = [
            acc
            for accs in loop.values()
            for seed, acc in accs.items()
            if seed % NUM_WARM_STARTS == start
        ]
        row = [str(start + 1), str(len(runs))]
        for pairs in (ends, heights):
            both = [pairs[run] for run in runs]
            row += [f"{fmean(values):.1%}" for values in zip(*both, strict=True)]
            row.append(Effect.of([ours - loops for ours, loops in both]).shown)
            if pairs is ends:
                for values in ([ours for ours, _ in both], theirs):
                    row.append(f"{min(values):.1%} to {max(values):.1%}")
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def verl_seeds_table(results: Results, verl: Sequence[Result], step: int) -> str:
    """Return the accuracy of each seed, in verl / in the loop at the same step."""
    reached = _verl_accs(verl)
    return _by_seed(
        {
            (arm, seed): " / ".join(
                f"{of[seed]:.1%}" if seed in of else "–" for of in (reached[arm], accs)
            )
            for arm, accs in _loop_accs(results, reached, step).items()
            for seed in sorted(accs.keys() | reached[arm])
        }
    )


def verl_differences_table(results: Results, verl: Sequence[Result], step: int) -> str:
    """Return verl less the loop of each run that both have, at the end / in training, in points."""
    ends, heights = _verl_pairs(results, verl, step)
    return _by_seed(
        {
            run: " / ".join(_points(ours - theirs) for ours, theirs in (ends[run], heights[run]))
            for run in ends
        }
    )


# Of runs that both have, by arm and seed: accuracy in verl and in the loop.
_Pairs: TypeAlias = dict[tuple[str, int], tuple[float, float]]


def _verl_pairs(results: Results, verl: Sequence[Result], step: int) -> tuple[_Pairs, _Pairs]:
    """Return accuracies at the end, and in training: the mean over the steps up to a step."""
    reached = _verl_accs(verl)
    trained = {(run["run"]["arm"], int(run["run"]["seed"])): run["train"]["acc"] for run in verl}
    ends: _Pairs = {}
    heights: _Pairs = {}
    for arm, accs in _loop_accs(results, reached, step).items():
        for seed in sorted(accs.keys() & reached[arm]):
            ends[arm, seed] = reached[arm][seed], accs[seed]
            theirs = results.by_arm[arm][seed]["train"]["acc"]
            heights[arm, seed] = fmean(trained[arm, seed][:step]), fmean(theirs[:step])
    return ends, heights


def _verl_accs(verl: Sequence[Result]) -> dict[str, dict[int, float]]:
    """Return the accuracy at the end of each run in verl, by arm and seed."""
    reached: dict[str, dict[int, float]] = {}
    for result in verl:
        run = result["run"]
        reached.setdefault(run["arm"], {})[run["seed"]] = result["validation"]["acc"][-1]
    return reached


def _loop_accs(results: Results, arms: Collection[str], step: int) -> dict[str, dict[int, float]]:
    """Return the accuracy of the loop's runs at a step of their curves, by arm and seed."""
    return {
        arm: {
            seed: float(run["curve"]["acc"][run["curve"]["step"].index(step)])
            for seed, run in sorted(results.by_arm[arm].items())
        }
        for arm in results.arms
        if arm in arms
    }


# Accuracies by arm and seed.
_Accs: TypeAlias = Mapping[str, Mapping[int, float]]


def _in_order(accs: _Accs, arms: Iterable[str]) -> list[str]:
    return sorted(arms, key=lambda arm: fmean(accs[arm].values()))


def _of_pairs(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Effect | None:
    differences = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs)]
    return Effect.of(differences) if differences else None


def _points(difference: float) -> str:
    return _plain(100 * difference, 1, sign=True)


def _plain(number: float, digits: int = 2, *, sign: bool = False) -> str:
    if math.isnan(number):
        return "–"
    # What rounds to 0 keeps its sign, which tells whether an interval holds 0; 0 has a plus.
    exact = 0.0 if abs(number) < NOISE else number
    return f"{exact:{'+' if sign else ''}.{digits}f}".replace("-", "−")


def _p(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _rate(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:g}"
