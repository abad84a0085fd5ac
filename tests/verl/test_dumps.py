"""What verl's own trainers write of their rollouts is read."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from consensuspr.client.training.source import ScoredSample
from consensuspr.client.verl.dumps import is_dump, read_dump
from consensuspr.scoring.types import Score, Status


# Ray's own complaint about how verl imports it.
@pytest.mark.filterwarnings("ignore:Ray state API:DeprecationWarning")
@pytest.mark.parametrize(
    ("module", "name"),
    [("ray_trainer", "RayPPOTrainer"), ("v1.trainer_base", "PPOTrainer")],
)
def test_dumps_are_read_as_verl_writes_them(module: str, name: str, tmp_path: Path) -> None:
    pytest.importorskip(f"verl.trainer.ppo.{module}", reason="older verl has no such trainer")
    trainer = getattr(importlib.import_module(f"verl.trainer.ppo.{module}"), name)
    if not hasattr(trainer, "_write_generations"):
        pytest.skip("this verl writes its dumps in another method")
    score = Score(Status.OK, 0.65, 1.0, 0.5, 2, 1, (True, False), channel_numbers=b"\1\0")
    said = ScoredSample(0.65, score, 0, "server").fields(-0.15)
    said |= {"problem_id": "p1", "rollout_id": "g7_1"}
    dumped = {name: [value] for name, value in said.items()} | {"uid": ["g7_1_0"]}
    trainer._write_generations(["q"], ["two\nlines  é"], ["9"], [0.5], dumped, str(tmp_path), 3)
    assert is_dump(tmp_path)
    assert is_dump(tmp_path / "3.jsonl")
    (sample,) = read_dump(tmp_path, 3)
    assert (sample.step, sample.status, sample.reward, sample.penalty) == (3, "OK", 0.65, -0.15)
    assert sample.final_score == pytest.approx(0.5)
    assert (sample.group_id, sample.rollout_id) == ("g7", "g7_1")
    rollout = sample.rollout()
    assert (rollout.problem_id, rollout.response) == ("p1", "two\nlines  é")
    assert rollout.ground_truth == "9"
    assert not list(read_dump(tmp_path, 4))
