"""The report's charts: what each is made of, and inline SVG that shows it.

Every colour and font comes from the page's style sheet by class, so that a chart follows the
reader's light or dark theme and the printer, and needs neither a script nor an inline style.
Each chart carries its figures as a table too.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from markupsafe import Markup

from consensusbench.report.data import (
    COMPARED,
    Correctness,
    Curve,
    ProblemSummary,
    RewardFigures,
    RewardStudy,
    alpha_sweep,
    by_correctness,
    coverage_by_position,
    fixed_rewards,
    reached_by_order,
)
from consensusbench.report.markup import element
from consensusbench.tables import Table, number, percent, words

if TYPE_CHECKING:
    from consensusbench.evaluation.scored import ScoredRollout

Rollouts: TypeAlias = "Sequence[ScoredRollout]"

# Of every picture, in its own units; the style sheet scales it to its column.
WIDTH, HEIGHT = 480.0, 290.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 456.0, 12.0, 242.0

# Of a logarithmic axis: as fine as some hundred rollouts can fill.
BINS_A_DECADE = 5

# More dots hide each other and make the page heavy; a share that spreads over all is shown.
MAX_DOTS = 1500

# Problems with few rollouts share a handful of places: dots are moved by up to this much so
# that they can be told apart. Tips and tables carry the exact figures.
_JITTER = 0.012

# Height of a bar of shares with its name, of the bar, and of the name above it.
_ROW, _BAR, _NAME = 44.0, 18.0, 14.0
# Narrower segments carry no letter; their tips and the tables tell what they are.
_LETTER_WIDTH = 13.0


@dataclass(frozen=True, slots=True)
class LegendKey:
    """One entry of a legend; its shape is ``bar``, ``line`` or ``dot``."""

    name: str
    look: str
    shape: str = "bar"


@dataclass(frozen=True, slots=True)
class ReportChart:
    """One chart.

    Attributes:
        name: part of the element ids, unique among the charts of a scope.
        svg: the picture; None where there is nothing to draw, and ``empty`` says why.
    """

    name: str
    title: str
    about: str
    svg: Markup | None = None
    keys: tuple[LegendKey, ...] = ()
    figures: Table | None = None
    empty: str = ""
    notes: tuple[str, ...] = ()

    def drawn(
        self,
        svg: Markup,
        keys: Sequence[LegendKey] = (),
        figures: Table | None = None,
        notes: tuple[str, ...] = (),
    ) -> ReportChart:
        """Return the chart with its picture."""
        return replace(self, svg=svg, keys=tuple(keys), figures=figures, empty="", notes=notes)


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its unit, both ends, marked values with their texts; above 0 where ``log``."""

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def share(self, value: float) -> float:
        """Return where a value stands, 0 at the beginning and 1 at the end."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def percent_axis(label: str, high: float = 1.0) -> Axis:
    """Return an axis for fractions, written in percent, that ends at the next round value."""
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2) if s == 0.2 or high / s <= 5)
    steps = max(1, math.ceil(high / step - 1e-9))
    ticks = tuple((i * step, f"{100 * i * step:.0f} %") for i in range(steps + 1))
    return Axis(label, 0.0, steps * step, ticks)


def log_axis(label: str, low: float, high: float) -> Axis:
    """Return a logarithmic axis that holds ``low`` and ``high``, both above 0."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1
    candidates = [f * 10.0**e for e in range(first, last + 1) for f in (1, 2, 5)]
    start = max(value for value in candidates if value <= low * (1 + 1e-9))
    end = min(value for value in candidates if value >= high * (1 - 1e-9) and value > start)
    inside = [value for value in candidates if start <= value <= end]
    if len(inside) > 9:
        inside = [value for value in inside if f"{value:e}".startswith("1.0")]
    return Axis(label, start, end, tuple((v, f"{v:,g}") for v in inside), log=True)


# Fifths of the whole, for axes from 0 to 1.
_PERCENT_FIFTHS = tuple((i / 5, f"{20 * i} %") for i in range(6))
_PLAIN_FIFTHS = tuple((i / 5, f"{i / 5:g}") for i in range(6))
_ALPHA = Axis("α, weight of Acc", 0.0, 1.0, _PLAIN_FIFTHS)


