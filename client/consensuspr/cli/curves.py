"""``consensuspr curves``: what training does to Acc, NCR and TPN, from a run's score log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from consensuspr.cli.options import Json, RunFolder
from consensuspr.console import make_console
from consensuspr.errors import InputError

if TYPE_CHECKING:
    from consensuspr.score_log.curves import CurvePoint

PLOTTED = (("acc", "Acc"), ("ncr", "NCR"), ("reward", "reward"))


def curves(
    log: RunFolder,
    split: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only samples of this split, such as train.")
    ] = None,
    points: Annotated[
        int, typer.Option(metavar="N", min=1, help="Most lines of the table; each averages steps.")
    ] = 10,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also draw the curves: .png, .svg or .pdf. Needs `consensuspr[plot]`.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print Acc, NCR, TPN and lengths by training step, also during training.

    ```text
    consensuspr curves runs/qwen3-4b --split train
    consensuspr curves runs/qwen3-4b --split train --plot curves.png
    ```

    *NCR of wrong answers* is the mean NCR of their samples. If it grows and Acc does not, the
    policy has learnt to name nodes instead of solving problems.
    """
    from consensuspr.score_log.curves import coarsen, read_curve

    curve = read_curve(log, split)
    if not curve:
        raise InputError(f"{log}: the score log has no sample")
    if plot is not None:
        _draw(curve, plot)
    if as_json:
        print(json.dumps([point.to_json() for point in curve]))
        return
    make_console().print(_table(coarsen(curve, points)))


def _table(curve: list[CurvePoint]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    headings = "Step|Samples|Reward|Acc|NCR|NCR of\nwrong answers|TPN|Tokens|Not OK"
    for heading in headings.split("|"):
        table.add_column(heading, justify="right", no_wrap=True)
    for point in curve:
        steps = "–" if point.first_step is None else str(point.first_step)
        if point.first_step != point.last_step:
            steps += f"–{point.last_step}"
        table.add_row(
            steps,
            f"{point.samples:,}",
            _number(point.reward, ",.3f"),
            *(_number(value, ".1%") for value in (point.acc, point.ncr, point.ncr_of_wrong)),
            _number(point.tpn, ",.1f"),
            _number(point.num_tokens, ",.0f"),
            f"{point.failed:,}",
        )
    return table


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form).replace("%", " %")


def _draw(curve: list[CurvePoint], path: Path) -> None:
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(f"--plot must end in .png, .svg or .pdf, got {str(path)!r}")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("--plot needs matplotlib: pip install 'consensuspr[plot]'") from None
    steps = [(point.last_step, point) for point in curve if point.last_step is not None]
    if not steps:
        raise InputError("--plot needs training steps, and this score log has none")
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for name, label in PLOTTED:
        known = [(step, getattr(point, name)) for step, point in steps]
        drawn = [(step, value) for step, value in known if value is not None]
        axes.plot([step for step, _ in drawn], [value for _, value in drawn], label=label)
    axes.set(xlabel="training step", ylabel="mean of a step's samples")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
