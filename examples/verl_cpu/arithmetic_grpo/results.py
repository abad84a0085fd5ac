"""What a run says, accuracy and covered nodes of each step and validation, and the table of all.

verl's training log has the mean reward and nothing else of ours, so accuracy and NCR of training
come from our score log (`reward_kwargs.score_log`); validation is read from both.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, TypedDict

from consensuspr.data import atomic_file
from consensuspr.score_log import LogReader

from .training import ARMS, Run

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


class Curve(TypedDict):
    """Means over the samples of a step, by step; all lists are as long as `step`.

    `sound` is the share of samples that are right in the answer and in every step before it: a
    wrong step can lead to a right answer by luck.
    """

    step: list[int]
    acc: list[float]
    ncr: list[float]
    sound: list[float]
    score: list[float]
    num_tokens: list[float]


class RunResult(TypedDict):
    """One run, as it is committed."""

    arm: str
    seed: int
    seconds_per_step: float
    train: Curve
    validation: Curve


def read_scores(run: Run) -> list[dict[str, Any]]:
    """Return the samples in the score log of a run."""
    return [row for batch in LogReader(run.scores).read() for row in batch.to_pylist()]


def read_metrics(run: Run) -> dict[int, dict[str, float]]:
    """Return verl's own metrics by step."""
    with run.metrics.open(encoding="utf-8") as lines:
        return {row["step"]: row["data"] for row in map(json.loads, lines)}


def summarise(run: Run) -> RunResult:
    """Return the curves of a finished run."""
    rows = read_scores(run)
    metrics = read_metrics(run).values()
    times = [data["timing_s/step"] for data in metrics if "timing_s/step" in data]
    return RunResult(
        arm=run.arm,
        seed=run.seed,
        seconds_per_step=round(fmean(times), 3),
        train=_curve(row for row in rows if row["split"] == "train"),
        validation=_curve(row for row in rows if row["split"] == "test"),
    )


def write_results(path: Path, about: dict[str, Any], results: list[RunResult]) -> None:
    """Write the results of a comparison, a run a line: small, and readable in a diff."""
    runs = ",\n  ".join(json.dumps(result, separators=(",", ":")) for result in results)
    with atomic_file(path) as stream:
        stream.write(f'{{"about": {json.dumps(about)},\n "runs": [\n  {runs}\n]}}\n'.encode())


def _curve(rows: Iterable[dict[str, Any]]) -> Curve:
    by_step: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_step[row["step"]].append(row)
    steps = sorted(by_step)

    def means(value: Callable[[dict[str, Any]], float]) -> list[float]:
        return [round(fmean(map(value, by_step[step])), 5) for step in steps]

    return Curve(
        step=steps,
        acc=means(lambda row: row["acc"]),
        ncr=means(lambda row: row["ncr"]),
        sound=means(lambda row: float(row["acc"] == 1 and row["ncr"] == 1)),
        score=means(lambda row: row["reward"]),
        num_tokens=means(lambda row: row["num_tokens"]),
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