@dataclass(frozen=True, slots=True)
class Plot:
    """The rectangle between two axes."""

    x: Axis
    y: Axis

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the place of a point in the picture."""
        return (
            LEFT + self.x.share(x) * (RIGHT - LEFT),
            BOTTOM - self.y.share(y) * (BOTTOM - TOP),
        )

    def line(self, look: str, begin: tuple[float, float], end: tuple[float, float]) -> Markup:
        """Return a straight line between two points."""
        (x1, y1), (x2, y2) = self.at(*begin), self.at(*end)
        return element("line", class_=look, x1=x1, y1=y1, x2=x2, y2=y2)

    def curve(
        self,
        look: str,
        points: Sequence[tuple[float, float]],
        tips: Sequence[str],
    ) -> list[Markup]:
        """Return a curve with a dot for each of its points, and what each dot says."""
        places = [self.at(x, y) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dots = [
            element("circle", class_=f"dot {look}", cx=x, cy=y, r=3.5, data_tip=tip)
            for (x, y), tip in zip(places, tips, strict=True)
        ]
        return [element("polyline", points=path, class_=f"curve {look}"), *dots]

    def draw(self, title: str, marks: Sequence[Markup]) -> Markup:
        """Return the picture: grid, ticks and labels below the marks."""
        drawn: list[Markup] = []
        for value, text in self.x.ticks:
            drawn.append(self.line("grid", (value, self.y.low), (value, self.y.high)))
            x, y = self.at(value, self.y.low)
            drawn.append(element("text", text, class_="tick middle", x=x, y=y + 17.0))
        for value, text in self.y.ticks:
            drawn.append(self.line("grid", (self.x.low, value), (self.x.high, value)))
            x, y = self.at(self.x.low, value)
            drawn.append(element("text", text, class_="tick end", x=x - 6.0, y=y + 4.0))
        middle = (LEFT + RIGHT) / 2
        across = element("text", self.x.label, class_="label", x=middle, y=HEIGHT - 8.0)
        turned = f"translate(14 {(TOP + BOTTOM) / 2:g}) rotate(-90)"
        upwards = element("text", self.y.label, class_="label", x=0.0, y=0.0, transform=turned)
        return _picture(title, HEIGHT, *drawn, *marks, across, upwards)


def _picture(title: str, height: float, *marks: Markup) -> Markup:
    box = f"0 0 {WIDTH:g} {height:g}"
    return element("svg", *marks, viewBox=box, role="img", aria_label=title)


@dataclass(frozen=True, slots=True)
class _Bin:
    """A bin of the axis from ``low`` to ``high``, drawn there, and what it is called."""

    low: float
    high: float
    name: str


def log_bins(values: Sequence[float], unit: str) -> list[_Bin]:
    """Return bins of equal width on a logarithmic axis that hold all values (above 0)."""
    first = math.floor(math.log10(min(values)) * BINS_A_DECADE + 1e-9)
    last = math.floor(math.log10(max(values)) * BINS_A_DECADE + 1e-9) + 1
    edges = [10 ** (i / BINS_A_DECADE) for i in range(first, last + 1)]
    return [
        _Bin(low, high, f"{_rounded(low)} to {_rounded(high)} {unit}")
        for low, high in pairwise(edges)
    ]


def counted(values: Sequence[float], bins: Sequence[_Bin]) -> list[int]:
    """Return how many values fall into each bin; the outermost take what lies beyond them."""
    counts = [0] * len(bins)
    edges = [b.low for b in bins]
    for value in values:
        counts[max(0, bisect_right(edges, value) - 1)] += 1
    return counts


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def log_histogram(
    chart: ReportChart, unit: str, values: Mapping[Correctness, Sequence[float]]
) -> ReportChart:
    """Return the distributions of values that spread over orders of magnitude."""
    known = [value for side in COMPARED for value in values[side]]
    if not known:
        return chart
    bins = log_bins(known, unit)
    return histogram(chart, log_axis(unit, bins[0].low, bins[-1].high), bins, values)


def histogram(
    chart: ReportChart,
    axis: Axis,
    bins: Sequence[_Bin],
    values: Mapping[Correctness, Sequence[float]],
) -> ReportChart:
    """Return the share of right and of wrong rollouts in every bin, as bars and as a table."""
    counts = {side: counted(values[side], bins) for side in COMPARED}
    totals = {side: sum(counts[side]) for side in COMPARED}
    shares = {side: [n / (totals[side] or 1) for n in counts[side]] for side in COMPARED}
    plot = Plot(axis, percent_axis("share of the rollouts", max(max(shares[s]) for s in shares)))
    bars = []
    for side in COMPARED:
        for one, n, share in zip(bins, counts[side], shares[side], strict=True):
            (left, top), (right, _) = plot.at(one.low, share), plot.at(one.high, share)
            width = (right - left) / 2 - 1.5
            of = f"of the rollouts whose answer is {side.value}"
            bar = element(
                "rect",
                class_=f"bar {side.value}",
                x=left + 1 if side is Correctness.RIGHT else left + 1.5 + width,
                y=top,
                width=width,
                height=BOTTOM - top,
                data_tip=f"{one.name}: {100 * share:.1f} % {of} ({n:,})",
            )
            bars += [bar] if n else []
    columns = [words("bin")]
    for side in COMPARED:
        columns += [number(side.value), percent(f"of {side.value}")]
    rows = [
        [one.name, *(cell for s in COMPARED for cell in (counts[s][at], shares[s][at]))]
        for at, one in enumerate(bins)
    ]
    return chart.drawn(
        plot.draw(chart.title, bars),
        [LegendKey(f"answer {s.value} ({len(values[s]):,})", s.value) for s in COMPARED],
        Table(chart.title, columns, [rows]),
    )


def ncr_distribution(rollouts: Rollouts) -> ReportChart:
    """Return how NCR (equation 1 of the paper) is distributed."""
    chart = ReportChart(
        "ncr",
        "Node coverage, right and wrong",
        "NCR rounded to tenths. Good nodes pull the two apart: right rollouts to the right, "
        "wrong ones to the left.",
        empty="No rollout has both an accuracy and an NCR.",
    )
    sides = by_correctness(rollouts)
    values = {s: [r.ncr for r in sides[s] if r.ncr is not None] for s in COMPARED}
    if not any(values.values()):
        return chart
    # NCR is a quotient of small whole numbers with many rollouts at 0 and at 1: bins centred on
    # tenths keep those two apart from their neighbours.
    bins = [_Bin((i - 0.5) / 10, (i + 0.5) / 10, f"NCR {10 * i} %") for i in range(11)]
    axis = Axis("NCR", bins[0].low, bins[-1].high, _PERCENT_FIFTHS)
    return histogram(chart, axis, bins, values)


def tpn_distribution(rollouts: Rollouts) -> ReportChart:
    """Return how TPN (equation 2 of the paper) is distributed; no node met is no TPN."""
    sides = by_correctness(rollouts)
    values = {s: [r.tpn for r in sides[s] if r.tpn is not None] for s in COMPARED}
    chart = ReportChart(
        "tpn",
        "Tokens per node",
        "TPN on a logarithmic axis: how many tokens a rollout spends for each node that it "
        "reaches. Rollouts that reach none have no TPN.",
        empty="No rollout has both a length in tokens and a matched node.",
    )
    return log_histogram(chart, "tokens per matched node", values)


def length_distribution(rollouts: Rollouts) -> ReportChart:
    """Return how long responses are: in tokens where all have them, else in characters."""
    sides = by_correctness(rollouts)
    in_tokens = all(r.num_tokens for s in COMPARED for r in sides[s])
    unit = "tokens" if in_tokens else "characters"
    lengths = {s: [r.num_tokens if in_tokens else r.num_chars for r in sides[s]] for s in COMPARED}
    chart = ReportChart(
        "length",
        "Response length",
        f"Length in {unit}, on a logarithmic axis.",
        empty="No rollout has both an accuracy and a length above 0.",
    )
    return log_histogram(chart, unit, {s: [float(n) for n in lengths[s] if n] for s in COMPARED})


@dataclass(frozen=True, slots=True)
class SharePart:
    """A class that a whole is made of: its name, its letter, its class of the style sheet."""

    name: str
    letter: str
    look: str


def share_bars(
    name: str,
    title: str,
    about: str,
    parts: Sequence[SharePart],
    groups: Sequence[tuple[str, Sequence[int]]],
) -> ReportChart:
    """Return one bar for each group, cut into the shares of its parts."""
    marks: list[Markup] = []
    left, whole = LEFT - 50.0, RIGHT + 20.0 - LEFT + 50.0
    for row, (group, counts) in enumerate(groups):
        top, total, x = TOP + row * _ROW + _NAME, sum(counts), left
        marks.append(element("text", f"{group} ({total:,})", x=x, y=top - 3))
        for part, amount in zip(parts, counts, strict=True):
            if amount:
                width = whole * amount / total
                size = {"x": x, "y": top, "width": width, "height": _BAR}
                pieces = [element("rect", class_=f"bar part {part.look}", **size)]
                if width >= _LETTER_WIDTH:
                    place = {"x": x + width / 2, "y": top + 13}
                    pieces.append(element("text", part.letter, class_="letter", **place))
                tip = f"{group}: {100 * amount / total:.1f} % {part.name} ({amount:,})"
                marks.append(element("g", *pieces, data_tip=tip))
                x += width
    keys = [LegendKey(f"{part.letter}: {part.name}", f"part {part.look}") for part in parts]
    picture = _picture(title, TOP + len(groups) * _ROW, *marks)
    return ReportChart(name, title, about).drawn(picture, keys)


def accuracy_scatter(problems: Sequence[ProblemSummary]) -> ReportChart:
    """Return mean NCR against mean accuracy, one dot for each problem."""
    chart = ReportChart(
        "scatter",
        "NCR against Acc, by problem",
        "Each dot is a problem: how many of its rollouts are right, and how much of its nodes "
        "they cover. Far below the diagonal: right without the nodes, so that the nodes may be "
        "poor. Far above it: the nodes are reached and the answer is missed.",
        empty="No problem has both an accuracy and an NCR.",
    )
    known = [(p, p.acc, p.ncr) for p in problems if p.acc is not None and p.ncr is not None]
    if not known:
        return chart
    shown = sorted(known, key=lambda one: _digest(one[0]))[:MAX_DOTS]
    axes = [Axis(label, -0.04, 1.04, _PERCENT_FIFTHS) for label in ("Acc", "NCR")]
    plot = Plot(*axes)
    marks = [plot.line("reference", (0.0, 0.0), (1.0, 1.0))]
    for problem, acc, ncr in shown:
        dx, dy = (_JITTER * (byte / 127.5 - 1) for byte in _digest(problem)[:2])
        x, y = plot.at(acc + dx, ncr + dy)
        tip = (
            f"{problem.problem_id}: Acc {100 * acc:.1f} %, NCR {100 * ncr:.1f} % over "
            f"{problem.rollouts:,} rollouts"
        )
        marks.append(element("circle", class_="dot plain", cx=x, cy=y, r=4, data_tip=tip))
    some = f"{len(shown):,} of {len(known):,} problems are drawn, chosen evenly."
    notes = (some,) if len(shown) < len(known) else ()
    return chart.drawn(plot.draw(chart.title, marks), notes=notes)


def _digest(problem: ProblemSummary) -> bytes:
    return sha256(problem.problem_id.encode("utf-8", "surrogatepass")).digest()


# Name, look and values of a curve over the weights of the linear reward.
_RewardCurve: TypeAlias = tuple[str, str, Callable[[RewardFigures], float | None]]


def alpha_charts(rollouts: Rollouts) -> tuple[ReportChart, ReportChart]:
    """Return the mean rewards, and what a group-based trainer would get of them.

    The linear reward for each of its weights, beside max and outcome.
    """
    study = RewardStudy(rollouts)
    sweep, fixed = alpha_sweep(study), fixed_rewards(study)
    means = ReportChart(
        "reward",
        "Mean linear reward, right and wrong",
        "α · Acc + (1 − α) · NCR. At α = 1 it is the outcome alone; the lower α, the more a wrong "
        "rollout is paid for the nodes that it reaches.",
        empty="No rollout has both an accuracy and an NCR.",
    )
    signal = ReportChart(
        "signal",
        "Signal inside groups",
        f"Over {study.groups:,} groups (rollouts of one model for one problem, at least two): how "
        "many have rewards that differ, without which GRPO has no gradient, and in how many pairs "
        "of one group the wrong rollout is rewarded as much as the right one, or more. "
        "Dashed: the same for max(Acc, NCR) and dotted for the outcome alone.",
        empty="No model has two scored rollouts for one problem: there are no groups.",
    )
    if study.rollouts:
        curves: list[_RewardCurve] = [
            ("mean of right rollouts", "right", lambda f: f.right),
            ("mean of wrong rollouts", "wrong", lambda f: f.wrong),
            ("gap", "third", lambda f: f.gap),
        ]
        axis = Axis("reward", 0.0, 1.0, _PLAIN_FIFTHS)
        means = _swept(means, axis, curves, sweep, fixed, lambda value: f"{value:.3f}", ())
    if study.groups:
        curves = [
            ("groups whose rewards differ", "right", lambda f: f.signal),
            ("pairs in the wrong order", "wrong", lambda f: f.misordered),
        ]
        levels = list(zip(fixed, ("dashed", "dotted"), strict=True))
        axis = percent_axis("share")
        signal = _swept(signal, axis, curves, sweep, fixed, lambda v: f"{100 * v:.1f} %", levels)
    return means, signal


def _swept(
    chart: ReportChart,
    axis: Axis,
    curves: Sequence[_RewardCurve],
    sweep: Sequence[RewardFigures],
    fixed: Sequence[RewardFigures],
    write: Callable[[float], str],
    levels: Sequence[tuple[RewardFigures, str]],
) -> ReportChart:
    """Return a chart of curves over alpha, and of levels for rewards that have no alpha."""
    plot = Plot(_ALPHA, axis)
    marks: list[Markup] = []
    keys: list[LegendKey] = []
    for name, look, value_of in curves:
        points = [
            (figures.alpha, value)
            for figures in sweep
            if figures.alpha is not None and (value := value_of(figures)) is not None
        ]
        if points:
            told = [f"α = {x:g}: {name} {write(y)}" for x, y in points]
            marks += plot.curve(look, points, told)
            keys.append(LegendKey(name, look, "line"))
    for figures, style in levels:
        for name, look, value_of in curves:
            if (level := value_of(figures)) is not None:
                (x1, y), (x2, _) = plot.at(0.0, level), plot.at(1.0, level)
                place = {"x1": x1, "y1": y, "x2": x2, "y2": y}
                tip_of = f"{figures.name}: {name} {write(level)}"
                marks.append(
                    element("line", class_=f"curve {look} {style}", **place, data_tip=tip_of)
                )
    shown = [f for f in sweep if f.alpha is not None and round(f.alpha * 20) % 2 == 0]
    rows = [[f.name, f.right, f.wrong, f.gap, f.signal, f.misordered] for f in [*shown, *fixed]]
    columns = [
        words("reward"),
        *(number(name, decimals=3) for name in ("mean right", "mean wrong", "gap")),
        percent("groups with signal,"),
        percent("pairs in wrong order,"),
    ]
    table = Table("Rewards over the scored rollouts", columns, [rows])
    return chart.drawn(plot.draw(chart.title, marks), keys, table)


def node_order(rollouts: Rollouts) -> ReportChart:
    """Return the share of nodes reached by their place in the problem's order."""
    fifths = ("first", "second", "third", "fourth", "last")
    chart = ReportChart(
        "order",
        "Nodes reached, by their order",
        "Nodes of all problems by their place in the problem's order, in fifths. Where wrong "
        "rollouts fall behind is where they go astray.",
        empty="No rollout has nodes.",
    )
    ticks = tuple(((2 * i + 1) / 10, name) for i, name in enumerate(fifths))
    axis = Axis("fifth of the problem's nodes", 0.0, 1.0, ticks)
    return _positions(chart, axis, rollouts, reached_by_order)


