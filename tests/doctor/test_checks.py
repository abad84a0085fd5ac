"""The checks of a run and its settings, and the training command as people type it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from consensuspr.client import RewardClient
from consensuspr.client.training import RewardSettings
from consensuspr.client.verl.config import STEP_CREDIT_MANAGER, STEP_ESTIMATOR
from consensuspr.doctor.checks import (
    OF_RUN,
    OF_SETTINGS,
    Case,
    Check,
    check_address,
    check_dataset,
    check_schedule,
    check_server,
)
from consensuspr.doctor.verl_run import DEFAULT_MODULE, Named, TrainingCommand
from consensuspr.errors import AccessDenied, InputError, Unavailable
from tests.doctor.conftest import MANAGER, plan

NAIVE = Named("verl.experimental.reward_loop.reward_manager.naive.NaiveRewardManager", False)
OUR_FUNCTION = Named("compute_score of pkg://consensuspr.client.verl", True)
KWARGS = "reward.reward_kwargs"
FUNCTION_KWARGS = "reward.custom_reward_function.reward_kwargs"
BUFFER = {"enable": True, "len": 512, "penalty_factor": 1.0}
AGENTS = "actor_rollout_ref.rollout.agent.agent_loop_manager_class"
STEP_CREDIT = {AGENTS: STEP_CREDIT_MANAGER, "algorithm.adv_estimator": STEP_ESTIMATOR}


def made(check: Check, case: Case) -> list[str]:
    return [f"{level} {' → '.join(texts)}" for level, *texts in check(case)]


def examined(check: str, changes: dict[str, Any], **fields: Any) -> list[str]:
    """Make one check of a run, after those that read the settings."""
    case = Case(run=plan(changes, **fields))
    for name, each in (OF_RUN | OF_SETTINGS).items():
        found = made(each, case)
        if name == check:
            return found
    raise KeyError(check)


@pytest.mark.parametrize(
    ("check", "changes", "fields", "line"),
    [
        ("verl", {}, {}, "ok version 0.9.1, verl.trainer.main_ppo"),
        ("verl", {}, {"version": "0.6.0"}, "FAIL version 0.6.0 is older than 0.7.1"),
        (
            "verl",
            {},
            {"errors": {"trainer": "ModuleNotFoundError: transfer_queue"}},
            "FAIL the trainer cannot be imported: ModuleNotFoundError: transfer_queue → install",
        ),
        ("reward manager", {}, {}, f"ok {MANAGER.name}"),
        (
            "reward manager",
            {},
            {"manager": NAIVE, "function": OUR_FUNCTION},
            f"ok {NAIVE.name} with compute_score of consensuspr",
        ),
        (
            "reward manager",
            {},
            {"manager": NAIVE},
            f"FAIL rewards come from {NAIVE.name}, not from consensuspr → set reward.reward_man",
        ),
        (
            "reward manager",
            {"reward.reward_model.enable": True},
            {},
            "FAIL reward.reward_model.enable=True: verl uses the reward model",
        ),
        (
            "reward manager",
            {},
            {"manager": None, "version": "0.8.0", "errors": {"manager": "unknown"}},
            "FAIL reward manager 'consensuspr' cannot be loaded: unknown → set"
            " reward.reward_manager.source=importlib",
        ),
        ("settings", {KWARGS: {"alpha": 0.2}}, {}, "ok reward.reward_kwargs: alpha=0.2"),
        ("settings", {KWARGS: {"alhpa": 0.2}}, {}, "FAIL unknown setting 'alhpa' in reward.reward"),
        (
            "settings",
            {KWARGS: {"overlong_buffer_cfg": BUFFER}},
            {},
            "FAIL max_resp_len must be a number of tokens of at least",
        ),
        ("overlong penalty", {}, {}, None),
        (
            "overlong penalty",
            {f"{KWARGS}.max_resp_len": 4096, f"{KWARGS}.overlong_buffer_cfg": BUFFER},
            {},
            "ok from 3,584 tokens on, -1 at 4,096",
        ),
        (
            "overlong penalty",
            {f"{KWARGS}.max_resp_len": 8192, f"{KWARGS}.overlong_buffer_cfg": BUFFER},
            {},
            "FAIL max_resp_len=8,192, but data.max_response_length=4,096: the longest response"
            " gets 0 instead of -1 → set +reward.reward_kwargs.max_resp_len=4096",
        ),
        ("step credit", {}, {}, None),
        ("step credit", STEP_CREDIT, {}, "ok rewards are placed on tokens for algorithm.adv_est"),
        (
            "step credit",
            {"algorithm.adv_estimator": STEP_ESTIMATOR},
            {},
            f"FAIL step credit needs {AGENTS}={STEP_CREDIT_MANAGER} → set it",
        ),
        (
            "step credit",
            STEP_CREDIT | {"trainer.use_v1": False, "algorithm.gamma": 0.9},
            {},
            "FAIL step credit needs trainer.use_v1=True of verl 0.9.1 and algorithm.gamma=1 →",
        ),
        ("address", {}, {}, None),
        (
            "address",
            {f"{KWARGS}.address": "127.0.0.1:1", "trainer.nnodes": 2},
            {},
            "FAIL 127.0.0.1:1 is a different machine on each node, and trainer.nnodes is 2 →",
        ),
    ],
)
def test_one_check(
    check: str, changes: dict[str, Any], fields: dict[str, Any], line: str | None
) -> None:
    found = examined(check, changes, **fields)
    assert [one[: len(line or "")] for one in found] == ([] if line is None else [line])


def test_a_run_without_a_server_is_checked_with_its_dataset(repository: Path) -> None:
    path = repository / "examples" / "sample" / "dataset.jsonl"
    case = Case(settings=RewardSettings(dataset_path=path))
    assert made(check_server, case) == [f"ok none: each worker scores with {path}"]
    assert made(check_address, case) == []
    assert made(check_dataset, case)[0].startswith("ok 'default': 60 problems, 0 of them without")
    assert case.client is not None
    case.client.close()
    [fault] = made(check_server, Case(settings=RewardSettings(dataset_path=repository / "none")))
    assert fault.startswith("FAIL dataset_path: ") and fault.endswith(
        "correct the path or the file"
    )


TOKEN, TLS = (AccessDenied(text) for text in ("the call has no token", "requires TLS"))


@pytest.mark.parametrize(
    ("error", "fields", "advice"),
    [
        (Unavailable("away"), {}, "start it: consensuspr serve --dataset PATH --address h:1"),
        (TOKEN, {}, f"set +{KWARGS}.token_file=FILE"),
        (TOKEN, {"by_manager": False}, f"set +{FUNCTION_KWARGS}.token_file=FILE"),
        (TOKEN, {"address": "h:1"}, "give it: --token-file FILE"),
        (TLS, {}, "correct it"),
        (TLS, {"tls_ca": Path("none")}, "correct it"),
    ],
)
def test_the_advice_fits_why_the_server_gives_no_answer(
    error: Exception, fields: dict[str, Any], advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RewardClient, "server_info", Mock(side_effect=error))
    [fault] = made(check_server, Case(settings=RewardSettings(address="h:1"), **fields))
    assert fault.endswith(f" → {advice}")


def test_the_settings_of_the_function_are_read() -> None:
    key = FUNCTION_KWARGS
    case = Case(run=plan({key: {"reward": "max"}}, manager=NAIVE, function=OUR_FUNCTION))
    assert made(OF_RUN["settings"], case) == [f"ok {key}: reward=max"]
    assert (case.settings.reward, case.by_manager) == ("max", False)


@pytest.mark.parametrize(
    ("changes", "rows", "found"),
    [
        ({}, 43, ["ok 5 steps in an epoch, 15 steps in all"]),
        ({"data.train_max_samples": 16}, 43, ["ok 2 steps in an epoch, 6 steps in all"]),
        ({}, 7, ["FAIL 7 training rows do not fill one batch of 8 → lower the batch"]),
        ({}, None, []),
        (
            {f"{KWARGS}.reward": "curriculum"},
            43,
            [
                "ok 5 steps in an epoch, 15 steps in all",
                "ok the curriculum switches from NCR to Acc at step 6",
            ],
        ),
        (
            {f"{KWARGS}.reward": "curriculum", f"{KWARGS}.switch_epoch": 3},
            43,
            [
                "ok 5 steps in an epoch, 15 steps in all",
                "warn the curriculum would switch at step 16, and training ends with step 15: only"
                " NCR is ever rewarded → lower switch_epoch, or train for more epochs",
            ],
        ),
        (
            {f"{KWARGS}.reward": "curriculum", "trainer.total_training_steps": 9},
            43,
            [
                "ok 5 steps in an epoch, 9 steps in all",
                "FAIL trainer.total_training_steps may cut epochs short → set steps_per_epoch",
            ],
        ),
    ],
)
def test_the_schedule(changes: dict[str, Any], rows: int | None, found: list[str]) -> None:
    case = Case(run=plan(changes), train_rows=rows)
    made(OF_RUN["settings"], case)
    assert made(check_schedule, case) == found


@pytest.mark.parametrize(
    ("typed", "module", "overrides"),
    [
        ("", DEFAULT_MODULE, ()),
        ("a.b=1 +c=2", DEFAULT_MODULE, ("a.b=1", "+c=2")),
        ("python3 -m recipe.dapo.main_dapo", "recipe.dapo.main_dapo", ()),
        ("/opt/v/bin/python3.11 -m m ~a ++b=2", "m", ("~a", "++b=2")),
    ],
)
def test_a_training_command(typed: str, module: str, overrides: tuple[str, ...]) -> None:
    command = TrainingCommand.parse(typed.split())
    assert (command.module, tuple(command.overrides)) == (module, overrides)
    command = TrainingCommand.parse(f"X=1=2 python -m m {' '.join(overrides)}".split())
    assert command == TrainingCommand("m", overrides, {"X": "1=2"})


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        ("python train.py a=1", "python train.py"),
        ("python3", "python3"),
        ("nohup python -m m", "nohup"),
        ("a=1 --multirun", "--multirun"),
    ],
)
def test_what_is_not_a_training_command(typed: str, named: str) -> None:
    with pytest.raises(InputError, match=named):
        TrainingCommand.parse(typed.split())
