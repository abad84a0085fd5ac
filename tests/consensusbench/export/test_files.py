"""The files of a trainer after an export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from consensusbench.export.files import ExportSplit, LeftOut
from consensusbench.export.trainers import export_trl
from consensusbench.problems.texts import with_prompt
from consensuspr.errors import InputError
from tests.consensusbench.conftest import problem
from tests.consensusbench.export.conftest import held_out, train

if TYPE_CHECKING:
    from tests.consensusbench.export.conftest import ExportBench

PROMPT = [{"role": "user", "content": with_prompt("What is $1 + {1}$?")}]


def test_rows_of_verl(bench: ExportBench) -> None:
    bench.export(train(1), held_out(2))
    assert bench.rows() == [
        {
            "data_source": "arithmetic",
            "prompt": PROMPT,
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": "2"},
            "extra_info": {"problem_id": "p1", "split": "train", "index": 0},
        }
    ]
    [row] = bench.rows("val")
    assert row["extra_info"] == {"problem_id": "p2", "split": "test", "index": 0}


def test_rows_of_trl(bench: ExportBench) -> None:
    bench.export(train(1), held_out(2, data_source=""), by=export_trl)
    assert bench.rows() == [
        {
            "prompt": PROMPT,
            "problem_id": "p1",
            "ground_truth": "2",
            "data_source": "arithmetic",
            "split": "train",
        }
    ]
    [row] = bench.rows("val")
    assert (row["split"], row["data_source"]) == ("test", "consensusbench")


def test_rows_may_hold_the_nodes(bench: ExportBench) -> None:
    bench.export(train(1), held_out(2), inline_nodes=True)
    assert bench.rows()[0]["extra_info"]["nodes"] == [
        {"node_id": "n1", "expressions": ["1+1=2"], "derived": ["x=1"]},
        {"node_id": "n2", "expressions": ["y=1"], "derived": []},
    ]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"problem": " \n"}, LeftOut.NO_TEXT),
        ({"ground_truth": None}, LeftOut.NO_GROUND_TRUTH),
        ({"nodes": []}, LeftOut.NO_NODES),
        ({"problem": "half a pair: \ud83d"}, LeftOut.NOT_UTF8),
        ({"problem": r"What is \(2+{1}\)?", "ground_truth": "3"}, LeftOut.REPEATED),
        ({"problem": "What is $8 + {1}$?", "ground_truth": "9"}, LeftOut.HELD_OUT),
    ],
)
def test_problems_without_use_for_training_are_left_out_and_counted(
    changes: dict[str, Any], reason: LeftOut, bench: ExportBench
) -> None:
    rows = (train(2), train(3, **changes), held_out(8))
    report = bench.export(*rows)
    assert [row["prompt"][0]["content"] for row in bench.rows()] == [
        with_prompt(rows[0]["problem"])
    ]
    assert report.left_out == {reason: 1}
    assert report.left_out.examples == {reason: "p3"}


def test_a_text_with_two_answers_is_left_out_altogether(bench: ExportBench) -> None:
    again = train(2, problem=problem(1)["problem"])
    report = bench.export(train(1), again, train(4), held_out(9))
    assert bench.ids() == ["p4"] and report.left_out == {LeftOut.CONFLICTING: 2}


@pytest.mark.parametrize(
    "nodes",
    [
        [{"node_id": f"n{i}", "expressions": ["x=1"]} for i in range(65)],
        [{"node_id": "n", "expressions": ["x"] * 100, "derived": ["y"] * 29}],
        [{"node_id": "n", "expressions": ["é" * 2049]}],
        [{"node_id": f"n{i}", "expressions": ["x" * 4000]} for i in range(5)],
    ],
)
def test_inline_nodes_past_the_limits_are_left_out(
    nodes: list[dict[str, Any]], bench: ExportBench
) -> None:
    rows = (train(1), train(2, nodes=nodes), held_out(3))
    assert bench.export(*rows, inline_nodes=True).left_out == {LeftOut.INVALID_NODES: 1}
    by_id = bench.export(*rows)
    assert (by_id.left_out, by_id.rows(ExportSplit.TRAIN)) == ({}, 2)


def test_a_share_of_the_problems_without_split_is_validation(bench: ExportBench) -> None:
    rows = [problem(number) for number in range(400)]
    report = bench.export(*rows, val_fraction=0.25)
    validation = set(bench.ids("val"))
    assert 60 <= len(validation) <= 140
    assert report.rows(ExportSplit.TRAIN) == 400 - len(validation)
    # Neither order nor company changes a problem's side; another seed does.
    bench.export(*reversed(rows[:200]), val_fraction=0.25)
    assert set(bench.ids("val")) == validation & {row["problem_id"] for row in rows[:200]}
    bench.export(*rows, val_fraction=0.25, seed=1)
    assert set(bench.ids("val")) != validation


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([held_out(1)], "no problem of .* is left for training, of 1 read"),
        ([train(1)], "left for validation, of 1 read: set --val-fraction or --val-dataset$"),
        (
            [train(1, nodes=[]), held_out(2)],
            r"left for training; left out: 1 without nodes \(first: 'p1'\)",
        ),
    ],
)
def test_no_empty_file_is_written(
    rows: list[dict[str, Any]], wanted: str, bench: ExportBench
) -> None:
    with pytest.raises(InputError, match=wanted):
        bench.export(*rows)
    assert not bench.out.exists()


def test_the_counts_are_plain_values(bench: ExportBench) -> None:
    report = bench.export(
        train(1),
        train(2, data_source=""),
        train(3, ground_truth=None),
        held_out(4),
        {"problem_id": "", "nodes": []},
        on_error="skip",
    )
    assert "1 bad row (first: " in (report.left_out_sentence() or "")
    assert report.to_json() == {
        "rows": {"train": 2, "val": 1},
        "by_data_source": {
            "train": {"arithmetic": 1, "consensusbench": 1},
            "val": {"arithmetic": 1},
        },
        "left_out": {"no_ground_truth": 1},
        "without_split": 0,
        "skipped_rows": 1,
        "files": {side: str(bench.out / f"{side}.parquet") for side in ("train", "val")},
    }
