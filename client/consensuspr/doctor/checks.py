"""The checks of server, verl run and reward settings; those of the rows are ``dataset_checks``.

In the order in which they are made: which verl, where its rewards come from, the reward's settings,
settings that nothing reads, what the trainer makes of our rewards, where the run's processes are;
then the server (does it answer, is it of this version, has it the dataset that is meant?); and
last, with the rows counted, how many steps there will be and at which the curriculum switches.
"""

from __future__ import annotations

import copy
import ipaddress
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consensuspr.client.sync import RewardClient
from consensuspr.client.training import EpochClock, RewardSettings, ScoredSample
from consensuspr.client.verl.config import SOURCE as MANAGER_SOURCE
from consensuspr.client.verl.config import ManagerConfig, OverlongPenalty, epoch_clock
from consensuspr.client.verl.function import SOURCE as FUNCTION_SOURCE
from consensuspr.doctor.findings import Finding, fail, ok, skip, warn
from consensuspr.doctor.verl_config import SYNC_TRAINER_OF_0_8, VerlRun
from consensuspr.errors import (
    DataError,
    DeadlineExceeded,
    InputError,
    RewardServiceError,
    Unavailable,
)
from consensuspr.scoring.types import Score, Status
from consensuspr.version import VERSION
from consensuspr.wire.server_info import DatasetInfo, ServerInfo

# Long enough for a server that is just starting, short enough for a wrong address.
_CONNECT_TIMEOUT_S = 10.0

# Of a digest; enough to tell two by eye.
_DIGEST_CHARS = 19

# A worker is a process that decodes and waits; one per core of a large node is plenty.
_MANY_WORKERS = 128

# Of verl: the oldest that this package runs on, and the first that reads entry points.
OLDEST = (0, 7, 1)
PLUGINS_SINCE = (0, 9, 1)

_BY_NAME = "set reward.reward_manager.name=consensuspr"
_BY_PATH = (
    "set reward.reward_manager.source=importlib"
    " reward.reward_manager.module.path=pkg://consensuspr.client.verl"
    " reward.reward_manager.name=ConsensusRewardManager"
)

# Where verl's migration puts the reward settings of old.  A prefix stands for what is below it.
_MOVED = (
    ("reward_model.reward_manager", "reward.reward_manager.name"),
    ("reward_model.num_workers", "reward.num_workers"),
    ("reward_model.reward_loop_source", "reward.reward_manager.source"),
    ("reward_model.reward_loop_module_path", "reward.reward_manager.module.path"),
    ("reward_model.reward_loop_class_name", "reward.reward_manager.name"),
    ("reward_model.reward_kwargs", "+reward.reward_kwargs"),
    ("reward_model.model.path", "reward.reward_model.model_path"),
    ("reward_model", "reward.reward_model"),
    ("custom_reward_function", "reward.custom_reward_function"),
    ("sandbox_fusion", "reward.sandbox_fusion"),
)

# verl's own name for the reward itself, beside the keys of every sample.
_REWARD = "reward"


@dataclass(frozen=True, slots=True)
class PlannedReward:
    """The reward of a run.

    Attributes:
        settings: of it; the defaults where they could not be read.
        overlong: penalty of long responses.
        by_manager: it comes from our reward manager, and not from a function.
        valid: the settings could be read.
    """

    settings: RewardSettings
    overlong: OverlongPenalty | None = None
    by_manager: bool = True
    valid: bool = True


def check_verl(run: VerlRun) -> Iterator[Finding]:
    """Say which verl was asked, and whether it is one that this package runs on."""
    if run.version is None:
        yield fail(
            "verl",
            f"cannot be imported: {run.errors.get('verl', 'no reason given')}",
            "mend the environment; training would stop at the same place",
        )
    elif release(run) < OLDEST:
        yield fail("verl", f"version {run.version} is older than 0.7.1", "upgrade verl")
    else:
        yield ok("verl", f"version {run.version}, {run.trainer}")


