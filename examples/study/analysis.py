"""The statistics that PLAN-3.md fixes, from the table of results.

A start and a seed pair the arms: the same weights, order of problems and stream of random numbers.
The exact sign-flip test compares all ways to put the signs of the paired differences.  The three
primary contrasts are corrected by Holm; everything else has intervals and no tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.markdown import table

from .plan import (
    BASE,
    CONTROL,
    LARGE_GROUP,
    LEVELS,
    MAIN_LEVEL,
    NODES,
    PRIMARY,
    RATES,
    Run,
    area,
    starts,
)  # fmt: skip
from .runner import Study

LEVEL = 0.95
SIGNIFICANCE = 0.05
# A smaller difference is of no interest.
OF_INTEREST = 0.02
# Results are rounded to five decimals, so that a difference of two is off by so much at most.
_ROUNDING = 1e-5

Row = Mapping[str, Any]
Measure = Callable[[Row], float]
# A start and a seed.
Pair = tuple[str, int]


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
    # Sums that differ by the rounding of results alone count as equal, which can only raise p.
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
        count = len(differences)
        mean = fmean(differences) if count else math.nan
        if count < 2:
            return cls(count, mean, math.nan, math.nan, math.nan)
        spread = stdev(differences)
        half = float(stats.t.ppf((1 + LEVEL) / 2, count - 1)) * spread / math.sqrt(count)
        return cls(count, mean, mean - half, mean + half, spread)

    def shown(self) -> str:
        """Return the mean in points, with its interval if it has one."""
        if math.isnan(self.low):
            return points(self.mean)
        return f"{points(self.mean)} ({points(self.low)} to {points(self.high)})"


def points(difference: float) -> str:
    """Return a difference of shares in points, with its sign."""
    return "–" if math.isnan(difference) else f"{100 * difference:+.1f}".replace("-", "−")


def final(figure: str) -> Measure:
    """Return the measure of a figure of the last evaluation."""
    return lambda row: float(row["final"][figure])


def mean_height(figure: str) -> Measure:
    """Return the measure of the mean height of a figure's curve."""
    return lambda row: area(row, figure)


MEASURES: dict[str, Measure] = {
    "area, greedy": mean_height("greedy"),
    "area, sampled": mean_height("acc"),
    "area, right throughout, greedy": mean_height("greedy_throughout"),
    "final, greedy": final("greedy"),
    "final, sampled": final("acc"),
    "final, right throughout": final("throughout"),
    "final NCR": final("ncr"),
}
PRIMARY_MEASURE = "area, greedy"
# Figures that show hacking, and their titles.
HACKING = {
    "guard": "guard factor", "code": "as code", "by_code": "nodes by code",
    "unended": "without an end", "unanswered": "without an answer", "duplicates": "duplicates",
}  # fmt: skip


def by_pair(rows: Iterable[Row], arm: str, rate: float | None = None) -> dict[Pair, Row]:
    """Return an arm's rows, of one learning rate or of all, by start and seed."""
    return {
        (row["run"]["start"], row["run"]["seed"]): row
        for row in rows
        if row["run"]["arm"] == arm and rate in (None, row["run"]["learning_rate"])
    }


def differences(
    rows: Sequence[Row],
    arm: str,
    other: str,
    measure: str = PRIMARY_MEASURE,
    rates: tuple[float | None, float | None] = (None, None),
) -> dict[Pair, float]:
    """Return one arm less another, of the pairs that both have."""
    ours, theirs = by_pair(rows, arm, rates[0]), by_pair(rows, other, rates[1])
    take = MEASURES[measure]
    return {pair: take(ours[pair]) - take(theirs[pair]) for pair in sorted(ours.keys() & theirs)}


def lead(
    rows: Sequence[Row],
    arm: str,
    other: str,
    measure: str = PRIMARY_MEASURE,
    rates: tuple[float | None, float | None] = (None, None),
) -> Effect:
    """Return the effect of :func:`differences`."""
    return Effect.of(list(differences(rows, arm, other, measure, rates).values()))


@dataclass(frozen=True)
class Contrast:
    """A primary contrast.

    Attributes:
        by_pair: the differences of the primary measure.
        p, corrected: by sign flips, and after Holm.
    """

    arm: str
    other: str
    by_pair: Mapping[Pair, float]
    p: float
    corrected: float

    @property
    def effect(self) -> Effect:
        return Effect.of(list(self.by_pair.values()))

    @property
    def by_start(self) -> dict[str, float]:
        """The mean difference at each start."""
        names = sorted({start for start, _ in self.by_pair})
        return {
            name: fmean(value for (start, _), value in self.by_pair.items() if start == name)
            for name in names
        }

    @property
    def verdict(self) -> str:
        """The plan's words for the test and the interval."""
        effect = self.effect
        if self.corrected < SIGNIFICANCE:
            if abs(effect.mean) < OF_INTEREST:
                return "different, by less than two points"
            return "above" if effect.mean > 0 else "below"
        if max(-effect.low, effect.high) < OF_INTEREST:
            return "no difference of two points"
        return "open"


