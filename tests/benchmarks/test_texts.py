"""Generated texts: the same for the same seed, of the size asked for, with known nodes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from benchmarks import texts
from consensuspr.client import LocalClient, Rollout
from consensuspr.scoring import verify_answer


def test_a_seed_says_all() -> None:
    problems = texts.problems(5, seed=1)
    again = texts.problems(5, seed=1)
    assert problems == again != texts.problems(5, seed=2)
    rows = texts.rollouts_of(problems, 2, 800, seed=4)
    assert rows == texts.rollouts_of(again, 2, 800, seed=4)


def test_rollouts_reach_just_the_nodes_and_answers_that_they_say(tmp_path: Path) -> None:
    problems = texts.problems(30, seed=5, nodes=6)
    rows = texts.rollouts_of(problems, 4, 2_000, seed=6)
    dataset = texts.write_rows(tmp_path / "problems.jsonl", problems)
    with LocalClient(dataset) as client:
        scores = client.score([Rollout(row["problem_id"], row["response"]) for row in rows])
    assert [list(score.matched) for score in scores] == [row["expected"] for row in rows]
    assert [score.acc == 1 for score in scores] == [row["correct"] for row in rows]
    assert {True, False} == {row["correct"] for row in rows}


def test_a_filler_of_one_number_still_has_the_answer_it_is_closed_with() -> None:
    row = texts.rollouts_of(texts.problems(1, 1), 1, 300, seed=1)[0]
    truth = texts.problems(1, 1)[0]["ground_truth"]
    assert verify_answer(truth, row["response"]).correct == row["correct"]


def test_real_rollouts_are_read_file_after_file(tmp_path: Path) -> None:
    (tmp_path / "rollouts").mkdir()
    for name, responses in {"one": ["a", "b"], "two": ["c"]}.items():
        with gzip.open(tmp_path / f"rollouts/{name}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps({"response": text}) + "\n" for text in responses)
    found = texts.real_rows(tmp_path, "two", "one")
    assert [row["response"] for row in found] == ["c", "a", "b"]
