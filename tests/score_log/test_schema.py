"""The row of a score log."""

from __future__ import annotations

import math

import pytest

from consensuspr.errors import InputError
from consensuspr.score_log.schema import (
    inline_json,
    read_inline,
    read_reward,
    record_batch,
    reward_json,
)
from consensuspr.scoring.guard import GuardBudget
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import InlineNode, Rollout, SampleKeys, Score, ScoreColumns, Status
from tests.score_logs import part_of, sample


@pytest.mark.parametrize(
    ("text", "response", "raw", "size"),
    [
        ("", "", None, 0),
        ("x = 1", "x = 1", None, 5),
        ("∀".encode(), "∀", None, 3),
        ("a\ud800b", "a\ufffd\ufffd\ufffdb", b"a\xed\xa0\x80b", 5),
        (b"a\xff", "a\ufffd", b"a\xff", 2),
        ("nul\0", "nul\0", None, 4),
    ],
)
def test_texts_are_kept_to_the_byte(
    text: str | bytes, response: str, raw: bytes | None, size: int
) -> None:
    batch = record_batch([part_of(["sound", text])], "trainer", SampleKeys())
    row = batch.to_pylist()[1]
    assert (row["response"], row["response_raw"], row["response_size"]) == (response, raw, size)
    assert batch.to_pylist()[0]["response_raw"] is None


def test_unknown_values_are_null() -> None:
    score = Score(Status.UNKNOWN_PROBLEM, message="problem 'p0' is not in the dataset")
    columns = ScoreColumns.of([score, score])
    assert math.isnan(columns.reward[0])
    given: list[list[Score] | ScoreColumns] = [[score], columns]
    for scores in given:
        row = record_batch([part_of(["x"], scores)], "server", SampleKeys()).to_pylist()[0]
        unknown = "reward acc ncr ncr_raw guard tpn answer step group_id spans penalty".split()
        assert {name: row[name] for name in unknown} == dict.fromkeys(unknown)
        assert row["status"] == "UNKNOWN_PROBLEM"
        assert row["message"] == score.message
        assert row["channels"] == []


def test_parts_become_one_batch() -> None:
    spans = Score(
        Status.OK, 0.5, 0.0, 1.0, 2, 1, (True, False), spans=((3, 7), None), channel_numbers=b"\2\0"
    )
    grown = ScoreColumns.of([spans, *[Score(Status.INTERNAL, message="later")] * 3])
    parts = [
        part_of(["a", "b"], samples=[sample(1), sample(2, step=7)]),
        part_of(["c"], grown),
        part_of(["d"], penalty=-0.5, final_score=0.5, scored_by="local"),
    ]
    rows = record_batch(parts, "trainer", SampleKeys()).to_pylist()
    assert [row["response"] for row in rows] == ["a", "b", "c", "d"]
    assert [row["step"] for row in rows] == [1, 7, None, None]
    assert [row["group_id"] for row in rows] == ["g0", "g0", None, None]
    assert rows[0]["key"] == sample(1).key
    assert len({row["key"] for row in rows}) == 4
    assert rows[2]["channels"] == ["statement", ""]
    assert rows[2]["spans"] == [{"start": 3, "end": 7}, None]
    assert rows[0]["spans"] is None
    assert (rows[3]["penalty"], rows[3]["final_score"], rows[3]["scored_by"]) == (
        -0.5,
        0.5,
        "local",
    )


def test_texts_that_are_given_up_leave_their_size() -> None:
    part = part_of(["∀x", b"\xff"]).without_text()
    rows = record_batch([part], "server", SampleKeys()).to_pylist()
    assert [(row["response"], row["response_size"]) for row in rows] == [(None, 4), (None, 1)]
    assert [row["problem_id"] for row in rows] == ["p0", "p1"]


def test_settings_and_nodes_are_read_back() -> None:
    for reward in (RewardSpec.linear(0.1), RewardSpec.curriculum(3, guard=False, ncr="weighted")):
        assert read_reward(reward_json(reward)) == reward
    before = '{"kind": "max", "guard": true}'  # there was code and unanswered
    assert read_reward(before) == RewardSpec.maximum(code="computed", unanswered="ncr")
    nodes: list[InlineNode | list[str]] = [
        ["x=1", "1=x"],
        InlineNode(["y"], "n", ("z",), True, 0.5),
    ]
    text = inline_json(Rollout("p", "x" * 1000, nodes=nodes, budget=GuardBudget(3, 4, 5)))
    read, budget = read_inline(text)
    assert budget == GuardBudget(3, 4, 5)
    assert [list(node.expressions) for node in read] == [["x=1", "1=x"], ["y"]]
    assert (read[1].node_id, list(read[1].derived), read[1].is_final, read[1].weight) == (
        "n", ["z"], True, 0.5,
    )  # fmt: skip
    for other in ('{"kind": "quadratic"}', '{"kind": "linear", "beta": 1}', "[]", "x"):
        with pytest.raises(InputError, match="is not known here"):
            read_reward(other)
