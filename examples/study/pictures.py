"""The pictures of the study: curves with every seed, and a forest plot of all arms.

The same file for the same results: no date, no random ids.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from .analysis import Effect, Results, accuracy
from .arms import PRIMARY

# Told apart by colour-blind readers too (Okabe and Ito), and by their dashes in print.
STYLES: dict[str, tuple[str, Any]] = {
    "outcome": ("#000000", "-"),
    "linear": ("#0072B2", "-"),
    "shuffled": ("#D55E00", (0, (5, 1.5))),
    "random": ("#009E73", (0, (1.5, 1))),
    "permuted": ("#CC79A7", (0, (4, 1, 1, 1))),
}
PANELS = (
    ("acc", "Acc: right final answers"),
    ("ncr", "NCR: covered nodes of the author"),
    ("throughout", "Right throughout"),
)


def draw_curves(results: Results, path: Path) -> None:
    """Draw the held-out curves of the primary arms: a thin line a seed, a thick one their mean."""
    _settings()
    figure, axes = plt.subplots(1, len(PANELS), figsize=(12, 3.8), layout="constrained")
    for axis, (metric, title) in zip(axes, PANELS, strict=True):
        for arm in PRIMARY:
            runs = [run["curve"] for run in results.by_arm.get(arm, {}).values()]
            if not runs:
                continue
            color, dashes = STYLES[arm]
            for run in runs:
                axis.plot(run["step"], run[metric], color=color, linewidth=0.5, alpha=0.35)
            mean = np.mean([run[metric] for run in runs], axis=0)
            label = f"{arm} ({len(runs)} seeds)"
            axis.plot(
                runs[0]["step"], mean, color=color, linestyle=dashes, linewidth=2, label=label
            )
        axis.set_title(title, loc="left")
        axis.set_xlabel("training step")
        axis.set_ylim(bottom=0)
        axis.set_xlim(left=0)
        axis.yaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1, decimals=0))
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, loc="upper left")
    _save(figure, path)


def draw_forest(results: Results, path: Path) -> None:
    """Draw each arm's accuracy less that of the outcome: every seed, mean and interval."""
    _settings()
    arms = [arm for arm in results.arms if arm != "outcome"]
    figure, axis = plt.subplots(figsize=(8, 0.8 + 0.36 * len(arms)), layout="constrained")
    for row, arm in enumerate(reversed(arms)):
        differences = [100 * x for x in results.differences(arm, "outcome", accuracy)]
        if not differences:
            continue
        effect = Effect.of(differences)
        color = STYLES.get(arm, ("#555555", "-"))[0]
        axis.scatter(differences, [row] * len(differences), s=10, color=color, alpha=0.35)
        axis.plot([effect.low, effect.high], [row, row], color=color, linewidth=1.5)
        axis.plot(effect.mean, row, marker="D", color=color, markersize=5)
    labels = [f"{arm} ({len(results.by_arm[arm])})" for arm in reversed(arms)]
    axis.set_yticks(range(len(arms)), labels)
    axis.axvline(0, color="#000000", linewidth=0.8)
    outcome = fmean(results.values("outcome", accuracy))
    axis.set_xlabel(f"held-out Acc at the end, points more than the outcome ({outcome:.1%})")
    axis.grid(alpha=0.25, axis="x")
    axis.spines[["top", "right", "left"]].set_visible(False)
    _save(figure, path)


def _settings() -> None:
    plt.rcParams.update({"svg.hashsalt": "consensuspr", "font.size": 10})


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
