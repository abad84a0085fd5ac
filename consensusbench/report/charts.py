"""The report's charts: what each shows of scored rollouts, as values that the page draws."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

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
from consensuspr.web.figures import (
    PERCENT,
    Axis,
    Chart,
    NumberFormat,
    Series,
)

if TYPE_CHECKING:
    from consensusbench.evaluation.scored import ScoredRollout

Rollouts: TypeAlias = "Sequence[ScoredRollout]"

# Of a logarithmic axis: as fine as some hundred rollouts can fill.
BINS_A_DECADE = 5

# More dots hide each other and make the page heavy; a share that spreads over all is shown.
MAX_DOTS = 1500

_WHOLE_PERCENT = NumberFormat(100.0, 0, " %")
_FIFTHS = tuple((i / 5, f"{20 * i} %") for i in range(6))
_THREE = NumberFormat(1.0, 3)


def _shares(title: str) -> Axis:
    return Axis(title, _WHOLE_PERCENT, low=0.0)


def _bins(values: Sequence[float]) -> tuple[list[float], list[str]]:
    """Return where bins of equal width on a logarithmic axis begin, and what they are called."""
    first = math.floor(math.log10(min(values)) * BINS_A_DECADE + 1e-9)
    last = math.floor(math.log10(max(values)) * BINS_A_DECADE + 1e-9) + 1
    edges = [10 ** (at / BINS_A_DECADE) for at in range(first, last + 1)]
    names = [f"{_rounded(low)} to {_rounded(high)}" for low, high in pairwise(edges)]
    return edges[:-1], names


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def histogram(
    chart: Chart,
    begins: Sequence[float],
    names: Sequence[str],
    values: Mapping[Correctness, Sequence[float]],
) -> Chart:
    """Return the chart with the share of right and of wrong rollouts in every bin."""
    series = []
    for side in COMPARED:
        places = (max(0, bisect_right(begins, value) - 1) for value in values[side])
        counts = Counter(places)
        total = len(values[side])
        shares = [counts[at] / (total or 1) for at in range(len(names))]
        series.append(Series(f"answer {side.value} ({total:,})", (), shares, side.value))
    return replace(chart, series=series, bins=names, empty="")


def _log_histogram(chart: Chart, values: Mapping[Correctness, Sequence[float]]) -> Chart:
    """Return the distributions of values that spread over orders of magnitude."""
    known = [value for side in COMPARED for value in values[side]]
    return histogram(chart, *_bins(known), values) if known else chart


def ncr_distribution(rollouts: Rollouts) -> Chart:
    """Return how NCR (equation 1 of the paper) is distributed."""
    chart = Chart(
        "bars",
        "ncr",
        "Node coverage, right and wrong",
        Axis("NCR"),
        _shares("share of the rollouts"),
        about="NCR rounded to tenths. Good nodes pull the two apart: right rollouts to the right, "
        "wrong ones to the left.",
        empty="No rollout has both an accuracy and an NCR.",
    )
    sides = by_correctness(rollouts)
    values = {s: [r.ncr for r in sides[s] if r.ncr is not None] for s in COMPARED}
    # NCR is a quotient of small whole numbers with many rollouts at 0 and at 1: bins centred on
    # tenths keep those two apart from their neighbours.
    begins, names = [(at - 0.5) / 10 for at in range(11)], [f"{10 * at} %" for at in range(11)]
    return histogram(chart, begins, names, values) if any(values.values()) else chart


def tpn_distribution(rollouts: Rollouts) -> Chart:
    """Return how TPN (equation 2 of the paper) is distributed; no node met is no TPN."""
    sides = by_correctness(rollouts)
    chart = Chart(
        "bars",
        "tpn",
        "Tokens per node",
        Axis("tokens per matched node"),
        _shares("share of the rollouts"),
        about="TPN on a logarithmic axis: how many tokens a rollout spends for each node that it "
        "reaches. Rollouts that reach none have no TPN.",
        empty="No rollout has both a length in tokens and a matched node.",
    )
    values = {s: [r.tpn for r in sides[s] if r.tpn is not None] for s in COMPARED}
    return _log_histogram(chart, values)


def length_distribution(rollouts: Rollouts) -> Chart:
    """Return how long responses are: in tokens where all have them, else in characters."""
    sides = by_correctness(rollouts)
    in_tokens = all(r.num_tokens for s in COMPARED for r in sides[s])
    unit = "tokens" if in_tokens else "characters"
    lengths = {s: [r.num_tokens if in_tokens else r.num_chars for r in sides[s]] for s in COMPARED}
    chart = Chart(
        "bars",
        "length",
        "Response length",
        Axis(unit),
        _shares("share of the rollouts"),
        about=f"Length in {unit}, on a logarithmic axis.",
        empty="No rollout has both an accuracy and a length above 0.",
    )
    return _log_histogram(chart, {s: [float(n) for n in lengths[s] if n] for s in COMPARED})


def accuracy_scatter(problems: Sequence[ProblemSummary], href_of: Callable[[str], str]) -> Chart:
    """Return mean NCR against mean accuracy, one dot for each problem, which leads to it."""
    chart = Chart(
        "scatter",
        "scatter",
        "NCR against Acc, by problem",
        Axis("Acc", _WHOLE_PERCENT, low=-0.04, high=1.04, ticks=_FIFTHS),
        Axis("NCR", _WHOLE_PERCENT, low=-0.04, high=1.04, ticks=_FIFTHS),
        about="Each dot is a problem: how many of its rollouts are right, and how much of its "
        "nodes they cover. Far below the diagonal: right without the nodes, so that the nodes may "
        "be poor. Far above it: the nodes are reached and the answer is missed.",
        diagonal=True,
        empty="No problem has both an accuracy and an NCR.",
    )
    known = [(p, p.acc, p.ncr) for p in problems if p.acc is not None and p.ncr is not None]
    if not known:
        return chart
    # Evenly over the problems, which stand in any order.
    shown = known[:: -(-len(known) // MAX_DOTS)]
    dots = Series(
        "problems",
        [acc for _, acc, _ in shown],
        [ncr for _, _, ncr in shown],
        "plain",
        [
            f"{one.problem_id}: Acc {100 * acc:.1f} %, NCR {100 * ncr:.1f} %"
            f" over {one.rollouts:,} rollouts"
            for one, acc, ncr in shown
        ],
        hrefs=[href_of(one.problem_id) for one, _, _ in shown],
    )
    some = f"{len(shown):,} of {len(known):,} problems are drawn, chosen evenly."
    return replace(chart, series=[dots], notes=(some,) if len(shown) < len(known) else (), empty="")


class _Swept(NamedTuple):
    """A curve over the weights of the linear reward."""

    name: str
    look: str
    value_of: Callable[[RewardFigures], float | None]


def alpha_charts(rollouts: Rollouts) -> tuple[Chart, Chart]:
    """Return the mean rewards, and what a group-based trainer would get of them.

    The linear reward for each of its weights, beside max and outcome.
    """
    study = RewardStudy(rollouts)
    sweep, fixed = alpha_sweep(study), fixed_rewards(study)
    alpha = Axis("α, weight of Acc", low=0.0, high=1.0)
    means = Chart(
        "line",
        "reward",
        "Mean linear reward, right and wrong",
        alpha,
        Axis("reward", _THREE, low=0.0, high=1.0),
        about="α · Acc + (1 − α) · NCR. At α = 1 it is the outcome alone; the lower α, the more a "
        "wrong rollout is paid for the nodes that it reaches.",
        empty="No rollout has both an accuracy and an NCR.",
    )
    signal = Chart(
        "line",
        "signal",
        "Signal inside groups",
        alpha,
        Axis("share", PERCENT, low=0.0, high=1.0),
        about=f"Over {study.groups:,} groups (rollouts of one model for one problem, at least "
        "two): how many have rewards that differ, without which GRPO has no gradient, and in how "
        "many pairs of one group the wrong rollout is rewarded as much as the right one, or more. "
        "Dashed: the same for max(Acc, NCR) and dotted for the outcome alone.",
        empty="No model has two scored rollouts for one problem: there are no groups.",
    )
    if study.rollouts:
        curves = [
            _Swept("mean of right rollouts", "right", lambda f: f.right),
            _Swept("mean of wrong rollouts", "wrong", lambda f: f.wrong),
            _Swept("gap", "third", lambda f: f.gap),
        ]
        means = replace(means, series=_swept(curves, sweep), empty="")
    if study.groups:
        curves = [
            _Swept("groups whose rewards differ", "right", lambda f: f.signal),
            _Swept("pairs in the wrong order", "wrong", lambda f: f.misordered),
        ]
        levels = [
            Series(f"{curve.name}, {figures.name}", [0.0, 1.0], [level] * 2, curve.look, dashed=how)
            for figures, how in zip(fixed, ("dashed", "dotted"), strict=True)
            for curve in curves
            if (level := curve.value_of(figures)) is not None
        ]
        signal = replace(signal, series=[*_swept(curves, sweep), *levels], empty="")
    return means, signal


def _swept(curves: Sequence[_Swept], sweep: Sequence[RewardFigures]) -> list[Series]:
    return [
        Series(
            one.name, [f.alpha or 0.0 for f in sweep], [one.value_of(f) for f in sweep], one.look
        )
        for one in curves
    ]


def node_order(rollouts: Rollouts) -> Chart:
    """Return the share of nodes reached by their place in the problem's order."""
    fifths = ("first", "second", "third", "fourth", "last")
    chart = Chart(
        "line",
        "order",
        "Nodes reached, by their order",
        Axis(
            "fifth of the problem's nodes",
            low=0.0,
            high=1.0,
            ticks=[((2 * i + 1) / 10, name) for i, name in enumerate(fifths)],
        ),
        _shares("share of the nodes"),
        about="Nodes of all problems by their place in the problem's order, in fifths. Where wrong "
        "rollouts fall behind is where they go astray.",
        empty="No rollout has nodes.",
    )
    return _positions(chart, rollouts, reached_by_order)


def text_position(rollouts: Rollouts) -> Chart:
    """Return mean coverage as a function of how much of the response has been read."""
    chart = Chart(
        "line",
        "position",
        "Coverage along the response",
        Axis("share of the response read", _WHOLE_PERCENT, low=0.0, high=1.0),
        _shares("share of the nodes"),
        about="Mean share of the nodes met after reading so much of the response. A step at the "
        "very end is a response that only states results; an early plateau followed by a long "
        "tail is redundant text.",
        empty="No rollout has positions of its hits (spans).",
    )
    return _positions(chart, rollouts, coverage_by_position)


def _positions(chart: Chart, rollouts: Rollouts, curve_of: Callable[[Rollouts], Curve]) -> Chart:
    """Return a curve for right and one for wrong rollouts."""
    sides = by_correctness(rollouts)
    curves = {side: curve for side in COMPARED if (curve := curve_of(sides[side])).points}
    series = [
        Series(
            f"answer {side.value} ({curve.rollouts:,})",
            [x for x, _ in curve.points],
            [y for _, y in curve.points],
            side.value,
        )
        for side, curve in curves.items()
    ]
    return replace(chart, series=series, empty="") if series else chart
