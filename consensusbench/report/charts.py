"""Charts as inline SVG: a small kit, and one module for each chart.

Every colour and font comes from the page's style sheet by class, so that a chart follows the
reader's light or dark theme and the printer, and needs neither a script nor an inline style.
Each chart carries its figures as a table too.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING

from markupsafe import Markup

from consensusbench.report.data import (
    COMPARED,
    Curve,
    ProblemSummary,
    RewardFigures,
    RewardStudy,
    Side,
    alpha_sweep,
    by_side,
    coverage_by_position,
    fixed_rewards,
    reached_by_order,
)
from consensusbench.report.markup import Column, Table, count, element, number, percent, text

if TYPE_CHECKING:
    from consensusbench.evaluation.scored import ScoredRollout


# MERGED What a chart is to the page: a picture, what it says, its legend and its figures.


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend.

    Attributes:
        name: what the reader is told.
        look: class of the style sheet that the marks carry.
        shape: ``bar``, ``line`` or ``dot``.
    """

    name: str
    look: str
    shape: str = "bar"


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart.

    Attributes:
        name: part of the element ids, unique among the charts of a scope.
        title: heading.
        about: how to read it, one or two sentences.
        svg: the picture; None where there is nothing to draw, and ``empty`` says why.
        keys: the legend.
        figures: what was drawn, as numbers.
        empty: one sentence in place of the picture.
    """

    name: str
    title: str
    about: str
    svg: Markup | None = None
    keys: tuple[Key, ...] = ()
    figures: Table | None = None
    empty: str = ""
    notes: tuple[str, ...] = field(default=())


# MERGED Axes: from values to places in the picture, with round ticks.

# Of every picture, in its own units; the style sheet scales it to its column.
WIDTH, HEIGHT = 480.0, 290.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 456.0, 12.0, 242.0


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis.

    Attributes:
        label: what it measures, with its unit.
        low: value at its beginning.
        high: value at its end, above ``low``.
        ticks: values that are marked, and their texts.
        log: whether it is logarithmic; ``low`` is above 0 then.
    """

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
    """Return an axis for fractions, written in percent.

    Args:
        label: what is measured.
        high: largest value; the axis ends at the next round one.
    """
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


