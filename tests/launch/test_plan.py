"""What would be run for what was asked, and what is refused before anything runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from consensuspr.errors import InputError
from consensuspr.launch.plan import Plan

MakePlan = Callable[..., Plan]
KWARGS = "reward.reward_kwargs"
THIS_NODE = "10.1.2.3"


@pytest.fixture(autouse=True)
def _known_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may have no network."""
    monkeypatch.setattr("consensuspr.launch.plan.this_node", lambda: THIS_NODE)


def planned(plan: Plan) -> dict[str, str]:
    """Return what the training would be given, by key."""
    pairs = [word.lstrip("+").split("=", 1) for word in plan.training.command("HOST:1")[3:]]
    assert len({key for key, _ in pairs}) == len(pairs)
    return dict(pairs)


@pytest.mark.parametrize(
    ("algorithm", "model", "reward"), [("grpo", "1.7b", "curriculum"), ("dapo", "8b", "max")]
)
def test_every_recipe_names_itself(
    algorithm: str, model: str, reward: str, plan_for: MakePlan, tmp_path: Path
) -> None:
    settings = planned(plan_for(algorithm=algorithm, model=model, reward=reward))
    name = f"{algorithm}-qwen3-{model}-base-{reward}"
    assert settings["trainer.experiment_name"] == name
    assert settings[f"{KWARGS}.reward"] == reward
    assert settings[f"{KWARGS}.address"] == "HOST:1"
    assert settings[f"{KWARGS}.dataset_path"] == str(tmp_path / "problems.jsonl")
    assert settings[f"{KWARGS}.score_log"] == str(tmp_path / "logs" / "scores" / name)
    assert settings["data.train_files"] == str(tmp_path / "train.parquet")


def test_any_model_can_be_trained(plan_for: MakePlan, tmp_path: Path) -> None:
    folder = tmp_path / "My Model_7B"
    folder.mkdir()
    settings = planned(plan_for(model=str(folder)))
    assert settings["actor_rollout_ref.model.path"] == f"'{folder}'"
    assert settings["trainer.experiment_name"] == "grpo-my-model_7b-linear"
    for remote in ("Qwen/Qwen2.5-0.5B", "hdfs://models/qwen"):
        assert planned(plan_for(model=remote))["actor_rollout_ref.model.path"] == remote


@pytest.mark.parametrize("model", ["5b", "", "/no/such/folder", "../qwen"])
def test_a_model_that_is_neither_size_nor_folder_nor_name_is_refused(
    model: str, plan_for: MakePlan
) -> None:
    with pytest.raises(InputError) as caught:
        plan_for(model=model)
    assert str(caught.value) == (
        "--model must be 1.7b, 4b, 8b, a folder on this machine, or a name at the hub as"
        f" ORGANISATION/NAME, got {model!r}"
    )


def test_a_users_overrides_win_over_their_recipes_and_those_over_ours(
    plan_for: MakePlan, tmp_path: Path
) -> None:
    recipe = tmp_path / "mine.overrides"
    recipe.write_text("# mine\n\n  trainer.total_epochs=3  \ndata.train_batch_size=128\n")
    settings = planned(plan_for(("data.train_batch_size=64",), recipe=(recipe,)))
    assert settings["trainer.total_epochs"] == "3"
    assert settings["data.train_batch_size"] == "64"
    assert settings["data.max_prompt_length"] == "2048"


def test_step_credit_is_an_option_with_a_name_of_its_own(plan_for: MakePlan) -> None:
    with_credit, plain = plan_for(step_credit=True), planned(plan_for())
    agents = "actor_rollout_ref.rollout.agent.agent_loop_manager_class"
    given = planned(with_credit)
    assert given["algorithm.adv_estimator"] == "consensuspr_step"
    assert given[agents] == "consensuspr.client.verl.step_credit.StepCreditManager"
    assert with_credit.training.name == "grpo-qwen3-4b-base-linear-step-credit"
    assert plain["algorithm.adv_estimator"] == "grpo" and agents not in plain


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"dataset": None}, "give --dataset PATH to start a server, or --address"),
        ({"train_files": ("none.parquet",)}, "none.parquet: no such file"),
        ({"recipe": (Path("none.overrides"),)}, "none.overrides: cannot be read: .* No such file"),
        ({"alpha": 0.3, "reward": "max"}, "--alpha is for --reward linear, got --reward max"),
        ({"overrides": (f"+{KWARGS}.alhpa=1",)}, "unknown setting 'alhpa' .* did you mean 'alpha'"),
        ({"overrides": (f"+{KWARGS}.timeout_s=soon",)}, "timeout_s: must be a number, got 'soon'"),
        ({"overrides": (f"+{KWARGS}.address=h:1",)}, "give the address as --address"),
        ({"overrides": (f"{KWARGS}.reward=max",)}, "give the reward as --reward"),
        (
            {"overrides": (f"+{KWARGS}.overlong_buffer_cfg.length=5",)},
            "unknown setting 'overlong_buffer_cfg.length'",
        ),
        (
            {"overrides": ("custom_reward_function.path=f.py",)},
            "ignore custom_reward_function.path, since 0.9 the key is reward.custom_reward",
        ),
        (
            {"overrides": ("reward_model.reward_kwargs.alpha=0.2",)},
            "the key is reward.reward_kwargs.alpha",
        ),
        (
            {"overrides": ("reward.reward_manager=consensuspr",)},
            "reward.reward_manager is a group of settings, such as reward.reward_manager.name",
        ),
        (
            {"step_credit": True, "reward": "outcome"},
            "--step-credit and --grow-nodes have no effect with --reward outcome",
        ),
        ({"server_address": "nowhere"}, "address must be HOST:PORT, got 'nowhere'"),
    ],
)
def test_what_cannot_go_well_is_refused_in_one_sentence(
    changes: dict[str, Any], sentence: str, plan_for: MakePlan
) -> None:
    with pytest.raises(InputError, match=sentence):
        plan_for(**changes)