def release(run: VerlRun) -> tuple[int, ...]:
    """Return the version as numbers, for comparisons; what is no number ends it."""
    numbers = []
    for part in (run.version or "").split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def check_manager(run: VerlRun) -> Iterator[Finding]:
    """Say where verl will take rewards from."""
    check = "reward manager"
    if run.version is None:
        yield skip(check, "verl cannot be asked")
    elif run.manager is None:
        yield _not_found(run)
    elif _ours(run):
        yield from _check_ours(run)
    elif run.function is not None and run.function.ours:
        yield ok(check, f"{run.manager.name} with compute_score of consensuspr")
    else:
        reason = run.errors.get("function")
        detail = f"; its function cannot be loaded: {reason}" if reason else ""
        yield fail(
            check,
            f"verl will reward by {run.manager.name}, not by consensuspr{detail}",
            _advice(run),
        )


def _ours(run: VerlRun) -> bool:
    return run.manager is not None and run.manager.ours


def _check_ours(run: VerlRun) -> Iterator[Finding]:
    """Look for what would keep verl from calling the manager that it has."""
    assert run.manager is not None
    reward_model = run.get("reward.reward_model.enable") is True
    if reward_model and not run.get("reward.custom_reward_function.path"):
        yield fail(
            "reward manager",
            "reward.reward_model.enable=True: verl asks the reward model, and never the manager",
            "set reward.reward_model.enable=False",
        )
        return
    yield ok("reward manager", run.manager.name)
    if run.get("reward.custom_reward_function.path"):
        yield warn(
            "reward manager",
            "reward.custom_reward_function.path is set, and this manager calls no such function",
            "remove it, or choose another manager",
        )


def _not_found(run: VerlRun) -> Finding:
    reason = run.errors.get("manager", "verl named none")
    name = run.get("reward.reward_manager.name")
    if name != "consensuspr" or run.get("reward.reward_manager.source") != "register":
        return fail("reward manager", f"{name!r} cannot be loaded: {reason}", _advice(run))
    if release(run) < PLUGINS_SINCE:
        return fail(
            "reward manager",
            f"verl {run.version} knows no manager 'consensuspr': it reads no entry points",
            "export VERL_USE_EXTERNAL_MODULES=consensuspr.client.verl.plugin on every node before"
            f" Ray starts, or {_BY_PATH}",
        )
    return fail(
        "reward manager",
        f"verl has no manager {name!r}: {run.errors.get('plugin', reason)}",
        f"mend that on every node, or {_BY_PATH}",
    )


def _advice(run: VerlRun) -> str:
    return _BY_NAME if release(run) >= PLUGINS_SINCE else _BY_PATH


def read_reward(run: VerlRun) -> tuple[PlannedReward, Finding]:
    """Read the reward's settings as training will."""
    by_manager = not (run.function and run.function.ours and not _ours(run))
    source = MANAGER_SOURCE if by_manager else FUNCTION_SOURCE
    try:
        if by_manager:
            read = ManagerConfig.of(run.config)
            reward = PlannedReward(read.settings, read.overlong)
        else:
            settings = RewardSettings.of(run.get(FUNCTION_SOURCE) or {}, FUNCTION_SOURCE)
            if settings.score_log is not None:
                raise InputError("score_log: only the reward manager keeps one")
            reward = PlannedReward(settings, by_manager=False)
    except InputError as error:
        given = run.get(f"{source}.address")
        known = {"address": given} if isinstance(given, str) else {}
        return PlannedReward(RewardSettings(**known), valid=False), fail(
            "settings", str(error), "correct it"
        )
    given = run.get(source) or {}
    shown = ", ".join(f"{key}={value}" for key, value in given.items()) or "all defaults"
    return reward, ok("settings", f"{source}: {shown}")


def check_ignored_keys(run: VerlRun) -> Iterator[Finding]:
    """Name every setting that nothing will read."""
    silent = True
    legacy = {} if run.migrates else run.legacy
    for key, value in legacy.items():
        silent = False
        yield fail(
            "ignored key",
            f"{run.trainer} of verl {run.version} never reads {key}={value}",
            f"set {_moved_to(key)}={value}",
        )
    for key in run.unread:
        if any(name == key or name.startswith(f"{key}.") for name in legacy):
            continue
        silent = False
        yield warn(
            "ignored key",
            f"verl {run.version} has no key {key}, and nothing in its code reads one",
            "correct or remove it, unless a plugin of yours reads it",
        )
    if silent:
        yield ok("ignored keys", "none is set")


def _moved_to(key: str) -> str:
    for old, new in _MOVED:
        if key == old or key.startswith(f"{old}."):
            return new + key.removeprefix(old)
    return f"reward.{key}"