@dataclass(frozen=True, slots=True)
class Frame:
    """The rectangle between two axes."""

    x: Axis
    y: Axis

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the place of a point in the picture."""
        return (
            LEFT + self.x.share(x) * (RIGHT - LEFT),
            BOTTOM - self.y.share(y) * (BOTTOM - TOP),
        )

    def draw(self, title: str, marks: Sequence[Markup]) -> Markup:
        """Return the picture: grid, ticks and labels below the marks.

        Args:
            title: what a screen reader says of the picture.
            marks: what is drawn, the first lowest.
        """
        middle = (TOP + BOTTOM) / 2
        labels = (
            element("text", self.x.label, class_="label", x=(LEFT + RIGHT) / 2, y=HEIGHT - 8.0),
            element(
                "text",
                self.y.label,
                class_="label",
                x=0.0,
                y=0.0,
                transform=f"translate(14 {middle:g}) rotate(-90)",
            ),
        )
        return element(
            "svg",
            *(self._tick_x(value, text) for value, text in self.x.ticks),
            *(self._tick_y(value, text) for value, text in self.y.ticks),
            *marks,
            *labels,
            viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
            role="img",
            aria_label=title,
        )

    def _tick_x(self, value: float, text: str) -> Markup:
        x, _ = self.at(value, self.y.low)
        line = element("line", class_="grid", x1=x, y1=TOP, x2=x, y2=BOTTOM)
        return line + element("text", text, class_="tick middle", x=x, y=BOTTOM + 17.0)

    def _tick_y(self, value: float, text: str) -> Markup:
        _, y = self.at(self.x.low, value)
        line = element("line", class_="grid", x1=LEFT, y1=y, x2=RIGHT, y2=y)
        return line + element("text", text, class_="tick end", x=LEFT - 6.0, y=y + 4.0)


@dataclass(frozen=True, slots=True)
class Line:
    """A curve: its points in order, how it looks, and what a point is called."""

    look: str
    points: tuple[tuple[float, float], ...]
    tip: Callable[[float, float], str]
    dots: bool = True

    def draw(self, frame: Frame) -> list[Markup]:
        """Return the curve and, where wanted, a dot for each of its points."""
        places = [frame.at(x, y) for x, y in self.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        marks = [element("polyline", points=path, class_=f"curve {self.look}")]
        for (x, y), (cx, cy) in zip(self.points, places, strict=True):
            marks.append(
                element(
                    "circle",
                    class_=f"dot {self.look}" + ("" if self.dots else " quiet"),
                    cx=cx,
                    cy=cy,
                    r=3.5,
                    data_tip=self.tip(x, y),
                )
            )
        return marks


# MERGED Two distributions side by side: right rollouts filled, wrong ones outlined.

# Of a logarithmic axis: as fine as some hundred rollouts can fill.
BINS_A_DECADE = 5


@dataclass(frozen=True, slots=True)
class Bin:
    """A bin of the axis from ``low`` to ``high``, drawn there, and what it is called."""

    low: float
    high: float
    name: str


def log_bins(values: Sequence[float], unit: str) -> list[Bin]:
    """Return bins of equal width on a logarithmic axis that hold all values (above 0)."""
    first = math.floor(math.log10(min(values)) * BINS_A_DECADE + 1e-9)
    last = math.floor(math.log10(max(values)) * BINS_A_DECADE + 1e-9) + 1
    edges = [10 ** (i / BINS_A_DECADE) for i in range(first, last + 1)]
    return [
        Bin(low, high, f"{_short(low)} to {_short(high)} {unit}") for low, high in pairwise(edges)
    ]


def counted(values: Sequence[float], bins: Sequence[Bin]) -> list[int]:
    """Return how many values fall into each bin; the outermost take what lies beyond them."""
    counts = [0] * len(bins)
    edges = [b.low for b in bins]
    for value in values:
        counts[max(0, bisect_right(edges, value) - 1)] += 1
    return counts


def log_histogram(
    name: str,
    title: str,
    about: str,
    unit: str,
    values: Mapping[Side, Sequence[float]],
    empty: str,
) -> Chart:
    """Return the distributions of values that spread over orders of magnitude.

    Args:
        name: the chart's name.
        title: its heading.
        about: how to read it.
        unit: of the values, in plural.
        values: of each side, all above 0.
        empty: one sentence where there are none.
    """
    known = [value for side in COMPARED for value in values[side]]
    if not known:
        return Chart(name, title, about, empty=empty)
    bins = log_bins(known, unit)
    axis = log_axis(unit, bins[0].low, bins[-1].high)
    return histogram(name, title, about, axis, bins, values)


def histogram(
    name: str,
    title: str,
    about: str,
    axis: Axis,
    bins: Sequence[Bin],
    values: Mapping[Side, Sequence[float]],
) -> Chart:
    """Return the share of each side's values in every bin, as bars and as a table."""
    counts = {side: counted(values[side], bins) for side in COMPARED}
    shares = {side: _shares(counts[side]) for side in COMPARED}
    frame = Frame(axis, percent_axis("share of the rollouts", max(max(shares[s]) for s in shares)))
    bars = [
        _bar(frame, each, side, shares[side][at], counts[side][at])
        for side in COMPARED
        for at, each in enumerate(bins)
        if counts[side][at]
    ]
    keys = tuple(
        Key(f"answer {side.value} ({len(values[side]):,})", side.value) for side in COMPARED
    )
    return Chart(name, title, about, frame.draw(title, bars), keys, _table(title, bins, counts))


def _shares(counts: Sequence[int]) -> list[float]:
    total = sum(counts)
    return [n / total if total else 0.0 for n in counts]


def _bar(frame: Frame, each: Bin, side: Side, share: float, n: int) -> Markup:
    left, top = frame.at(each.low, share)
    right, _ = frame.at(each.high, share)
    width = (right - left) / 2 - 1.5
    return element(
        "rect",
        class_=f"bar {side.value}",
        x=left + 1 if side is Side.RIGHT else left + 1.5 + width,
        y=top,
        width=width,
        height=BOTTOM - top,
        data_tip=f"{each.name}: {100 * share:.1f} % of the rollouts whose answer is "
        f"{side.value} ({n:,})",
    )


