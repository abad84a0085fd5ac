"""``consensuspr doctor``: check a training set-up before GPUs burn."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from consensuspr.cli.options import Color, Json, TlsCa, TokenFile
from consensuspr.console import (
    ColorMode,
    NoProgress,
    count_progress,
    load_core,
    make_console,
    one_line,
)
from consensuspr.errors import InputError

if TYPE_CHECKING:
    from consensuspr.doctor import Finding

_STYLE = {"ok": "green", "skip": "dim", "warn": "yellow", "FAIL": "bold red"}
_LONGEST = 600

Files = Annotated[
    list[str] | None, typer.Option(metavar="FILE[,FILE…]", help="Parquet files of rows.")
]


def doctor(
    run: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- TRAINING COMMAND]",
            help="The run: `python -m verl.trainer.main_ppo …`, or its overrides alone.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The run's configuration, as Hydra wrote it."),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", show_default="the run's own", help="Server to ask."),
    ] = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|NAME",
            show_default="the run's own",
            help="File whose content the server must have, or name of the dataset there.",
        ),
    ] = None,
    train_files: Files = None,
    val_files: Files = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.001, help="Limit for each call.")
    ] = 60.0,
    no_progress: NoProgress = False,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> int:
    """Check a training set-up before GPUs burn: server, settings, verl run, Parquet rows.

    ```text
    consensuspr doctor -- python -m verl.trainer.main_ppo data.train_files=train.parquet …
    consensuspr doctor --address HOST:PORT --train-files train.parquet --val-files val.parquet
    ```

    Put it before the command that starts training. Nothing is trained and no GPU is used. Each
    check prints ok, warn or FAIL, what was found and what to do. Exit code 1 if a check failed.
    """
    from consensuspr.doctor import Case, Level, examine
    from consensuspr.doctor.verl_run import TrainingCommand

    if run and config is not None:
        raise InputError("give --config or the training command, not both")
    if config is not None and not config.is_file():
        raise InputError(f"--config: file not found: {config}")
    is_file = dataset is not None and os.path.isfile(dataset)
    if dataset is not None and not is_file and os.sep in dataset:
        raise InputError(f"{dataset}: no such file, and no name of a dataset either")
    case = Case(
        address=address,
        token_file=token_file,
        tls_ca=tls_ca,
        dataset_name=None if is_file else dataset,
        dataset_path=Path(dataset) if dataset is not None and is_file else None,
        train_files=_split(train_files),
        val_files=_split(val_files),
        command=TrainingCommand.parse(run) if run else None,
        config_file=config,
        timeout_s=timeout,
    )
    load_core()
    console = make_console(color)
    levels: Counter[str] = Counter()
    found = []
    for finding in examine(case, partial(count_progress, hidden=no_progress)):
        levels[finding.level] += 1
        found.append(asdict(finding))
        if not as_json:
            _print(finding, console)
    if as_json:
        print(json.dumps({"ok": not levels[Level.FAIL], "counts": levels, "findings": found}))
    else:
        counts = ", ".join(f"{levels[level]} {level}" for level in _STYLE if levels[level])
        console.print(counts, markup=False)
    return 1 if levels[Level.FAIL] else 0


def _split(files: list[str] | None) -> tuple[str, ...]:
    return tuple(name for given in files or () for name in given.split(",") if name)


def _print(finding: Finding, console: Console) -> None:
    line = Text()
    line.append(f"{finding.level.value:4}", style=_STYLE[finding.level.value])
    line.append(f"  {finding.check:17} {one_line(finding.found, _LONGEST)}")
    if finding.advice:
        line.append(f" → {one_line(finding.advice, _LONGEST)}", style="bold")
    # One finding is one line, also for grep.
    console.print(line, soft_wrap=True)