def check_filter(run: VerlRun, reward: PlannedReward) -> Iterator[Finding]:
    """Look at DAPO's group filter (dynamic sampling)."""
    check, groups = "group filter", run.get("algorithm.filter_groups")
    if not groups or groups.get("enable") is not True:
        return
    metric = groups.get("metric")
    fields = ScoredSample(0.0, Score(Status.OK), 0, "server").fields()
    numbers = [_REWARD, *(key for key, value in fields.items() if not isinstance(value, str))]
    if metric not in numbers:
        yield fail(
            check,
            f"algorithm.filter_groups.metric={metric} is no number that samples have",
            f"set algorithm.filter_groups.metric=acc (there is {', '.join(numbers)})",
        )
    elif reward.settings.reward == "curriculum" and metric == "acc":
        yield warn(
            check,
            "algorithm.filter_groups.metric=acc: in the first stage of the curriculum, groups"
            " whose answers are all wrong are dropped though their NCR differs",
            "set algorithm.filter_groups.metric=score, which follows the stage",
        )
    elif not _is_apt(str(metric), reward):
        why = "the overlong penalty" if reward.settings.reward == "outcome" else "nodes"
        yield warn(
            check,
            f"algorithm.filter_groups.metric={metric}: groups whose answers are all wrong, or all"
            f" right, pass the filter by {why}",
            "set algorithm.filter_groups.metric=acc, unless that is what you want",
        )
    else:
        yield ok(check, f"algorithm.filter_groups.metric={metric}")
    limit = groups.get("max_num_gen_batches") or 0
    if isinstance(limit, int) and limit > 0 and run.get("trainer.use_v1") is True:
        yield warn(
            check,
            f"algorithm.filter_groups.max_num_gen_batches={limit} is ignored by verl's V1 trainer",
            "set algorithm.filter_groups.max_inflight_gen_batches",
        )


def _is_apt(metric: str, reward: PlannedReward) -> bool:
    """Tell whether a metric drops the groups that have nothing to learn from, and no others."""
    if reward.settings.reward in ("linear", "max"):
        return metric == "acc"
    follows = metric == "score" or (metric == _REWARD and reward.overlong is None)
    return follows or (metric == "acc" and reward.settings.reward == "outcome")


def check_overlong(run: VerlRun, penalty: OverlongPenalty | None) -> Iterator[Finding]:
    """Compare the penalty of long responses with how long they can get."""
    check = "overlong penalty"
    if penalty is None:
        yield ok(check, "off")
        return
    longest = penalty.free_tokens + penalty.buffer_tokens
    limit = run.get("data.max_response_length")
    if not isinstance(limit, int):
        limit = longest
    if limit <= penalty.free_tokens:
        yield fail(
            check,
            f"it begins at {penalty.free_tokens:,} tokens and responses end at {limit:,}: it never"
            " applies",
            f"set +reward.reward_kwargs.max_resp_len={limit}",
        )
    elif limit != longest:
        yield warn(
            check,
            f"max_resp_len={longest:,}, but data.max_response_length={limit:,}: the longest"
            f" response gets {penalty(limit):g} instead of {penalty(longest):g}",
            f"set +reward.reward_kwargs.max_resp_len={limit}",
        )
    elif penalty.free_tokens == 0:
        yield warn(
            check,
            "overlong_buffer_cfg.len equals max_resp_len: every token of every response costs",
            "shorten overlong_buffer_cfg.len",
        )
    else:
        yield ok(
            check,
            f"from {penalty.free_tokens:,} tokens on, {penalty(longest):g} at {longest:,}",
        )


def check_unscorable(run: VerlRun, reward: PlannedReward) -> Iterator[Finding]:
    """Say what becomes of a sample that cannot be scored."""
    check, policy = "unscorable", reward.settings.on_unscorable
    if policy != "raise":
        yield warn(
            check,
            f"on_unscorable={policy:g}: samples that cannot be scored are trained on with this"
            " reward",
            "look at status in the score log",
        )
        return
    yield ok(check, f"on_unscorable=raise: {consequence(run)}")