def _table(title: str, bins: Sequence[Bin], counts: Mapping[Side, Sequence[int]]) -> Table:
    shares = {side: _shares(counts[side]) for side in COMPARED}
    rows = tuple(
        (
            text(each.name),
            *(
                cell
                for side in COMPARED
                for cell in (count(counts[side][at]), percent(shares[side][at]))
            ),
        )
        for at, each in enumerate(bins)
    )
    columns = (
        Column("bin", numeric=False),
        *(Column(name) for side in COMPARED for name in (side.value, f"% of {side.value}")),
    )
    return Table(title, columns, rows)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


# MERGED Distributions of NCR, of TPN and of the response's length, right against wrong.

# NCR is a quotient of small whole numbers with many rollouts at 0 and at 1: bins centred on
# tenths keep those two apart from their neighbours.
_TENTHS = 10


def ncr_distribution(rollouts: Sequence[ScoredRollout]) -> Chart:
    """Return how NCR (equation 1 of the paper) is distributed."""
    title = "Node coverage, right and wrong"
    about = (
        "NCR rounded to tenths. Good nodes pull the two apart: right rollouts to the right, "
        "wrong ones to the left."
    )
    sides = by_side(rollouts)
    values = {s: [r.ncr for r in sides[s] if r.ncr is not None] for s in COMPARED}
    if not any(values.values()):
        return Chart("ncr", title, about, empty="No rollout has both an accuracy and an NCR.")
    bins = [
        Bin((i - 0.5) / _TENTHS, (i + 0.5) / _TENTHS, f"NCR {100 * i // _TENTHS} %")
        for i in range(_TENTHS + 1)
    ]
    ticks = tuple((i / 5, f"{20 * i} %") for i in range(6))
    axis = Axis("NCR", bins[0].low, bins[-1].high, ticks)
    return histogram("ncr", title, about, axis, bins, values)


def tpn_distribution(rollouts: Sequence[ScoredRollout]) -> Chart:
    """Return how TPN (equation 2 of the paper) is distributed; no node met is no TPN."""
    sides = by_side(rollouts)
    values = {s: [r.tpn for r in sides[s] if r.tpn is not None] for s in COMPARED}
    return log_histogram(
        "tpn",
        "Tokens per node",
        "TPN on a logarithmic axis: how many tokens a rollout spends for each node that it "
        "reaches. Rollouts that reach none have no TPN.",
        "tokens per matched node",
        values,
        "No rollout has both a length in tokens and a matched node.",
    )


def length_distribution(rollouts: Sequence[ScoredRollout]) -> Chart:
    """Return how long responses are: in tokens where all have them, else in characters."""
    sides = by_side(rollouts)
    in_tokens = all(r.num_tokens for s in COMPARED for r in sides[s])
    unit = "tokens" if in_tokens else "characters"
    lengths = {
        s: [
            float(length)
            for r in sides[s]
            if (length := r.num_tokens if in_tokens else r.num_chars)
        ]
        for s in COMPARED
    }
    about = f"Length in {unit}, on a logarithmic axis."
    empty = "No rollout has both an accuracy and a length above 0."
    return log_histogram("length", "Response length", about, unit, lengths, empty)


# MERGED Shares of a whole: one bar for each group, cut into its parts.

_ROW, _BAR, _NAME = 44.0, 18.0, 14.0

# Narrower segments carry no letter; their tips and the tables tell what they are.
_LETTER_WIDTH = 13.0


@dataclass(frozen=True, slots=True)
class Part:
    """A class that a whole is made of: its name, its letter, its class of the style sheet."""

    name: str
    letter: str
    look: str


