"""The study's task in unmodified verl: does the loop of `grpo.py` say what verl says?

The same warm starts, problems, datasets and learning rates; verl samples with Hugging Face's
`generate`, keeps its own order of problems, and is told the reward by the same server.  How verl
runs on a CPU is `examples/verl_cpu`, whose settings are taken as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consensuspr.data import Problem, atomic_file

from .arms import ARMS, COUNTED, NUM_WARM_STARTS
from .inputs import Inputs
from .model import Tokens, save
from .runner import Study, chosen_rates, made_by, rate_runs
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

    def runs(self) -> list[tuple[str, int]]:
        """Return arm and seed of each run, in their order."""
        return [(name, seed) for seed in (*range(self.seeds), *self.more) for name in VERL_ARMS]


def verl_results(study: Study, plan: VerlPlan) -> list[dict[str, Any]]:
    """Return the results of the runs of the plan that there are.

    Raises:
        SystemExit: one is of other inputs or steps, and must not be counted with these.
    """
    found = []
    for name, seed in plan.runs():
        path = _path(study, name, seed)
        if not path.exists():
            continue
        result: dict[str, Any] = json.loads(path.read_text())
        made = result["inputs"], result["run"]["steps"]
        if made != (study.inputs.digest(), plan.steps):
            raise SystemExit(f"{path} is of other inputs or steps: remove it")
        found.append(result)
    return found


def _path(study: Study, name: str, seed: int) -> Path:
    return study.folder / "results" / "verl" / f"{name}-{seed}.json"


def carry_out_verl(study: Study, plan: VerlPlan, work: Path, say: Callable[[str], None]) -> None:
    """Do the runs that are missing, one at a time; each has processes for two cores.

    Args:
        study: Whose inputs and learning rates are taken.
        plan: How much.
        work: Folder for what verl leaves.
        say: Told of each run that ended.
    """
    from arithmetic_grpo.results import summarise
    from arithmetic_grpo.training import Run, Settings, train

    rates = chosen_rates(study.plan, study.results(rate_runs(study.plan)))
    if missing := [name for name in VERL_ARMS if name not in rates]:
        raise SystemExit(
            f"no learning rate is chosen yet for {', '.join(missing)}: make study first"
        )
    problems = study.inputs.problems()
    prompts, samples = study.plan.settings.prompts, study.plan.settings.samples
    passes = plan.steps * prompts // len(problems["train"])
    with study.inputs.serving() as address:
        for name, seed in plan.runs():
            path = _path(study, name, seed)
            if path.exists():
                continue
            arm = ARMS[name]
            settings = Settings(
                steps=plan.steps,
                prompts=prompts,
                rollouts=study.plan.settings.rollouts,
                learning_rate=rates[name],
                validate_every=plan.steps,
                epochs=passes,
            )
            files = _files(work, study.inputs, seed % NUM_WARM_STARTS, problems)
            run = Run(
                arm.reward.kind.value,
                seed,
                work / f"{name}-{seed}",
                (
                    "data.max_prompt_length=32",
                    f"data.max_response_length={MAX_RESPONSE_TOKENS}",
                    f"actor_rollout_ref.rollout.val_kwargs.n={samples}",
                    # As long as twenty steps, and the loop has asked the same start.
                    "trainer.val_before_train=False",
                    f"+reward.reward_kwargs.dataset={arm.nodes}",
                    *(f"+reward.reward_kwargs.{name}={value}" for name, value in COUNTED.items()),
                ),
            )
            train(run, files, settings, address, lambda done: None)
            result: dict[str, Any] = {
                "run": {"arm": name, "seed": seed, **asdict(settings)},
                "inputs": study.inputs.digest(),
                **made_by(),
                **summarise(run),
            }
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(path) as stream:
                stream.write((json.dumps(result, separators=(",", ":")) + "\n").encode())
            say(f"verl/{name}-{seed}: Acc {result['validation']['acc'][-1]:.1%}")


def _files(work: Path, inputs: Inputs, number: int, problems: dict[str, list[Problem]]) -> Files:
    """Return verl's files of a warm start, which are made where they are not there."""
    from arithmetic_grpo.files import Files, write_parquet

    files = Files(work / f"warm-start-{number}")
    if not files.validation.exists():
        files.folder.mkdir(parents=True, exist_ok=True)
        tokens = Tokens()
        save(inputs.model(number, tokens), tokens, files.model)
        write_parquet(files.train, problems["train"])
        write_parquet(files.validation, problems["held-out"])
    return files
