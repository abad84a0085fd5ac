"""What a person finds in the folder after an export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from consensusbench.cli import main
from consensusbench.export import Export, ExportReport, ExportSplit, LeftOut, export_verl
from consensuspr.errors import DataError, InputError
from tests.consensusbench.conftest import problem

if TYPE_CHECKING:
    from tests.consensusbench.conftest import WriteDataset


def rows_of(folder: Path, side: ExportSplit) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder / f"{side.value}.parquet").to_pylist()
    return rows


def ids_of(folder: Path, side: ExportSplit) -> list[str]:
    return [row["extra_info"]["problem_id"] for row in rows_of(folder, side)]


def test_a_problem_becomes_the_row_that_verl_reads(
    write_dataset: WriteDataset, tmp_path: Path
) -> None:
    path = write_dataset(problem(1, split="train"), problem(2, split="test"))
    export_verl(Export(path, tmp_path / "out"))
    assert rows_of(tmp_path / "out", ExportSplit.TRAIN) == [
        {
            "data_source": "arithmetic",
            "prompt": [
                {
                    "role": "user",
                    "content": "Solve the following math problem step by step. The last line of "
                    "your response should be of the form Answer: $Answer (without quotes) where "
                    "$Answer is the answer to the problem.\n\nWhat is $1 + {1}$?\n\nRemember to "
                    'put your answer on its own line after "Answer:".',
                }
            ],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": "2"},
            "extra_info": {"problem_id": "p1", "split": "train", "index": 0},
        }
    ]
    [held_out] = rows_of(tmp_path / "out", ExportSplit.VALIDATION)
    assert held_out["extra_info"] == {"problem_id": "p2", "split": "test", "index": 0}


def test_nodes_travel_with_the_rows_where_wanted(
    write_dataset: WriteDataset, tmp_path: Path
) -> None:
    path = write_dataset(problem(1, split="train"), problem(2, split="test"))
    export_verl(Export(path, tmp_path, inline_nodes=True))
    [row] = rows_of(tmp_path, ExportSplit.TRAIN)
    assert row["extra_info"]["nodes"] == [
        {"node_id": "n1", "expressions": ["1+1=2"], "derived": ["x=1"]},
        {"node_id": "n2", "expressions": ["y=1"], "derived": []},
    ]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"problem": " \n"}, LeftOut.NO_TEXT),
        ({"ground_truth": None}, LeftOut.NO_GROUND_TRUTH),
        ({"ground_truth": " "}, LeftOut.NO_GROUND_TRUTH),
        ({"nodes": []}, LeftOut.NO_NODES),
        ({"problem": "half a pair: \ud83d"}, LeftOut.NOT_UTF8),
        ({"problem": "What  is\n$2 + {1}$?"}, LeftOut.REPEATED),
        ({"problem": "What is $8 + {1}$?"}, LeftOut.HELD_OUT),
    ],
)
def test_what_nobody_can_train_on_is_left_out_and_counted(
    changes: dict[str, Any], reason: LeftOut, write_dataset: WriteDataset, tmp_path: Path
) -> None:
    odd = problem(3, split="train")
    if reason in (LeftOut.REPEATED, LeftOut.HELD_OUT):
        odd["ground_truth"] = "3" if reason is LeftOut.REPEATED else "9"
    path = write_dataset(
        problem(2, split="train"), odd | changes, problem(8, split="test"), name="odd.jsonl"
    )
    report = export_verl(Export(path, tmp_path))
    assert ids_of(tmp_path, ExportSplit.TRAIN) == ["p2"]
    assert report.left_out == {reason: 1}
    assert report.left_out_sentence() == f"left out: 1 {reason.value} (first: 'p3')"


def test_a_text_with_two_answers_is_left_out_altogether(
    write_dataset: WriteDataset, tmp_path: Path
) -> None:
    rows = [problem(1), problem(2, problem=problem(1)["problem"]), problem(4)]
    path = write_dataset(*[row | {"split": "train"} for row in rows], problem(9, split="test"))
    report = export_verl(Export(path, tmp_path))
    assert ids_of(tmp_path, ExportSplit.TRAIN) == ["p4"]
    assert report.left_out == {LeftOut.CONFLICTING: 2}


def test_problems_without_nodes_are_there_where_wanted(
    write_dataset: WriteDataset, tmp_path: Path
) -> None:
    path = write_dataset(problem(1, split="train", nodes=[]), problem(2, split="test"))
    export_verl(Export(path, tmp_path, without_nodes=True))
    assert ids_of(tmp_path, ExportSplit.TRAIN) == ["p1"]


@pytest.mark.parametrize(
    "nodes",
    [
        [{"node_id": f"n{i}", "expressions": ["x=1"]} for i in range(65)],
        [{"node_id": "n", "expressions": ["x"] * 100, "derived": ["y"] * 29}],
        [{"node_id": "n", "expressions": ["é" * 2049]}],
        [{"node_id": f"n{i}", "expressions": ["x" * 4000]} for i in range(5)],
    ],
    ids=["nodes", "expressions", "bytes of one", "bytes of all"],
)
def test_inline_nodes_that_no_server_takes_are_left_out(
    nodes: list[dict[str, Any]], write_dataset: WriteDataset, tmp_path: Path
) -> None:
    path = write_dataset(
        problem(1, split="train"), problem(2, split="train", nodes=nodes), problem(3, split="test")
    )
    inline = export_verl(Export(path, tmp_path / "inline", inline_nodes=True))
    assert inline.left_out == {LeftOut.INVALID_NODES: 1}
    by_id = export_verl(Export(path, tmp_path / "by_id"))
    assert (by_id.left_out, by_id.rows(ExportSplit.TRAIN)) == ({}, 2)


def test_the_limits_for_inline_nodes_are_the_scorers(
    write_dataset: WriteDataset, tmp_path: Path
) -> None:
    """What is just inside is exported, and the scorer takes it."""
    from consensuspr.client import LocalClient, RewardSpec, Rollout

    nodes = [
        {"node_id": f"n{i}", "expressions": [f"{'y' * 250}={i}"], "derived": []} for i in range(64)
    ]
    path = write_dataset(problem(1, split="train", nodes=nodes), problem(2, split="test"))
    export_verl(Export(path, tmp_path, inline_nodes=True))
    [row] = rows_of(tmp_path, ExportSplit.TRAIN)
    sent = [node["expressions"] for node in row["extra_info"]["nodes"]]
    with LocalClient(dataset=path) as client:
        [score] = client.score(
            [Rollout("q", "Answer: 2", ground_truth="2", nodes=sent)], reward=RewardSpec.linear()
        )
    assert (score.status, score.num_nodes) == ("OK", 64)


def test_a_share_of_the_problems_without_split_is_validation(
    write_dataset: WriteDataset, tmp_path: Path
) -> None:
    rows = [problem(number) for number in range(400)]
    path = write_dataset(*rows)
    report = export_verl(Export(path, tmp_path / "a", val_fraction=0.25))
    held_out = set(ids_of(tmp_path / "a", ExportSplit.VALIDATION))
    assert 60 <= len(held_out) <= 140
    assert report.rows(ExportSplit.TRAIN) == 400 - len(held_out)
    # Neither order nor company changes a problem's side; another seed does.
    half = write_dataset(*reversed(rows[:200]), name="half.jsonl")
    export_verl(Export(half, tmp_path / "b", val_fraction=0.25))
    first_half = {row["problem_id"] for row in rows[:200]}
    assert set(ids_of(tmp_path / "b", ExportSplit.VALIDATION)) == held_out & first_half
    export_verl(Export(path, tmp_path / "c", val_fraction=0.25, seed=1))
    assert set(ids_of(tmp_path / "c", ExportSplit.VALIDATION)) != held_out


def test_equal_input_makes_equal_files(write_dataset: WriteDataset, tmp_path: Path) -> None:
    path = write_dataset(*[problem(number) for number in range(100)])
    for name in ("a", "b"):
        export_verl(Export(path, tmp_path / name))
    for side in ExportSplit:
        name = f"{side.value}.parquet"
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_validation_may_come_from_other_files(write_dataset: WriteDataset, tmp_path: Path) -> None:
    path = write_dataset(*[problem(number) for number in range(100)])
    others = tuple(
        write_dataset(problem(number, split=split), name=f"{number}.jsonl")
        for number, split in ((3, "train"), (200, None))
    )
    report = export_verl(Export(path, tmp_path, others))
    assert ids_of(tmp_path, ExportSplit.VALIDATION) == ["p3", "p200"]
    assert report.rows(ExportSplit.TRAIN) == 99
    assert report.left_out == {LeftOut.HELD_OUT: 1}
    assert report.read.rows == 102


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([problem(1, split="test")], "no problem of .* is left for training, of 1 read"),
        (
            [problem(1, split="train")],
            "no problem of .* is left for validation, of 1 read",
        ),
        (
            [problem(1, split="train", nodes=[]), problem(2, split="test")],
            r"left for training; left out: 1 without nodes \(first: 'p1'\)",
        ),
    ],
)
def test_no_empty_file_is_written(
    rows: list[dict[str, Any]], wanted: str, write_dataset: WriteDataset, tmp_path: Path
) -> None:
    path = write_dataset(*rows)
    with pytest.raises(InputError, match=wanted):
        export_verl(Export(path, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_validation_can_be_done_without(write_dataset: WriteDataset, tmp_path: Path) -> None:
    path = write_dataset(problem(1), problem(2))
    report = export_verl(Export(path, tmp_path / "out", val_fraction=0))
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["train.parquet"]
    assert list(report.files) == [ExportSplit.TRAIN]
    (tmp_path / "out" / "val.parquet").touch()
    with pytest.raises(InputError, match=r"val.parquet is there from before"):
        export_verl(Export(path, tmp_path / "out", val_fraction=0))


def test_a_failure_leaves_the_old_files_as_they_were(
    write_dataset: WriteDataset, tmp_path: Path
) -> None:
    good = write_dataset(problem(1, split="train"), problem(2, split="test"))
    export_verl(Export(good, tmp_path / "out"))
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    bad = write_dataset(problem(1, split="train"), problem(1, split="test"), name="bad.jsonl")
    with pytest.raises(DataError, match=r"bad.jsonl:2: problem_id 'p1' is already that of line 1"):
        export_verl(Export(bad, tmp_path / "out"))
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_an_input_is_not_overwritten(write_dataset: WriteDataset, tmp_path: Path) -> None:
    path = write_dataset(problem(1, split="train"), problem(2, split="test"))
    own = path.rename(tmp_path / "val.parquet")
    before = own.read_bytes()
    with pytest.raises(InputError, match=r"val\.parquet is read by this command"):
        export_verl(Export(own, tmp_path))
    assert own.read_bytes() == before and not (tmp_path / "train.parquet").exists()


def test_bad_rows_are_passed_over_where_wanted(write_dataset: WriteDataset, tmp_path: Path) -> None:
    path = write_dataset(
        problem(1, split="train"), {"problem_id": "", "nodes": []}, problem(2, split="test")
    )
    report = export_verl(Export(path, tmp_path, on_error="skip"))
    assert (report.read.rows, report.read.skipped) == (2, 1)
    assert "1 bad rows (first: " in (report.left_out_sentence() or "")


def test_the_counts_are_plain_values(write_dataset: WriteDataset, tmp_path: Path) -> None:
    path = write_dataset(
        problem(1, split="train"),
        problem(2, split="train", data_source=""),
        problem(3, split="train", ground_truth=None),
        problem(4, split="test"),
    )
    report: ExportReport = export_verl(Export(path, tmp_path))
    assert report.to_json() == {
        "rows": {"train": 2, "val": 1},
        "by_data_source": {
            "train": {"arithmetic": 1, "consensusbench": 1},
            "val": {"arithmetic": 1},
        },
        "left_out": {"no_ground_truth": 1},
        "without_split": 0,
        "skipped_rows": 0,
        "files": {side: str(tmp_path / f"{side}.parquet") for side in ("train", "val")},
    }


@pytest.mark.parametrize("format", ["verl", "hf"])
def test_problems_without_a_split_are_told_with_their_number(
    format: str, write_dataset: WriteDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = [problem(1, split="train"), problem(2, split="test")]
    silent = [problem(3), problem(4)]
    for number, rows in enumerate((said, said + silent)):
        path = write_dataset(*rows)
        out = tmp_path / f"out{number}"
        assert main(["export", str(path), "--format", format, "--output", str(out)]) == 0
        warned = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
        assert [line.startswith("warning: 2 problems have no split and") for line in warned] == (
            [True] * number
        )


def test_memory_follows_the_row_group_and_not_the_file(
    write_dataset: WriteDataset, tmp_path: Path
) -> None:
    rows = [problem(number, split="train") for number in range(5000)]
    path = write_dataset(*rows, problem(9999, split="test"))
    export_verl(Export(path, tmp_path))
    groups = pq.ParquetFile(tmp_path / "train.parquet").metadata
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [2048, 2048, 904]
    assert [row["extra_info"]["index"] for row in rows_of(tmp_path, ExportSplit.TRAIN)] == [
        *range(5000)
    ]
