"""Files of a run, checked against a real server before the first step."""

from __future__ import annotations

import errno
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
from consensuspr.client.verl import start
from consensuspr.client.verl.start import UnfitDataset, check_files
from consensuspr.errors import DatasetMismatch, InputError
from tests.verl.conftest import SAMPLE


@pytest.fixture
def check(
    address: str, sample_problems: dict[str, dict[str, Any]], tmp_path: Path
) -> Callable[..., None]:
    """Check files of the sample's problems, of which so many have another id."""

    def checked(wrong: int, **settings: Any) -> None:
        for split in ("train", "val"):
            ids = list(sample_problems)
            if split == "train":
                ids[:wrong] = [f"wrong-{name}" for name in ids[:wrong]]
            rows = [
                {
                    "data_source": "sample",
                    "prompt": [{"role": "user", "content": problem["problem"]}],
                    "reward_model": {"ground_truth": problem["ground_truth"]},
                    "extra_info": {"problem_id": problem_id, "split": split},
                }
                for problem_id, problem in zip(ids, sample_problems.values(), strict=True)
            ]
            pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{split}.parquet")
        train, val = (str(tmp_path / f"{split}.parquet") for split in ("train", "val"))
        config = {"data": {"train_files": train, "val_files": [val]}}
        check_files(config, RewardSettings(**{"address": address, **settings}))

    return checked


def test_files_of_the_datasets_problems_pass(check: Callable[..., None]) -> None:
    check(0)
    alone = {"address": None, "dataset_path": SAMPLE / "dataset.jsonl"}
    check(0, **alone)
    with pytest.raises(UnfitDataset):
        check(1, **alone)


# No reward for problems without nodes lets the ids of another dataset pass.
@pytest.mark.parametrize("settings", [{}, {"on_unscorable": 0}, {"without_nodes": "acc"}])
def test_files_of_other_problems_do_not(
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


@pytest.mark.skipif(verl.__version__ < "0.9", reason="verl before 0.9 has no V1 trainer")
@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("dataset_path=/none/derived.jsonl", "dataset_path: file not found: /none/derived.jsonl"),
        ("dataset_pth=x", "unknown setting 'dataset_pth'"),
    ],
)
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


@pytest.mark.skipif(verl.__version__ < "0.9", reason="verl before 0.9 has no V1 trainer")
def test_a_score_log_is_kept_beside_the_checkpoints_unless_told_otherwise(
    compose: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    from verl.trainer.ppo.v1 import PPOTrainer

    from consensuspr.client.verl import trainer

    monkeypatch.setattr(PPOTrainer, "__init__", lambda self, config: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()

    def kept(*overrides: str, manager: str = MANAGER) -> Any:
        config = compose(manager, "trainer.v1.trainer_mode=consensuspr_sync", *overrides)
        trainer.ConsensusTrainerSync(config)
        return (config.reward.get("reward_kwargs") or {}).get("score_log")

    def full_disk(**_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    default = str(tmp_path / "checkpoints/mine/first/score-log")
    names = ("trainer.project_name=mine", "trainer.experiment_name=first")
    assert kept(*names) == kept(*names, "+reward.reward_kwargs.alpha=0.2") == default
    assert capsys.readouterr().out.count(f"curves {default}") == 2
    assert kept("+reward.reward_kwargs.score_log=null") is None
    assert kept("+reward.reward_kwargs.score_log=/mine") == "/mine"
    assert kept("trainer.default_local_dir=file/x") is None  # cannot be made: no log, and a run
    monkeypatch.setattr("tempfile.TemporaryFile", full_disk)
    assert kept(*names) is None
    assert kept(manager="reward.reward_manager.name=naive") is None
    assert not capsys.readouterr().out


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
