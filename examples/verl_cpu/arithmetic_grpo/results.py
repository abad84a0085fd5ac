"""The results of a run: our score log, verl's own metrics, and the curves of both.

verl's training log has only the mean reward, so accuracy and NCR come from our score log
(`reward_kwargs.score_log`).
"""

from __future__ import annotations

import json
from collections import defaultdict
from statistics import fmean
from typing import Any

from consensuspr.score_log import LogReader

from .training import Run


def read_scores(run: Run, *columns: str) -> list[dict[str, Any]]:
    """Return the samples in the score log of a run, by default with all columns."""
    read = LogReader(run.scores, columns or None).read()
    return [row for batch in read for row in batch.to_pylist()]


def read_metrics(run: Run) -> dict[int, dict[str, float]]:
    """Return verl's own metrics by step."""
    with run.metrics.open(encoding="utf-8") as lines:
        return {row["step"]: row["data"] for row in map(json.loads, lines)}


def summarise(run: Run) -> dict[str, Any]:
    """Return the curves of a finished run, of training and of validation."""
    rows = read_scores(run)
    times = [
        data["timing_s/step"] for data in read_metrics(run).values() if "timing_s/step" in data
    ]
    return {
        "arm": run.arm,
        "seed": run.seed,
        "seconds_per_step": round(fmean(times), 3),
        "train": _curve([row for row in rows if row["split"] == "train"]),
        "validation": _curve([row for row in rows if row["split"] == "test"]),
    }


def _curve(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the steps, and the means of each step's samples."""
    by_step: dict[int, list[dict[str, float]]] = defaultdict(list)
    for row in rows:
        # A wrong step can lead to a right answer by luck: sound is right in all of them.
        sound = float(row["acc"] == 1 and row["ncr"] == 1)
        figures = {name: row[name] for name in ("acc", "ncr", "num_tokens")}
        by_step[row["step"]].append({**figures, "sound": sound, "score": row["reward"]})
    steps = sorted(by_step)
    means = {
        name: [round(fmean(row[name] for row in by_step[step]), 5) for step in steps]
        for name in by_step[steps[0]][0]
    }
    return {"step": steps, **means}
