"""The picture of the study: lead against how often the start is right, one dot a pair of runs."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .analysis import Effect, Row, at_level, differences
from .plan import BASE, CONTROL, LEVELS, NODES
from .runner import HERE

EARLIER = HERE / "earlier" / "results.csv"
# Its warm-ups were stopped when 10 % were right throughout; drawn beside, clear of our 10 % starts.
_EARLIER_AT = 0.17
# Its arms at the rates that were chosen here.
_EARLIER_ARMS = {NODES: "linear", BASE: "outcome-1e-4", CONTROL: "random"}
# Dots of a share stand side by side: a factor, as the axis is logarithmic.
_SPREAD = 1.06
_BESIDE = 1.45
# Pairs; the interval of a few would dwarf the picture.
_ENOUGH = 5


def earlier_differences(other: str) -> list[float]:
    """Return the differences of the first earlier study in the area of sampled accuracy."""
    areas: dict[str, dict[str, float]] = {}
    with EARLIER.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            if row["kind"] == "runs":
                areas.setdefault(row["arm"], {})[row["seed"]] = float(row["area"])
    ours, theirs = areas[_EARLIER_ARMS[NODES]], areas[_EARLIER_ARMS[other]]
    return [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs)]


def draw(
    rows: Sequence[Row],
    rates: Mapping[str, float],
    shares: Mapping[str, float],
    path: Path,
) -> None:
    """Draw the lead of linear over outcome and over random nodes at each level.

    Beside them stands the first earlier study, whose task was another.

    Args:
        rows: of the main runs and of the other levels.
        rates: that were chosen, by arm; at them the arms are compared.
        shares: measured share of responses right throughout, by start.
        path: of the picture; its ending chooses the format.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for panel, other in zip(panels, (BASE, CONTROL), strict=True):
        panel.axhline(0, color="0.3", linewidth=0.8)
        for level in LEVELS:
            of_level = at_level(rows, level)
            found = differences(of_level, NODES, other, rates=(rates[NODES], rates[other]))
            if found:
                across = [shares[start] for start, _ in found]
                middle = (min(across) * max(across)) ** 0.5
                _dots(panel, across, list(found.values()), "C0", "o")
                _mean(panel, middle, list(found.values()), "C0")
        leads = earlier_differences(other)
        _dots(panel, [_EARLIER_AT] * len(leads), leads, "0.55", "D")
        _mean(panel, _EARLIER_AT, leads, "0.55")
        panel.set(xscale="log", xlabel="responses of the start that are right throughout")
        panel.set_title(f"{NODES} − {other}", fontsize="medium")
        ticks = [float(level) / 100 for level in LEVELS]
        panel.set_xticks(ticks, [f"{tick:.1%}".replace(".0%", "%") for tick in ticks])
        panel.minorticks_off()
        panel.grid(alpha=0.25)
    panels[0].set_ylabel("difference of the areas under the curve\nof held-out Acc, points")
    panels[1].plot([], [], "o", color="C0", label="a pair of runs, greedy Acc")
    panels[1].plot([], [], "D", color="0.55", label="earlier study, sampled Acc")
    panels[1].legend(frameon=False, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    # No date, so that the same results give the same file.
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)


def _dots(
    panel: Any, shares: Sequence[float], leads: Sequence[float], colour: str, mark: str
) -> None:
    """Plot dots in points, those of one share beside each other."""
    placed: dict[float, int] = {}
    across = []
    for share in shares:
        at = placed[share] = placed.get(share, -1) + 1
        across.append(share * _SPREAD ** ((at + 1) // 2 * (-1) ** at))
    heights = [100 * lead for lead in leads]
    panel.plot(across, heights, mark, color=colour, markersize=4, alpha=0.6, markeredgewidth=0)


def _mean(panel: Any, share: float, leads: Sequence[float], colour: str) -> None:
    """Plot a mean, with its 95 % interval if there are enough pairs for one."""
    effect = Effect.of(leads)
    ends = [[100 * (effect.mean - effect.low)], [100 * (effect.high - effect.mean)]]
    bar = ends if effect.pairs >= _ENOUGH else None
    place = share * _BESIDE**0.5
    panel.errorbar([place], [100 * effect.mean], bar, fmt="_", color=colour, capsize=3)
