"""What TRL finds in the folder after an export, and what the reward reads of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from consensusbench.export import Export, ExportSplit, LeftOut, export_trl, with_prompt
from consensuspr.client import LocalClient, RewardSpec
from consensuspr.client.training import ProblemIds
from consensuspr.client.trl import rollouts_of
from tests.consensusbench.conftest import problem

if TYPE_CHECKING:
    from tests.consensusbench.conftest import WriteDataset


def rows_of(folder: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder / name).to_pylist()
    return rows


def test_a_problem_becomes_the_row_that_trl_takes(
    write_dataset: WriteDataset, tmp_path: Path
) -> None:
    path = write_dataset(problem(1, split="train"), problem(2, split="test", data_source=""))
    report = export_trl(Export(path, tmp_path / "out"))
    assert rows_of(tmp_path / "out", "train.parquet") == [
        {
            "prompt": [{"role": "user", "content": with_prompt("What is $1 + {1}$?")}],
            "problem_id": "p1",
            "ground_truth": "2",
            "data_source": "arithmetic",
            "split": "train",
        }
    ]
    [held_out] = rows_of(tmp_path / "out", "val.parquet")
    assert (held_out["split"], held_out["data_source"]) == ("test", "consensusbench")
    assert report.rows(ExportSplit.TRAIN) == 1


@pytest.mark.parametrize("inline", [False, True])
def test_the_reward_scores_what_was_exported(
    inline: bool, write_dataset: WriteDataset, tmp_path: Path
) -> None:
    path = write_dataset(problem(1, split="train"), problem(2, split="test"))
    export_trl(Export(path, tmp_path, inline_nodes=inline))
    rows = rows_of(tmp_path, "train.parquet")
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    said = [{"role": "assistant", "content": "First 1 + 1 = 2.\nAnswer: 2"}]
    rollouts = rollouts_of(
        columns.pop("prompt"), [said], None, columns, "ground_truth", ProblemIds("{index}")
    )
    nodes = rollouts[0].nodes
    assert (nodes is not None) is inline
    with LocalClient(dataset=path) as client:
        [score] = client.score(rollouts, reward=RewardSpec.linear(0.5))
    assert (score.status, score.acc, score.num_matched, score.num_nodes) == ("OK", 1, 1, 2)


def test_what_nobody_can_train_on_is_left_out(write_dataset: WriteDataset, tmp_path: Path) -> None:
    again = problem(1, problem=r"What is \(1+{1}\)?", problem_id="again", split="train")
    path = write_dataset(
        problem(1, split="train"), again, problem(2, nodes=[]), problem(3, split="test")
    )
    report = export_trl(Export(path, tmp_path))
    assert report.left_out == {LeftOut.REPEATED: 1, LeftOut.NO_NODES: 1}
    assert [row["problem_id"] for row in rows_of(tmp_path, "train.parquet")] == ["p1"]
