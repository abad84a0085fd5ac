"""The study's task in unmodified verl, to compare with the loop of `grpo.py`.

The same warm starts, problems, datasets, learning rates and server; verl samples with Hugging
Face's `generate`, and keeps its own order of problems.  It runs as in `examples/verl_cpu`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from arithmetic_grpo.files import Files, write_parquet
from arithmetic_grpo.training import Run as VerlRun
from arithmetic_grpo.training import Settings, train

from .arms import ARMS, COUNTED
from .runner import Run, Say, Study, chosen_rates, made_by, rate_runs
from .task import MAX_RESPONSE_TOKENS


@dataclass(frozen=True)
class VerlPlan:
    """How much is run in verl: fewer steps than in the loop, since each takes seconds.

    Attributes:
        seeds: from 0 on.
        steps: whole passes over the training problems.
        extra_seeds: for a question of `docs/study.md` about the first warm start; the comparison
            of the plan leaves them out.
        arms: of the study.
    """

    seeds: int = 4
    steps: int = 100
    extra_seeds: tuple[int, ...] = (6, 9)
    arms: tuple[str, ...] = ("outcome", "linear", "shuffled")

    def runs(self, rates: Mapping[str, float]) -> list[Run]:
        """Return the runs in their order, with the learning rates of the loop."""
        return [
            Run("verl", name, seed, rates[name], self.steps)
            for seed in (*range(self.seeds), *self.extra_seeds)
            for name in self.arms
        ]


def carry_out_verl(study: Study, plan: VerlPlan, work: Path, say: Say) -> None:
    """Do the missing runs, one at a time; each has processes for two cores.

    Args:
        study: has the inputs and learning rates.
        plan: how much.
        work: folder for the files of verl.
        say: called for each run that ended.
    """
    from arithmetic_grpo.results import summarise

    rates = chosen_rates(study.plan, study.results(rate_runs(study.plan)))
    if missing := [name for name in plan.arms if name not in rates]:
        raise SystemExit(f"no learning rate yet for {', '.join(missing)}: run make study first")
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
        for run in [run for run in plan.runs(rates) if run not in rows]:
            arm = ARMS[run.arm]
            overrides = (
                "data.max_prompt_length=32",
                f"data.max_response_length={MAX_RESPONSE_TOKENS}",
                f"actor_rollout_ref.rollout.val_kwargs.n={shared.samples}",
                # As long as twenty steps, and the loop has evaluated the same start.
                "trainer.val_before_train=False",
                f"+reward.reward_kwargs.dataset={arm.nodes}",
                *(f"+reward.reward_kwargs.{name}={value}" for name, value in COUNTED.items()),
            )
            in_verl = VerlRun(arm.reward.kind.value, run.seed, work / run.name, overrides)
            of_run = replace(settings, learning_rate=run.learning_rate)
            train(in_verl, _files(work, study, run.warm_start), of_run, address, lambda done: None)
            row = {**study.identity(run), "settings": asdict(of_run), **made_by()}
            row |= summarise(in_verl)
            study.add(row)
            say(f"{run.name}: Acc {row['validation']['acc'][-1]:.1%}")


def _files(work: Path, study: Study, number: int) -> Files:
    """Return verl's files of a warm start; make them if they are missing."""
    from arithmetic_grpo.model import save

    from .inputs import TOKENS

    files = Files(work / f"warm-start-{number}")
    if not files.validation.exists():
        files.folder.mkdir(parents=True, exist_ok=True)
        problems = study.inputs.problems()
        save(study.inputs.model(number), TOKENS, files.model)
        write_parquet(files.train, problems["train"])
        write_parquet(files.validation, problems["held-out"])
    return files
