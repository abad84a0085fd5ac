"""The study's task in unmodified verl: does the loop of `grpo.py` say what verl says?

The same warm starts, problems, datasets and learning rates; verl samples with Hugging Face's
`generate`, keeps its own order of problems, and is told the reward by the same server.  How verl
runs on a CPU is `examples/verl_cpu`, whose settings are taken as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from consensuspr.data import Problem

from .arms import ARMS, COUNTED
from .inputs import Inputs
from .model import save
from .runner import Run, Say, Study, chosen_rates, made_by, rate_runs
from .task import MAX_RESPONSE_TOKENS

if TYPE_CHECKING:
    from arithmetic_grpo.files import Files

VERL_ARMS = ("outcome", "linear", "shuffled")


@dataclass(frozen=True)
class VerlPlan:
    """How much is run in verl: fewer steps than in the loop, since each takes seconds.

    Attributes:
        seeds: from 0 on.
        steps: whole passes over the training problems.
        more: seeds beside those that were planned, for what `docs/study.md` asks of the first
            warm start; what the plan compares leaves them out.
    """

    seeds: int = 4
    steps: int = 100
    more: tuple[int, ...] = (6, 9)

    def runs(self, rates: Mapping[str, float]) -> list[Run]:
        """Return the runs in their order, with the learning rates of the loop."""
        return [
            Run("verl", name, seed, rates[name], self.steps)
            for seed in (*range(self.seeds), *self.more)
            for name in VERL_ARMS
        ]


def carry_out_verl(study: Study, plan: VerlPlan, work: Path, say: Say) -> None:
    """Do the runs that are missing, one at a time; each has processes for two cores.

    Args:
        study: Whose inputs and learning rates are taken.
        plan: How much.
        work: Folder for what verl leaves.
        say: Told of each run that ended.
    """
    from arithmetic_grpo.results import summarise
    from arithmetic_grpo.training import Run as VerlRun
    from arithmetic_grpo.training import Settings, train

    rates = chosen_rates(study.plan, study.results(rate_runs(study.plan)))
    if missing := [name for name in VERL_ARMS if name not in rates]:
        raise SystemExit(
            f"no learning rate is chosen yet for {', '.join(missing)}: make study first"
        )
    problems = study.inputs.problems()
    shared = study.plan.settings
    settings = Settings(
        steps=plan.steps,
        prompts=shared.prompts,
        rollouts=shared.rollouts,
        validate_every=plan.steps,
        epochs=plan.steps * shared.prompts // len(problems["train"]),
    )
    rows = study.rows()
    with study.inputs.serving() as address:
        for run in plan.runs(rates):
            if run in rows:
                continue
            arm = ARMS[run.arm]
            of_run = replace(settings, learning_rate=run.learning_rate)
            in_verl = VerlRun(
                arm.reward.kind.value,
                run.seed,
                work / run.name,
                (
                    "data.max_prompt_length=32",
                    f"data.max_response_length={MAX_RESPONSE_TOKENS}",
                    f"actor_rollout_ref.rollout.val_kwargs.n={shared.samples}",
                    # As long as twenty steps, and the loop has asked the same start.
                    "trainer.val_before_train=False",
                    f"+reward.reward_kwargs.dataset={arm.nodes}",
                    *(f"+reward.reward_kwargs.{name}={value}" for name, value in COUNTED.items()),
                ),
            )
            files = _files(work, study.inputs, run.warm_start, problems)
            train(in_verl, files, of_run, address, lambda done: None)
            row = {
                **study.identity(run),
                "settings": asdict(of_run),
                **made_by(),
                **summarise(in_verl),
            }
            study.add(row)
            say(f"{run.name}: Acc {row['validation']['acc'][-1]:.1%}")


def _files(work: Path, inputs: Inputs, number: int, problems: dict[str, list[Problem]]) -> Files:
    """Return verl's files of a warm start, which are made where they are not there."""
    from arithmetic_grpo.files import Files, write_parquet

    files = Files(work / f"warm-start-{number}")
    if not files.validation.exists():
        files.folder.mkdir(parents=True, exist_ok=True)
        save(inputs.model(number), files.model)
        write_parquet(files.train, problems["train"])
        write_parquet(files.validation, problems["held-out"])
    return files
