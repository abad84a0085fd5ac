"""Distributions of NCR, of TPN and of the response's length, right against wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from consensusbench.report.charts.axes import Axis
from consensusbench.report.charts.chart import Chart
from consensusbench.report.charts.histogram import Bin, histogram, log_histogram
from consensusbench.report.sides import COMPARED, by_side

if TYPE_CHECKING:
    from consensusbench.evaluation.scored import ScoredRollout

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
