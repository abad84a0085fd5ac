"""Generated texts: the same for the same seed, of the size asked for, with known nodes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from benchmarks import texts
from consensuspr.client import LocalClient, Rollout
from consensuspr.scoring import verify_answer


@pytest.mark.parametrize("size", [200, 1_000, 20_000])
def test_rollouts_are_of_their_size_and_end_with_an_answer(size: int) -> None:
    made = texts.rollouts(20, size, seed=3)
    assert all(size <= len(text.encode()) <= size + 400 for text in made)
    assert all("\\boxed{" in text[-40:] for text in made)
    assert len(set(made)) == 20


def test_a_seed_says_all() -> None:
    problems = texts.problems(5, seed=1)
    again = texts.problems(5, seed=1)
    assert problems == again != texts.problems(5, seed=2)
    assert texts.rollouts(3, 500, 1) == texts.rollouts(3, 500, 1) != texts.rollouts(3, 500, 2)
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


def test_filler_alone_reaches_no_node() -> None:
    from consensuspr.core import Matcher

    matchers = [
        Matcher([node["expressions"] for node in row["nodes"]]) for row in texts.problems(20, 7)
    ]
    for text in texts.rollouts(20, 5_000, seed=8):
        assert not any(any(matcher.match(text)) for matcher in matchers)


def test_a_filler_of_one_number_still_has_the_answer_it_is_closed_with() -> None:
    row = texts.rollouts_of(texts.problems(1, 1), 1, 300, seed=1)[0]
    truth = texts.problems(1, 1)[0]["ground_truth"]
    assert verify_answer(truth, row["response"]).correct == row["correct"]


def test_real_rollouts_are_read_file_after_file(tmp_path: Path) -> None:
    (tmp_path / "rollouts").mkdir()
    for name, responses in {"one": ["a", "b"], "two": ["c"]}.items():
        with gzip.open(tmp_path / f"rollouts/{name}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps({"response": text}) + "\n" for text in responses)
    assert texts.real_rollouts(tmp_path, "two", "one") == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("whole", "size", "pieces"),
    [
        (["aaaa\n\nbbbb\n\ncccc"], 5, ["aaaa\n\n", "bbbb\n\n", "cccc\n\n"]),
        (["aa\n\nbb", "cc\n\ndd"], 7, ["aa\n\nbb\n\n", "\n\ncc\n\ndd\n\n"]),
        (["short"], 100, []),
    ],
)
def test_texts_are_cut_at_paragraphs(whole: list[str], size: int, pieces: list[str]) -> None:
    assert texts.cut(whole, size) == pieces


def test_no_piece_is_far_longer_than_asked_for() -> None:
    whole = ["word " * 5_000 + "\n" + "line\n" * 1_000 + "\n\n" + "x y\n\n" * 2_000]
    pieces = texts.cut(whole, 300)
    assert all(300 <= len(piece) <= 5 * 300 for piece in pieces)
    assert sum(map(len, pieces)) > 0.95 * len(whole[0])
