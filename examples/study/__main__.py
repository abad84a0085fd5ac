"""`python -m examples.study`: make the inputs, do the runs that are missing, report."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from .arms import Settings
from .runner import (
    Plan,
    Study,
    carry_out,
    carry_out_pilots,
    chosen_rates,
    counting_runs,
    pilot_runs,
    rate_runs,
)

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "study.md"
VERL_WORK = HERE.parents[1] / "build" / "study-verl"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"

# Everything in small, through every arm: does it work, not what comes out.
SMOKE = Plan(
    primary_seeds=1,
    exploratory_seeds=1,
    built_seeds=1,
    rates=(3e-4,),
    rate_seeds=(100,),
    rate_steps=1,
    settings=Settings(steps=4, prompts=4, rollouts=4, curve_every=2, curve_problems=4, samples=2),
)

app = typer.Typer(add_completion=False, no_args_is_help=True)
Folder = Annotated[Path, typer.Option(help="Folder of inputs and results.")]
Smoke = Annotated[bool, typer.Option(help="Everything in small, to see that it works.")]


Jobs = Annotated[int, typer.Option(min=1, help="Runs at the same time.")]


@app.command()
def pilot(folder: Folder = HERE, jobs: Jobs = 2) -> None:
    """Make the inputs and try the outcome alone: what is known before the plan is final."""
    study = _prepared(folder, smoke=False)
    carry_out_pilots(study, jobs, typer.echo)
    for result in study.results(pilot_runs(study.plan)):
        rate, acc = result["run"]["learning_rate"], result["curve"]["acc"]
        typer.echo(f"{rate:g}: {', '.join(f'{value:.1%}' for value in acc)}")


@app.command()
def run(
    folder: Folder = HERE,
    jobs: Jobs = 2,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Begin no run that would not end by then.")
    ] = None,
    smoke: Smoke = False,
) -> None:
    """Make the inputs and do the runs that are missing; killed, the same command goes on."""
    study = _prepared(folder, smoke)
    if not carry_out(study, jobs, minutes, typer.echo):
        typer.echo("the time is over; the same command goes on from here")


def _prepared(folder: Path, smoke: bool) -> Study:
    """Return the study with its inputs."""
    from .inputs import Recipe, prepare

    study = Study(folder, SMOKE if smoke else Plan())
    recipe = Recipe()
    if smoke:
        recipe = replace(
            recipe, train=16, pool=24, held_out=8, longer=4, selection=4, warm_steps=10,
            start_at=0.0, more_steps=0, built_from=4, lots_from=2,
        )  # fmt: skip
    prepare(study.inputs, recipe, typer.echo)
    return study


@app.command()
def report(
    folder: Folder = HERE,
    page: Annotated[Path, typer.Option(help="Page whose results are written.")] = PAGE,
    images: Annotated[Path | None, typer.Option(help="Folder of pictures.")] = None,
    smoke: Smoke = False,
) -> None:
    """Write tables into the page, and the pictures beside it, from the runs that there are."""
    from .analysis import Results, arms_table, primary_table, seeds_table
    from .pictures import draw_curves, draw_forest

    study = Study(folder, SMOKE if smoke else Plan())
    tries = study.results(rate_runs(study.plan))
    rates = chosen_rates(study.plan, tries)
    found = study.results(counting_runs(study.plan, rates))
    if not found:
        typer.echo(f"{folder} has no run yet that counts: {page} stays as it is")
        return
    results = Results(found)
    pictures = images or page.parent / "images"
    draw_curves(results, pictures / "study-curves.svg")
    draw_forest(results, pictures / "study-arms.svg")
    hours = sum(result["cpu_seconds"] for result in [*tries, *found]) / 3600
    rates_text = ", ".join(f"{arm} {rate:g}" for arm, rate in rates.items())
    parts = [
        primary_table(results, study.plan.primary_seeds),
        arms_table(results),
        f"Accuracy of every run, by seed:\n\n{seeds_table(results)}",
        f"Learning rates: {rates_text}. {len(found)} runs, and {len(tries)} to choose rates, took"
        f" {hours:.1f} hours of one core.",
    ]
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    body = "\n\n".join(parts)
    page.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", encoding="utf-8")
    typer.echo(f"wrote {page}, and its pictures in {pictures}")


@app.command()
def verl(
    folder: Folder = HERE,
    work: Annotated[Path, typer.Option(help="Folder for what verl leaves.")] = VERL_WORK,
) -> None:
    """Do the runs in unmodified verl that are missing, with the learning rates of the loop."""
    from .verl_runs import VerlPlan, carry_out_verl

    carry_out_verl(Study(folder, Plan()), VerlPlan(), work, typer.echo)


@app.command()
def plan() -> None:
    """Print how many runs and steps there are."""
    made = Plan()
    tries = rate_runs(made)
    runs = counting_runs(made, {arm: 0.0 for run in tries for arm in [run.arm]})
    for name, of in (("to choose rates", tries), ("that count", runs)):
        typer.echo(f"{len(of)} runs {name}, {sum(run.steps for run in of):,} steps")
    typer.echo(str(asdict(made)))


if __name__ == "__main__":
    app()
