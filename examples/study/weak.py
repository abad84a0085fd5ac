"""Runs from weak starts: `linear` before and after its rules for code and for missing answers.

A *weak start* is a warm start with so much noise on its weights that 1 % of its responses are right
throughout.  The runs train on the usual problems, and on longer ones that no run solves.  They are
exploratory: intervals, no tests.  All results are in one file, a line for each run.
"""

from __future__ import annotations

import json
import multiprocessing
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from consensusbench.construction.budgets import budget_of, stated_in
from consensuspr.client import LocalClient
from consensuspr.data import Problem, atomic_file, open_writer, problem_to_row, read_problems

from .arms import ARMS, NUM_WARM_STARTS, Arm, Nodes, Settings
from .runner import Run, Study, begin_process, made_by
from .task import MAX_RESPONSE_TOKENS, STYLES, Story, draw_stories, write

USUAL, UNSOLVED = "usual", "unsolved"
BEFORE = "computed"
_WRITTEN = replace(ARMS["linear"].reward, code="written")
REWARDS = {
    "outcome": ARMS["outcome"].reward,
    BEFORE: ARMS["linear"].reward,
    "written": _WRITTEN,
    "answered": replace(_WRITTEN, unanswered="zero"),
}
# As `answered`, with a dataset that stores budgets.
BUDGETS = "budgets"
COMPARED = {
    USUAL: tuple(REWARDS),
    # Without a right answer, the outcome has no gradient.
    UNSOLVED: (*(name for name in REWARDS if name != "outcome"), BUDGETS),
}

# The warm starts have seen chains of up to four stages.
UNSOLVED_STAGES, UNSOLVED_SEED = 5, 70
# Room for twice the equations that a solution needs.
UNSOLVED_TOKENS = 2 * MAX_RESPONSE_TOKENS
# Right solutions that the budget of a problem is made of.
_SOLUTIONS = 8


@dataclass(frozen=True)
class WeakPlan:
    """Size of the runs from weak starts.

    Attributes:
        share: of responses that are right throughout at the start.
        seeds: from 0 on, of the usual problems; the unsolved ones have half as many.
        learning_rate: of all runs.
        train, test: problems of the unsolved set.
        settings: of all runs.
    """

    share: float = 0.01
    seeds: int = 6
    learning_rate: float = 1e-4
    train: int = 160
    test: int = 128
    settings: Settings = field(
        default_factory=lambda: Settings(steps=150, curve_every=150, curve_problems=256)
    )

    def runs(self) -> list[Run]:
        """Return the runs, all arms of a seed together."""
        return [
            Run(problems, arm, seed, self.learning_rate, self.settings.steps)
            for seed in range(self.seeds)
            for problems, arms in COMPARED.items()
            if problems == USUAL or 2 * seed < self.seeds
            for arm in arms
        ]


