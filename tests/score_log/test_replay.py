"""A run scored again from its log."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consensuspr.cli import main
from consensuspr.data import read_rollouts
from consensuspr.score_log import LoggedPart, LogReader, ScoreLog, keep_dataset
from consensuspr.score_log.files import forget_texts
from consensuspr.score_log.replay import Changed, Unscored, options_of
from consensuspr.score_log.replay import replay as score_again
from consensuspr.scoring import AnswerVerifier, DatasetIndex, Scorer, rollout_from_row
from consensuspr.scoring.guard import GuardBudget
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import SCORING_VERSION, Rollout, ScoreOptions

SAMPLE = Path(__file__).resolve().parents[2] / "examples/sample"
DATASET = SAMPLE / "dataset.jsonl"
ODD = [
    Rollout("unknown", "x"),
    Rollout("sample-arith-001", "14 * 118 = 1652 \ud800 Answer: 1652"),
    Rollout("sample-arith-001", b"14 * 118 = 1652 \xff Answer: 1652", ground_truth="1652"),
    Rollout("own", "so x=42. Answer: 42", "42", nodes=[["x=42"]], budget=GuardBudget(3, 3, 9)),
    Rollout("sample-arith-001", ""),
]


def logged(
    run: Path, answer_version: str = "", text_bytes: int = 1 << 30, keep: bool = True
) -> int:
    """Score the sample's rollouts and odd ones by some rewards; return how many rows that are."""
    index = DatasetIndex.load(DATASET)
    rows = list(read_rollouts(SAMPLE / "rollouts.jsonl"))[:60]
    rollouts = [rollout_from_row(row) for row in rows] + ODD
    rewards = [RewardSpec.linear(0.3), RewardSpec.curriculum(2, guard=False), RewardSpec.maximum()]
    if keep:
        keep_dataset(run, index)
    log = ScoreLog(run, "trainer", text_bytes=text_bytes)
    with AnswerVerifier() as verifier:
        scorer = Scorer({"default": index}, verifier=verifier)
        for reward in rewards:
            options = ScoreOptions(reward, epoch=1)
            scores, identity = scorer.score(rollouts, options)
            if answer_version:
                identity = replace(identity, answer_version=answer_version)
            log.put(LoggedPart(rollouts, scores, identity, options, time.time()))
    log.close()
    return len(rewards) * len(rollouts)


def test_every_reward_is_the_logged_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    number = logged(tmp_path)
    assert main(["replay", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["samples"], found["same"], found["changed"]) == (number, number, {})
    assert main(["replay", str(tmp_path)]) == 0
    assert f"{number} samples: {number} with the same reward" in capsys.readouterr().out


def test_samples_that_cannot_be_scored_again_have_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    number = logged(tmp_path / "a", keep=False)
    assert score_again(tmp_path / "a").unscored == {Unscored.NO_DATASET: number}
    assert score_again(tmp_path / "a", DATASET).same == number
    number = logged(tmp_path / "b", text_bytes=0)
    assert score_again(tmp_path / "b").unscored == {Unscored.NO_TEXT: number}
    assert main(["replay", str(tmp_path / "b"), "--json"]) == 1, "nothing was scored"
    assert json.loads(capsys.readouterr().out)["unscored"] == {
        "the log does not have its text": number
    }
    assert main(["replay", str(tmp_path / "a"), "--dataset", str(DATASET)]) == 0


def test_a_reward_that_changed_has_a_reason_or_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logged(tmp_path / "same")
    logged(tmp_path / "older", "0")
    monkeypatch.setattr(
        "consensuspr.scoring.rewards.linear", lambda acc, ncr, alpha: np.full(len(acc), 0.25)
    )
    older = score_again(tmp_path / "older")
    assert set(older.changed) == {Changed.VERSION}
    assert older.unexplained == 0
    same = score_again(tmp_path / "same")
    assert set(same.changed) == {Changed.NO_REASON}
    assert same.examples[0]["now"]["reward"] == 0.25
    assert main(["replay", str(tmp_path / "same")]) == 1
    assert "unknown reason" in capsys.readouterr().out


def test_a_log_of_an_earlier_scoring_version_is_scored_by_this_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    number = logged(tmp_path)
    [segment] = (tmp_path / "scores").glob("*.parquet")
    table = pq.read_table(segment)
    specs = [json.loads(text) for text in table["reward_spec"].to_pylist()]
    earlier = [
        json.dumps({k: v for k, v in spec.items() if k not in ("code", "unanswered")})
        for spec in specs
    ]
    at = table.schema.get_field_index("reward_spec")
    table = table.set_column(at, "reward_spec", pa.array(earlier))
    pq.write_table(table.drop_columns(["scoring_version"]), segment)
    rows = [row for batch in LogReader(tmp_path).read() for row in batch.to_pylist()]
    assert {options_of(row).reward.code for row in rows} == {"computed"}
    assert main(["replay", str(tmp_path)]) == 0
    assert (
        f"{number} samples of scoring version 1: scored again with version {SCORING_VERSION}"
    ) in capsys.readouterr().out
    assert forget_texts(segment) == number
    assert LogReader(tmp_path).read().__next__()["scoring_version"].null_count == number


def test_samples_of_a_run_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logged(tmp_path)
    arguments = ["explain", str(tmp_path), "--problem", "sample-arith-001"]
    assert main([*arguments, "--worst", "2", "--json"]) == 0
    worst = json.loads(capsys.readouterr().out)
    assert len(worst) == 2
    assert worst[0]["score"]["reward"] == 0.0
    assert main([*arguments, "--color", "never"]) == 0
    assert "problem sample-arith-001" in capsys.readouterr().out
    assert main(["explain", str(tmp_path), "--step", "9"]) == 2
    assert "has no sample with step 9" in capsys.readouterr().err