def text_position(rollouts: Rollouts) -> ReportChart:
    """Return mean coverage as a function of how much of the response has been read."""
    chart = ReportChart(
        "position",
        "Coverage along the response",
        "Mean share of the nodes met after reading so much of the response. A step at the very "
        "end is a response that only states results; an early plateau followed by a long tail "
        "is redundant text.",
        empty="No rollout has positions of its hits (spans).",
    )
    axis = Axis("share of the response read", 0.0, 1.0, _PERCENT_FIFTHS)
    return _positions(chart, axis, rollouts, coverage_by_position)


def _positions(
    chart: ReportChart, axis: Axis, rollouts: Rollouts, curve_of: Callable[[Rollouts], Curve]
) -> ReportChart:
    """Return a curve for right and one for wrong rollouts."""
    sides = by_correctness(rollouts)
    curves = {side: curve for side in COMPARED if (curve := curve_of(sides[side])).points}
    if not curves:
        return chart
    plot = Plot(axis, percent_axis("share of the nodes"))
    marks: list[Markup] = []
    for side, curve in curves.items():
        marks += plot.curve(
            side.value,
            curve.points,
            [
                f"at {100 * x:.0f} %: {100 * y:.1f} % of the nodes, answer {side.value}"
                for x, y in curve.points
            ],
        )
    places = sorted({x for curve in curves.values() for x, _ in curve.points})
    values = [dict(curve.points) for curve in curves.values()]
    columns = [percent("position,"), *(percent(f"of nodes, {s.value},") for s in curves)]
    rows = [[x, *(one.get(x) for one in values)] for x in places]
    keys = [
        LegendKey(f"answer {side.value} ({curve.rollouts:,})", side.value, "line")
        for side, curve in curves.items()
    ]
    picture = plot.draw(chart.title, marks)
    return chart.drawn(picture, keys, Table(chart.title, columns, [rows]))
