"""Files of a run, checked against a real server before the first step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed: run make test-verl")

import pyarrow as pa
import pyarrow.parquet as pq

from consensuspr.client.training import RewardSettings
from consensuspr.client.verl.start import UnfitDataset, check_files
from consensuspr.errors import DatasetMismatch, InputError


@pytest.fixture
def check(
    start_server: Callable[..., Any], sample_problems: dict[str, dict[str, Any]], tmp_path: Path
) -> Callable[..., None]:
    """Check files of the sample's problems, of which so many have another id."""

    def checked(wrong: int, *, split: str = "train", **settings: Any) -> None:
        for name in ("train", "val"):
            ids = list(sample_problems)
            if name == split:
                ids[:wrong] = [f"wrong-{one}" for one in ids[:wrong]]
            rows = [
                {
                    "data_source": "sample",
                    "prompt": [{"role": "user", "content": problem["problem"]}],
                    "reward_model": {"ground_truth": problem["ground_truth"]},
                    "extra_info": {"problem_id": one, "split": name},
                }
                for one, problem in zip(ids, sample_problems.values(), strict=True)
            ]
            pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{name}.parquet")
        data = {"train_files": str(tmp_path / "train.parquet")}
        data["val_files"] = [str(tmp_path / "val.parquet")]  # type: ignore[assignment]
        config = {"data": data}
        check_files(config, RewardSettings(address=start_server().address, **settings))

    return checked


def test_files_of_the_servers_problems_pass(check: Callable[..., None]) -> None:
    check(0)


def test_files_of_other_problems_do_not(check: Callable[..., None]) -> None:
    with pytest.raises(UnfitDataset, match="training problems have no reward: 1 unknown to the"):
        check(1)


def test_validation_that_would_count_as_wrong_does_not_pass(check: Callable[..., None]) -> None:
    with pytest.raises(UnfitDataset, match="validation problems have no reward"):
        check(1, split="val", validate_by_acc=False)


@pytest.mark.parametrize(
    "settings", [{"max_unscorable": 1}, {"on_unscorable": 0}, {"without_nodes": "acc"}]
)
def test_what_the_settings_allow_is_said_and_passes(
    check: Callable[..., None], settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    check(1, **settings)
    told = any("1 unknown to the server" in line for line in caplog.messages)
    assert told == ("without_nodes" not in settings)


def test_another_content_does_not_pass(check: Callable[..., None]) -> None:
    with pytest.raises(DatasetMismatch):
        check(0, expect_digest="sha256:" + 64 * "0")
    with pytest.raises(InputError, match="has no 'other'"):
        check(0, dataset="other")
