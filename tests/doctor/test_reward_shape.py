"""DAPO's filter and penalty, and samples without a reward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from consensuspr.doctor.checks import check_filter, check_overlong, check_unscorable, read_reward

if TYPE_CHECKING:
    from tests.doctor.conftest import Lines, Plan

KWARGS = "reward.reward_kwargs"
BUFFER = {"enable": True, "len": 512, "penalty_factor": 1.0}


@pytest.mark.parametrize(
    ("reward", "groups", "levels"),
    [
        ({}, {"enable": False, "metric": "reward"}, []),
        ({}, {"enable": True, "metric": "acc"}, ["ok"]),
        ({}, {"enable": True, "metric": "reward"}, ["warn"]),
        ({}, {"enable": True, "metric": "ncr"}, ["warn"]),
        ({}, {"enable": True, "metric": "status"}, ["FAIL"]),
        ({}, {"enable": True, "metric": "accuracy"}, ["FAIL"]),
        ({}, {"enable": True, "metric": None}, ["FAIL"]),
        ({}, {"enable": True, "metric": "acc", "max_num_gen_batches": 10}, ["ok", "warn"]),
        ({"reward": "curriculum"}, {"enable": True, "metric": "acc"}, ["warn"]),
        ({"reward": "curriculum"}, {"enable": True, "metric": "score"}, ["ok"]),
        ({"reward": "curriculum"}, {"enable": True, "metric": "ncr"}, ["warn"]),
        ({"reward": "outcome"}, {"enable": True, "metric": "reward"}, ["ok"]),
        ({"reward": "outcome"}, {"enable": True, "metric": "score"}, ["ok"]),
        (
            {"reward": "outcome", "max_resp_len": 4096, "overlong_buffer_cfg": BUFFER},
            {"enable": True, "metric": "reward"},
            ["warn"],
        ),
    ],
)
def test_the_group_filter(
    plan: Plan, reward: dict[str, Any], groups: dict[str, Any], levels: list[str]
) -> None:
    run = plan({KWARGS: reward, "algorithm.filter_groups": groups})
    assert [f.level for f in check_filter(run, read_reward(run)[0])] == levels


@pytest.mark.parametrize(
    ("longest", "buffer", "limit", "line"),
    [
        (None, None, 4096, "ok overlong penalty: off"),
        (4096, BUFFER, 4096, "ok overlong penalty: from 3,584 tokens on, -1 at 4,096"),
        (
            4096,
            BUFFER,
            3840,
            "warn overlong penalty: max_resp_len=4,096, but data.max_response_length=3,840: the"
            " longest response gets -0.5 instead of -1 → set +reward.reward_kwargs.max_resp_len="
            "3840",
        ),
        (8192, BUFFER, 4096, "FAIL overlong penalty: it begins at 7,680 tokens and responses end"),
        (512, BUFFER, 512, "warn overlong penalty: overlong_buffer_cfg.len equals max_resp_len"),
    ],
)
def test_the_overlong_penalty(
    plan: Plan, lines: Lines, longest: int, buffer: object, limit: int, line: str
) -> None:
    run = plan(
        {
            KWARGS: {"max_resp_len": longest, "overlong_buffer_cfg": buffer},
            "data.max_response_length": limit,
        }
    )
    (found,) = lines(check_overlong(run, read_reward(run)[0].overlong))
    assert found.startswith(line)


@pytest.mark.parametrize(
    ("changes", "level", "part"),
    [
        ({}, "ok", "drops the sample and trains its group smaller"),
        (
            {"trainer.v1.sampler.sync_refill_failed_groups": True},
            "ok",
            "replaces groups of which no sample is left",
        ),
        ({"trainer.v1.trainer_mode": "separate_async"}, "ok", "drops its whole group"),
        ({"trainer.use_v1": False}, "ok", "training stops at the first"),
        ({KWARGS: {"on_unscorable": 0.0}}, "warn", "are trained on with this reward"),
    ],
)
def test_what_becomes_of_a_sample_without_reward(
    plan: Plan, changes: dict[str, Any], level: str, part: str
) -> None:
    run = plan(changes)
    (found,) = check_unscorable(run, read_reward(run)[0])
    assert found.level == level
    assert part in found.found
