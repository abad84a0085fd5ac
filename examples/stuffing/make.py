"""Write the score log of a run whose reward goes up while its accuracy does not.

The policy is no model: it answers the problems of the sample dataset with the sample's own
solutions, right as often at the end as at the start.  It learns to name nodes: more and more of its
wrong answers state the steps of a solution, and some list numbers until the guard acts.  So the NCR
of wrong rollouts climbs, and with it the reward.  Everything is scored for real.

    python examples/stuffing/make.py runs/stuffing
    consensuspr watch runs/stuffing --dataset examples/sample/dataset.jsonl
"""

from __future__ import annotations

import argparse
import itertools
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from consensuspr.core import normalize
from consensuspr.data import Problem, read_problems, read_rollouts
from consensuspr.score_log import ScoreLog, keep_dataset
from consensuspr.scoring import (
    AnswerVerifier,
    DatasetIndex,
    RewardSpec,
    Rollout,
    ScoreOptions,
    Scorer,
)
from consensuspr.scoring.types import Sample, SampleKeys

SAMPLE = Path(__file__).resolve().parents[1] / "sample"
STEPS, SEED = 60, 7
# Prompts of a step, and rollouts of each; seconds of a step; steps between two test splits.
PROMPTS, ROLLOUTS, STEP_S, TEST_EVERY = 8, 8, 90.0, 10
# Share of right rollouts, throughout.
RIGHT = 0.4
# Shares of wrong rollouts in the first step and in the last: that name nodes, that list numbers.
NAMING, LISTING = (0.05, 0.85), (0.0, 0.12)


class Policy:
    """Answers problems; if it learns, its wrong answers change from step to step."""

    def __init__(self, seed: int, *, learns: bool) -> None:
        self._random = random.Random(seed)
        self._learns = learns
        self._responses: dict[tuple[str, str], list[str]] = defaultdict(list)
        for row in read_rollouts(SAMPLE / "rollouts.jsonl"):
            kind = "right" if row["correct"] else "wrong"
            if row["case"] == "direct_answer":
                kind = "bare"
            self._responses[row["problem_id"], kind].append(row["response"])

    def answer(self, problem: Problem, progress: float) -> str:
        """Return a response; ``progress`` goes from 0 to 1 over the run."""
        chance = self._random.random
        kind, part = "wrong", progress if self._learns else 0.0
        if chance() < RIGHT:
            bare = chance() < 0.1 and self._responses[problem.problem_id, "bare"]
            kind = "bare" if bare else "right"
        elif chance() < _between(LISTING, part):
            return self._listing(problem)
        elif chance() < _between(NAMING, part):
            return self._naming(problem)
        return self._random.choice(self._responses[problem.problem_id, kind])

    def _wrong_answer(self, problem: Problem) -> str:
        truth = problem.ground_truth or "0"
        return f"Answer: {int(truth) + self._random.randint(1, 9) if truth.isdigit() else 0}"

    def _naming(self, problem: Problem) -> str:
        """State the steps of a solution, and then another answer."""
        lines = ["Recall the facts that are needed here:"]
        for node in problem.nodes:
            if not node.is_final and self._random.random() < 0.9:
                fact = self._random.choice(node.expressions)
                # Between dollars, words would run together.
                shown = f"${fact}$" if "\\" in fact else fact
                lines.append(f"- {node.label or 'we have'}: {shown}")
        return "\n".join([*lines, self._wrong_answer(problem)])

    def _listing(self, problem: Problem) -> str:
        """List sums and products of the problem's numbers until one is a node."""
        digits = "".join(sign if sign.isdigit() else " " for sign in normalize(problem.problem))
        numbers = sorted({int(word) for word in digits.split() if len(word) < 6})[:9]
        lines = ["Let us list what could be of use:"]
        for a, b in itertools.combinations(numbers, 2):
            lines.append(f"{a} + {b} = {a + b}, {a} * {b} = {a * b}, {b} - {a} = {b - a}")
        lines += [f"{number} * {by} = {number * by}" for number in numbers for by in range(2, 9)]
        return "\n".join([*lines, self._wrong_answer(problem)])


def _between(ends: tuple[float, float], part: float) -> float:
    first, last = ends
    # Slow at first, quick in the middle, as habits of a policy spread.
    return first + (last - first) * part * part * (3 - 2 * part)


def make_run(
    run: Path, *, steps: int = STEPS, learns: bool = True, live: bool = False
) -> Iterator[int]:
    """Write a run step by step; yield each step once it is logged.

    Args:
        run: folder.
        learns: whether the policy learns to name nodes.
        live: whether steps are logged as of now; else the last one is.
    """
    # Nodes by hand only: a change of `consensusbench build` does not change the run.
    problems = [
        problem
        for problem in read_problems(SAMPLE / "dataset.jsonl")
        if problem.data_source != "sample/competition"
    ]
    index = DatasetIndex.load(SAMPLE / "dataset.jsonl")
    run.mkdir(parents=True, exist_ok=True)
    keep_dataset(run, index)
    policy, rng, keys = Policy(SEED, learns=learns), random.Random(SEED + 1), SampleKeys()
    options = ScoreOptions(RewardSpec.linear(0.5), run=run.name)
    begun = time.time() - steps * STEP_S
    log = ScoreLog(run, "trainer")
    with AnswerVerifier() as verifier:
        scorer = Scorer({"default": index}, verifier=verifier)
        for step in range(1, steps + 1):
            for split in ["train", "test"] if step % TEST_EVERY == 0 else ["train"]:
                pool = [problem for problem in problems if problem.split == split]
                rollouts = []
                for problem in rng.sample(pool, min(PROMPTS, len(pool))):
                    group = f"{step}-{problem.problem_id}"
                    for number in range(ROLLOUTS):
                        text = policy.answer(problem, (step - 1) / max(1, steps - 1))
                        rollouts.append(
                            Rollout(
                                problem.problem_id,
                                text,
                                problem.ground_truth,
                                max(1, round(len(text) / 3.6)),
                                data_source=problem.data_source,
                                rollout_id=f"{group}-{number}",
                                sample=Sample(keys.next(), step, group, split),
                            )
                        )
                scores, identity = scorer.score(rollouts, options)
                for rollout, score in zip(rollouts, scores, strict=True):
                    # As verl's overlong buffer: a long response costs something.
                    penalty = 0.0 - min(1.0, max(0, (rollout.num_tokens or 0) - 400) / 400)
                    final = None if score.reward is None else score.reward + penalty
                    log.put_sample(
                        rollout, score, identity, options, "server", penalty, final,
                        unix_s=time.time() if live else begun + step * STEP_S,
                    )  # fmt: skip
            yield step
    log.close()


def main() -> None:
    """Write the run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("run", type=Path, help="folder of the run; made if need be")
    parser.add_argument("--honest", action="store_true", help="a policy that stays as it was")
    arguments = parser.parse_args()
    steps = sum(1 for _ in make_run(arguments.run, learns=not arguments.honest))
    print(f"{steps} steps are logged in {arguments.run}")


if __name__ == "__main__":
    main()