def consequence(run: VerlRun | None, *, training: bool = True) -> str:
    """Return what verl does when the reward of a sample raises, one clause.

    Args:
        run: None where it is not known.
        training: the sample is of training, else of validation.
    """
    if run is None:
        return "verl's V1 trainer drops the sample, older ones stop"
    if run.trainer == SYNC_TRAINER_OF_0_8:
        return "verl marks its whole group as failed and goes on"
    if run.get("trainer.use_v1") is not True:
        return "training stops at the first"
    if not training:
        return "validation goes on without them"
    if run.get("trainer.v1.trainer_mode") != "sync":
        return "verl drops its whole group and generates another"
    if run.get("trainer.v1.sampler.sync_refill_failed_groups") is True:
        return "verl drops the sample, and replaces groups of which no sample is left"
    return (
        "verl drops the sample and trains its group smaller, groups without a sample are missing"
        " (trainer.v1.sampler.sync_refill_failed_groups=True replaces these)"
    )


def check_workers(run: VerlRun) -> Iterator[Finding]:
    """Look at the number of reward workers."""
    workers, nodes = run.get("reward.num_workers"), run.get("trainer.nnodes")
    if not isinstance(workers, int) or workers < 1:
        yield fail(
            "workers", f"reward.num_workers must be 1 or more, got {workers!r}", "set it to 8"
        )
    elif workers > _MANY_WORKERS:
        yield warn(
            "workers",
            f"reward.num_workers={workers}: each is a process with a tokenizer of its own",
            "8 to 64 do; each has hundreds of samples on the way at a time",
        )
    else:
        where = f", one after the other on {nodes} nodes" if nodes != 1 else ""
        yield ok("workers", f"{workers} reward workers{where}")


def check_paths(run: VerlRun | None, settings: RewardSettings) -> Iterator[Finding]:
    """Look at the folder of the score log, and how paths are written."""
    nodes = run.get("trainer.nnodes") if run else 1
    for name in ("score_log", "dataset_path"):
        path: Path | None = getattr(settings, name)
        if path is not None and not path.is_absolute():
            yield warn(
                name.replace("_", " "),
                f"{path} is taken from the folder in which Ray starts a worker, not from here",
                "give the whole path",
            )
    if settings.score_log is not None:
        yield _writable(settings.score_log, isinstance(nodes, int) and nodes > 1)


def _writable(folder: Path, several_nodes: bool) -> Finding:
    """Say whether a folder, which need not be there yet, can be written to."""
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        return fail("score log", f"{place} is no folder", "choose another for score_log")
    if not os.access(place, os.W_OK | os.X_OK):
        return fail("score log", f"{place} cannot be written to", "choose another for score_log")
    where = "; each node writes its own, unless the folder is shared" if several_nodes else ""
    return ok("score log", f"{folder} can be written to{where}")


def ask_server(
    address: str, timeout_s: float
) -> tuple[RewardClient | None, ServerInfo | None, Finding]:
    """Ask a server what it is.

    Returns:
        The client, which the caller closes, and what the server says of itself; None where it does
        not answer.
    """
    try:
        client = RewardClient(address, timeout_s)
    except InputError as error:
        return None, None, fail("server", str(error), "give its address as HOST:PORT")
    try:
        info = client.server_info(min(timeout_s, _CONNECT_TIMEOUT_S))
    except RewardServiceError as error:
        client.close()
        advice = "install the same version of consensuspr on both sides"
        if isinstance(error, Unavailable | DeadlineExceeded):
            advice = f"start it: consensuspr serve --dataset PATH --address {address}"
        return None, None, fail("server", f"{address}: {error}", advice)
    native = info.core_backend == "native"
    core = "compiled core" if native else "pure-Python core"
    found = f"{address} answers: version {info.server_version}, {core}"
    if native:
        return client, info, ok("server", found)
    slow = "install it where there is a C compiler; this core is many times slower"
    return client, info, warn("server", found, slow)


def check_versions(info: ServerInfo) -> Iterator[Finding]:
    """Compare the server's versions with those of this install."""
    from consensuspr.core import NORMAL_FORM_VERSION
    from consensuspr.scoring.answers import ANSWER_VERSION

    pairs = {
        "release": (info.server_version, VERSION),
        "normal form": (info.normal_form_version, NORMAL_FORM_VERSION),
        "answers": (info.answer_version, ANSWER_VERSION),
    }
    other = [
        f"{name} {server} there and {here} here"
        for name, (server, here) in pairs.items()
        if server != here
    ]
    if other:
        yield warn(
            "versions",
            ", ".join(other),
            "install the same version on both sides; scores made here may differ from the server's",
        )
    else:
        yield ok(
            "versions",
            f"protocol {info.protocol_version}, normal form {info.normal_form_version}, answers"
            f" {info.answer_version}, as here",
        )


