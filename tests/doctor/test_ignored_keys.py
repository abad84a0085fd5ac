"""Settings that verl never reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from consensuspr.doctor.checks import check_ignored_keys

if TYPE_CHECKING:
    from tests.doctor.conftest import Lines, Plan


def test_nothing_ignored(plan: Plan, lines: Lines) -> None:
    assert lines(check_ignored_keys(plan())) == ["ok ignored keys: none is set"]


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("reward_model.reward_manager", "reward.reward_manager.name"),
        ("custom_reward_function.path", "reward.custom_reward_function.path"),
        ("reward_model.reward_kwargs.alpha", "+reward.reward_kwargs.alpha"),
        ("reward_model.enable", "reward.reward_model.enable"),
        ("reward_model.model.path", "reward.reward_model.model_path"),
        ("sandbox_fusion.url", "reward.sandbox_fusion.url"),
    ],
)
def test_reward_settings_of_old(plan: Plan, lines: Lines, key: str, instead: str) -> None:
    run = plan(legacy={key: "x"}, unread=(key,))
    assert lines(check_ignored_keys(run)) == [
        f"FAIL ignored key: verl.trainer.main_ppo of verl 0.9.1 never reads {key}=x → set"
        f" {instead}=x"
    ]
    moved = plan(legacy={key: "x"}, migrates=True)
    assert lines(check_ignored_keys(moved)) == ["ok ignored keys: none is set"]


def test_a_key_that_nothing_reads(plan: Plan, lines: Lines) -> None:
    (line,) = lines(check_ignored_keys(plan(unread=("data.foo",))))
    assert line.startswith("warn ignored key: verl 0.9.1 has no key data.foo, and nothing in its")
