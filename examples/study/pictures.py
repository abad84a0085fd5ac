"""The pictures of the study: curves, a forest plot of all arms, and what was watched.

Every arm and every seed is shown.  The same file for the same results: no date, no random ids.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from .analysis import OF_INTEREST, Effect, Measure, Result, Results, accuracy, at_end, longer
from .arms import NUM_WARM_STARTS, PRIMARY

# Told apart by colour-blind readers too (Okabe and Ito), and by their dashes in print.
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
# Percent, or a count.
WATCHED_PANELS: tuple[tuple[str, Measure, bool], ...] = (
    ("NCR of wrong answers", at_end("ncr_wrong"), True),
    ("Right throughout", at_end("throughout"), True),
    ("Acc on longer chains", longer, True),
    ("Equations a response", at_end("stated"), False),
    ("Duplicates among them", at_end("duplicates"), True),
    ("Tokens a response", at_end("tokens"), False),
)
_ACROSS = 5
# Points of difference that a picture of arms shows; what is farther off stands there as a number.
FAR = 22
# Over which the accuracy in training is shown.
MEAN_OF_STEPS = 10


def draw_curves(results: Results, path: Path) -> None:
    """Draw the held-out curves of the primary arms: a thin line a seed, a thick one their mean."""
    _settings()
    arms = [arm for arm in PRIMARY if arm in results.by_arm]
    figure, axes = plt.subplots(1, len(PANELS), figsize=(12, 4.2), layout="constrained")
    for axis, (metric, title) in zip(axes, PANELS, strict=True):
        for arm in arms:
            _draw_curves_of(axis, results, arm, metric)
        axis.set_title(title, loc="left")
        axis.set_xlabel("training step")
        _dress_curves(axis)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside upper center", ncols=len(labels))
    _save(figure, path)


def draw_seeds(results: Results, path: Path) -> None:
    """Draw each arm's curves of held-out accuracy in a panel of its own, beside the outcome's."""
    _settings()
    rows = math.ceil(len(results.arms) / _ACROSS)
    figure, axes = plt.subplots(
        rows, _ACROSS, figsize=(12, 0.4 + 2.1 * rows), layout="constrained",
        sharex=True, sharey=True, squeeze=False,
    )  # fmt: skip
    for axis in axes.flat[len(results.arms) :]:
        axis.set_visible(False)
    for axis, arm in zip(axes.flat, results.arms, strict=False):
        if arm != "outcome":
            steps, mean = _mean_curve(results, "outcome", "acc")
            axis.plot(steps, mean, color="#000000", linewidth=1.2, linestyle=(0, (2, 2)))
        _draw_curves_of(axis, results, arm, "acc")
        axis.set_title(f"{arm} ({len(results.by_arm[arm])})", loc="left", fontsize=10)
        _dress_curves(axis)
    # When all is drawn: they share the axis, and what is set no longer follows.
    axes[0, 0].set_ylim(bottom=0)
    figure.supxlabel("training step; dashed: mean of outcome", fontsize=10)
    figure.supylabel("held-out Acc", fontsize=10)
    _save(figure, path)


def _draw_curves_of(axis: Any, results: Results, arm: str, metric: str) -> None:
    """Draw the curves of an arm, and their mean."""
    color, dashes = STYLES.get(arm, OTHER)
    for run in results.by_arm[arm].values():
        curve = run["curve"]
        axis.plot(curve["step"], curve[metric], color=color, linewidth=0.5, alpha=0.35)
    steps, mean = _mean_curve(results, arm, metric)
    label = f"{arm} ({len(results.by_arm[arm])})"
    axis.plot(steps, mean, color=color, linestyle=dashes, linewidth=2, label=label)


def _mean_curve(results: Results, arm: str, metric: str) -> tuple[Any, Any]:
    curves = [run["curve"] for _, run in sorted(results.by_arm[arm].items())]
    return curves[0]["step"], np.mean([curve[metric] for curve in curves], axis=0)


def _dress_curves(axis: Any) -> None:
    axis.set_xlim(left=0)
    axis.yaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1, decimals=0))
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


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
            # One arm that breaks down would press all others into a few dots.
            if beyond := [round(x, 1) for x in differences if side * x > FAR]:
                shown = ", ".join(f"{x:+.0f}".replace("-", "−") for x in sorted(beyond))
                what = f"◀ {shown}" if side < 0 else f"{shown} ▶"
                where = {-1: "left", 1: "right"}[side]
                axis.text(side * FAR, row + 0.12, what, ha=where, va="bottom", size=8, color=color)
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


def draw_watched(results: Results, path: Path) -> None:
    """Draw what was watched at the end: a dot a seed, a bar at the mean of each arm."""
    _settings()
    arms = list(reversed(results.arms))
    height = 1.2 + 0.24 * len(arms)
    figure, axes = plt.subplots(2, 3, figsize=(12, 2 * height), layout="constrained", sharey=True)
    for axis, (title, measure, is_part) in zip(axes.flat, WATCHED_PANELS, strict=True):
        mean = fmean(results.values("outcome", measure))
        axis.axvline(mean, color="#000000", linewidth=0.8, linestyle=(0, (2, 2)))
        for row, arm in enumerate(arms):
            color = STYLES.get(arm, OTHER)[0]
            values = results.values(arm, measure)
            axis.scatter(values, [row] * len(values), s=14, color=color, alpha=0.4, linewidth=0)
            middle = fmean(values)
            axis.plot([middle, middle], [row - 0.36, row + 0.36], color=color, linewidth=2)
        axis.set_title(title, loc="left")
        axis.set_yticks(range(len(arms)), [f"{arm} ({len(results.by_arm[arm])})" for arm in arms])
        axis.set_ylim(-0.7, len(arms) - 0.3)
        if is_part:
            axis.xaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1))
        axis.locator_params(axis="x", nbins=6)
        axis.grid(alpha=0.25, axis="x")
        axis.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def draw_verl(results: Results, verl: Sequence[Result], path: Path) -> None:
    """Draw the accuracy in training of runs in verl over that of the loop's, by arm and warm start.

    Both count every response of a step, 128 of 16 problems, which jumps: each point is the mean of
    the ten steps up to it.
    """
    _settings()
    arms = [arm for arm in results.arms if any(run["run"]["arm"] == arm for run in verl)]
    steps = max(len(run["train"]["acc"]) for run in verl)
    figure, axes = plt.subplots(
        NUM_WARM_STARTS, len(arms), figsize=(12, 0.6 + 2.3 * NUM_WARM_STARTS),
        layout="constrained", sharex=True, sharey=True, squeeze=False,
    )  # fmt: skip
    for (start, column), axis in np.ndenumerate(axes):
        arm = arms[column]
        ours = results.by_arm[arm].values()
        for runs, color, width, label in (
            (ours, "#888888", 0.9, "the loop"),
            (verl, STYLES[arm][0], 1.6, "verl"),
        ):
            for run in runs:
                of = run["run"]
                if of["arm"] == arm and of["seed"] % NUM_WARM_STARTS == start:
                    smooth = _mean_of_last(run["train"]["acc"][:steps], min(MEAN_OF_STEPS, steps))
                    where = range(steps - len(smooth) + 1, steps + 1)
                    axis.plot(where, smooth, color=color, linewidth=width, label=label)
                    label = "_nolegend_"
        axis.set_title(f"{arm}, warm start {start + 1}", loc="left", fontsize=10)
        _dress_curves(axis)
        if not start:
            axis.legend(frameon=False, loc="upper left", fontsize=9)
    # When all is drawn: they share the axis, and what is set no longer follows.
    axes[0, 0].set_ylim(bottom=0)
    figure.supxlabel("training step", fontsize=10)
    figure.supylabel(f"Acc in training, mean of {MEAN_OF_STEPS} steps", fontsize=10)
    _save(figure, path)


def _mean_of_last(values: Sequence[float], count: int) -> Any:
    return np.convolve(values, np.full(count, 1 / count), "valid")


# File names and what they show, as alternative texts, in the order of the page.
PICTURES = (
    (
        draw_curves,
        "study-curves.svg",
        "Held-out accuracy, covered nodes and solutions right throughout of the primary arms,"
        " against training steps: a thin line for each seed, a thick one for their mean",
    ),
    (
        draw_forest,
        "study-arms.svg",
        "Accuracy of each arm less that of the outcome: a dot for each seed, the mean and its 95 %"
        " interval; the band is two points to each side",
    ),
    (
        draw_watched,
        "study-watched.svg",
        "What was watched, at the end: NCR of wrong answers, right throughout, longer chains,"
        " equations, duplicates and tokens of each arm, a dot for each seed, a bar at the mean; the"
        " dashed line is the mean of the outcome",
    ),
    (
        draw_seeds,
        "study-seeds.svg",
        "Held-out accuracy of every run, a panel for each arm",
    ),
)
# The second study's, likewise.
SECOND_PICTURES = (
    (
        draw_curves,
        "study-second-curves.svg",
        "The second study: accuracy on 128 of the selection problems, covered nodes and solutions"
        " right throughout, against training steps, four arms at one learning rate",
    ),
    (
        draw_forest,
        "study-second-arms.svg",
        "The second study: accuracy of linear, shuffled and random less that of the outcome, a dot"
        " for each seed, the mean and its 95 % interval",
    ),
)

# Of runs in verl beside the loop's.
VERL_PICTURE = "study-verl.svg"
VERL_ABOUT = (
    "Accuracy in training against steps, a panel for each arm and warm start: runs in verl in"
    " colour over the loop's in grey"
)


def _settings() -> None:
    pad = {f"figure.constrained_layout.{side}_pad": 0.1 for side in "wh"}
    plt.rcParams.update({"svg.hashsalt": "consensuspr", "font.size": 10, **pad})


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # On white, so that black lines are seen on a dark page too.
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
