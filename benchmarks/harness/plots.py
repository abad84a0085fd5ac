"""The plots of a run: one SVG for each series of its suites, the same bytes for the same data.

Drawn with matplotlib (``pip install "consensuspr[plot]"``).  Lines differ in colour, marker and
dash, so that they can be told apart in grey print and by colour-blind readers.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.results import Run, Series

if TYPE_CHECKING:  # an extra: only those who draw need it
    from matplotlib.axes import Axes

# Okabe and Ito's palette, yellow left out: it vanishes on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES = ("-", "--", "-.", ":")
_STYLE = {
    "font.size": 10,
    "svg.fonttype": "path",  # drawn alike whatever fonts the reader has
    "svg.hashsalt": "consensuspr",
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def file_name(suite: str, series: Series) -> str:
    """Return the name of the file that ``series`` of ``suite`` is drawn into."""
    return f"{suite}-{re.sub(r'[^a-z0-9]+', '-', series.name.lower()).strip('-')}.svg"


def draw(run: Run, folder: Path) -> list[Path]:
    """Draw every series of ``run`` into ``folder``, which is made; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for suite in run.suites:
        for series in suite.series:
            path = folder / file_name(suite.suite, series)
            _draw(series, path)
            files.append(path)
    return files


def draw_alone(run: Run, folder: Path) -> None:
    """Draw into a folder that is a page's own: SVGs of earlier runs are removed from it."""
    for old in set(folder.glob("*.svg")).difference(draw(run, folder)):
        old.unlink()


def _draw(series: Series, path: Path) -> None:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(7.2, 4.0), layout="constrained")
        axes = figure.add_subplot()
        for number, (name, points) in enumerate(series.lines.items()):
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                label=name,
                color=_COLOURS[number % len(_COLOURS)],
                marker=_MARKERS[number % len(_MARKERS)],
                linestyle=_DASHES[number % len(_DASHES)],
                markersize=5,
                linewidth=1.6,
            )
        _scale(axes, series)
        axes.set_xlabel(series.x_label)
        axes.set_ylabel(series.y_label)
        axes.set_title(series.name, loc="left", fontsize=11)
        axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        figure.legend(loc="outside right upper", frameon=False, fontsize=9)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _scale(axes: Axes, series: Series) -> None:
    import matplotlib.ticker

    if series.log_x:
        axes.set_xscale("log")
    else:
        axes.set_xlim(left=0)
    if series.log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    for axis, is_log in ((axes.xaxis, series.log_x), (axes.yaxis, series.log_y)):
        if is_log:
            low, high = axis.get_view_interval()
            # Powers of ten alone would leave an axis of one decade with a single tick.
            steps = (1.0,) if high / low > 200 else (1.0, 2.0, 5.0)
            axis.set_major_locator(matplotlib.ticker.LogLocator(subs=steps))
            axis.set_minor_locator(matplotlib.ticker.NullLocator())
        axis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: short(value)))


def short(value: float) -> str:
    """Write a tick as a person would: 200, 1k, 1M, 0.05."""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:g}{letter}"
    return f"{value:g}"
