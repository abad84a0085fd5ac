"""The pictures of the study: curves, and a forest plot of all arms.

Every arm and every seed is shown.  The same file for the same results: no date, no random ids.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from .analysis import OF_INTEREST, Effect, Results, accuracy
from .arms import PRIMARY

# The palette of Okabe and Ito for colour-blind readers; dashes for print.
STYLES: dict[str, tuple[str, Any]] = {
    "outcome": ("#000000", "-"),
    "linear": ("#0072B2", "-"),
    "shuffled": ("#D55E00", (0, (5, 1.5))),
    "random": ("#009E73", (0, (1.5, 1))),
    "permuted": ("#CC79A7", (0, (4, 1, 1, 1))),
}
OTHER = ("#555555", "-")
PANELS = (
    ("acc", "Acc: right final answers"),
    ("ncr", "NCR: covered nodes of the author"),
    ("throughout", "Right throughout"),
)
# Largest difference on the axis, in points; larger ones are printed as numbers.
FAR = 22


def draw_curves(results: Results, path: Path) -> None:
    """Draw the held-out curves of the primary arms: a thin line a seed, a thick one their mean."""
    _settings()
    figure, axes = plt.subplots(1, len(PANELS), figsize=(12, 4.2), layout="constrained")
    for axis, (metric, title) in zip(axes, PANELS, strict=True):
        for arm in [arm for arm in PRIMARY if arm in results.by_arm]:
            color, dashes = STYLES[arm]
            runs = results.by_arm[arm]
            for run in runs.values():
                curve = run["curve"]
                axis.plot(curve["step"], curve[metric], color=color, linewidth=0.5, alpha=0.35)
            curves = [run["curve"] for _, run in sorted(runs.items())]
            mean = np.mean([curve[metric] for curve in curves], axis=0)
            label, steps = f"{arm} ({len(runs)})", curves[0]["step"]
            axis.plot(steps, mean, color=color, linestyle=dashes, linewidth=2, label=label)
        axis.set_title(title, loc="left")
        axis.set_xlabel("training step")
        axis.set_xlim(left=0)
        axis.yaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1, decimals=0))
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside upper center", ncols=len(labels))
    _save(figure, path)


def draw_forest(results: Results, path: Path) -> None:
    """Draw each arm's accuracy less that of the outcome: every seed, mean and interval."""
    _settings()
    arms = [arm for arm in results.arms if arm != "outcome"]
    figure, axis = plt.subplots(figsize=(9, 1.1 + 0.36 * len(arms)), layout="constrained")
    axis.axvspan(-100 * OF_INTEREST, 100 * OF_INTEREST, color="#000000", alpha=0.06, linewidth=0)
    axis.axvline(0, color="#000000", linewidth=0.8)
    labels = []
    for row, arm in enumerate(reversed(arms)):
        differences = [100 * x for x in results.differences(arm, "outcome", accuracy)]
        effect = Effect.of(differences)
        color = STYLES.get(arm, OTHER)[0]
        axis.scatter(
            differences, [row] * len(differences), s=14, color=color, alpha=0.4, linewidth=0
        )
        axis.plot([effect.low, effect.high], [row, row], color=color, linewidth=1.5)
        axis.plot(effect.mean, row, marker="D", color=color, markersize=5)
        for side in (-1, 1):
            if beyond := [round(x, 1) for x in differences if side * x > FAR]:
                shown = ", ".join(f"{x:+.0f}".replace("-", "−") for x in sorted(beyond))
                text, end = (f"◀ {shown}", "left") if side < 0 else (f"{shown} ▶", "right")
                axis.text(side * FAR, row + 0.12, text, ha=end, va="bottom", size=8, color=color)
        labels.append(f"{arm} ({len(differences)})")
    axis.set_yticks(range(len(arms)), labels)
    axis.set_ylim(-0.6, len(arms) - 0.4)
    left, right = axis.get_xlim()
    axis.set_xlim(max(left, -FAR), min(right, FAR))
    outcome = fmean(results.values("outcome", accuracy))
    axis.set_xlabel(
        f"{results.problems} Acc at the end, points more than outcome ({outcome:.1%}) of the same"
        " seed"
    )
    axis.grid(alpha=0.25, axis="x")
    axis.spines[["top", "right", "left"]].set_visible(False)
    _save(figure, path)


def _settings() -> None:
    pad = {f"figure.constrained_layout.{side}_pad": 0.1 for side in "wh"}
    plt.rcParams.update({"svg.hashsalt": "consensuspr", "font.size": 10, **pad})


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # On white, so that black lines are seen on a dark page too.
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
