"""The figures of a comparison in a table: an arm a row, mean over the seeds, lowest to highest."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from .results import RunResult
from .training import ARMS

# Steps that a figure averages: one step has 128 rollouts, and their mean still jumps.
WINDOW = 5
NCR_REACHED = 0.2

HEAD = (
    "arm",
    "Acc in training",
    "NCR in training",
    "right throughout",
    "Acc in validation",
    "NCR in validation",
    f"steps to NCR {NCR_REACHED:.0%}",
)


def markdown_table(runs: Sequence[RunResult]) -> str:
    """Return the table: training over the last steps, validation after the last."""
    rows = [HEAD, ("---",) * len(HEAD)]
    for arm in ARMS:
        of_arm = [run for run in runs if run["arm"] == arm]
        if of_arm:
            rows.append((arm, *_figures(of_arm)))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _figures(runs: list[RunResult]) -> tuple[str, ...]:
    return (
        _spread([fmean(run["train"]["acc"][-WINDOW:]) for run in runs]),
        _spread([fmean(run["train"]["ncr"][-WINDOW:]) for run in runs]),
        _spread([fmean(run["train"]["sound"][-WINDOW:]) for run in runs]),
        _spread([run["validation"]["acc"][-1] for run in runs]),
        _spread([run["validation"]["ncr"][-1] for run in runs]),
        ", ".join(_reached(run["train"]["ncr"]) for run in runs),
    )


def _spread(values: list[float]) -> str:
    return f"{fmean(values):.1%} ({min(values):.1%} to {max(values):.1%})"


def _reached(values: Sequence[float]) -> str:
    """Return the first step at which the mean of the last steps is high enough."""
    for step in range(WINDOW, len(values) + 1):
        if fmean(values[step - WINDOW : step]) >= NCR_REACHED:
            return str(step)
    return "never"
