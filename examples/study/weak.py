"""Runs from weak starts: `linear` before and after its rules for code and for missing answers.

A *weak start* is a warm start with so much noise on its weights that 1 % of its responses are right
throughout.  The runs train on the usual problems, and on longer ones that no run solves.  They are
exploratory: intervals, no tests.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from consensusbench.construction.budgets import budget_of, stated_in
from consensuspr.client import LocalClient
from consensuspr.data import Problem, Row

from .arms import ARMS, NUM_WARM_STARTS, Arm, Nodes, Settings
from .inputs import by_purpose, write_problems
from .runner import Run, Say, Study, made_by, workers
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
# Without a right answer, the outcome has no gradient.
COMPARED = {USUAL: tuple(REWARDS), UNSOLVED: (BEFORE, "written", "answered", BUDGETS)}

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


def carry_out_weak(study: Study, plan: WeakPlan, jobs: int, say: Say) -> list[dict[str, Any]]:
    """Do the missing runs, and return the rows of the plan."""
    starts = [study.inputs.weak_start(number, plan.share) for number in range(NUM_WARM_STARTS)]
    with TemporaryDirectory() as folder, workers(jobs) as pool:
        write_unsolved(plan, Path(folder))
        study.do(plan.runs(), partial(_run_one, study, plan, starts, Path(folder)), pool, say)
    return study.results(plan.runs())


def write_unsolved(plan: WeakPlan, folder: Path) -> None:
    """Write the longer problems, without budgets and with."""
    stories = list(islice(draw_stories(UNSOLVED_SEED, (UNSOLVED_STAGES,)), plan.train + plan.test))
    train = [story.problem(f"train-{n}", "train") for n, story in enumerate(stories[: plan.train])]
    test = [story.problem(f"test-{n}", "test") for n, story in enumerate(stories[plan.train :])]
    budgeted = [_with_budget(p, story) for p, story in zip(train, stories, strict=False)]
    write_problems(unsolved(folder, UNSOLVED), [*train, *test])
    write_problems(unsolved(folder, BUDGETS), [*budgeted, *test])


def unsolved(folder: Path, name: str) -> Path:
    return folder / f"{name}.jsonl"


def _with_budget(problem: Problem, story: Story) -> Problem:
    """Return the problem with the budget that `consensusbench build` makes of right solutions."""
    rng = random.Random(problem.problem_id)
    texts = [write(story.operations(rng), rng.choice(STYLES)) for _ in range(_SOLUTIONS)]
    return replace(problem, budget=budget_of(stated_in(texts), len(problem.nodes)))


def _run_one(
    study: Study, plan: WeakPlan, starts: Sequence[tuple[float, float]], folder: Path, run: Run
) -> Row:
    """Do one run and return its row."""
    from .grpo import Policy, train

    noise, right = starts[run.warm_start]
    arm = Arm(REWARDS["answered" if run.arm == BUDGETS else run.arm])
    dataset, test = study.inputs.dataset(Nodes.AUTHOR), "selection"
    if run.kind == UNSOLVED:
        dataset, test = unsolved(folder, BUDGETS if run.arm == BUDGETS else UNSOLVED), "test"
        arm = replace(arm, max_tokens=UNSOLVED_TOKENS)
    problems = by_purpose(dataset)
    model = study.inputs.model(run.warm_start, noise)
    policy = Policy(model, run.learning_rate, run.seed, arm.max_tokens)
    held_out = {test: problems[test]}
    with LocalClient({Nodes.AUTHOR: dataset}, threads=1) as client:
        result = train(policy, arm, plan.settings, problems["train"], held_out, client)
    return {
        **study.identity(run),
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


def weak_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the means of each arm, at the start and at the end, as Markdown."""
    from benchmarks.markdown import table

    from .analysis import Effect

    by_arm: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
    for row in rows:
        run = row["run"]
        by_arm.setdefault((run["kind"], run["arm"]), {})[run["seed"]] = row
    head = ["problems", "arm", "seeds", *_SHARES, "equations", "greedy Acc"]
    lines = []
    for (problems, arm), by_seed in by_arm.items():

        def mean(when: str, name: str, by_seed: Mapping[int, Any] = by_seed) -> float:
            return fmean(row[when][name] for row in by_seed.values())

        base = by_arm.get((problems, BEFORE), {}) if arm != BEFORE else {}
        differences = [
            by_seed[seed]["after"]["acc"] - base[seed]["after"]["acc"]
            for seed in by_seed.keys() & base
        ]
        lines.append(
            [
                problems,
                arm,
                str(len(by_seed)),
                *(f"{mean('before', x):.1%} → {mean('after', x):.1%}" for x in _SHARES.values()),
                f"{mean('before', 'stated'):.1f} → {mean('after', 'stated'):.1f}",
                f"{mean('after', 'greedy'):.1%}",
                Effect.of(differences).shown() if differences else "–",
            ]
        )
    return table([*head, f"Acc less `{BEFORE}`"], lines)
