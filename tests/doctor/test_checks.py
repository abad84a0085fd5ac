"""The checks of server, run and settings, one finding at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from consensuspr.client.servers import is_local
from consensuspr.client.training import RewardSettings
from consensuspr.client.verl.config import STEP_CREDIT_MANAGER, STEP_ESTIMATOR, epoch_clock
from consensuspr.core import NORMAL_FORM_VERSION
from consensuspr.doctor.checks import (
    check_address,
    check_attacks,
    check_curriculum,
    check_dataset,
    check_dataset_path,
    check_files,
    check_filter,
    check_ignored_keys,
    check_manager,
    check_overlong,
    check_schedule,
    check_score_log,
    check_server,
    check_settings,
    check_step_credit,
    check_unscorable,
    check_verl,
    check_versions,
    check_workers,
)
from consensuspr.doctor.findings import TrainingSetup
from consensuspr.doctor.verl_config import Named
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.answers import ANSWER_VERSION
from consensuspr.scoring.types import SCORING_VERSION
from consensuspr.version import VERSION
from consensuspr.wire.server_info import DatasetInfo, ServerInfo
from tests.doctor.conftest import case_of, told
from tests.rows import write_rows

if TYPE_CHECKING:
    from tests.doctor.conftest import Lines, Plan

MANAGER = Named("consensuspr.client.verl.manager.ConsensusRewardManager", True)
NAIVE = Named("verl.experimental.reward_loop.reward_manager.naive.NaiveRewardManager", False)
OUR_FUNCTION = Named("compute_score of pkg://consensuspr.client.verl", True)

KWARGS = "reward.reward_kwargs"

Serve = Callable[..., ServerInfo]


@pytest.fixture
def info() -> Serve:
    """Describe a server of this version with some datasets."""

    def described(*names: str) -> ServerInfo:
        return ServerInfo(
            server_version=VERSION,
            protocol_version=1,
            normal_form_version=NORMAL_FORM_VERSION,
            answer_version=ANSWER_VERSION,
            core_backend="native",
            datasets=tuple(DatasetInfo(n, "sha256:" + "0" * 64, 50, 0, 0, 0, 2, 40) for n in names),
            max_response_bytes=1,
            max_message_bytes=1,
            max_rollouts=1,
            max_inline_nodes=1,
            max_expressions_per_node=1,
            max_expression_bytes=1,
            max_inline_bytes=1,
            scoring_version=SCORING_VERSION,
        )

    return described


@pytest.mark.parametrize(
    ("counts", "changes", "warned"),
    [
        ({"num_with_budgets": 1}, {}, False),
        ({"num_with_budgets": 0}, {}, True),
        ({"num_with_budgets": 0}, {f"{KWARGS}.guard": False}, False),
        ({"num_with_budgets": 0}, {f"{KWARGS}.reward": "outcome"}, False),
        ({"num_with_budgets": 0, "num_without_nodes": 50}, {}, False),
    ],
)
def test_a_dataset_without_budgets(
    info: Serve, plan: Plan, lines: Lines, counts: dict[str, Any],
    changes: dict[str, Any], warned: bool,
) -> None:  # fmt: skip
    served = info("a")
    served = replace(served, datasets=(replace(served.datasets[0], **counts),))
    found = lines(told(check_dataset, case_of(plan(changes), info=served)))
    assert found[1:] == [
        "ok budgets: dataset 'a' stores no guard budgets; the default budget applies →"
        " consensusbench build --budgets adds them"
    ] * warned  # fmt: skip


def test_versions(info: Serve, lines: Lines) -> None:
    assert lines(told(check_versions, case_of(info=info())))[0].startswith(
        "ok versions: protocol 1, normal form "
    )
    older = replace(info(), server_version="0.0.1", normal_form_version="0", scoring_version="1")
    assert lines(told(check_versions, case_of(info=older))) == [
        f"warn versions: release 0.0.1 there and {VERSION} here, normal form 0 there and"
        f" {NORMAL_FORM_VERSION} here, scoring 1 there and {SCORING_VERSION} here → install the"
        " same version on both sides; scores made here may differ from the server's"
    ]


@pytest.mark.parametrize(
    ("names", "wanted", "line"),
    [
        (["a"], None, "ok dataset: 'a': 50 problems, 2 of them without nodes, sha256:000"),
        (["a", "b"], "b", "ok dataset: 'b': 50 problems"),
        (
            ["a", "b"],
            None,
            "FAIL dataset: the server has several ('a', 'b') and none is named → give --dataset",
        ),
        (["a"], "b", "FAIL dataset: the server has no 'b', it has 'a'"),
    ],
)
def test_the_dataset(
    info: Serve, lines: Lines, names: list[str], wanted: str | None, line: str
) -> None:
    case = case_of(setup=TrainingSetup(dataset=wanted), info=info(*names))
    assert lines(told(check_dataset, case))[0].startswith(line)
    assert (case.dataset is not None) == line.startswith("ok")


def test_the_dataset_of_a_file_is_found_by_its_content(
    info: Serve, lines: Lines, tmp_path: Path
) -> None:
    path = write_rows(tmp_path / "mine.jsonl", [{"problem_id": "p", "ground_truth": "1"}])
    served = info("a", "b")
    same = replace(served.datasets[1], digest=DatasetIndex.load(path).digest)
    served = replace(served, datasets=(served.datasets[0], same))
    case = case_of(setup=TrainingSetup(dataset_file=path), info=served)
    assert lines(told(check_dataset, case))[0].startswith("ok dataset: 'b': 50 problems")
    assert lines(told(check_files, case)) == [
        f"ok dataset file: --dataset: {path} has the content of 'b'"
    ]
    # Training knows nothing of the file that is given here.
    run = case_of(
        setup=TrainingSetup(dataset_file=path, config_file=Path("config.yaml")), info=served
    )
    refused, found = lines(told(check_dataset, run))
    assert refused.endswith("none is named → set +reward.reward_kwargs.dataset=b")
    assert found.startswith("ok dataset: 'b'")


def test_a_run_that_names_no_dataset_is_told_its_setting(info: Serve, lines: Lines) -> None:
    case = case_of(setup=TrainingSetup(config_file=Path("config.yaml")), info=info("a", "b"))
    assert lines(told(check_dataset, case))[0].endswith("→ set +reward.reward_kwargs.dataset=NAME")


CHEAP = "attack `comments` scores 30.0 % NCR on sums; wrong rollouts score 20.0 %"
ADVICE = (
    "store budgets if problems have none (consensusbench build --budgets), or drop nodes that need "
    "no reasoning"
)


@pytest.mark.parametrize(
    ("earned", "settings", "said"),
    [
        (
            [{"wrong": 0.3, "pairs": 0.0, "comments": 0.4}, {"wrong": 0.1, "comments": 0.2}],
            {},
            [f"warn attacks: {CHEAP} → {ADVICE}"],
        ),
        (
            [{"wrong": 0.3, "pairs": 0.2, "comments": 0.1}],
            {},
            ["ok attacks: attack `pairs` scores 20.0 % NCR on sums; wrong rollouts score 30.0 %"],
        ),
        (
            [{"wrong": 0.3, "pairs": 0.4}],
            {"guard": False},
            ["skip attacks: d.jsonl: measured with the guard, which guard=False turns off"],
        ),
        # Wrong rollouts are needed to compare with, and figures that are some.
        ([{"pairs": 0.4}, {"wrong": "many"}, [], None], {}, ["skip attacks: d.jsonl has no NCR"]),
    ],
)
def test_attacks_are_told_as_the_build_measured_them(
    earned: list[object],
    settings: dict[str, Any],
    said: list[str],
    lines: Lines,
    tmp_path: Path,
) -> None:
    rows: list[dict[str, Any]] = [
        {
            "problem_id": str(at),
            "data_source": "sums",
            "nodes": [],
            "metadata": {"construction": {"earned": one}},
        }
        for at, one in enumerate(earned)
    ]
    setup = TrainingSetup(dataset_file=write_rows(tmp_path / "d.jsonl", rows))
    case = case_of(setup=setup, settings=RewardSettings(**settings))
    found = lines(told(check_attacks, case))
    assert [line[: len(start)] for line, start in zip(found, said, strict=True)] == said


def test_without_a_file_nothing_is_said_of_attacks() -> None:
    assert told(check_attacks, case_of()) == []


def test_an_address_that_is_none(lines: Lines) -> None:
    case = case_of(setup=TrainingSetup(address="no-port"))
    assert lines(told(check_server, case)) == [
        "FAIL server: address must be HOST:PORT, got 'no-port' → give its address as HOST:PORT"
    ]
    assert (case.client, case.info) == (None, None)


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
        (
            {"errors": {"trainer": "ModuleNotFoundError: No module named 'transfer_queue'"}},
            "FAIL verl: the V1 trainer of version 0.9.1 cannot be imported: ModuleNotFoundError: No"
            " module named 'transfer_queue' → install what it imports: pip install",
        ),
    ],
)
def test_verl_itself(plan: Plan, lines: Lines, fields: dict[str, Any], line: str) -> None:
    (found,) = lines(told(check_verl, case_of(plan(**fields))))
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
    (found,) = lines(told(check_manager, case_of(plan(changes, **fields))))
    assert found.startswith(line)


def test_a_function_that_our_manager_never_calls(plan: Plan, lines: Lines) -> None:
    run = plan({"reward.custom_reward_function.path": "mine.py"})
    assert "warn reward manager: reward.custom_reward_function.path is set" in "\n".join(
        lines(told(check_manager, case_of(run)))
    )


@pytest.mark.parametrize(
    ("kwargs", "line"),
    [
        ({"address": "a:1", "alpha": 0.2}, "ok settings: reward.reward_kwargs: address=a:1,"),
        (
            {"code": "computed", "unanswered": "ncr"},
            "ok settings: reward.reward_kwargs: code=computed",
        ),
        ({"unanswered": "no"}, "FAIL settings: reward.reward_kwargs.unanswered: must be 'ncr' or"),
        ({"alhpa": 0.2}, "FAIL settings: unknown setting 'alhpa' in reward.reward_kwargs; did you"),
        ({"alpha": 2}, "FAIL settings: reward.reward_kwargs.alpha: "),
        (
            {"overlong_buffer_cfg": {"enable": True, "len": 512}},
            "FAIL settings: max_resp_len must be a number of tokens of at least",
        ),
    ],
)
def test_settings(plan: Plan, lines: Lines, kwargs: dict[str, Any], line: str) -> None:
    case = case_of(plan({"reward.reward_kwargs": kwargs}))
    assert lines(told(check_settings, case))[0].startswith(line)
    assert case.settings_are_known == line.startswith("ok")
    assert case.settings.address == kwargs.get("address", case.settings.address)


def test_settings_of_the_function(plan: Plan) -> None:
    key = "reward.custom_reward_function.reward_kwargs"
    run = plan({key: {"reward": "max"}}, manager=NAIVE, function=OUR_FUNCTION)
    case = case_of(run)
    assert (case.settings.reward, case.by_manager, case.settings_are_known) == ("max", False, True)


def test_nothing_ignored(plan: Plan, lines: Lines) -> None:
    assert lines(told(check_ignored_keys, case_of(plan()))) == ["ok ignored keys: none is set"]


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
    assert lines(told(check_ignored_keys, case_of(run))) == [
        f"FAIL ignored key: verl.trainer.main_ppo of verl 0.9.1 never reads {key}=x → set"
        f" {instead}=x"
    ]
    moved = plan(legacy={key: "x"}, migrates=True)
    assert lines(told(check_ignored_keys, case_of(moved))) == ["ok ignored keys: none is set"]


def test_a_key_that_nothing_reads(plan: Plan, lines: Lines) -> None:
    (line,) = lines(told(check_ignored_keys, case_of(plan(unread=("data.foo",)))))
    assert line.startswith("warn ignored key: verl 0.9.1 has no key data.foo, and nothing in its")


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
    assert [f.level for f in told(check_filter, case_of(run))] == levels


PLACES = "actor_rollout_ref.rollout.agent.agent_loop_manager_class"
STEP_CREDIT = {PLACES: STEP_CREDIT_MANAGER, "algorithm.adv_estimator": STEP_ESTIMATOR}


@pytest.mark.parametrize(
    ("changes", "fields", "line"),
    [
        ({}, {}, None),
        ({"algorithm.adv_estimator": "grpo"}, {}, None),
        (
            {"algorithm.adv_estimator": STEP_ESTIMATOR},
            {},
            "FAIL step credit: algorithm.adv_estimator=consensuspr_step, and rewards are not placed"
            " on tokens → set +actor_rollout_ref.rollout.agent.agent_loop_manager_class=",
        ),
        (
            {PLACES: STEP_CREDIT_MANAGER, "algorithm.adv_estimator": "rloo"},
            {},
            "warn step credit: algorithm.adv_estimator=rloo adds up what the tokens earn",
        ),
        (
            {PLACES: STEP_CREDIT_MANAGER, "algorithm.adv_estimator": "gae"},
            {},
            "ok step credit: rewards are placed on tokens, for algorithm.adv_estimator=gae",
        ),
        (STEP_CREDIT, {}, "ok step credit: rewards are placed on tokens, and consensuspr_step"),
        (
            STEP_CREDIT | {KWARGS: {"reward": "outcome"}},
            {},
            "warn step credit: reward=outcome rewards no node",
        ),
        (
            STEP_CREDIT | {"trainer.use_v1": False},
            {},
            "FAIL step credit: step credit needs the V1 trainer of verl 0.9.1 or newer",
        ),
        (STEP_CREDIT, {"version": "0.8.0"}, "FAIL step credit: step credit needs the V1 trainer"),
        (
            STEP_CREDIT,
            {"manager": Named("naive", False), "function": Named("compute_score", True)},
            "FAIL step credit: step credit needs the reward manager, which knows the tokens",
        ),
        (
            STEP_CREDIT | {"algorithm.use_kl_in_reward": True},
            {},
            "FAIL step credit: algorithm.use_kl_in_reward=True, which adv_estimator=",
        ),
        (
            STEP_CREDIT | {"algorithm.gamma": 0.99},
            {},
            "FAIL step credit: algorithm.gamma=0.99, which adv_estimator=consensuspr_step refuses",
        ),
        (
            STEP_CREDIT | {"actor_rollout_ref.rollout.n": 1},
            {},
            "FAIL step credit: actor_rollout_ref.rollout.n=1: ",
        ),
    ],
)
def test_step_credit(
    plan: Plan, lines: Lines, changes: dict[str, Any], fields: dict[str, Any], line: str | None
) -> None:
    found = lines(told(check_step_credit, case_of(plan(changes, **fields))))
    assert [one[: len(line or "")] for one in found] == ([] if line is None else [line])


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
    (found,) = lines(told(check_overlong, case_of(run)))
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
    (found,) = told(check_unscorable, case_of(run))
    assert found.level == level
    assert part in found.found


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1:50051", True),
        ("127.9.9.9:1", True),
        ("localhost:50051", True),
        ("[::1]:50051", True),
        ("0.0.0.0:50051", True),
        ("unix:/tmp/socket", True),
        ("dns:///localhost:50051", True),
        ("dns:///rewards.svc:50051", False),
        ("10.0.0.7:50051", False),
        ("head-node:50051", False),
        ("[2001:db8::1]:50051", False),
    ],
)
def test_addresses_that_mean_whoever_uses_them(address: str, local: bool) -> None:
    assert is_local(address) == local


@pytest.mark.parametrize(
    ("address", "nodes", "levels"),
    [
        ("127.0.0.1:1", 1, []),
        ("127.0.0.1:1", 2, ["FAIL"]),
        ("head:1", 2, ["ok"]),
    ],
)
def test_addresses_and_nodes(plan: Plan, address: str, nodes: int, levels: list[str]) -> None:
    case = case_of(plan({"trainer.nnodes": nodes}), settings=RewardSettings(address=address))
    assert [f.level for f in told(check_address, case)] == levels


def test_another_server_was_asked_than_training_will(plan: Plan, lines: Lines) -> None:
    asked = TrainingSetup(address="other:2")
    case = case_of(plan(), asked, settings=RewardSettings(address="head:1"))
    assert lines(told(check_address, case)) == [
        "warn address: other:2 was asked here, the run will ask head:1 → set"
        " +reward.reward_kwargs.address=other:2, or leave out --address"
    ]


@pytest.mark.parametrize(
    ("workers", "level"), [(8, "ok"), (1, "ok"), (0, "FAIL"), (None, "FAIL"), (1000, "warn")]
)
def test_workers(plan: Plan, workers: Any, level: str) -> None:
    (found,) = told(check_workers, case_of(plan({"reward.num_workers": workers})))
    assert found.level == level


def test_the_score_log(tmp_path: Path, lines: Lines) -> None:
    folder = tmp_path / "not/there/yet"
    assert lines(told(check_score_log, case_of(settings=RewardSettings(score_log=folder)))) == [
        f"ok score log: {folder} can be written to"
    ]
    assert not (tmp_path / "not").exists()
    (tmp_path / "file").write_text("")
    below = RewardSettings(score_log=tmp_path / "file/below")
    (found,) = told(check_score_log, case_of(settings=below))
    assert (found.level, found.found) == ("FAIL", f"{tmp_path / 'file'} is no folder")


@pytest.mark.parametrize(("free", "level"), [(300 << 10, "warn"), (2 << 30, "ok")])
def test_a_disk_with_little_room_for_the_score_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: str
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda place: SimpleNamespace(free=free))
    (found,) = told(check_score_log, case_of(settings=RewardSettings(score_log=tmp_path)))
    assert found.level == level
    assert ("has 300.0KiB free: on a full disk" in found.found) == (level == "warn")


def test_paths_that_workers_would_take_from_elsewhere(lines: Lines) -> None:
    settings = RewardSettings(dataset_path=Path("data/problems.jsonl"), score_log=Path("log"))
    found = lines(told(check_dataset_path, case_of(settings=settings)))
    assert lines(told(check_score_log, case_of(settings=settings)))[0].startswith(
        "warn score log: log is taken from the folder in which Ray starts a worker"
    )
    assert found[0].startswith("warn dataset path: data/problems.jsonl is taken from the folder in")


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
    (found,) = lines(told(check_schedule, case_of(run, train_rows=rows)))
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
    (found,) = lines(told(check_curriculum, case_of(run, train_rows=43)))
    assert found.startswith(line)


def test_the_switch_is_where_training_switches(plan: Plan) -> None:
    # As verl fills it in: 43 rows in batches of 8 are 5 steps, three times.
    run = plan({KWARGS: CURRICULUM, "actor_rollout_ref.actor.optim.total_training_steps": 15})
    case = case_of(run, train_rows=43)
    clock = epoch_clock(run.config, case.settings, "0.9.1")
    assert [clock.epoch_of(step) for step in (5, 6)] == [0, 1]
    assert "at step 6 of" in told(check_curriculum, case)[0].found


def test_without_rows_the_switch_is_not_known(plan: Plan) -> None:
    case = case_of(plan({KWARGS: CURRICULUM}))
    for check in (check_schedule, check_curriculum):
        assert [f.level for f in told(check, case)] == ["skip"]


def test_without_a_step_there_is_no_switch_to_speak_of(plan: Plan) -> None:
    assert told(check_curriculum, case_of(plan({KWARGS: CURRICULUM}), train_rows=7)) == []
