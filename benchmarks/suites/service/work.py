"""What is scored in this suite, and what in-process scoring says that its scores are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import texts
from benchmarks.harness.measure import Context
from consensuspr.scoring import AnswerVerifier, DatasetIndex, Rollout, Score, ScoreOptions, Scorer
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import Identity

ROLLOUT_BYTES = 10_000
PER_PROBLEM = 8
REWARD = RewardSpec.linear()


class WrongAnswer(Exception):
    """A contender's scores are not those of in-process scoring; its time would mean nothing."""


@dataclass(frozen=True)
class Work:
    """Rollouts of about ten kilobytes, eight of a problem, and how to score them here."""

    dataset: Path
    rollouts: list[Rollout]
    scorer: Scorer
    verifier: AnswerVerifier

    @classmethod
    def make(cls, context: Context, count: int) -> Work:
        """Write a dataset into the scratch folder and make ``count`` rollouts of it.

        Raises WrongAnswer where in-process scoring does not find what the texts hold.
        """
        problems = texts.problems(-(-count // PER_PROBLEM), context.seed)
        rows = texts.rollouts_of(problems, PER_PROBLEM, ROLLOUT_BYTES, context.seed)[:count]
        dataset = texts.write_rows(context.scratch / "problems.jsonl", problems)
        verifier = AnswerVerifier(workers=1)
        index = DatasetIndex.load(dataset)
        scorer = Scorer({"default": index}, verifier=verifier, threads=1)
        work = cls(
            dataset, [Rollout(row["problem_id"], row["response"]) for row in rows], scorer, verifier
        )
        for row, score in zip(rows, work.score(count)[0], strict=True):
            found = list(score.matched), score.acc == 1.0
            if found != (row["expected"], row["correct"]):
                raise WrongAnswer(f"in-process scoring is wrong for {row['rollout_id']}")
        return work

    def score(self, count: int) -> tuple[list[Score], Identity]:
        """Score the first ``count`` rollouts in this thread."""
        return self.scorer.score(self.rollouts[:count], ScoreOptions(REWARD))

    def close(self) -> None:
        """End the answer processes."""
        self.verifier.close()


def check(name: str, scores: Sequence[Score], expected: Sequence[Score]) -> None:
    """Raise WrongAnswer where a contender's scores are not the expected ones."""
    if list(scores) != list(expected):
        raise WrongAnswer(f"{name} does not give the scores of in-process scoring")