def share_bars(
    name: str,
    title: str,
    about: str,
    parts: Sequence[Part],
    groups: Sequence[tuple[str, Sequence[int]]],
) -> Chart:
    """Return one bar for each group, cut into the shares of its parts.

    Args:
        name: the chart's name.
        title: its heading.
        about: how to read it.
        parts: what a bar is cut into.
        groups: name of each group and the count of each part.
    """
    marks: list[Markup] = []
    for row, (group, counts) in enumerate(groups):
        marks += _shares_bar(TOP + row * _ROW, group, parts, counts)
    svg = element(
        "svg",
        *marks,
        viewBox=f"0 0 {WIDTH:g} {TOP + len(groups) * _ROW:g}",
        role="img",
        aria_label=title,
    )
    keys = tuple(Key(f"{part.letter}: {part.name}", f"part {part.look}") for part in parts)
    return Chart(name, title, about, svg, keys)


def _shares_bar(
    top: float, group: str, parts: Sequence[Part], counts: Sequence[int]
) -> list[Markup]:
    total = sum(counts)
    left = LEFT - 50.0
    marks = [element("text", f"{group} ({total:,})", x=left, y=top + _NAME - 3)]
    for part, amount in zip(parts, counts, strict=True):
        if not amount:
            continue
        width = (RIGHT + 20.0 - LEFT + 50.0) * amount / total
        tip = f"{group}: {100 * amount / total:.1f} % {part.name} ({amount:,})"
        pieces = [
            element(
                "rect",
                class_=f"bar part {part.look}",
                x=left,
                y=top + _NAME,
                width=width,
                height=_BAR,
            )
        ]
        if width >= _LETTER_WIDTH:
            middle = left + width / 2
            pieces.append(
                element("text", part.letter, class_="letter", x=middle, y=top + _NAME + 13)
            )
        marks.append(element("g", *pieces, data_tip=tip))
        left += width
    return marks


# MERGED NCR against Acc: one dot for each problem.

# More dots hide each other and make the page heavy; a share that spreads over all is shown.
MAX_DOTS = 1500

# Problems with few rollouts share a handful of places: dots are moved by up to this much so
# that they can be told apart. Tips and tables carry the exact figures.
_JITTER = 0.012


def accuracy_scatter(problems: Sequence[ProblemSummary]) -> Chart:
    """Return mean NCR against mean accuracy by problem."""
    title = "NCR against Acc, by problem"
    about = (
        "Each dot is a problem: how many of its rollouts are right, and how much of its nodes "
        "they cover. Far below the diagonal: right without the nodes, so that the nodes may be "
        "poor. Far above it: the nodes are reached and the answer is missed."
    )
    known = [p for p in problems if p.acc is not None and p.ncr is not None]
    if not known:
        return Chart("scatter", title, about, empty="No problem has both an accuracy and an NCR.")
    shown = sorted(known, key=_shuffled)[:MAX_DOTS]
    notes = (
        (f"{len(shown):,} of {len(known):,} problems are drawn, chosen evenly.",)
        if len(shown) < len(known)
        else ()
    )
    ticks = tuple((i / 5, f"{20 * i} %") for i in range(6))
    frame = Frame(Axis("Acc", -0.04, 1.04, ticks), Axis("NCR", -0.04, 1.04, ticks))
    (x1, y1), (x2, y2) = frame.at(0.0, 0.0), frame.at(1.0, 1.0)
    diagonal = element("line", class_="reference", x1=x1, y1=y1, x2=x2, y2=y2)
    marks = [diagonal, *(_dot(frame, problem) for problem in shown)]
    return Chart("scatter", title, about, frame.draw(title, marks), notes=notes)


def _shuffled(problem: ProblemSummary) -> bytes:
    return sha256(problem.problem_id.encode("utf-8", "surrogatepass")).digest()


def _dot(frame: Frame, problem: ProblemSummary) -> Markup:
    assert problem.acc is not None and problem.ncr is not None
    noise = _shuffled(problem)
    dx, dy = (_JITTER * (byte / 127.5 - 1) for byte in noise[:2])
    x, y = frame.at(problem.acc + dx, problem.ncr + dy)
    return element(
        "circle",
        class_="dot plain",
        cx=x,
        cy=y,
        r=4,
        data_tip=f"{problem.problem_id}: Acc {100 * problem.acc:.1f} %, "
        f"NCR {100 * problem.ncr:.1f} % over {problem.rollouts:,} rollouts",
    )


