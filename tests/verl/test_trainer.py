"""What our trainers add to verl's step log, without a training."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed: run make test-verl")

import verl
from omegaconf import OmegaConf

if verl.__version__ < "0.9":
    pytest.skip("verl before 0.9 has no V1 trainer", allow_module_level=True)

from consensuspr.client.training import ScoredSample
from consensuspr.client.verl import trainer
from consensuspr.scoring.types import Score, Status


class Trainer:
    def __init__(self, config: Any) -> None:
        self.config = config

    def _compute_metrics(self, *_: Any) -> None:
        pass


class Ours(trainer.Figures, Trainer):
    pass


def test_the_step_log_warns_when_ncr_rises_without_acc(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = OmegaConf.create(
        {
            "reward": {"reward_manager": {"source": "register", "name": "naive"}},
            "trainer": {"v1": {"trainer_mode": "consensuspr_sync"}},
            "data": {"train_batch_size": 1},
            "actor_rollout_ref": {"rollout": {"n": 2, "agent": {}}},
        }
    )
    made = Ours(config)
    monkeypatch.setattr(trainer, "worker_notes", list)

    def samples(step: int) -> dict[str, Any]:
        ncr = step / 40
        score = Score(Status.OK, ncr, 0.5, ncr, 4, 2, ncr_raw=ncr, guard=1.0,
                      channel_numbers=bytes([3, 1, 0, 0]))  # fmt: skip
        return {
            f"prompt_{rollout}_0": {
                **ScoredSample(ncr, score, 0, "server", rollout == 1).fields(),
                "data_source": "mine",
            }
            for rollout in range(2)
        }

    for step in range(1, 41):
        monkeypatch.setattr(trainer, "_figures_of", lambda _, step=step: samples(step))
        metrics: dict[str, Any] = {}
        made._compute_metrics(None, metrics, None, step, 0)
    assert metrics["consensuspr/by_code"] == 0.5
    assert metrics["consensuspr/unanswered"] == 0.5
    assert metrics["consensuspr/source/mine/equal_groups"] == 1.0
    assert [line.partition(":")[0] for line in caplog.messages if "mean NCR rose" in line] == [
        "step 40"
    ]