def primary(rows: Sequence[Row]) -> list[Contrast]:
    """Return the primary contrasts of all main runs."""
    pairs = [differences(rows, arm, other) for arm, other in PRIMARY]
    single = [sign_flip(list(found.values())) for found in pairs]
    return [
        Contrast(*of, found, p, corrected)
        for of, found, p, corrected in zip(PRIMARY, pairs, single, holm(single), strict=True)
    ]


def steps_to_half(rows: Mapping[Pair, Row], best: Mapping[Pair, float]) -> list[float]:
    """Return of each run the first point of its curve at half of the best, infinite if never.

    Args:
        rows: of an arm.
        best: highest greedy accuracy of any arm from the same start and seed.
    """
    found = []
    for pair, row in rows.items():
        curve = zip(row["curve"]["step"], row["curve"]["greedy"], strict=True)
        found.append(next((step for step, acc in curve if acc >= best[pair] / 2 > 0), math.inf))
    return found


def primary_table(found: Sequence[Contrast]) -> str:
    """Return the primary contrasts, as Markdown."""
    body = []
    for c in found:
        tested = (f"{c.p:.4f}", f"{c.corrected:.4f}")
        starts = ", ".join(f"{name}: {points(value)}" for name, value in c.by_start.items())
        spread = points(c.effect.spread).lstrip("+")
        shown = (str(c.effect.pairs), c.effect.shown(), spread, *tested, starts, c.verdict)
        body.append((f"{c.arm} − {c.other}", *shown))
    head = ("contrast", "pairs", "difference, points", "SD", "p", "p (Holm)", "by start", "result")
    return table(head, body)


def contrasts_table(rows: Sequence[Row], contrasts: Iterable[tuple[str, str]]) -> str:
    """Return contrasts in all measures, with intervals and without tests, as Markdown."""
    body = []
    for arm, other in contrasts:
        effects = [lead(rows, arm, other, measure) for measure in MEASURES]
        body.append((f"{arm} − {other}", str(effects[0].pairs), *(e.shown() for e in effects)))
    return table(("contrast", "pairs", *MEASURES), body)


def arms_table(rows: Sequence[Row], names: Iterable[str]) -> str:
    """Return the means of arms that have runs, and what shows hacking, as Markdown."""
    runs = {name: found for name in names if (found := by_pair(rows, name))}
    best: dict[Pair, float] = {}
    for of_arm in runs.values():
        for pair, row in of_arm.items():
            best[pair] = max(best.get(pair, 0.0), *row["curve"]["greedy"])
    shares = {
        **MEASURES,
        "NCR in training": lambda row: fmean(row["train"]["ncr"]),
        "groups with unequal rewards at first": lambda row: float(row["train"]["spread"][0]),
    }
    shares |= {figure: final(figure) for figure in HACKING}
    body = []
    for name, of_arm in runs.items():
        ends = list(of_arm.values())
        to_half = median(steps_to_half(of_arm, best))
        body.append(
            (
                *(name, f"{ends[0]['run']['learning_rate']:g}", str(len(ends))),
                "never" if math.isinf(to_half) else f"{to_half:.0f}",
                f"{fmean(map(final('stated'), ends)):.2f}",
                str(sum(map(collapses, ends))),
                *(f"{fmean(map(measure, ends)):.1%}" for measure in shares.values()),
            )
        )
    columns = ("steps to half of the best", "equations for each one needed", "collapsed")
    names_of_shares = (HACKING.get(name, name) for name in shares)
    return table(("arm", "rate", "runs", *columns, *names_of_shares), body)


def at_level(rows: Iterable[Row], level: str) -> list[Row]:
    """Return the rows of a level's starts."""
    return [row for row in rows if Run(**row["run"]).level == level]


def levels_table(
    rows: Sequence[Row], rates: Mapping[str, float], shares: Mapping[str, float]
) -> str:
    """Return the contrasts of each level: at the chosen rates, and at equal ones.

    Args:
        rows: of the main runs, at the chosen rates, and of those of the other levels, at both.
        rates: that were chosen, by arm.
        shares: measured share of responses right throughout, by start.
    """
    body = []
    for level in LEVELS:
        of_level = at_level(rows, level)
        measured = ", ".join(f"{shares[name]:.1%}" for name in starts(level) if name in shares)
        for arm, other in ((NODES, BASE), (NODES, CONTROL)):
            choices = ((rates[arm], rates[other]), *((rate, rate) for rate in RATES))
            effects = [lead(of_level, arm, other, rates=choice) for choice in choices]
            cells = [f"{e.shown()}, {e.pairs}" if e.pairs else "–" for e in effects]
            body.append((f"{level} %", measured, f"{arm} − {other}", *cells))
    head = ["level", "measured", "contrast", "at chosen rates, pairs"]
    return table([*head, *(f"at {rate:g}, pairs" for rate in RATES)], body)


def hacks(row: Row) -> bool:
    """Return whether a run ends with what the plan calls hacking."""
    end = row["final"]
    code_alone = end["code"] > 0.5 and end["acc"] < 0.1
    return bool(end["stated"] > 1.5 or end["unended"] > 0.05 or code_alone)


