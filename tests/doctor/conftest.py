"""A planned run in which everything is right, to be changed in one thing at a time."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from consensuspr.doctor import Finding
from consensuspr.doctor.verl_run import Named, VerlRun

MANAGER = Named("consensuspr.client.verl.manager.ConsensusRewardManager", True)

GOOD: dict[str, Any] = {
    "reward": {
        "reward_manager": {"source": "register", "name": "consensuspr"},
        "custom_reward_function": {"path": None, "name": "compute_score"},
        "reward_model": {"enable": False},
        "reward_kwargs": {"address": "10.0.0.7:50051"},
    },
    "data": {"train_batch_size": 8, "train_max_samples": -1, "max_response_length": 4096},
    "trainer": {"use_v1": True, "nnodes": 1, "total_epochs": 3, "total_training_steps": None},
    "algorithm": {"filter_groups": {"enable": False, "metric": "reward"}},
    "reward_model": {"reward_manager": None, "model": {"path": None}},
}


def plan(changes: dict[str, Any] | None = None, **fields: Any) -> VerlRun:
    """Return the good run with some values of its configuration, by dotted key, changed."""
    config = copy.deepcopy(GOOD)
    for dotted, value in (changes or {}).items():
        *above, last = dotted.split(".")
        place = config
        for key in above:
            place = place.setdefault(key, {})
        place[last] = value
    known = {"version": "0.9.1", "manager": MANAGER, **fields}
    return VerlRun(config, "verl.trainer.main_ppo", **known)


def lines(findings: Iterable[Finding]) -> list[str]:
    """Return findings as ``LEVEL check: found → advice``."""
    return [
        f"{f.level} {f.check}: {f.found}" + (f" → {f.advice}" if f.advice else "") for f in findings
    ]
