"""What is sent: rollouts of a file, or made up from a dataset."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from consensuspr.client import LocalClient
from consensuspr.errors import DataError, InputError
from consensuspr.loadtest import load as pools
from consensuspr.loadtest.load import pool_from_dataset, pool_from_file, response_bytes
from consensuspr.scoring.dataset_index import prepare_dataset


@pytest.mark.parametrize("size", [64, 1000, 100_000])
def test_generated_rollouts_have_the_size_and_reach_nodes(dataset: Path, size: int) -> None:
    pool = pool_from_dataset(dataset, size, seed=3)
    assert {response_bytes(rollout) for rollout in pool.rollouts} == {size}
    assert pool.mean_bytes == size
    with LocalClient(dataset) as local:
        scores = local.score(pool.rollouts)
    assert {score.status.value for score in scores} == {"OK", "NO_NODES"}
    assert {score.acc for score in scores} == {0.0, 1.0}
    assert len({score.ncr for score in scores if score.ncr is not None}) > 1


def test_generated_rollouts_are_those_of_the_seed(dataset: Path) -> None:
    one, again, other = (pool_from_dataset(dataset, 500, seed).rollouts for seed in (1, 1, 2))
    assert one == again != other


def test_an_answer_longer_than_the_size_is_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "problems.jsonl"
    path.write_text(json.dumps({"problem_id": "p", "ground_truth": "9" * 90, "nodes": []}))
    texts = [str(rollout.response) for rollout in pool_from_dataset(path, 64, 0).rollouts]
    assert any(f"\\boxed{{{'9' * 90}}}" in text for text in texts)


@pytest.mark.parametrize("size", [0, 63, (16 << 20) + 1])
def test_a_wrong_size_is_refused(dataset: Path, size: int) -> None:
    with pytest.raises(InputError, match=rf"--generate must be in .*, got {size}"):
        pool_from_dataset(dataset, size, 0)


def test_a_large_file_is_read_as_far_as_memory_allows(
    rollouts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(pool_from_file(rollouts).rollouts) == 3
    monkeypatch.setattr(pools, "POOL_BYTES", 70)
    assert len(pool_from_file(rollouts).rollouts) == 2
    monkeypatch.setattr(pools, "POOL_BYTES", 1)
    assert len(pool_from_file(rollouts).rollouts) == 1
    monkeypatch.undo()
    monkeypatch.setattr(pools, "POOL_ROLLOUTS", 2)
    assert pool_from_file(rollouts).source == "the first 2 rollouts of rollouts.jsonl"


@pytest.mark.parametrize(("batch", "rollouts"), [(1, 1), (2, 2), (3, 3), (7, 7)])
def test_the_largest_batch(dataset: Path, batch: int, rollouts: int) -> None:
    assert pool_from_dataset(dataset, 100, 0).largest_batch_bytes(batch) == 100 * rollouts


def test_a_prepared_dataset_holds_no_texts_to_make_responses_of(
    dataset: Path, tmp_path: Path
) -> None:
    prepared = tmp_path / "problems.index"
    prepare_dataset(dataset, prepared)
    with pytest.raises(InputError, match=r"problems\.index' holds none; give the JSONL or Parquet"):
        pool_from_dataset(prepared, 100, 0)


def test_a_bad_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"problem_id": "p"}\n')
    with pytest.raises(DataError, match=r"bad\.jsonl:1: .*response"):
        pool_from_file(path)