def collapses(row: Row) -> bool:
    """Return whether a run's curve ends below half of its highest point."""
    greedy = row["curve"]["greedy"]
    return bool(greedy[-1] < max(greedy) / 2)


def against_table(main: Sequence[Row], found: Sequence[Contrast]) -> str:
    """Return what the plan wrote down as counting against us, and what was found, as Markdown."""
    over_base, over_control, over_noise = found
    sampled, throughout, end, ncr = (
        lead(main, NODES, BASE, measure)
        for measure in (
            "area, sampled", "area, right throughout, greedy", "final, greedy", "final NCR",
        )
    )  # fmt: skip
    leads = over_base.effect.low > 0
    ahead = [sum(value > 0 for value in c.by_start.values()) for c in found]
    hacked, collapsed = (
        [sum(map(check, by_pair(main, name).values())) for name in (NODES, BASE)]
        for check in (hacks, collapses)
    )
    findings = [
        (f"{NODES} not above {BASE}", over_base.effect.shown(), over_base.verdict != "above"),
        *(
            (f"{NODES} not above {c.other}", c.effect.shown(), c.verdict != "above")
            for c in (over_control, over_noise)
        ),
        ("a lead in NCR without one in Acc", ncr.shown(), ncr.low > 0 and not leads),
        ("a lead in sampled Acc alone", sampled.shown(), sampled.low > 0 and not leads),
        ("a lead that is not one right throughout", throughout.shown(), not throughout.low > 0),
        ("a lead that is gone at the end", end.shown(), not end.low > 0),
        (
            "a lead at fewer than three starts",
            ", ".join(f"{n} over {c.other}" for n, c in zip(ahead, found, strict=True)),
            min(ahead) < 3,
        ),
        (
            f"more runs of {NODES} than of {BASE} that hack",
            f"{hacked[0]} of {NODES}, {hacked[1]} of {BASE}",
            hacked[0] > hacked[1],
        ),
        (
            f"more runs of {BASE} than of {NODES} that collapse",
            f"{collapsed[1]} of {BASE}, {collapsed[0]} of {NODES}",
            collapsed[1] > collapsed[0],
        ),
    ]
    body = [(claim, seen, "**yes**" if against else "no") for claim, seen, against in findings]
    return table(("counts against us", "found", "so"), body)


def report(study: Study, picture: Path | None = None) -> str:
    """Return the tables of PLAN-3.md as Markdown; no contrast before all main runs are there.

    Args:
        study: whose finished runs are reported.
        picture: is drawn with the contrasts.
    """
    plan, rates = study.plan, study.rates()
    tried, main = study.results(plan.selection()), study.results(plan.main(rates))
    others = study.results(plan.others(rates))
    every = [*tried, *main, *others]
    made_by = sorted({f"{row['commit']} ({row['machine']})" for row in every})
    head = (
        f"{len(every)} of {len(plan.runs(rates))} runs, by {'; '.join(made_by)}\n\n"
        f"Learning rates: {', '.join(f'{arm} {rate:g}' for arm, rate in rates.items())}"
    )
    if missing := len(plan.main(rates)) - len(main):
        return f"{head}\n\n{missing} main runs are missing, so that no contrast is shown."
    found = primary(main)
    shares = {name: fact["throughout"] for name, fact in study.inputs.facts().items()}
    pairs = [(arm, base) for base in (BASE, NODES) for arm in plan.arms if arm not in (BASE, base)]
    # The same arms with large groups, under other names.
    large = {arm: f"{arm}, {LARGE_GROUP}" for arm in plan.group_arms}
    groups = [
        *main,
        *(
            {**row, "run": {**row["run"], "arm": large[row["run"]["arm"]]}}
            for row in others
            if row["run"]["part"] == "groups"
        ),
    ]
    levels = [row for row in others if row["run"]["part"] == "levels"]
    if picture is not None:
        # It takes this module's effects, and matplotlib, which the tables do not need.
        from .picture import draw

        draw([*main, *levels], rates, shares, picture)
    of_groups = [(large[NODES], large[BASE]), *((large[arm], arm) for arm in large)]
    sections = {
        "Primary contrasts": primary_table(found),
        "What counts against us": against_table(main, found),
        "Other contrasts of the main level": contrasts_table(main, pairs),
        "Arms of the main level": arms_table(main, plan.arms),
        "Levels": levels_table([*main, *levels], rates, shares),
        "Groups of 16": contrasts_table(groups, of_groups),
    }
    for rate in RATES:
        of_rate = [row for row in [*tried, *levels] if row["run"]["learning_rate"] == rate]
        chosen_by = at_level(of_rate, MAIN_LEVEL)
        sections[f"Selection runs at {rate:g}"] = contrasts_table(chosen_by, pairs)
        for level in LEVELS:
            if rows := at_level(of_rate, level):
                title = "Selection arms" if level == MAIN_LEVEL else f"Arms at {level} %"
                sections[f"{title}, rate {rate:g}"] = arms_table(rows, plan.arms)
    return "\n\n".join([head, *(f"## {title}\n\n{text}" for title, text in sections.items())])
