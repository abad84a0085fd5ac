"""``consensuspr launch``: verl training with the reward server beside it."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from consensuspr.console import one_line
from consensuspr.errors import InputError
from consensuspr.scoring.rewards import RewardKind


class Algorithm(StrEnum):
    """Which recipe of the paper."""

    GRPO = "grpo"
    DAPO = "dapo"


class ServerChoice(StrEnum):
    """Who keeps the server that is started."""

    PROCESS = "process"
    RAY = "ray"


def launch(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            show_default=False,
            help="Hydra overrides for verl; they win over everything else.",
        ),
    ] = None,
    *,
    algorithm: Annotated[Algorithm, typer.Option(show_default=False, help="Recipe to train with.")],
    model: Annotated[
        str,
        typer.Option(
            metavar="1.7b|4b|8b|PATH",
            show_default=False,
            help="Size of Qwen3-Base with a recipe, or any model's path or hub name.",
        ),
    ],
    reward: Annotated[RewardKind, typer.Option(show_default=False, help="What is rewarded.")],
    train_files: Annotated[
        list[str],
        typer.Option(metavar="FILE", show_default=False, help="Training Parquet; may be repeated."),
    ],
    val_files: Annotated[
        list[str],
        typer.Option(
            metavar="FILE", show_default=False, help="Validation Parquet; may be repeated."
        ),
    ],
    dataset: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            show_default=False,
            help="Dataset with nodes for the server, and for scoring while it is away.",
        ),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(show_default="0.5", help="Weight of accuracy in the linear reward."),
    ] = None,
    alphas: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            show_default=False,
            help="Sweep: one run after the other, each with its alpha.",
        ),
    ] = None,
    switch_epoch: Annotated[
        int | None,
        typer.Option(min=0, show_default="1", help="First epoch of the curriculum's second stage."),
    ] = None,
    recipe: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="File of more overrides, one a line; may be repeated.",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", show_default=False, help="Use this server and start none."
        ),
    ] = None,
    server: Annotated[
        ServerChoice, typer.Option(help="Start the server as a process here, or as a Ray actor.")
    ] = ServerChoice.PROCESS,
    server_address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            show_default="127.0.0.1:50051; with several nodes this node's IP",
            help="Where the server that is started listens.",
        ),
    ] = None,
    server_workers: Annotated[
        int | None, typer.Option(min=1, show_default="its own", help="Its worker processes.")
    ] = None,
    server_config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", show_default=False, help="Its settings as TOML."),
    ] = None,
    log_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="For the server's log and the score logs.")
    ] = Path("consensuspr-logs"),
    trainer: Annotated[
        str, typer.Option(metavar="MODULE", help="What is run as the training.")
    ] = "verl.trainer.main_ppo",
    no_doctor: Annotated[
        bool, typer.Option("--no-doctor", help="Train without `consensuspr doctor` first.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands and run nothing.")
    ] = False,
) -> int:
    """Train with verl and the reward server beside it, as the paper did.

    ```text
    consensuspr launch --algorithm grpo --model 4b --reward linear --dataset problems.jsonl \\
        --train-files data/train.parquet --val-files data/val.parquet
    consensuspr launch ... --alphas 0.1,0.3,0.5 trainer.total_epochs=3 data.seed=1
    ```

    Starts the server, lets `consensuspr doctor` look at the run, runs verl's own `main_ppo`, and
    ends all of it together; a server that dies is started again. The exit code is the training's.
    `--dry-run` prints every setting that verl would be given. Files for verl are made by
    `consensusbench export`.
    """
    from consensuspr.launch import Request, launch, make_plan
    from consensuspr.launch.plan import ServerKind

    plan = make_plan(
        Request(
            algorithm=algorithm.value,
            model=model,
            reward=reward.value,
            train_files=tuple(train_files),
            val_files=tuple(val_files),
            dataset=dataset,
            alphas=_alphas(alpha, alphas),
            switch_epoch=switch_epoch,
            address=address,
            server=ServerKind(server.value),
            server_address=server_address,
            server_workers=server_workers,
            server_config=server_config,
            recipes=tuple(recipe or ()),
            overrides=tuple(overrides or ()),
            log_folder=log_dir,
            trainer=trainer,
        ),
        os.environ,
    )
    if dry_run:
        typer.echo(plan.script())
        return 0
    return launch(plan, _say, examine=not no_doctor)


def _alphas(alpha: float | None, alphas: str | None) -> tuple[float, ...]:
    """Return the alphas of the runs; none for the recipe's.

    Raises:
        InputError: both options are given, or one is no list of different numbers.
    """
    if alphas is None:
        return () if alpha is None else (alpha,)
    if alpha is not None:
        raise InputError("give --alpha or --alphas, not both")
    try:
        numbers = tuple(float(text) for text in alphas.split(","))
    except ValueError:
        raise InputError(f"--alphas must be numbers with commas between, got {alphas!r}") from None
    if len(set(numbers)) < len(numbers):
        raise InputError(f"--alphas names a number twice: {alphas}")
    return numbers


def _say(sentence: str) -> None:
    print(f"consensuspr: {one_line(sentence, 2000)}", file=sys.stderr, flush=True)