def choose_dataset(info: ServerInfo, name: str | None) -> tuple[DatasetInfo | None, Finding]:
    """Find the dataset that samples will be scored with."""
    names = ", ".join(repr(dataset.name) for dataset in info.datasets)
    if name is None and len(info.datasets) > 1:
        return None, fail(
            "dataset",
            f"the server has several ({names}) and none is named",
            "set +reward.reward_kwargs.dataset=NAME",
        )
    for dataset in info.datasets:
        if name in (None, dataset.name):
            return dataset, ok(
                "dataset",
                f"{dataset.name!r}: {dataset.num_problems:,} problems,"
                f" {dataset.num_without_nodes:,} of them without nodes,"
                f" {dataset.digest[:_DIGEST_CHARS]}…",
            )
    return None, fail(
        "dataset",
        f"the server has no {name!r}, it has {names}",
        "correct reward.reward_kwargs.dataset, or serve it: --dataset NAME=PATH",
    )


def check_file(path: Path, role: str, dataset: DatasetInfo | None) -> Finding:
    """Compare the content of a dataset file with the server's dataset.

    Args:
        path: of the file.
        role: what it is for, the setting or option that names it.
        dataset: the server's; None where it is not known.
    """
    from consensuspr.scoring import DatasetIndex

    try:
        digest = DatasetIndex.load(path).digest
    except DataError as error:
        return fail("dataset file", f"{role}: {error}", "correct the path or the file")
    if dataset is None:
        return ok("dataset file", f"{role}: {path}, {digest[:_DIGEST_CHARS]}…")
    if digest != dataset.digest:
        return fail(
            "dataset file",
            f"{role}: {path} ({digest[:_DIGEST_CHARS]}…) is not the server's {dataset.name!r}"
            f" ({dataset.digest[:_DIGEST_CHARS]}…)",
            "serve this file, or name the one that is served",
        )
    return ok("dataset file", f"{role}: {path} has the content of {dataset.name!r}")


def check_address(run: VerlRun, address: str, settings: RewardSettings) -> Iterator[Finding]:
    """Say whether reward workers on all nodes reach the server that was asked here.

    Args:
        run: whose workers.
        address: that was asked.
        settings: whose address the workers use.
    """
    if address != settings.address:
        yield warn(
            "address",
            f"{address} was asked here, the run will ask {settings.address}",
            f"set +reward.reward_kwargs.address={address}, or leave out --address",
        )
    nodes = run.get("trainer.nnodes")
    if not isinstance(nodes, int) or nodes < 2:
        return
    if is_local(settings.address):
        yield fail(
            "address",
            f"{settings.address} is each node itself, and trainer.nnodes is {nodes}: reward"
            " workers on the other nodes would find no server",
            "set +reward.reward_kwargs.address to the server's name in the network, and serve on"
            " it (--address 0.0.0.0:PORT)",
        )
    else:
        yield ok("address", f"{settings.address}, for workers on {nodes} nodes")


