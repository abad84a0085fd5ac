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

from consensuspr.cli.options import Color, Json, NoProgress, TlsCa, TokenFile, seconds_option
from consensuspr.console import (
    ColorMode,
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
    list[str] | None, typer.Option(metavar="FILE,...", help="Parquet files, separated by commas.")
]


def doctor(
    run: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- TRAINING COMMAND]",
            help="Command that starts the training, or only its Hydra overrides.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Configuration of the run, as Hydra wrote it."),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Server to check. [default: that of the run]"),
    ] = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|NAME",
            help="Dataset that the server must have: a file, or its name on the server. [default:"
            " that of the run]",
        ),
    ] = None,
    train_files: Files = None,
    val_files: Files = None,
    timeout: Annotated[
        float,
        seconds_option("Seconds for each call."),
    ] = 60.0,
    no_progress: NoProgress = False,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> int:
    """Check a training run before it starts: server, settings, rows.

    ```text
    consensuspr doctor -- python -m verl.trainer.main_ppo data.train_files=train.parquet ...
    consensuspr doctor --address HOST:PORT --train-files train.parquet --val-files val.parquet
    ```

    Put `consensuspr doctor --` before the command that starts the training. It trains nothing and
    uses no GPU. Each check prints ok, warn or FAIL, and what to do. The exit code is 1 if a check
    fails.
    """
    from consensuspr.doctor import Case, Level, examine
    from consensuspr.doctor.verl_run import TrainingCommand

    if run and config is not None:
        raise InputError("give --config or the training command, not both")
    if config is not None and not config.is_file():
        raise InputError(f"--config: file not found: {config}")
    is_file = dataset is not None and os.path.isfile(dataset)
    if dataset is not None and not is_file and os.sep in dataset:
        raise InputError(f"--dataset: file not found: {dataset}")
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
