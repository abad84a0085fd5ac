"""Files of a run, checked against a real server before the first step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

pytest.importorskip("verl", reason="verl is not installed: run make test-verl")

import pyarrow as pa
import pyarrow.parquet as pq
import verl

from consensuspr.client.training import RewardSettings
from consensuspr.client.verl import manager, start
from consensuspr.client.verl.start import UnfitDataset, check_files
from consensuspr.errors import DatasetMismatch, InputError


@pytest.fixture
def check(
    address: str,
    start_server: Callable[..., Any],
    sample_problems: dict[str, dict[str, Any]],
    tmp_path: Path,
) -> Callable[..., None]:
    """Check files of the sample's problems, of which so many have another id."""

    def checked(
        wrong: int, *, split: str = "train", served: Path | None = None, **settings: Any
    ) -> None:
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
        asked = start_server(dataset=served).address if served else address
        check_files({"data": data}, RewardSettings(address=asked, **settings))

    return checked


def test_files_of_the_servers_problems_pass(check: Callable[..., None]) -> None:
    check(0)


def test_files_of_other_problems_do_not(check: Callable[..., None]) -> None:
    with pytest.raises(UnfitDataset, match=r"train problems: 1 .* 1 unknown to the"):
        check(1)


@pytest.mark.parametrize("settings", [{"on_unscorable": 0}, {"without_nodes": "acc"}])
def test_no_reward_setting_lets_files_of_other_problems_pass(
    check: Callable[..., None], settings: dict[str, Any]
) -> None:
    with pytest.raises(UnfitDataset, match=r"train problems: 1 .* 1 unknown to the"):
        check(1, **settings)


def test_another_content_does_not_pass(check: Callable[..., None]) -> None:
    with pytest.raises(DatasetMismatch):
        check(0, expect_digest="sha256:" + 64 * "0")
    with pytest.raises(InputError, match="has no 'other'"):
        check(0, dataset="other")


MANAGER = "reward.reward_manager.name=consensuspr"
TYPOS = pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("dataset_path=/none/derived.jsonl", "dataset_path: file not found: /none/derived.jsonl"),
        ("dataset_pth=x", "unknown setting 'dataset_pth'"),
    ],
)


@pytest.mark.skipif(verl.__version__ < "0.9", reason="verl before 0.9 has no V1 trainer")
@TYPOS
def test_a_typo_ends_the_run_before_workers_and_engines_start(
    compose: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, override: str, sentence: str
) -> None:
    from verl.trainer.ppo.v1 import PPOTrainer

    from consensuspr.client.verl import trainer

    reasons: list[str] = []
    begun: list[Any] = []
    monkeypatch.setattr(trainer, "note_reason", reasons.append)
    monkeypatch.setattr(PPOTrainer, "__init__", lambda self, config: begun.append(config))
    mode = "trainer.v1.trainer_mode=consensuspr_sync"
    typo = f"+reward.reward_kwargs.{override}"
    with pytest.raises(InputError, match=sentence):
        trainer.ConsensusTrainerSync(compose(MANAGER, mode, typo))
    assert (sentence in reasons[0], begun) == (True, [])
    # Another manager has settings of its own.
    trainer.ConsensusTrainerSync(compose("reward.reward_manager.name=naive", mode, typo))
    assert begun


@TYPOS
def test_a_typo_ends_the_run_when_a_worker_makes_its_manager(
    compose: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, override: str, sentence: str
) -> None:
    reasons: list[str] = []
    monkeypatch.setattr(manager, "in_reward_worker", lambda: True)
    monkeypatch.setattr(manager, "end_run", reasons.append)

    async def make() -> None:  # verl's manager makes an event loop where none runs
        manager.ConsensusRewardManager(compose(f"+reward.reward_kwargs.{override}"), None)

    with pytest.raises(InputError, match=sentence):
        asyncio.run(make())
    assert sentence in reasons[0]


def test_a_check_that_finds_misfits_ends_the_run_and_one_that_fails_does_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reasons: list[str] = []
    monkeypatch.setattr(start, "end_run", reasons.append)
    silent = RewardSettings(address="127.0.0.1:1", on_unavailable="raise", timeout_s=0.5)
    start.check_at_start({"data": {"train_files": "none.parquet"}}, silent)
    assert "the files are not checked: ServerInfo at 127.0.0.1:1" in caplog.text
    for error in (UnfitDataset("4 of 8 problems have no reward"), KeyError("a defect")):
        monkeypatch.setattr(start, "check_files", Mock(side_effect=error))
        start.check_at_start({}, silent)
    assert reasons == ["4 of 8 problems have no reward"]
    assert "a defect" in caplog.text
