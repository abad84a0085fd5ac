"""`python -m examples.study`: make the inputs, do the runs that are missing, report."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consensuspr.data import atomic_file

from .arms import SECOND_CONTRASTS, SECOND_RATE, SWAPPED, Settings
from .runner import (
    Plan,
    Study,
    carry_out,
    carry_out_pilots,
    chosen_rates,
    counting_runs,
    pilot_runs,
    rate_runs,
    second_runs,
)

if TYPE_CHECKING:
    from .analysis import Results
    from .verl_runs import VerlPlan

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
def run(folder: Folder = HERE, jobs: Jobs = 2, smoke: Smoke = False) -> None:
    """Make the inputs and do the runs that are missing; killed, the same command goes on."""
    carry_out(_prepared(folder, smoke), jobs, typer.echo)


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
    """Write tables into the page, and the pictures beside it, once all runs are there."""
    from .analysis import Results, at_end, seeds_table
    from .pictures import PICTURES, SECOND_PICTURES, VERL_ABOUT, VERL_PICTURE, draw_verl

    study = Study(folder, SMOKE if smoke else Plan())
    tries = study.complete(rate_runs(study.plan))
    rates = SWAPPED | chosen_rates(study.plan, tries)
    results = Results(study.complete(counting_runs(study.plan, rates)))
    second = Results(study.complete(second_runs(study.plan)), "selection")
    pictures = images or page.parent / "images"
    for draw, name, _ in PICTURES:
        draw(results, pictures / name)
    for draw, name, _ in SECOND_PICTURES:
        draw(second, pictures / name)
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    where = os.path.relpath(pictures, page.parent)
    shown = [f"![{about}]({where}/{name})" for _, name, about in PICTURES]
    body = [
        *shown[:2],
        *_finding(results),
        *_second(second, [f"![{about}]({where}/{name})" for _, name, about in SECOND_PICTURES]),
        *_beside(study, results, tries, rates, second),
        "### Every run",
        *shown[2:],
    ]
    body += [
        f"Held-out Acc by seed:\n\n{seeds_table(results)}",
        f"Responses written as code, by seed:\n\n{seeds_table(results, at_end('code'))}",
    ]
    body.append("### In unmodified verl")
    plan = _verl_plan(smoke)
    # An environment of its own, and hours: a study is complete without it.
    if study.results(plan.runs(rates)):
        in_verl = study.complete(plan.runs(rates))
        draw_verl(results, in_verl, pictures / VERL_PICTURE)
        body.append(f"![{VERL_ABOUT}]({where}/{VERL_PICTURE})")
        body += _in_verl(results, in_verl, plan)
    else:
        body.append("Not run yet.")
    written = "\n\n".join(part for part in body if part)
    with atomic_file(page) as stream:
        stream.write(f"{before}{BEGIN}\n{written}\n{END}{after}".encode())
    typer.echo(f"wrote {page}, and its pictures in {pictures}")


def _finding(results: Results) -> list[str]:
    """Return the finding and its tables, as paragraphs."""
    from . import analysis

    return [
        "## The finding",
        analysis.finding(results),
        "### Primary contrasts",
        analysis.primary_table(results),
        "Held-out Acc at the end, paired by seed; differences in points, intervals of 95 % by"
        " Student's t, SD of the differences. " + analysis.power_text(results),
        analysis.against_table(results),
    ]


def _second(second: Results, pictures: list[str]) -> list[str]:
    """Return what the second study found, as paragraphs."""
    from . import analysis

    return [
        "## A second study: at one learning rate",
        "In the first, `linear` has another rate than the arms beside it. [Planned"
        " afterwards](../examples/study/PLAN-2.md) and before any of its runs: four arms, all at"
        f" {SECOND_RATE:g}, on seeds that nothing was looked at with; evaluated on the selection"
        " problems ([a deviation](#deviations-from-the-plan)).",
        analysis.second_finding(second),
        *pictures,
        analysis.primary_table(second, SECOND_CONTRASTS),
        analysis.second_against_table(second),
        "All that was watched, without tests, and Acc by seed:",
        analysis.beside_table(second, analysis.SECOND_BESIDE),
        analysis.arms_table(second),
        analysis.seeds_table(second),
    ]


def _beside(
    study: Study,
    results: Results,
    tries: list[dict[str, Any]],
    rates: dict[str, float],
    second: Results,
) -> list[str]:
    """Return what else was compared and what all of it cost, as paragraphs."""
    from . import analysis

    plan, found = study.plan, [*results.all, *second.all]
    commits = sorted({result["commit"] for result in found})
    machines = sorted({result["machine"] for result in found})
    pilots = study.results(pilot_runs(plan))
    piloted = [
        f"from {run['curve']['acc'][0]:.1%} to {run['curve']['acc'][-1]:.1%} at"
        f" {run['run']['learning_rate']:g}"
        for run in pilots
    ]
    hours = [sum(r["cpu_seconds"] for r in of) / 3600 for of in (found, tries, pilots)]
    return [
        "## Beside them",
        "All that follows is exploratory: intervals, no tests. Differences are in points, those of"
        " equations and tokens a response; area is the mean height of the held-out curve.",
        analysis.beside_table(results),
        "Means over the seeds that an arm has; *less outcome* is paired by seed.",
        analysis.arms_table(results),
        "Every run of the first plan was made.",
        "### Learning rates",
        f"Acc on the selection problems after {plan.rate_steps} steps, of seeds"
        f" {' and '.join(map(str, plan.rate_seeds))}:",
        analysis.rates_table(tries, rates),
        f"The pilot before them, the outcome alone: {', '.join(piloted)}." if pilots else "",
        "### What it took",
        f"{len(found)} runs took {hours[0]:.1f} hours of one core, {len(tries)} to choose rates"
        f" {hours[1]:.1f}, {len(pilots)} pilots {hours[2]:.1f}: CPU time of the processes that"
        f" train, without the reward server's. Runs were made by {' and '.join(commits)}, on"
        f" {' and '.join(machines)}.",
    ]


def _in_verl(results: Results, verl: list[dict[str, Any]], plan: VerlPlan) -> list[str]:
    """Return what the page says of runs in verl, as paragraphs."""
    from . import analysis

    planned = [result for result in verl if result["run"]["seed"] < plan.seeds]
    more = len(verl) - len(planned)
    return [
        "verl answers all held-out problems four times after its last step; the loop's curve has"
        " a part of them, and at step 100 its runs go on.",
        analysis.verl_table(results, planned, plan.steps),
        f"Run by run, by warm start{f', with {more} runs that were not planned' if more else ''}:"
        " verl less the loop, of the same arm and seed; in training, the mean over the steps.",
        analysis.verl_starts_table(results, verl, plan.steps),
        f"Acc by seed, in verl / in the loop at step {plan.steps}:",
        analysis.verl_seeds_table(results, verl, plan.steps),
        "verl less the loop by seed, in points, at the end / in training:",
        analysis.verl_differences_table(results, verl, plan.steps),
    ]


@app.command()
def verl(
    folder: Folder = HERE,
    work: Annotated[Path, typer.Option(help="Folder for what verl leaves.")] = VERL_WORK,
    smoke: Smoke = False,
) -> None:
    """Do the runs in unmodified verl that are missing, with the learning rates of the loop."""
    from .verl_runs import carry_out_verl

    study = Study(folder, SMOKE if smoke else Plan())
    carry_out_verl(study, _verl_plan(smoke), work, typer.echo)


def _verl_plan(smoke: bool) -> VerlPlan:
    from .verl_runs import VerlPlan

    return VerlPlan(seeds=1, steps=SMOKE.settings.steps, more=()) if smoke else VerlPlan()


@app.command()
def weak(
    folder: Folder = HERE,
    jobs: Jobs = 2,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each arm.")] = 6,
    smoke: Smoke = False,
) -> None:
    """Do the runs from weak starts that are missing, and print their table."""
    from .weak import WeakPlan, carry_out_weak, weak_table

    made = WeakPlan(seeds=seeds)
    if smoke:
        settings = replace(SMOKE.settings, curve_every=SMOKE.settings.steps)
        made = WeakPlan(share=0.0, seeds=1, train=8, test=4, settings=settings)
    typer.echo(weak_table(carry_out_weak(_prepared(folder, smoke), made, jobs, typer.echo)))


if __name__ == "__main__":
    app()
