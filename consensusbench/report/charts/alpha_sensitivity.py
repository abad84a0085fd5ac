"""Alpha-sensitivity of the linear reward, beside max and outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from consensusbench.report.charts.axes import Axis, Frame, Line, percent_axis
from consensusbench.report.charts.chart import Chart, Key
from consensusbench.report.charts.svg import element
from consensusbench.report.rewards import RewardFigures, RewardStudy, alpha_sweep, fixed_rewards
from consensusbench.report.table import Column, Table, number, percent, text

if TYPE_CHECKING:
    from consensusbench.evaluation.scored import ScoredRollout

_ALPHA = Axis("α, weight of Acc", 0.0, 1.0, tuple((i / 5, f"{i / 5:g}") for i in range(6)))
_PART = Callable[[RewardFigures], float | None]


def alpha_charts(rollouts: Sequence[ScoredRollout]) -> tuple[Chart, Chart]:
    """Return the mean rewards, and what a group-based trainer would get of them."""
    study = RewardStudy(rollouts)
    sweep, fixed = alpha_sweep(study), fixed_rewards(study)
    return _means(study, sweep, fixed), _signal(study, sweep, fixed)


def _means(
    study: RewardStudy, sweep: Sequence[RewardFigures], fixed: Sequence[RewardFigures]
) -> Chart:
    title = "Mean linear reward, right and wrong"
    about = (
        "α · Acc + (1 − α) · NCR. At α = 1 it is the outcome alone; the lower α, the more a wrong "
        "rollout is paid for the nodes that it reaches."
    )
    if not study.rollouts:
        return Chart("reward", title, about, empty="No rollout has both an accuracy and an NCR.")
    parts: list[tuple[str, str, _PART]] = [
        ("mean of right rollouts", "right", lambda f: f.right),
        ("mean of wrong rollouts", "wrong", lambda f: f.wrong),
        ("gap", "third", lambda f: f.gap),
    ]
    frame = Frame(_ALPHA, Axis("reward", 0.0, 1.0, tuple((i / 5, f"{i / 5:g}") for i in range(6))))
    marks, keys = _lines(frame, parts, sweep, lambda value: f"{value:.3f}")
    return Chart("reward", title, about, frame.draw(title, marks), keys, _table(sweep, fixed))


def _signal(
    study: RewardStudy, sweep: Sequence[RewardFigures], fixed: Sequence[RewardFigures]
) -> Chart:
    title = "Signal inside groups"
    about = (
        f"Over {study.groups:,} groups (rollouts of one model for one problem, at least two): how "
        "many have rewards that differ, without which GRPO has no gradient, and in how many pairs "
        "of one group the wrong rollout is rewarded as much as the right one, or more. "
        "Dashed: the same for max(Acc, NCR) and dotted for the outcome alone."
    )
    if not study.groups:
        empty = "No model has two scored rollouts for one problem: there are no groups."
        return Chart("signal", title, about, empty=empty)
    parts: list[tuple[str, str, _PART]] = [
        ("groups whose rewards differ", "right", lambda f: f.signal),
        ("pairs in the wrong order", "wrong", lambda f: f.misordered),
    ]
    frame = Frame(_ALPHA, percent_axis("share"))
    marks, keys = _lines(frame, parts, sweep, lambda value: f"{100 * value:.1f} %")
    for figures, style in zip(fixed, ("dashed", "dotted"), strict=True):
        for name, look, part in parts:
            value = part(figures)
            if value is not None:
                marks.append(_level(frame, value, f"{look} {style}", f"{figures.name}: {name}"))
    return Chart("signal", title, about, frame.draw(title, marks), keys, _table(sweep, fixed))


def _lines(
    frame: Frame,
    parts: Sequence[tuple[str, str, _PART]],
    sweep: Sequence[RewardFigures],
    write: Callable[[float], str],
) -> tuple[list[Markup], tuple[Key, ...]]:
    marks: list[Markup] = []
    keys: list[Key] = []
    for name, look, part in parts:
        points = tuple(
            (figures.alpha, value)
            for figures in sweep
            if figures.alpha is not None and (value := part(figures)) is not None
        )
        if points:
            tip = _tip(name, write)
            marks += Line(look, points, tip).draw(frame)
            keys.append(Key(name, look, "line"))
    return marks, tuple(keys)


def _tip(name: str, write: Callable[[float], str]) -> Callable[[float, float], str]:
    return lambda x, y: f"α = {x:g}: {name} {write(y)}"


def _level(frame: Frame, value: float, look: str, name: str) -> Markup:
    (x1, y), (x2, _) = frame.at(0.0, value), frame.at(1.0, value)
    tip = f"{name} {100 * value:.1f} %"
    return element("line", class_=f"curve {look}", x1=x1, y1=y, x2=x2, y2=y, data_tip=tip)


def _table(sweep: Sequence[RewardFigures], fixed: Sequence[RewardFigures]) -> Table:
    shown = [f for f in sweep if f.alpha is not None and round(f.alpha * 20) % 2 == 0]
    rows = tuple(
        (
            text(figures.name),
            number(figures.right, 3),
            number(figures.wrong, 3),
            number(figures.gap, 3),
            percent(figures.signal),
            percent(figures.misordered),
        )
        for figures in [*shown, *fixed]
    )
    columns = (
        Column("reward", numeric=False),
        Column("mean right"),
        Column("mean wrong"),
        Column("gap"),
        Column("groups with signal, %"),
        Column("pairs in wrong order, %"),
    )
    return Table("Rewards over the scored rollouts", columns, rows)
