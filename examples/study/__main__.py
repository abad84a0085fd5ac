"""`python -m examples.study`: make the inputs, do the missing runs, report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .arms import SECOND_CONTRASTS, SWAPPED, Settings
from .runner import (
    Plan,
    Study,
    carry_out,
    chosen_rates,
    counting_runs,
    rate_runs,
    second_runs,
)

if TYPE_CHECKING:
    from .verl_runs import VerlPlan

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "study.md"
VERL_WORK = HERE.parents[1] / "build" / "study-verl"

# Everything in small, through every arm: a test of the code.
SMOKE = Plan(
    primary_seeds=1,
    exploratory_seeds=1,
    built_seeds=1,
    rates=(3e-4,),
    rate_seeds=(100,),
    rate_steps=1,
    settings=Settings(steps=2, prompts=4, rollouts=4, curve_every=2, curve_problems=4, samples=2),
)
SMOKE_RECIPE: dict[str, Any] = {
    "train": 8, "pool": 16, "held_out": 8, "longer": 4, "selection": 4, "warm_steps": 6,
    "start_at": 0.0, "more_steps": 0, "built_from": 4, "lots_from": 2,
}  # fmt: skip

app = typer.Typer(add_completion=False, no_args_is_help=True)
Folder = Annotated[Path, typer.Option(help="Folder of inputs and results.")]
Smoke = Annotated[bool, typer.Option(help="Everything in small, as a test.")]
Jobs = Annotated[int, typer.Option(min=1, help="Runs at the same time.")]


def _study(folder: Path, smoke: bool) -> Study:
    return Study(folder, SMOKE if smoke else Plan())


def _prepared(folder: Path, smoke: bool) -> Study:
    """Return the study with its inputs."""
    from .inputs import Recipe, prepare

    study = _study(folder, smoke)
    prepare(study.inputs, Recipe(**SMOKE_RECIPE) if smoke else Recipe(), typer.echo)
    return study


def _verl_plan(smoke: bool) -> VerlPlan:
    from .verl_runs import VerlPlan

    small = VerlPlan(1, SMOKE.settings.steps, extra_seeds=(), arms=("outcome",))
    return small if smoke else VerlPlan()


@app.command()
def run(folder: Folder = HERE, jobs: Jobs = 2, smoke: Smoke = False) -> None:
    """Make the inputs and do the missing runs; killed, the same command goes on."""
    carry_out(_prepared(folder, smoke), jobs, typer.echo)


@app.command()
def verl(
    folder: Folder = HERE,
    work: Annotated[Path, typer.Option(help="Folder for the files of verl.")] = VERL_WORK,
    smoke: Smoke = False,
) -> None:
    """Do the missing runs in unmodified verl, with the learning rates of the loop."""
    from .verl_runs import carry_out_verl

    carry_out_verl(_study(folder, smoke), _verl_plan(smoke), work, typer.echo)


@app.command()
def weak(
    folder: Folder = HERE,
    jobs: Jobs = 2,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each arm.")] = 6,
    smoke: Smoke = False,
) -> None:
    """Do the missing runs from weak starts, and print their table."""
    from .weak import WeakPlan, carry_out_weak, weak_table

    plan = WeakPlan(seeds=seeds)
    if smoke:
        settings = replace(SMOKE.settings, curve_every=SMOKE.settings.steps)
        plan = WeakPlan(share=0.0, seeds=1, train=8, test=4, settings=settings)
    typer.echo(weak_table(carry_out_weak(_prepared(folder, smoke), plan, jobs, typer.echo)))


@app.command()
def report(
    folder: Folder = HERE,
    page: Annotated[Path, typer.Option(help="Page whose tables are written.")] = PAGE,
    smoke: Smoke = False,
) -> None:
    """Write tables into the page, and the pictures beside it, once all runs are there."""
    from benchmarks.markdown import write_block

    from . import analysis
    from .pictures import draw_curves, draw_forest

    study = _study(folder, smoke)
    tries = study.results(rate_runs(study.plan), complete=True)
    rates = SWAPPED | chosen_rates(study.plan, tries)
    results = analysis.Results(study.results(counting_runs(study.plan, rates), complete=True))
    second = study.results(second_runs(study.plan), complete=True)
    second_results = analysis.Results(second, "selection")
    for name, drawn in (("study", results), ("study-second", second_results)):
        draw_curves(drawn, page.parent / "images" / f"{name}-curves.svg")
        draw_forest(drawn, page.parent / "images" / f"{name}-arms.svg")
    blocks = {
        "primary": analysis.primary_table(results),
        "second": analysis.primary_table(second_results, SECOND_CONTRASTS),
        "second-beside": analysis.beside_table(second_results, analysis.SECOND_BESIDE),
        "second-arms": analysis.arms_table(second_results),
        "beside": analysis.beside_table(results),
        "arms": analysis.arms_table(results),
    }
    plan = _verl_plan(smoke)
    planned = [run for run in plan.runs(rates) if run.seed < plan.seeds]
    # Runs in verl need another environment, and hours: a study is complete without them.
    if study.results(planned):
        in_verl = study.results(planned, complete=True)
        blocks["verl"] = analysis.verl_table(results, in_verl, plan.steps)
    for name, text in blocks.items():
        write_block(page, name, text)
    typer.echo(f"wrote the tables of {page} and its pictures")


if __name__ == "__main__":
    app()
