"""``consensuspr launch``: verl training with the reward server beside it."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from consensuspr.cli.options import with_settings
from consensuspr.launch.request import Request


@with_settings(
    Request,
    prefix="CONSENSUSPR_LAUNCH",
    shown={
        "algorithm": None,
        "model": "1.7b|4b|8b|PATH",
        "reward": None,
        "train_files": "FILE",
        "val_files": "FILE",
        "dataset": "PATH",
        "grow_nodes": None,
        "alpha": None,
        "address": "HOST:PORT",
    },
)
def launch(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="Hydra overrides for verl; they win over everything else.",
        ),
    ] = None,
    *,
    settings: Request,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands and run nothing.")
    ] = False,
) -> int:
    """Train with verl and the reward server beside it, as the paper did.

    ```text
    consensuspr launch --algorithm grpo --model 4b --reward linear --dataset dataset.jsonl \\
        --train-files data/train.parquet --val-files data/val.parquet
    consensuspr launch ... --alpha 0.3 trainer.total_epochs=3 data.seed=1
    ```

    Starts the server, lets `consensuspr doctor` look at the run, runs verl's own `main_ppo`, and
    ends all of it together; a server that dies is started again. The exit code is the training's.
    `--dry-run` prints every setting that verl would be given. Files for verl are made by
    `consensusbench export`; how the server is started is among the settings of `--list-settings`.
    """
    from consensuspr.launch.plan import make_plan
    from consensuspr.launch.run import launch

    plan = make_plan(settings, overrides or (), os.environ)
    if dry_run:
        typer.echo(plan.script())
        return 0
    return launch(plan, examine=not settings.no_doctor)
