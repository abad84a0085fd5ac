"""Draw the curves of a comparison: accuracy and covered nodes of training, mean and range of seeds.

Each line is the mean over the seeds of an arm, averaged over a few steps; the band reaches from the
lowest seed to the highest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
import typer
from arithmetic_grpo.results import RunResult, read_results
from arithmetic_grpo.training import ARMS

# Told apart by colour-blind readers too (Okabe and Ito), and by their dashes in print.
STYLES: dict[str, tuple[str, Any]] = {
    "outcome": ("#000000", "-"),
    "linear": ("#0072B2", "-"),
    "max": ("#D55E00", (0, (5, 1.5))),
    "curriculum": ("#009E73", (0, (1.5, 1))),
}
PANELS = (("acc", "Acc: right final answers"), ("ncr", "NCR: covered nodes"))


def main(
    results: Annotated[Path, typer.Argument(help="results.json of run.py.")],
    output: Annotated[Path, typer.Option(help="Picture to write: .svg or .png.")],
    window: Annotated[int, typer.Option(min=1, help="Steps that a point averages.")] = 5,
) -> None:
    """Draw Acc and NCR against training steps, a line for each arm."""
    about, runs = read_results(results)
    steps = about["settings"]["steps"]
    # The same file for the same results: no date, no random ids.
    plt.rcParams.update({"svg.hashsalt": "consensuspr", "font.size": 10})
    figure, axes = plt.subplots(1, len(PANELS), figsize=(9.5, 3.8), layout="constrained")
    for axis, (metric, title) in zip(axes, PANELS, strict=True):
        for arm in ARMS:
            curves = [curve(run, metric, window) for run in runs if run["arm"] == arm]
            if curves:
                _draw(axis, arm, np.arange(window, steps + 1), np.array(curves))
        axis.set_title(title, loc="left")
        axis.set_xlabel(f"training step (mean of the last {window})")
        axis.set_ylim(0, _top(runs, metric, window))
        axis.set_xlim(window, steps)
        axis.yaxis.set_major_locator(matplotlib.ticker.MaxNLocator(5, steps=[1, 2, 5, 10]))
        axis.yaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1, decimals=0))
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        if any(run["arm"] == "curriculum" for run in runs):
            axis.axvline(steps / 2, color="#009E73", alpha=0.5, linewidth=1)
    axes[-1].text(steps / 2, 0.02, " curriculum switches", color="#009E73", fontsize=8, va="bottom")
    axes[0].legend(frameon=False, loc="upper left")
    figure.savefig(output, dpi=150, metadata={"Date": None} if output.suffix == ".svg" else None)
    typer.echo(f"wrote {output}")


def curve(run: RunResult, metric: str, window: int) -> npt.NDArray[np.float64]:
    """Return the (steps - window + 1,) means over `window` steps of a run's training metric."""
    values: Sequence[float] = run["train"][metric]  # type: ignore[literal-required]
    return np.convolve(values, np.ones(window) / window, mode="valid")


def _top(runs: list[RunResult], metric: str, window: int) -> float:
    """Return the upper end of an axis: the next tenth above all curves."""
    highest = max(float(curve(run, metric, window).max()) for run in runs)
    return min(1.0, math.ceil(highest * 10 + 0.2) / 10)


def _draw(
    axis: Any, arm: str, steps: npt.NDArray[np.int64], curves: npt.NDArray[np.float64]
) -> None:
    color, dashes = STYLES[arm]
    axis.plot(steps, curves.mean(axis=0), color=color, linestyle=dashes, linewidth=1.8, label=arm)
    axis.fill_between(
        steps, curves.min(axis=0), curves.max(axis=0), color=color, alpha=0.13, linewidth=0
    )


if __name__ == "__main__":
    typer.run(main)
