"""Train from questions and answers alone: nodes grow with the run, on a CPU, with real verl.

Runs `consensuspr launch --grow-nodes` on problems without nodes, and prints for each epoch how many
problems had nodes, accuracy and NCR.  README.md says what to install.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer
from arithmetic_grpo.files import Recipe, prepare
from arithmetic_grpo.results import read_scores
from arithmetic_grpo.training import Run, Settings, launch

from consensuspr.console import count_progress


def start(num_train: int, num_validation: int = 128, *, nodes: bool = False) -> Recipe:
    """Return a start that is strong, because problems are solved before they have nodes.

    Chains are short and the teacher does not err.  It writes a solution in several ways: of a
    problem that has one right text nothing can be a consensus.
    """
    return Recipe(
        num_train,
        num_validation,
        steps=2,
        largest=12,
        warm_start_steps=400,
        batch=32,
        error_rate=0.0,
        varied=True,
        nodes=nodes,
    )


@dataclass
class Epoch:
    """The training samples of an epoch in the score log.

    Attributes:
        digests: of the datasets that rewarded them.
        solved, with_nodes: problems of which a sample was right, and those that had nodes.
        acc, ncr: of each sample, and of each that had nodes.
    """

    digests: set[str] = field(default_factory=set)
    solved: set[str] = field(default_factory=set)
    with_nodes: set[str] = field(default_factory=set)
    acc: list[float] = field(default_factory=list)
    ncr: list[float] = field(default_factory=list)


def main(
    output: Annotated[Path, typer.Option(help="Folder for data, model and logs.")],
    epochs: Annotated[int, typer.Option(min=3, help="The first nodes come with the third.")] = 6,
    epoch_steps: Annotated[int, typer.Option(min=1, help="Training steps in an epoch.")] = 5,
) -> None:
    """Train without nodes, grow them, and print a line for each epoch."""
    run = Run("linear", 0, output / "run")
    settings = Settings(steps=epochs * epoch_steps, epochs=epochs, validate_every=epoch_steps)
    recipe = start(settings.num_train)
    with count_progress("warm start", recipe.warm_start_steps, "updates") as advance_to:
        files = prepare(output / "files", recipe, advance_to)
        advance_to(recipe.warm_start_steps)
    with count_progress("training", settings.steps, "steps") as advance_to:
        launch(run, files, settings, advance_to, "--grow-nodes")
    typer.echo("epoch  problems with nodes     Acc     NCR  dataset")
    for number, epoch in sorted(epochs_of(run).items()):
        [digest] = epoch.digests
        ncr = f"{fmean(epoch.ncr):7.1%}" if epoch.ncr else "      –"
        typer.echo(
            f"{number:5}  {len(epoch.with_nodes):10} of {settings.num_train:<4}"
            f"   {fmean(epoch.acc):7.1%} {ncr}  {digest[:19]}"
        )


def epochs_of(run: Run) -> dict[int, Epoch]:
    """Return the epochs of training in the score log of a run."""
    epochs: dict[int, Epoch] = {}
    columns = ("epoch", "split", "problem_id", "num_nodes", "acc", "ncr", "dataset_digest")
    for row in read_scores(run, *columns):
        if row["split"] != "train":
            continue
        epoch = epochs.setdefault(row["epoch"], Epoch())
        epoch.digests.add(row["dataset_digest"])
        epoch.acc.append(row["acc"])
        if row["acc"]:
            epoch.solved.add(row["problem_id"])
        if row["num_nodes"]:
            epoch.with_nodes.add(row["problem_id"])
            epoch.ncr.append(row["ncr"])
    return epochs


if __name__ == "__main__":
    typer.run(main)
