"""What two checkouts are compared by, called in the interpreter of each: plain values in and out.

Nothing but the core and the scorer is imported, by names that have been there for long.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.measure import fastest

# Texts, the nodes of their problems, and how many texts of each problem stand together.
Set = tuple[list[bytes], list[list[list[str]]], int]


def core_seconds(work: Set, rounds: int) -> tuple[float, list[list[bool]]]:
    """Return the CPU seconds of matching a set, statements and guard on, and what is found."""
    from consensuspr.core import Matcher, match_batch

    texts, problems, group = work
    made = [Matcher(nodes) for nodes in problems]
    matchers = [made[at // group] for at in range(len(texts))]
    found = match_batch(matchers, texts, 1)
    best = fastest({"core": lambda: match_batch(matchers, texts, 1)}, rounds, time.process_time)
    return best["core"], [found.matched(at).tolist() for at in range(len(texts))]


def scoring_seconds(
    dataset: Path, rollouts: Sequence[tuple[str, str]], rounds: int
) -> tuple[float, list[float | None]]:
    """Return the CPU seconds of scoring rollouts in one thread, and their rewards."""
    from consensuspr.scoring import AnswerVerifier, DatasetIndex, Rollout, ScoreOptions, Scorer
    from consensuspr.scoring.rewards import RewardSpec

    batch = [Rollout(problem_id, response) for problem_id, response in rollouts]
    options = ScoreOptions(RewardSpec.linear())
    with AnswerVerifier(workers=1) as verifier:
        scorer = Scorer({"default": DatasetIndex.load(dataset)}, verifier=verifier, threads=1)
        scores, _ = scorer.score(batch, options)
        best = fastest({"scoring": lambda: scorer.score(batch, options)}, rounds, time.process_time)
    return best["scoring"], [score.reward for score in scores]
