"""The report's charts: figures of scored rollouts, mostly of right beside wrong ones."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from consensuspr.scoring.rewards import RewardSpec
from consensuspr.web.figures import PERCENT, Axis, Chart, NumberFormat, Series

if TYPE_CHECKING:
    from consensusbench.evaluation.scored import Bools, Floats, ScoredRollout

Rollouts: TypeAlias = "Sequence[ScoredRollout]"
Points: TypeAlias = list[tuple[float, float]]

# Both are names of colours of the page too.
RIGHT, WRONG = "right", "wrong"

# Of a logarithmic axis: as fine as some hundred rollouts can fill.
BINS_A_DECADE = 5
# More dots hide each other and make the page heavy; a share that spreads over all is shown.
MAX_DOTS = 1500
TEXT_STEPS = 20
ALPHAS = tuple(i / 20 for i in range(21))
# Rewards are sums of quotients of small numbers: closer than this is equal.
_EQUAL = 1e-9

_WHOLE_PERCENT = NumberFormat(100.0, 0, " %")
_FIFTHS = tuple((i / 5, f"{20 * i} %") for i in range(6))
_OF_ROLLOUTS = Axis("share of the rollouts", _WHOLE_PERCENT, low=0.0)
_OF_NODES = Axis("share of the nodes", _WHOLE_PERCENT, low=0.0)


def by_correctness(rollouts: Rollouts) -> dict[str, list[ScoredRollout]]:
    """Return right and wrong rollouts; one without an accuracy is neither."""
    return {
        RIGHT: [one for one in rollouts if one.acc is not None and one.acc >= 0.5],
        WRONG: [one for one in rollouts if one.acc is not None and one.acc < 0.5],
    }


def _histogram(
    chart: Chart, rollouts: Rollouts, value_of: Callable[[ScoredRollout], float | None]
) -> Chart:
    """Return the chart with the shares of right and wrong rollouts in bins.

    A chart that names its bins has bins around tenths; another one has bins of equal width on a
    logarithmic axis.
    """
    values = {
        side: [value for one in group if (value := value_of(one)) is not None]
        for side, group in by_correctness(rollouts).items()
    }
    known = [*values[RIGHT], *values[WRONG]]
    if not known:
        return chart
    names = list(chart.bins)
    begins = [(at - 0.5) / 10 for at in range(11)]
    if not names:
        first = math.floor(math.log10(min(known)) * BINS_A_DECADE + 1e-9)
        last = math.floor(math.log10(max(known)) * BINS_A_DECADE + 1e-9) + 1
        edges = [10 ** (at / BINS_A_DECADE) for at in range(first, last + 1)]
        shown = [f"{edge:,.0f}" if edge >= 10 else f"{edge:.1f}" for edge in edges]
        begins, names = edges[:-1], [f"{low} to {high}" for low, high in pairwise(shown)]
    series = []
    for side, group in values.items():
        counts = Counter(max(0, bisect_right(begins, value) - 1) for value in group)
        shares = [counts[at] / (len(group) or 1) for at in range(len(names))]
        series.append(Series(f"answer {side} ({len(group):,})", (), shares, side))
    return replace(chart, series=series, bins=names, empty="")


def ncr_distribution(rollouts: Rollouts) -> Chart:
    """Return how NCR (equation 1 of the paper) is distributed."""
    # NCR is a quotient of small whole numbers with many rollouts at 0 and at 1: bins centred on
    # tenths keep those two apart from their neighbours.
    chart = Chart(
        "bars",
        "ncr",
        "Node coverage, right and wrong",
        Axis("NCR"),
        _OF_ROLLOUTS,
        about="NCR rounded to tenths. Good nodes separate the two: right rollouts have a high "
        "NCR, wrong ones a low one.",
        bins=[f"{10 * at} %" for at in range(11)],
        empty="No rollout has both an accuracy and an NCR.",
    )
    return _histogram(chart, rollouts, lambda rollout: rollout.ncr)


def tpn_distribution(rollouts: Rollouts) -> Chart:
    """Return how TPN (equation 2 of the paper) is distributed."""
    chart = Chart(
        "bars",
        "tpn",
        "Tokens per node",
        Axis("tokens per matched node"),
        _OF_ROLLOUTS,
        about="TPN on a logarithmic axis: how many tokens a rollout spends for each node that it "
        "reaches. Rollouts that reach none have no TPN.",
        empty="No rollout has both a length in tokens and a matched node.",
    )
    return _histogram(chart, rollouts, lambda rollout: rollout.tpn)


def length_distribution(rollouts: Rollouts) -> Chart:
    """Return how long responses are: in tokens where all have them, else in characters."""
    in_tokens = all(rollout.num_tokens for rollout in rollouts if rollout.acc is not None)
    unit = "tokens" if in_tokens else "characters"
    chart = Chart(
        "bars",
        "length",
        "Response length",
        Axis(unit),
        _OF_ROLLOUTS,
        about=f"Length in {unit}, on a logarithmic axis.",
        empty="No rollout has both an accuracy and a length above 0.",
    )
    return _histogram(
        chart, rollouts, lambda one: (one.num_tokens if in_tokens else one.num_chars) or None
    )


def accuracy_scatter(rollouts: Rollouts, href_of: Callable[[str], str]) -> Chart:
    """Return mean NCR against mean accuracy, one dot for each problem, which leads to it."""
    chart = Chart(
        "scatter",
        "scatter",
        "NCR against Acc, by problem",
        Axis("Acc", _WHOLE_PERCENT, low=-0.04, high=1.04, ticks=_FIFTHS),
        Axis("NCR", _WHOLE_PERCENT, low=-0.04, high=1.04, ticks=_FIFTHS),
        about="Each dot is a problem, with the mean Acc and NCR of its rollouts. Far below the "
        "diagonal, rollouts are right without reaching the nodes: check the nodes. Far above it, "
        "they reach the nodes and miss the answer.",
        diagonal=True,
        empty="No problem has both an accuracy and an NCR.",
    )
    groups: dict[str, list[ScoredRollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.problem_id, []).append(rollout)
    known = []
    for problem_id, group in groups.items():
        acc = _mean([one.acc for one in group if one.acc is not None])
        ncr = _mean([one.ncr for one in group if one.ncr is not None])
        if acc is not None and ncr is not None:
            tip = f"{problem_id}: Acc {100 * acc:.1f} %, NCR {100 * ncr:.1f} %"
            known.append((acc, ncr, f"{tip} over {len(group):,} rollouts", href_of(problem_id)))
    if not known:
        return chart
    # Evenly over the problems, which stand in any order.
    shown = known[:: -(-len(known) // MAX_DOTS)]
    x, y, tips, hrefs = zip(*shown, strict=True)
    note = f"{len(shown):,} of {len(known):,} problems are drawn, chosen evenly."
    return replace(
        chart,
        series=[Series("problems", x, y, "plain", tips, hrefs=hrefs)],
        notes=(note,) if len(shown) < len(known) else (),
        empty="",
    )


def _mean(values: Sequence[float] | Floats | Bools) -> float | None:
    return float(np.mean(values)) if len(values) else None


def text_position(rollouts: Rollouts) -> Chart:
    """Return mean coverage as a function of how much of the response has been read."""
    chart = Chart(
        "line",
        "position",
        "Coverage along the response",
        Axis("share of the response read", _WHOLE_PERCENT, low=0.0, high=1.0),
        _OF_NODES,
        about="Mean share of the nodes that are found in this much of the response. A step at the "
        "end means that responses only list results. A plateau means redundant text.",
        empty="No rollout has positions of its hits (spans).",
    )
    series = []
    for side, group in by_correctness(rollouts).items():
        points, used = coverage_by_position(group)
        if points:
            x, y = zip(*points, strict=True)
            series.append(Series(f"answer {side} ({used:,})", x, y, side))
    return replace(chart, series=series, empty="") if series else chart


def coverage_by_position(rollouts: Rollouts, steps: int = TEXT_STEPS) -> tuple[Points, int]:
    """Return mean coverage after reading each share of the text, and the rollouts that count.

    A node counts from the end of its first hit on.  Rollouts without spans, without nodes or
    without text are left out.  The curve ends at their mean NCR.
    """
    arrived = [0.0] * (steps + 1)
    used = 0
    for rollout in rollouts:
        if rollout.spans and rollout.num_chars:
            used += 1
            for span in rollout.spans:
                if span is not None:
                    slot = -(-span[1] * steps // rollout.num_chars)
                    arrived[min(slot, steps)] += 1 / len(rollout.spans)
    points, total = [], 0.0
    for slot, share in enumerate(arrived if used else ()):
        total += share
        points.append((slot / steps, total / used))
    return points, used


class RewardFigures(NamedTuple):
    """Figures of one reward on rollouts that exist; nothing is trained.

    Attributes:
        right, wrong: mean rewards; None without such rollouts.
        signal: share of groups (rollouts of one model for one problem) whose rewards differ:
            GRPO takes its gradient from differences inside a group; None without a group of two.
        misordered: share of pairs of a right and a wrong rollout in one group in which the wrong
            one gets as much or more; None without such a pair.
    """

    right: float | None
    wrong: float | None
    signal: float | None
    misordered: float | None

    @property
    def gap(self) -> float | None:
        """How much more a right rollout gets than a wrong one, on average."""
        return None if self.right is None or self.wrong is None else self.right - self.wrong


class RewardStudy:
    """Acc and NCR of rollouts in their groups, ready for any reward.

    Rollouts whose Acc or NCR is unknown are left out; a group needs two that are left.
    """

    def __init__(self, rollouts: Rollouts) -> None:
        groups: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for rollout in rollouts:
            if rollout.acc is not None and rollout.ncr is not None:
                groups[rollout.model, rollout.problem_id].append((rollout.acc, rollout.ncr))
        sizes = np.array([len(group) for group in groups.values()], dtype=np.int64)
        self.rollouts, self.groups = int(sizes.sum()), int((sizes > 1).sum())
        flat = np.array([pair for g in groups.values() for pair in g], dtype=np.float64)
        self._acc, self._ncr = flat.reshape(-1, 2).T
        self._starts, self._several = np.cumsum(sizes) - sizes, sizes > 1
        # Pairs by NCR of the right and of the wrong rollout, of which there are few distinct ones.
        pairs: Counter[tuple[float, float]] = Counter()
        for group in groups.values():
            right = Counter(ncr for acc, ncr in group if acc >= 0.5)
            wrong = Counter(ncr for acc, ncr in group if acc < 0.5)
            for (of_right, n), (of_wrong, m) in product(right.items(), wrong.items()):
                pairs[of_right, of_wrong] += n * m
        self._pairs = np.array([(*key, n) for key, n in pairs.items()], dtype=np.float64)

    def figures(self, spec: RewardSpec) -> RewardFigures:
        """Return the figures of a reward; O(rollouts)."""
        rewards, right = spec.compute(self._acc, self._ncr), self._acc >= 0.5
        signal = misordered = None
        if self.groups:
            highest = np.maximum.reduceat(rewards, self._starts)
            spread = highest - np.minimum.reduceat(rewards, self._starts)
            signal = _mean(spread[self._several] > _EQUAL)
        if len(self._pairs):
            ncr_right, ncr_wrong, counts = self._pairs.T
            of_right = spec.compute(np.ones(len(counts)), ncr_right)
            of_wrong = spec.compute(np.zeros(len(counts)), ncr_wrong)
            misordered = float(np.average(of_wrong >= of_right - _EQUAL, weights=counts))
        return RewardFigures(_mean(rewards[right]), _mean(rewards[~right]), signal, misordered)


def alpha_charts(rollouts: Rollouts) -> tuple[Chart, Chart]:
    """Return the mean linear rewards (equation 3) by weight, and their signal inside groups.

    Beside the signal are those of max(Acc, NCR) (equation 4) and of the outcome alone.
    """
    study = RewardStudy(rollouts)
    alpha = Axis("α, weight of Acc", low=0.0, high=1.0)
    means = Chart(
        "line",
        "reward",
        "Mean linear reward, right and wrong",
        alpha,
        Axis("reward", NumberFormat(1.0, 3), low=0.0, high=1.0),
        about="α · Acc + (1 − α) · NCR. At α = 1 it is the outcome alone. With a lower α, a wrong "
        "rollout gets more reward for the nodes that it reaches.",
        empty="No rollout has both an accuracy and an NCR.",
    )
    signal = Chart(
        "line",
        "signal",
        "Signal inside groups",
        alpha,
        Axis("share", PERCENT, low=0.0, high=1.0),
        about=f"A group is two or more rollouts of one model for one problem; there are "
        f"{study.groups:,}. Groups whose rewards differ give GRPO a gradient. A pair is in the "
        "wrong order if the wrong rollout gets the reward of the right one, or more. Dashed: "
        "max(Acc, NCR). Dotted: the outcome alone.",
        empty="No model has two scored rollouts for one problem: there are no groups.",
    )
    sweep = [study.figures(RewardSpec.linear(weight)) for weight in ALPHAS]
    if study.rollouts:
        curves = [
            Series("mean of right rollouts", ALPHAS, [figures.right for figures in sweep], RIGHT),
            Series("mean of wrong rollouts", ALPHAS, [figures.wrong for figures in sweep], WRONG),
            Series("gap", ALPHAS, [figures.gap for figures in sweep], "third"),
        ]
        means = replace(means, series=curves, empty="")
    if study.groups:
        largest = study.figures(RewardSpec.maximum())
        outcome = study.figures(RewardSpec.outcome())
        curves = []
        for name, figure, look in (
            ("groups whose rewards differ", "signal", RIGHT),
            ("pairs in the wrong order", "misordered", WRONG),
        ):
            curves.append(Series(name, ALPHAS, [getattr(at, figure) for at in sweep], look))
            for reward, figures, dashed in (
                ("max(Acc, NCR)", largest, "dashed"),
                ("outcome (Acc alone)", outcome, "dotted"),
            ):
                if (level := getattr(figures, figure)) is not None:
                    ends, label = [level, level], f"{name}, {reward}"
                    curves.append(Series(label, [0.0, 1.0], ends, look, dashed=dashed))
        signal = replace(signal, series=curves, empty="")
    return means, signal
