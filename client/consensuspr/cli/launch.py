"""``consensuspr launch``: verl training with the reward server beside it."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from consensuspr.cli.options import flag, with_settings
from consensuspr.launch.request import Request


@with_settings(
    Request,
    prefix="CONSENSUSPR_LAUNCH",
    shown={
        "algorithm": None,
        "model": "1.7b|4b|8b|PATH",
        "reward": "NAME",
        "alpha": "SHARE",
        "train_files": "FILE",
        "val_files": "FILE",
        "dataset": "PATH",
        "address": "HOST:PORT",
        "log_dir": "DIR",
    },
    more={
        "grow_nodes": None,
        "step_credit": None,
        "recipe": "FILE",
        "server_address": "HOST:PORT",
        "server_workers": "N",
        "server_config": "FILE",
        "trainer": "MODULE",
        "no_doctor": None,
    },
)
def launch(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="Hydra overrides for verl; they win over all options.",
        ),
    ] = None,
    *,
    settings: Request,
    dry_run: Annotated[
        bool,
        flag("--dry-run", "Print the commands with all settings, and run nothing."),
    ] = False,
) -> int:
    """Train with verl by the paper's recipe, with a reward server.

    ```text
    consensuspr launch --algorithm grpo --model 4b --reward linear --dataset dataset.jsonl \\
        --train-files data/train.parquet --val-files data/val.parquet
    consensuspr launch ... --alpha 0.3 trainer.total_epochs=3 data.seed=1
    ```

    Starts the server, runs `consensuspr doctor`, then verl's `main_ppo`, and stops the server at
    the end. If the server dies, it restarts it. The exit code is that of the training.

    `consensusbench export --format verl` writes the Parquet files. See the page "Train with verl".
    """
    from consensuspr.launch.plan import make_plan
    from consensuspr.launch.run import launch

    plan = make_plan(settings, overrides or (), os.environ)
    if dry_run:
        typer.echo(plan.script())
        return 0
    return launch(plan, examine=not settings.no_doctor)