def is_local(address: str) -> bool:
    """Tell whether an address means the machine that uses it."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].rpartition("/")[2].strip("[]")
    if host == "localhost":
        return True
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    return found.is_loopback or found.is_unspecified


def check_schedule(
    run: VerlRun, reward: PlannedReward, train_rows: int | None
) -> Iterator[Finding]:
    """Say how many steps the planned run has, and when a curriculum switches.

    Args:
        run: the planned run.
        reward: of it.
        train_rows: rows of all training files; None where they could not be counted.
    """
    steps_per_epoch = _steps_per_epoch(run, train_rows)
    if steps_per_epoch is None:
        yield skip("schedule", "the training rows or data.train_batch_size are not known")
    elif steps_per_epoch == 0:
        yield fail(
            "schedule",
            f"{train_rows:,} training rows do not fill one batch of"
            f" {run.get('data.train_batch_size')}",
            "lower data.train_batch_size",
        )
        return
    else:
        yield ok("schedule", _shown(run, steps_per_epoch))
    if reward.settings.reward == "curriculum":
        yield _curriculum(run, reward, steps_per_epoch)


def _steps_per_epoch(run: VerlRun, train_rows: int | None) -> int | None:
    batch = run.get("data.train_batch_size")
    if train_rows is None or not isinstance(batch, int) or batch < 1:
        return None
    most = run.get("data.train_max_samples")
    if isinstance(most, int) and most > 0:
        train_rows = min(train_rows, most)
    return train_rows // batch


def _shown(run: VerlRun, steps_per_epoch: int) -> str:
    epochs, total = run.get("trainer.total_epochs"), run.get("trainer.total_training_steps")
    steps = f"{steps_per_epoch:,} steps in an epoch"
    if run.get("data.filter_overlong_prompts") is True:
        steps = f"at most {steps} (data.filter_overlong_prompts)"
    if total is not None:
        return f"{steps}, {total:,} steps in all (trainer.total_training_steps)"
    return f"{steps}, {epochs} epochs" if isinstance(epochs, int) else steps


def _curriculum(run: VerlRun, reward: PlannedReward, steps_per_epoch: int | None) -> Finding:
    check, settings = "curriculum", reward.settings
    try:
        _clock(run, reward, steps_per_epoch)
    except InputError as error:
        return fail(check, str(error), "")
    if settings.epoch is not None:
        stage = "Acc" if settings.epoch >= settings.switch_epoch else "NCR"
        return ok(check, f"epoch={settings.epoch} is fixed: {stage} is rewarded all the time")
    steps = settings.steps_per_epoch or steps_per_epoch
    if steps is None:
        return skip(check, "the step at which it switches cannot be known without training rows")
    return _switch(run, settings, steps, steps_per_epoch)


def _switch(run: VerlRun, settings: RewardSettings, steps: int, planned: int | None) -> Finding:
    check, switch = "curriculum", settings.switch_epoch * steps + 1
    epochs = run.get("trainer.total_epochs")
    last = run.get("trainer.total_training_steps")
    if last is None and planned is not None and isinstance(epochs, int):
        last = planned * epochs
    if isinstance(last, int) and switch > last:
        return warn(
            check,
            f"it would switch at step {switch:,}, and training ends with step {last:,}: only NCR"
            " is ever rewarded",
            "lower switch_epoch, or train for more epochs",
        )
    if planned is not None and steps != planned:
        return warn(
            check,
            f"steps_per_epoch={steps:,} is set, by its rows the run has {planned:,}; it switches"
            f" to Acc at step {switch:,}",
            "leave steps_per_epoch out, unless this is meant",
        )
    return ok(check, f"switches from NCR to Acc at step {switch:,} of {last or 'unknown'}")


def _clock(run: VerlRun, reward: PlannedReward, steps_per_epoch: int | None) -> EpochClock:
    """Make the clock that training would make.

    Raises:
        InputError: the epoch cannot be known.
    """
    settings = reward.settings
    if not reward.by_manager:
        return EpochClock(settings, None, "a reward function does not see the training step")
    old = release(run)[:2] == (0, 8) and run.trainer != SYNC_TRAINER_OF_0_8
    if old and settings.epoch is None:
        raise InputError(
            f"reward=curriculum needs the training step, and {run.trainer} of verl {run.version}"
            f" does not tell it; use {SYNC_TRAINER_OF_0_8} or verl 0.9.1, or run one stage"
            " after the other with a fixed epoch"
        )
    # Where the rows are not known, any number will do: the question is whether verl will tell it.
    planned = _as_trainer_fills_it(run.config, steps_per_epoch or 1)
    return epoch_clock(planned, settings, run.version or "")


def _as_trainer_fills_it(config: Mapping[str, Any], steps_per_epoch: int) -> Any:
    """Return the configuration with the optimiser's steps, which verl fills in from its data."""
    planned: Any = copy.deepcopy(dict(config))
    trainer = planned.get("trainer") or {}
    epochs, total = trainer.get("total_epochs"), trainer.get("total_training_steps")
    v1 = trainer.get("v1") or {}
    updates = (v1.get(v1.get("trainer_mode")) or {}).get("parameter_sync_step") or 1
    if total is None and isinstance(epochs, int):
        total = steps_per_epoch * epochs
    actor = planned.setdefault("actor_rollout_ref", {}).setdefault("actor", {})
    actor.setdefault("optim", {})["total_training_steps"] = (
        total * updates if isinstance(total, int) else None
    )
    return planned
