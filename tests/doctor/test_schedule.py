"""Steps, and the step at which a curriculum switches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from consensuspr.client.verl.config import epoch_clock
from consensuspr.doctor.checks import Reward, check_schedule, read_reward
from consensuspr.doctor.verl_config import Named

if TYPE_CHECKING:
    from tests.doctor.conftest import Lines, Plan

NAIVE = Named("verl.experimental.reward_loop.reward_manager.naive.NaiveRewardManager", False)
OUR_FUNCTION = Named("compute_score of pkg://consensuspr.client.verl", True)

KWARGS = "reward.reward_kwargs"
CURRICULUM = {"reward": "curriculum"}


@pytest.mark.parametrize(
    ("changes", "rows", "line"),
    [
        ({}, 43, "ok schedule: 5 steps in an epoch, 3 epochs"),
        ({"data.train_max_samples": 16}, 43, "ok schedule: 2 steps in an epoch, 3 epochs"),
        ({"trainer.total_training_steps": 9}, 43, "ok schedule: 5 steps in an epoch, 9 steps in"),
        ({"data.filter_overlong_prompts": True}, 43, "ok schedule: at most 5 steps in an epoch"),
        ({}, 7, "FAIL schedule: 7 training rows do not fill one batch of 8 → lower data."),
        ({}, None, "skip schedule: the training rows or data.train_batch_size are not known"),
    ],
)
def test_steps(
    plan: Plan, lines: Lines, changes: dict[str, Any], rows: int | None, line: str
) -> None:
    run = plan(changes)
    (found,) = lines(check_schedule(run, read_reward(run)[0], rows))
    assert found.startswith(line)


@pytest.mark.parametrize(
    ("changes", "fields", "line"),
    [
        ({}, {}, "ok curriculum: switches from NCR to Acc at step 6 of 15"),
        (
            {KWARGS: {**CURRICULUM, "switch_epoch": 2}},
            {},
            "ok curriculum: switches from NCR to Acc at step 11 of 15",
        ),
        (
            {"trainer.v1.trainer_mode": "separate_async"},
            {},
            "ok curriculum: switches from NCR to Acc at step 6 of 15",
        ),
        (
            {KWARGS: {**CURRICULUM, "switch_epoch": 3}},
            {},
            "warn curriculum: it would switch at step 16, and training ends with step 15",
        ),
        (
            {KWARGS: {**CURRICULUM, "steps_per_epoch": 2}},
            {},
            "warn curriculum: steps_per_epoch=2 is set, by its rows the run has 5; it switches to"
            " Acc at step 3",
        ),
        (
            {KWARGS: {**CURRICULUM, "epoch": 1}},
            {"version": "0.8.0"},
            "ok curriculum: epoch=1 is fixed: Acc is rewarded all the time",
        ),
        (
            {"trainer.total_training_steps": 9},
            {},
            "FAIL curriculum: reward=curriculum needs the epoch, which cannot be known:"
            " trainer.total_training_steps is set",
        ),
        (
            {"trainer.use_v1": False},
            {},
            "FAIL curriculum: reward=curriculum needs the training step, and this trainer of verl",
        ),
        (
            {},
            {"version": "0.8.0"},
            "FAIL curriculum: reward=curriculum needs the training step, and verl.trainer.main_ppo"
            " of verl 0.8.0 does not tell it; use verl.trainer.main_ppo_sync",
        ),
        (
            {},
            {"version": "0.8.0", "trainer": "verl.trainer.main_ppo_sync"},
            "ok curriculum: switches from NCR to Acc at step 6 of 15",
        ),
        (
            {"reward.custom_reward_function.reward_kwargs": CURRICULUM},
            {"manager": NAIVE, "function": OUR_FUNCTION},
            "FAIL curriculum: reward=curriculum needs the epoch, which cannot be known: a reward"
            " function does not see the training step",
        ),
    ],
)
def test_the_curriculum(
    plan: Plan, lines: Lines, changes: dict[str, Any], fields: dict[str, Any], line: str
) -> None:
    run = plan({KWARGS: CURRICULUM, **changes}, **fields)
    _, found = lines(check_schedule(run, read_reward(run)[0], 43))
    assert found.startswith(line)


def test_the_switch_is_where_training_switches(plan: Plan) -> None:
    # As verl fills it in: 43 rows in batches of 8 are 5 steps, three times.
    run = plan({KWARGS: CURRICULUM, "actor_rollout_ref.actor.optim.total_training_steps": 15})
    reward: Reward = read_reward(run)[0]
    clock = epoch_clock(run.config, reward.settings, "0.9.1")
    assert [clock.epoch_of(step) for step in (5, 6)] == [0, 1]
    assert "at step 6 of" in list(check_schedule(run, reward, 43))[1].found


def test_without_rows_the_switch_is_not_known(plan: Plan) -> None:
    run = plan({KWARGS: CURRICULUM})
    assert [f.level for f in check_schedule(run, read_reward(run)[0], None)] == ["skip", "skip"]
