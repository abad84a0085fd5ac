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
        str | None,
        typer.Option(metavar="NAME", show_default=False, help="Only samples of this split."),
    ] = None,
    points: Annotated[
        int, typer.Option(metavar="N", min=1, help="Lines at most; each is a mean over steps.")
    ] = 20,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Also draw every step into a PNG, SVG or PDF (needs `consensuspr[plot]`).",
        ),
    ] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            show_default=False,
            help="Also write every step as TensorBoard events into a folder that has none.",
        ),
    ] = None,
    wandb: Annotated[
        str | None,
        typer.Option(
            metavar="PROJECT",
            show_default=False,
            help="Also log every step to a new W&B run; offline with WANDB_MODE=offline.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show Acc, NCR, TPN and lengths by training step, also while the run goes on.

    A trainer's own log may hold the mean reward alone; set `score_log` to a folder, and every
    sample is in it. *NCR wrong* is the mean NCR of samples whose answer is wrong: where it grows
    and Acc does not, the policy has learnt to name nodes instead of reaching them.

    ```text
    consensuspr curves runs/qwen3-4b/scores --split train
    consensuspr curves runs/qwen3-4b/scores --split train --plot curves.png
    consensuspr curves runs/qwen3-4b --split train --tensorboard events/qwen3-4b
    ```

    TensorBoard and W&B get the figures of `--json` under `score_log/`, beside whatever the trainer
    logged.
    """
    from consensuspr.score_log.curves import coarsen, read_curve

    curve = read_curve(log, split)
    if not curve:
        which = "no sample" if split is None else f"no sample of split {split!r}"
        raise InputError(f"{log}: {which} is logged")
    if plot is not None:
        _draw(curve, plot)
    if tensorboard is not None:
        _write_events(curve, tensorboard)
    if wandb is not None:
        _log_to_wandb(curve, wandb, log, split)
    if as_json:
        print(json.dumps([point.to_json() for point in curve]))
        return
    make_console().print(_table(coarsen(curve, points)))


def _table(curve: list[CurvePoint]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    headings = "Step Samples Reward Acc NCR NCR_wrong TPN Tokens Not_OK"
    for heading in headings.split():
        table.add_column(heading.replace("_", " "), justify="right", no_wrap=True)
    for point in curve:
        table.add_row(
            _steps(point),
            f"{point.samples:,}",
            _number(point.reward, ",.3f"),
            *(_percent(value) for value in (point.acc, point.ncr, point.ncr_of_wrong)),
            _number(point.tpn, ",.1f"),
            _number(point.num_tokens, ",.0f"),
            f"{point.failed:,}" if point.failed else "",
        )
    return table


def _steps(point: CurvePoint) -> str:
    if point.first_step is None:
        return "–"
    if point.first_step == point.last_step:
        return str(point.first_step)
    return f"{point.first_step}–{point.last_step}"


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _draw(curve: list[CurvePoint], path: Path) -> None:
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(f"--plot must end in .png, .svg or .pdf, got {str(path)!r}")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("--plot needs matplotlib: pip install 'consensuspr[plot]'") from None
    steps = _steps_of(curve, "--plot")
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for name, label in PLOTTED:
        drawn = [
            (step, getattr(point, name))
            for step, point in steps
            if getattr(point, name) is not None
        ]
        axes.plot([step for step, _ in drawn], [value for _, value in drawn], label=label)
    axes.set(xlabel="training step", ylabel="mean of a step's samples")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def _steps_of(curve: list[CurvePoint], option: str) -> list[tuple[int, CurvePoint]]:
    """Return the points that have a step.

    Raises:
        InputError: none has.
    """
    found = [(point.last_step, point) for point in curve if point.last_step is not None]
    if not found:
        raise InputError(f"{option} needs steps, and this log has none")
    return found


def _figures(point: CurvePoint) -> dict[str, float]:
    """Return what a point is to another program: the names of a trainer are not taken."""
    from consensuspr.score_log.curves import FIGURES

    values = {name: getattr(point, name) for name in ("samples", *FIGURES)}
    return {f"score_log/{name}": value for name, value in values.items() if value is not None}


def _write_events(curve: list[CurvePoint], folder: Path) -> None:
    steps = _steps_of(curve, "--tensorboard")
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        raise InputError("--tensorboard needs TensorBoard: pip install tensorboard") from None
    # TensorBoard would show both as one, each step twice.
    if any(folder.glob("*tfevents*")):
        raise InputError(f"{folder} has TensorBoard events already; give --tensorboard another one")
    try:
        writer = EventFileWriter(str(folder))
        for step, point in steps:
            values = [
                Summary.Value(tag=tag, simple_value=value) for tag, value in _figures(point).items()
            ]
            writer.add_event(
                Event(wall_time=point.time_s, step=step, summary=Summary(value=values))
            )
        writer.close()
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror}") from None


def _log_to_wandb(curve: list[CurvePoint], project: str, log: Path, split: str | None) -> None:
    steps = _steps_of(curve, "--wandb")
    try:
        import wandb
    except ImportError:
        raise InputError("--wandb needs W&B: pip install wandb") from None
    folder = log.resolve()
    name = folder.parent.name if folder.name == "scores" else folder.name
    try:
        run = wandb.init(project=project, name=name, job_type="score log", config={"split": split})
        for step, point in steps:
            run.log(_figures(point), step=step)
        run.finish()
    except wandb.Error as error:
        raise InputError(f"--wandb: {error}") from None
