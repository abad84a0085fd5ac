"""Compare the rewards of the paper on a CPU: real verl, a real server, a tiny model.

Makes the problems and the model to start from, starts `consensuspr serve`, and trains each arm
with each seed by `python -m verl.trainer.main_ppo`.  A run that has finished is not run again, so
an interrupted comparison goes on where it stopped.  What to install: README.md beside this file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from arithmetic_grpo.files import Files, Recipe, prepare
from arithmetic_grpo.results import summarise
from arithmetic_grpo.training import ARMS, EPOCHS, Run, Settings, running_server, train

from consensuspr.console import count_progress


def main(
    output: Annotated[Path, typer.Option(help="Folder for data, model and logs.")],
    arms: Annotated[str, typer.Option(help="Rewards to train with.")] = ",".join(ARMS),
    seeds: Annotated[str, typer.Option(help="Seeds: order of problems, and sampling.")] = "0,1,2",
    steps: Annotated[int, typer.Option(min=2, help="Training steps of a run, even.")] = 60,
    tool: Annotated[
        bool, typer.Option(help="Let a tool show the solution of every other problem.")
    ] = False,
) -> None:
    """Train each arm with each seed, and print what came out."""
    names, numbers = _arms(arms), _seeds(seeds)
    if steps % EPOCHS:
        raise typer.BadParameter(f"must be a multiple of {EPOCHS}, got {steps}")
    settings = Settings(steps=steps, tool=tool)
    recipe = Recipe(settings.num_train, tool=tool)
    with count_progress("warm start", recipe.warm_start_steps, "updates") as advance_to:
        files = prepare(output / "files", recipe, advance_to)
        advance_to(recipe.warm_start_steps)
    # Seed by seed: an interrupted comparison has whole seeds.
    runs = [Run(arm, seed, output / "runs" / f"{arm}-{seed}") for seed in numbers for arm in names]
    _train_all(runs, files, settings)
    typer.echo("run            Acc     NCR  in validation, after the last step")
    for run in runs:
        validation = summarise(run)["validation"]
        typer.echo(f"{run.name:12} {validation['acc'][-1]:6.1%}  {validation['ncr'][-1]:6.1%}")


def _train_all(runs: list[Run], files: Files, settings: Settings) -> None:
    missing = [run for run in runs if not run.finished.exists()]
    if not missing:
        return
    with (
        running_server("--dataset", str(files.dataset)) as address,
        count_progress("training", len(runs) * settings.steps, "steps") as advance_to,
    ):
        for number, run in enumerate(missing, start=len(runs) - len(missing)):

            def report(done: int, before: int = number * settings.steps) -> None:
                advance_to(before + done)

            train(run, files, settings, address, report)


def _arms(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in ARMS:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(ARMS)}", param_hint="--arms")
    return names


def _seeds(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        hint = "--seeds"
        raise typer.BadParameter(f"{text!r} is no list of numbers", param_hint=hint) from None


if __name__ == "__main__":
    typer.run(main)
