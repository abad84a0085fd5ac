"""Compare the rewards of the paper on a CPU: real verl, a real server, a tiny model.

Makes the problems and the model to start from, starts `consensuspr serve`, and trains each arm
with each seed by `python -m verl.trainer.main_ppo`.  A run that has finished is not run again, so
an interrupted comparison goes on where it stopped.  README.md says what to install.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from arithmetic_grpo.files import Recipe, prepare
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
    """Train each arm with each seed, and print accuracy and NCR after the last step."""
    if unknown := set(arms.split(",")) - set(ARMS):
        raise typer.BadParameter(f"--arms takes {', '.join(ARMS)}, got {', '.join(unknown)}")
    if steps % EPOCHS:
        raise typer.BadParameter(f"--steps must be a multiple of {EPOCHS}, got {steps}")
    settings = Settings(steps=steps, tool=tool)
    recipe = Recipe(settings.num_train, tool=tool)
    with count_progress("warm start", recipe.warm_start_steps, "updates") as advance_to:
        files = prepare(output / "files", recipe, advance_to)
        advance_to(recipe.warm_start_steps)
    # Seed by seed: an interrupted comparison has whole seeds.
    runs = [
        Run(arm, int(seed), output / "runs" / f"{arm}-{seed}")
        for seed in seeds.split(",")
        for arm in arms.split(",")
    ]
    missing = [run for run in runs if not run.finished.exists()]
    with (
        running_server("--dataset", str(files.dataset)) as address,
        count_progress("training", len(missing) * steps, "steps") as advance_to,
    ):
        for number, run in enumerate(missing):

            def report(done: int, before: int = number * steps) -> None:
                advance_to(before + done)

            train(run, files, settings, address, report)
    typer.echo("run            Acc     NCR  in validation, after the last step")
    for run in runs:
        validation = summarise(run)["validation"]
        typer.echo(f"{run.name:12} {validation['acc'][-1]:6.1%}  {validation['ncr'][-1]:6.1%}")


if __name__ == "__main__":
    typer.run(main)
