"""Generated texts: the same for the same seed, with known nodes and answers."""

from __future__ import annotations

from pathlib import Path

from benchmarks import texts
from consensuspr.client import LocalClient, Rollout


def test_rollouts_of_a_seed_reach_the_nodes_and_answers_that_they_name(tmp_path: Path) -> None:
    problems = texts.problems(30, seed=5, nodes=6)
    rows = texts.rollouts_of(problems, 4, 2_000, seed=6)
    assert rows == texts.rollouts_of(texts.problems(30, seed=5, nodes=6), 4, 2_000, seed=6)
    dataset = texts.write_rows(tmp_path / "problems.jsonl", problems)
    with LocalClient(dataset) as client:
        scores = client.score([Rollout(row["problem_id"], row["response"]) for row in rows])
    assert [list(score.matched) for score in scores] == [row["expected"] for row in rows]
    assert [score.acc == 1 for score in scores] == [row["correct"] for row in rows]
    assert {True, False} == {row["correct"] for row in rows}