@pytest.mark.parametrize(
    ("overrides", "environment"),
    [
        (("trainer.nnodes=2",), {}),
        ((), {"RAY_ADDRESS": "10.0.0.1:6379"}),
        ((), {"RAY_ADDRESS": "auto"}),
    ],
)
def test_with_several_nodes_the_server_is_where_all_reach_it(
    overrides: tuple[str, ...], environment: dict[str, str], plan_for: MakePlan
) -> None:
    plan = plan_for(overrides, environment)
    assert plan.server is not None
    assert plan.address == str(plan.server.listen) == f"{THIS_NODE}:50051"
    # Others reach it too, so that it has a token; a list of processes shows the file alone.
    own = str(plan.server.token_file)
    assert planned(plan)[f"{KWARGS}.token_file"] == own
    assert plan.server.command(plan.server.listen)[-2:] == ["--token-file", own]
    assert f"token {own}" in plan.script()
    # Nobody knows whether the file is there on the other nodes.
    assert f"{KWARGS}.dataset_path" not in planned(plan)
    plan = plan_for(overrides, environment, server_address="0.0.0.0:7000")
    assert plan.address == f"{THIS_NODE}:7000"
    for wrong in ("127.0.0.1:7000", "localhost:7000", "[::1]:7000"):
        for changes in ({"server_address": wrong}, {"address": wrong}):
            with pytest.raises(InputError, match=rf"cannot reach {re.escape(wrong)}; give"):
                plan_for(overrides, environment, **changes)


def test_the_plan_can_be_pasted_into_a_shell(plan_for: MakePlan, tmp_path: Path) -> None:
    script = plan_for(algorithm="dapo", server_workers=3).script()
    server, training = script.split("\n\n")
    assert server.endswith(" &")
    assert f"--dataset default={tmp_path}/problems.jsonl" in server.replace("\\\n    ", "")
    assert "'+reward.reward_kwargs.max_resp_len=${data.max_response_length}'" in training
    assert training.count("\\\n") == training.count("\n")


def test_nodes_grow_in_the_runs_own_folder(plan_for: MakePlan, tmp_path: Path) -> None:
    plan = plan_for(grow_nodes=True)
    run = tmp_path / "logs" / "scores" / "grpo-qwen3-4b-base-linear"
    settings = planned(plan)
    assert settings[f"{KWARGS}.score_log"] == str(run)
    assert settings[f"{KWARGS}.grown_nodes"] == str(run / "nodes")
    assert f"{KWARGS}.dataset_path" not in settings
    training = plan.training
    digest = "sha256:" + "0" * 64
    assert not any("expect_digest" in word for word in training.command("HOST:1", digest))
    assert plan.server is not None
    serve = plan.server.command(plan.server.listen)
    assert serve[serve.index("--dataset-folder") + 1] == str(run / "nodes")
    grower = plan.grower("HOST:1")
    assert grower is not None
    assert grower[3:] == [
        *("grow", str(run), "--dataset", str(tmp_path / "problems.jsonl"), "--address", "HOST:1")
    ]
    assert "consensusbench.cli grow" in plan.script()
    assert plan_for().grower("HOST:1") is None


@pytest.mark.parametrize(
    ("changes", "overrides", "reason"),
    [
        ({"address": "host:1"}, [], "with your own server run consensusbench grow"),
        (
            {"reward": "curriculum"},
            [],
            "the first nodes for epoch 2, and the curriculum rewards none from epoch 1 on",
        ),
        ({}, [f"{KWARGS}.score_log=null"], "--grow-nodes needs reward.reward_kwargs.score_log"),
        (
            {},
            [f"{KWARGS}.expect_digest=sha256:{'0' * 64}"],
            "expect_digest has no effect with grown_nodes",
        ),
        ({}, [f"{KWARGS}.ncr=weighted"], "ncr=weighted"),
    ],
)
def test_what_growing_nodes_do_not_go_with_is_refused(
    changes: dict[str, Any], overrides: list[str], reason: str, plan_for: MakePlan
) -> None:
    with pytest.raises(InputError, match=re.escape(reason)):
        plan_for(overrides, grow_nodes=True, **changes)