def carry_out_weak(
    study: Study, plan: WeakPlan, jobs: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Do the runs that are missing, and return the rows of all that there are.

    Raises:
        SystemExit: a row is of other inputs, steps or rates.
    """
    path = study.folder / "results" / "weak.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = path.read_text().splitlines() if path.exists() else []
    rows = {Run(**row["run"]): row for row in map(json.loads, lines)}
    made = plan.learning_rate, plan.settings.steps, study.inputs.digest()
    if any((run.learning_rate, run.steps, row["inputs"]) != made for run, row in rows.items()):
        raise SystemExit(f"{path} has runs of other inputs, steps or rates: remove it")
    missing = [run for run in plan.runs() if run not in rows]
    starts = [study.inputs.weak_start(number, plan.share) for number in range(NUM_WARM_STARTS)]
    with (
        TemporaryDirectory() as folder,
        ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), begin_process) as pool,
    ):
        write_unsolved(plan, Path(folder))
        begun = [
            pool.submit(_run_one, study, plan, run, starts[run.warm_start], Path(folder))
            for run in missing
        ]
        try:
            for row in map(Future.result, as_completed(begun)):
                run, after = Run(**row["run"]), row["after"]
                rows[run] = row
                with atomic_file(path) as stream:
                    for made_run in sorted(rows, key=_place):
                        stream.write((json.dumps(rows[made_run]) + "\n").encode())
                missing.remove(run)
                say(
                    f"{run.kind}/{run.arm}-{run.seed}: Acc {after['acc']:.1%},"
                    f" NCR {after['ncr']:.1%}, {row['cpu_seconds']:.0f} s; {len(missing)} left"
                )
        finally:
            pool.shutdown(cancel_futures=True)
    return [rows[run] for run in sorted(rows, key=_place)]


def _place(run: Run) -> tuple[bool, int, int]:
    return run.kind != USUAL, run.seed, COMPARED[run.kind].index(run.arm)


def write_unsolved(plan: WeakPlan, folder: Path) -> None:
    """Write the longer problems, without budgets and with."""
    stories = list(islice(draw_stories(UNSOLVED_SEED, (UNSOLVED_STAGES,)), plan.train + plan.test))
    train = [story.problem(f"train-{n}", "train") for n, story in enumerate(stories[: plan.train])]
    test = [story.problem(f"test-{n}", "test") for n, story in enumerate(stories[plan.train :])]
    budgeted = [_with_budget(*of) for of in zip(train, stories[: plan.train], strict=True)]
    for name, problems in ((UNSOLVED, train), (BUDGETS, budgeted)):
        with open_writer(unsolved(folder, name)) as out:
            for problem in [*problems, *test]:
                out.write(problem_to_row(problem))


def unsolved(folder: Path, name: str) -> Path:
    return folder / f"{name}.jsonl"


def _with_budget(problem: Problem, story: Story) -> Problem:
    """Return the problem with the budget that `consensusbench build` makes of right solutions."""
    rng = random.Random(problem.problem_id)
    texts = [write(story.operations(rng), rng.choice(STYLES)) for _ in range(_SOLUTIONS)]
    return replace(problem, budget=budget_of(stated_in(texts), len(problem.nodes)))


def _run_one(
    study: Study, plan: WeakPlan, run: Run, start: tuple[float, float], folder: Path
) -> dict[str, Any]:
    """Do one run and return its row."""
    import torch

    from .grpo import Policy, train
    from .model import Tokens

    noise, right = start
    reward = REWARDS["answered" if run.arm == BUDGETS else run.arm]
    if run.kind == USUAL:
        dataset, test = study.inputs.dataset(Nodes.AUTHOR), "selection"
        arm = Arm(reward)
    else:
        dataset, test = unsolved(folder, BUDGETS if run.arm == BUDGETS else UNSOLVED), "test"
        arm = Arm(reward, max_tokens=UNSOLVED_TOKENS)
    problems: dict[str, list[Problem]] = {}
    for problem in read_problems(dataset):
        problems.setdefault(problem.problem_id.rpartition("-")[0], []).append(problem)
    tokens = Tokens()
    generator = torch.Generator().manual_seed(run.seed)
    model = study.inputs.model(run.warm_start, tokens, noise)
    policy = Policy(model, tokens, run.learning_rate, generator, arm.max_tokens)
    with LocalClient({Nodes.AUTHOR: dataset}, threads=1) as client:
        result = train(
            policy, arm, plan.settings, run.seed, problems["train"], {test: problems[test]}, client
        )
    return {
        "run": asdict(run),
        "inputs": study.inputs.digest(),
        "noise": noise,
        "right_throughout": right,
        "before": {name: values[0] for name, values in result["curve"].items()},
        "after": result["final"][test],
        "cpu_seconds": result["cpu_seconds"],
        **made_by(),
    }


_SHARES = {
    "Acc": "acc",
    "right throughout": "throughout",
    "NCR": "ncr",
    "nodes by code": "by_code",
    "without an answer": "unanswered",
}
_MEANS = {"before": [*_SHARES.values(), "stated"], "after": [*_SHARES.values(), "stated", "greedy"]}


def weak_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the means of each arm, at the start and at the end, as Markdown."""
    from .analysis import Effect

    by_arm: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
    for row in rows:
        run = row["run"]
        by_arm.setdefault((run["kind"], run["arm"]), {})[run["seed"]] = row
    head = ["problems", "arm", "seeds", *_SHARES, "equations", "greedy Acc"]
    head.append(f"Acc less `{BEFORE}`")
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for (problems, arm), by_seed in by_arm.items():
        before, after = (
            {name: fmean(row[when][name] for row in by_seed.values()) for name in _MEANS[when]}
            for when in ("before", "after")
        )
        base = by_arm.get((problems, BEFORE), {}) if arm != BEFORE else {}
        differences = [
            by_seed[seed]["after"]["acc"] - base[seed]["after"]["acc"]
            for seed in by_seed.keys() & base
        ]
        cells = [
            problems,
            arm,
            str(len(by_seed)),
            *(f"{before[name]:.1%} → {after[name]:.1%}" for name in _SHARES.values()),
            f"{before['stated']:.1f} → {after['stated']:.1f}",
            f"{after['greedy']:.1%}",
            Effect.of(differences).shown if differences else "–",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
