"""Which reward verl will use, and its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from consensuspr.doctor.checks import check_manager, check_verl, read_reward
from consensuspr.doctor.verl_config import Named

if TYPE_CHECKING:
    from tests.doctor.conftest import Lines, Plan

MANAGER = Named("consensuspr.client.verl.manager.ConsensusRewardManager", True)
NAIVE = Named("verl.experimental.reward_loop.reward_manager.naive.NaiveRewardManager", False)
OUR_FUNCTION = Named("compute_score of pkg://consensuspr.client.verl", True)

BY_PATH = {
    "reward.reward_manager.source": "importlib",
    "reward.reward_manager.name": "ConsensusRewardManager",
}


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, "ok verl: version 0.9.1, verl.trainer.main_ppo"),
        ({"version": "0.6.0"}, "FAIL verl: version 0.6.0 is older than 0.7.1 → upgrade verl"),
        (
            {"version": None, "errors": {"verl": "ImportError: no torch"}},
            "FAIL verl: cannot be imported: ImportError: no torch → mend the environment;",
        ),
    ],
)
def test_verl_itself(plan: Plan, lines: Lines, fields: dict[str, Any], line: str) -> None:
    (found,) = lines(check_verl(plan(**fields)))
    assert found.startswith(line)


@pytest.mark.parametrize(
    ("changes", "fields", "line"),
    [
        ({}, {}, f"ok reward manager: {MANAGER.name}"),
        (BY_PATH, {"version": "0.7.1"}, f"ok reward manager: {MANAGER.name}"),
        (
            {},
            {"manager": NAIVE, "function": OUR_FUNCTION},
            f"ok reward manager: {NAIVE.name} with compute_score of consensuspr",
        ),
        (
            {},
            {"manager": NAIVE},
            f"FAIL reward manager: verl will reward by {NAIVE.name}, not by consensuspr → set"
            " reward.reward_manager.name=consensuspr",
        ),
        (
            {},
            {"manager": NAIVE, "version": "0.8.0"},
            f"FAIL reward manager: verl will reward by {NAIVE.name}, not by consensuspr → set"
            " reward.reward_manager.source=importlib",
        ),
        (
            {"reward.reward_model.enable": True},
            {},
            "FAIL reward manager: reward.reward_model.enable=True: verl asks the reward model",
        ),
        (
            {},
            {"manager": None, "version": "0.8.0", "errors": {"manager": "unknown"}},
            "FAIL reward manager: verl 0.8.0 knows no manager 'consensuspr': it reads no entry"
            " points → export VERL_USE_EXTERNAL_MODULES=consensuspr.client.verl.plugin",
        ),
        (
            {},
            {"manager": None, "errors": {"manager": "unknown", "plugin": "ImportError: grpc"}},
            "FAIL reward manager: verl has no manager 'consensuspr': ImportError: grpc → mend",
        ),
        (
            {"reward.reward_manager.name": "consensusprr"},
            {"manager": None, "errors": {"manager": "ValueError: unknown"}},
            "FAIL reward manager: 'consensusprr' cannot be loaded: ValueError: unknown → set"
            " reward.reward_manager.name=consensuspr",
        ),
    ],
)
def test_where_rewards_come_from(
    plan: Plan, lines: Lines, changes: dict[str, Any], fields: dict[str, Any], line: str
) -> None:
    (found,) = lines(check_manager(plan(changes, **fields)))
    assert found.startswith(line)


def test_a_function_that_our_manager_never_calls(plan: Plan, lines: Lines) -> None:
    run = plan({"reward.custom_reward_function.path": "mine.py"})
    assert "warn reward manager: reward.custom_reward_function.path is set" in "\n".join(
        lines(check_manager(run))
    )


@pytest.mark.parametrize(
    ("kwargs", "line"),
    [
        ({"address": "a:1", "alpha": 0.2}, "ok settings: reward.reward_kwargs: address=a:1,"),
        ({"alhpa": 0.2}, "FAIL settings: unknown setting 'alhpa' in reward.reward_kwargs; did you"),
        ({"alpha": 2}, "FAIL settings: reward.reward_kwargs.alpha: "),
        (
            {"overlong_buffer_cfg": {"enable": True, "len": 512}},
            "FAIL settings: max_resp_len must be a number of tokens of at least",
        ),
    ],
)
def test_settings(plan: Plan, lines: Lines, kwargs: dict[str, Any], line: str) -> None:
    reward, finding = read_reward(plan({"reward.reward_kwargs": kwargs}))
    assert lines(iter([finding]))[0].startswith(line)
    assert reward.valid == line.startswith("ok")
    assert reward.settings.address == kwargs.get("address", reward.settings.address)


def test_settings_of_the_function(plan: Plan) -> None:
    key = "reward.custom_reward_function.reward_kwargs"
    run = plan({key: {"reward": "max"}}, manager=NAIVE, function=OUR_FUNCTION)
    reward, finding = read_reward(run)
    assert (reward.settings.reward, reward.by_manager, finding.level) == ("max", False, "ok")
    run = plan({key: {"score_log": "/tmp/log"}}, manager=NAIVE, function=OUR_FUNCTION)
    assert read_reward(run)[1].level == "FAIL"
