"""A planned run in which everything is right, to be changed in one thing at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from consensuspr.doctor.checks import CHECKS, Case, Check, check_settings, findings
from consensuspr.doctor.findings import Finding, TrainingSetup
from consensuspr.doctor.verl_config import NO_RUN, Named, VerlRun

MANAGER = Named("consensuspr.client.verl.manager.ConsensusRewardManager", True)

GOOD: dict[str, Any] = {
    "reward": {
        "num_workers": 8,
        "reward_manager": {"source": "register", "name": "consensuspr"},
        "custom_reward_function": {"path": None, "name": "compute_score"},
        "reward_model": {"enable": False},
        "reward_kwargs": {"address": "10.0.0.7:50051"},
    },
    "data": {
        "train_files": "train.parquet",
        "train_batch_size": 8,
        "train_max_samples": -1,
        "max_response_length": 4096,
    },
    "trainer": {
        "use_v1": True,
        "nnodes": 1,
        "total_epochs": 3,
        "total_training_steps": None,
        "v1": {
            "trainer_mode": "sync",
            "sync": {},
            "separate_async": {"parameter_sync_step": 4},
            "sampler": {"sync_refill_failed_groups": False},
        },
    },
    "algorithm": {"filter_groups": {"enable": False, "metric": "reward"}},
    "actor_rollout_ref": {"actor": {"optim": {"total_training_steps": -1}}},
}

Plan = Callable[..., VerlRun]
Lines = Callable[[Iterable[Finding]], list[str]]


@contextmanager
def no_progress(what: str, total: int | None, unit: str) -> Iterator[Callable[[int], None]]:
    yield lambda done: None


def case_of(run: VerlRun = NO_RUN, setup: TrainingSetup | None = None, **known: Any) -> Case:
    """A case of which so much is known already; with a run, its settings are read."""
    case = Case(setup or TrainingSetup(), no_progress, run)
    if run is not NO_RUN:
        told(check_settings, case)
    return replace(case, **known)


def told(check: Check, case: Case) -> list[Finding]:
    """Make one check of the table."""
    [name] = [name for name, _, each in CHECKS if each is check]
    return list(findings(name, check, case))


@pytest.fixture
def plan() -> Plan:
    """Make the good run with some values of its configuration, by dotted key, changed."""

    def planned(changes: dict[str, Any] | None = None, **fields: Any) -> VerlRun:
        config = copy.deepcopy(GOOD)
        for dotted, value in (changes or {}).items():
            *above, last = dotted.split(".")
            place = config
            for key in above:
                place = place.setdefault(key, {})
            place[last] = value
        run = VerlRun(config, "verl.trainer.main_ppo", version="0.9.1", manager=MANAGER)
        return replace(run, **fields)

    return planned


@pytest.fixture
def lines() -> Lines:
    """Write findings as the command does, without padding."""

    def written(findings: Iterable[Finding]) -> list[str]:
        return [
            f"{f.level} {f.check}: {f.found}" + (f" → {f.advice}" if f.advice else "")
            for f in findings
        ]

    return written