# MERGED Alpha-sensitivity of the linear reward, beside max and outcome.

_ALPHA = Axis("α, weight of Acc", 0.0, 1.0, tuple((i / 5, f"{i / 5:g}") for i in range(6)))
_PART = Callable[[RewardFigures], float | None]


def alpha_charts(rollouts: Sequence[ScoredRollout]) -> tuple[Chart, Chart]:
    """Return the mean rewards, and what a group-based trainer would get of them."""
    study = RewardStudy(rollouts)
    sweep, fixed = alpha_sweep(study), fixed_rewards(study)
    return _means(study, sweep, fixed), _signal(study, sweep, fixed)


def _means(
    study: RewardStudy, sweep: Sequence[RewardFigures], fixed: Sequence[RewardFigures]
) -> Chart:
    title = "Mean linear reward, right and wrong"
    about = (
        "α · Acc + (1 − α) · NCR. At α = 1 it is the outcome alone; the lower α, the more a wrong "
        "rollout is paid for the nodes that it reaches."
    )
    if not study.rollouts:
        return Chart("reward", title, about, empty="No rollout has both an accuracy and an NCR.")
    parts: list[tuple[str, str, _PART]] = [
        ("mean of right rollouts", "right", lambda f: f.right),
        ("mean of wrong rollouts", "wrong", lambda f: f.wrong),
        ("gap", "third", lambda f: f.gap),
    ]
    frame = Frame(_ALPHA, Axis("reward", 0.0, 1.0, tuple((i / 5, f"{i / 5:g}") for i in range(6))))
    marks, keys = _lines(frame, parts, sweep, lambda value: f"{value:.3f}")
    return Chart(
        "reward",
        title,
        about,
        frame.draw(title, marks),
        keys,
        _alpha_sensitivity_table(sweep, fixed),
    )


def _signal(
    study: RewardStudy, sweep: Sequence[RewardFigures], fixed: Sequence[RewardFigures]
) -> Chart:
    title = "Signal inside groups"
    about = (
        f"Over {study.groups:,} groups (rollouts of one model for one problem, at least two): how "
        "many have rewards that differ, without which GRPO has no gradient, and in how many pairs "
        "of one group the wrong rollout is rewarded as much as the right one, or more. "
        "Dashed: the same for max(Acc, NCR) and dotted for the outcome alone."
    )
    if not study.groups:
        empty = "No model has two scored rollouts for one problem: there are no groups."
        return Chart("signal", title, about, empty=empty)
    parts: list[tuple[str, str, _PART]] = [
        ("groups whose rewards differ", "right", lambda f: f.signal),
        ("pairs in the wrong order", "wrong", lambda f: f.misordered),
    ]
    frame = Frame(_ALPHA, percent_axis("share"))
    marks, keys = _lines(frame, parts, sweep, lambda value: f"{100 * value:.1f} %")
    for figures, style in zip(fixed, ("dashed", "dotted"), strict=True):
        for name, look, part in parts:
            value = part(figures)
            if value is not None:
                marks.append(_level(frame, value, f"{look} {style}", f"{figures.name}: {name}"))
    return Chart(
        "signal",
        title,
        about,
        frame.draw(title, marks),
        keys,
        _alpha_sensitivity_table(sweep, fixed),
    )


def _lines(
    frame: Frame,
    parts: Sequence[tuple[str, str, _PART]],
    sweep: Sequence[RewardFigures],
    write: Callable[[float], str],
) -> tuple[list[Markup], tuple[Key, ...]]:
    marks: list[Markup] = []
    keys: list[Key] = []
    for name, look, part in parts:
        points = tuple(
            (figures.alpha, value)
            for figures in sweep
            if figures.alpha is not None and (value := part(figures)) is not None
        )
        if points:
            tip = _tip(name, write)
            marks += Line(look, points, tip).draw(frame)
            keys.append(Key(name, look, "line"))
    return marks, tuple(keys)


def _tip(name: str, write: Callable[[float], str]) -> Callable[[float, float], str]:
    return lambda x, y: f"α = {x:g}: {name} {write(y)}"


