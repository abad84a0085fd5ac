"""`python -m examples.study`: make the starts, do the missing runs, report."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.markdown import write_block

from .nodes import Problems
from .plan import Plan, Settings
from .runner import HERE, Study, Table, perform
from .starts import Inputs, Recipe, prepare, starts_table

# Every part in small, starts too: a test of the code.
SMOKE = Plan(
    arms=("outcome", "linear", "random", "permuted"),
    level_arms=("linear",),
    levels=("40",),
    main_starts=("1-a",),
    main_seeds=(0,),
    level_seeds=(0,),
    group_seeds=(0,),
    settings=Settings(
        steps=2, responses=32, curve_every=1, curve_problems=4, final_problems=4, samples=1
    ),
    train=16,
    evaluated=16,
)
SMOKE_RECIPE = Recipe(
    updates=(4,) * 6, batch=8, kept_every=1, looked_every=2, looked_from=1, samples=1, random_from=4
)

app = typer.Typer(add_completion=False, no_args_is_help=True)
Folder = Annotated[Path, typer.Option(help="Folder of inputs and results.")]
Smoke = Annotated[bool, typer.Option(help="Everything in small, as a test.")]


def _study(folder: Path, smoke: bool) -> Study:
    plan = SMOKE if smoke else Plan()
    return Study(plan, Inputs(folder / "inputs"), Table(folder / "results.jsonl.gz"))


def _problems(study: Study) -> Problems:
    return Problems.drawn(study.plan.train, study.plan.evaluated)


@app.command()
def starts(folder: Folder = HERE, smoke: Smoke = False) -> None:
    """Make the starts and random nodes that are missing, and write their table into the plan."""
    _one_thread()
    study = _study(folder, smoke)
    problems = _problems(study)
    prepare(study.inputs, problems, SMOKE_RECIPE if smoke else Recipe(), typer.echo)
    text = starts_table(study.inputs)
    typer.echo(text)
    if folder == HERE:
        write_block(HERE / "PLAN-3.md", "starts", text)


@app.command()
def run(folder: Folder = HERE, smoke: Smoke = False) -> None:
    """Do the missing runs on one core; killed, the same command goes on."""
    _one_thread()
    study = _study(folder, smoke)
    problems = _problems(study)
    study.carry_out(lambda run: perform(study, problems, run), typer.echo)


@app.command()
def report(
    folder: Folder = HERE,
    smoke: Smoke = False,
    picture: Annotated[
        Path | None, typer.Option(help="Picture of the leads at all levels to draw: .svg or .png.")
    ] = None,
) -> None:
    """Print the tables of the finished runs, contrasts only if all main runs are there."""
    from .analysis import report as tables

    typer.echo(tables(_study(folder, smoke), picture))


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
    os.nice(10)


if __name__ == "__main__":
    app()