def _level(frame: Frame, value: float, look: str, name: str) -> Markup:
    (x1, y), (x2, _) = frame.at(0.0, value), frame.at(1.0, value)
    tip = f"{name} {100 * value:.1f} %"
    return element("line", class_=f"curve {look}", x1=x1, y1=y, x2=x2, y2=y, data_tip=tip)


def _alpha_sensitivity_table(
    sweep: Sequence[RewardFigures], fixed: Sequence[RewardFigures]
) -> Table:
    shown = [f for f in sweep if f.alpha is not None and round(f.alpha * 20) % 2 == 0]
    rows = tuple(
        (
            text(figures.name),
            number(figures.right, 3),
            number(figures.wrong, 3),
            number(figures.gap, 3),
            percent(figures.signal),
            percent(figures.misordered),
        )
        for figures in [*shown, *fixed]
    )
    columns = (
        Column("reward", numeric=False),
        Column("mean right"),
        Column("mean wrong"),
        Column("gap"),
        Column("groups with signal, %"),
        Column("pairs in wrong order, %"),
    )
    return Table("Rewards over the scored rollouts", columns, rows)


# MERGED Position curves: which nodes are reached, and when.

_FIFTHS = ("first", "second", "third", "fourth", "last")


def node_order(rollouts: Sequence[ScoredRollout]) -> Chart:
    """Return the share of nodes reached by their place in the problem's order."""
    sides = by_side(rollouts)
    return _chart(
        "order",
        "Nodes reached, by their order",
        "Nodes of all problems by their place in the problem's order, in fifths. Where wrong "
        "rollouts fall behind is where they go astray.",
        "fifth of the problem's nodes",
        {side: reached_by_order(sides[side]) for side in COMPARED},
        tuple(((2 * i + 1) / 10, name) for i, name in enumerate(_FIFTHS)),
        empty="No rollout has nodes.",
    )


def text_position(rollouts: Sequence[ScoredRollout]) -> Chart:
    """Return mean coverage as a function of how much of the response has been read."""
    sides = by_side(rollouts)
    return _chart(
        "position",
        "Coverage along the response",
        "Mean share of the nodes met after reading so much of the response. A step at the very "
        "end is a response that only states results; an early plateau followed by a long tail "
        "is redundant text.",
        "share of the response read",
        {side: coverage_by_position(sides[side]) for side in COMPARED},
        tuple((i / 5, f"{20 * i} %") for i in range(6)),
        empty="No rollout has positions of its hits (spans).",
    )


def _chart(
    name: str,
    title: str,
    about: str,
    x_label: str,
    curves: dict[Side, Curve],
    ticks: tuple[tuple[float, str], ...],
    empty: str,
) -> Chart:
    drawn = {side: curve for side, curve in curves.items() if curve.points}
    if not drawn:
        return Chart(name, title, about, empty=empty)
    frame = Frame(Axis(x_label, 0.0, 1.0, ticks), percent_axis("share of the nodes"))
    lines = [
        mark
        for side, curve in drawn.items()
        for mark in Line(side.value, curve.points, _position_curves_tip(side)).draw(frame)
    ]
    keys = tuple(
        Key(f"answer {side.value} ({curve.rollouts:,})", side.value, "line")
        for side, curve in drawn.items()
    )
    return Chart(
        name, title, about, frame.draw(title, lines), keys, _position_curves_table(title, drawn)
    )


def _position_curves_tip(side: Side) -> Callable[[float, float], str]:
    return lambda x, y: f"at {100 * x:.0f} %: {100 * y:.1f} % of the nodes, answer {side.value}"


def _position_curves_table(title: str, curves: dict[Side, Curve]) -> Table:
    places = sorted({x for curve in curves.values() for x, _ in curve.points})
    values = {side: dict(curve.points) for side, curve in curves.items()}
    rows = tuple((percent(x), *(percent(values[side].get(x)) for side in curves)) for x in places)
    return Table(
        title, (Column("position, %"), *(Column(f"{s.value}, % of nodes") for s in curves)), rows
    )
