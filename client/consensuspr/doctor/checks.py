"""All checks, in one table (:data:`CHECKS`); those of the rows are made in ``dataset_checks``.

Each looks at a :class:`Case`, puts into it what it finds out for those after it, and says what a
person should know.  In the order in which they are made: which verl, where its rewards come from,
the reward's settings, settings that nothing reads, what the trainer makes of our rewards, where the
run's processes are; then the server (does it answer, is it of this version, has it the dataset that
is meant?) and the rows; and last, with the rows counted, how many steps there will be and at which
the curriculum switches.
"""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ByteSize

from consensuspr.client.servers import is_local, split_addresses
from consensuspr.client.sync import RewardClient
from consensuspr.client.training import EpochClock, RewardSettings, ScoredSample
from consensuspr.client.training.source import missing_budgets
from consensuspr.client.transport import Access
from consensuspr.client.verl.config import (
    INSTALL_VERL,
    STEP_CREDIT_MANAGER,
    STEP_ESTIMATOR,
    ManagerConfig,
    OverlongPenalty,
    epoch_clock,
    trainer_mode,
    verl_is_installed,
)
from consensuspr.client.verl.config import SOURCE as MANAGER_SOURCE
from consensuspr.client.verl.files import RowScan, Split
from consensuspr.client.verl.function import SOURCE as FUNCTION_SOURCE
from consensuspr.console import ProgressBar, count_of
from consensuspr.data import read_problems
from consensuspr.doctor.dataset_checks import (
    check_ids,
    check_problems,
    check_rows,
)
from consensuspr.doctor.findings import Finding, Level, TrainingSetup
from consensuspr.doctor.verl_config import (
    NO_RUN,
    SYNC_TRAINER_OF_0_8,
    ProbeFailed,
    TrainingCommand,
    VerlRun,
    consequence,
    describe,
)
from consensuspr.errors import (
    AccessDenied,
    DataError,
    DeadlineExceeded,
    InputError,
    RewardServiceError,
    Unavailable,
)
from consensuspr.scoring.rewards import RewardKind
from consensuspr.scoring.types import DEFAULT_DATASET, SCORING_VERSION, Score, Status
from consensuspr.version import VERSION
from consensuspr.wire.server_info import DatasetInfo, ServerInfo

# Long enough for a server that is just starting, short enough for a wrong address.
_CONNECT_TIMEOUT_S = 10.0

# Of a digest; enough to tell two by eye.
_DIGEST_CHARS = 19

# A worker is a process that decodes and waits; one per core of a large node is plenty.
_MANY_WORKERS = 128

# Free on the disk of a score log: 100,000 samples of 10 KB.
_LITTLE_ROOM = 1 << 30

# Of verl: the oldest that this package runs on, and the first that reads entry points.
OLDEST = (0, 7, 1)
PLUGINS_SINCE = (0, 9, 1)

# Estimators of verl that begin with the sum of a response's rewards.
ADDED_UP = ("grpo", "rloo", "opo", "gpg", "reinforce_plus_plus_baseline")

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

# Beside the attacks, in what a build says of a problem.
_WRONG = "wrong"

# verl's own name for the reward itself, beside the keys of every sample.
_REWARD = "reward"


OK, SKIP, WARN, FAIL = Level.OK, Level.SKIP, Level.WARN, Level.FAIL


@dataclass(slots=True)
class Case:
    """A set-up, and what its checks have found out so far.

    Attributes:
        run: as verl describes it; empty where there is none, or none that can be described.
        settings: of the reward; the defaults where they could not be read.
        settings_are_known: they could be read.
        overlong: penalty of long responses.
        by_manager: rewards come from our reward manager, and not from a function.
        client: of the server; None where it does not answer.
        info: what the server says of itself.
        dataset: at the server, that samples will be scored with.
        train_rows: of all training files; None where they could not be counted.
    """

    setup: TrainingSetup
    progress: ProgressBar
    run: VerlRun = NO_RUN
    settings: RewardSettings = field(default_factory=RewardSettings)
    settings_are_known: bool = False
    overlong: OverlongPenalty | None = None
    by_manager: bool = True
    client: RewardClient | None = None
    info: ServerInfo | None = None
    dataset: DatasetInfo | None = None
    train_rows: int | None = None
    _digests: dict[Path, str] = field(default_factory=dict)

    @property
    def access(self) -> Access:
        """Token and TLS of the server that is asked; what is given here wins.

        Raises:
            InputError: a file cannot be used.
        """
        given, own = self.setup, self.settings
        ca = given.tls_ca or own.tls_ca
        return Access(given.token_file or own.token_file, ca, own.tls_cert, own.tls_key)

    @property
    def address(self) -> str:
        """Of the server that is asked."""
        return self.setup.address or self.settings.address

    def digest_of(self, path: Path) -> str:
        """Return the digest of a dataset's file, which is loaded for it once.

        Raises:
            DataError: it cannot be loaded.
        """
        if path not in self._digests:
            from consensuspr.scoring import DatasetIndex

            self._digests[path] = DatasetIndex.load(path).digest
        return self._digests[path]


# What a check says: how bad it is, what was found, and what to do.
Said: TypeAlias = Finding | tuple[Level, str] | tuple[Level, str, str]
Check: TypeAlias = Callable[[Case], Iterator[Said]]


def check_configuration(case: Case) -> Iterator[Finding]:
    """Have verl describe the run."""
    setup = case.setup
    if setup.command is None and setup.config_file is None:
        return
    if not verl_is_installed():
        advice = f"install it: {INSTALL_VERL}"
        yield Finding("verl", Level.FAIL, "is not installed in this environment", advice)
        return
    try:
        with case.progress("asking verl", 1, "run") as advance_to:
            case.run = describe(setup.command or TrainingCommand(), setup.config_file)
            advance_to(1)
    except ProbeFailed as error:
        yield Finding(
            "configuration", Level.FAIL, str(error), "correct it; verl would refuse it as well"
        )


def check_verl(case: Case) -> Iterator[Said]:
    """Say which verl was asked, and whether it is one that this package runs on."""
    run = case.run
    if run.version is None:
        yield (
            FAIL,
            f"cannot be imported: {run.errors.get('verl', 'no reason given')}",
            "mend the environment; training would stop at the same place",
        )
    elif run.release < OLDEST:
        yield FAIL, f"version {run.version} is older than 0.7.1", "upgrade verl"
    elif (reason := run.errors.get("trainer")) is not None:
        yield (
            FAIL,
            f"the V1 trainer of version {run.version} cannot be imported: {reason}",
            f"install what it imports: {INSTALL_VERL}",
        )
    else:
        yield OK, f"version {run.version}, {run.trainer}"


def check_manager(case: Case) -> Iterator[Said]:
    """Say where verl will take rewards from."""
    run = case.run
    if run.version is None:
        yield SKIP, "verl cannot be asked"
    elif run.manager is None:
        yield from _check_missing(run)
    elif run.manager.ours:
        yield from _check_ours(run, run.manager.name)
    elif run.function is not None and run.function.ours:
        yield OK, f"{run.manager.name} with compute_score of consensuspr"
    else:
        reason = run.errors.get("function")
        detail = f"; its function cannot be loaded: {reason}" if reason else ""
        yield (
            FAIL,
            f"verl will reward by {run.manager.name}, not by consensuspr{detail}",
            _advice(run),
        )


def _check_ours(run: VerlRun, name: str) -> Iterator[Said]:
    """Look for what would keep verl from calling the manager that it has."""
    reward_model = run.get("reward.reward_model.enable") is True
    if reward_model and not run.get("reward.custom_reward_function.path"):
        yield (
            FAIL,
            "reward.reward_model.enable=True: verl asks the reward model, and never the manager",
            "set reward.reward_model.enable=False",
        )
        return
    yield OK, name
    if run.get("reward.custom_reward_function.path"):
        yield (
            WARN,
            "reward.custom_reward_function.path is set, and this manager calls no such function",
            "remove it, or choose another manager",
        )


def _check_missing(run: VerlRun) -> Iterator[Said]:
    """Say why verl has no manager."""
    reason = run.errors.get("manager", "verl named none")
    name = run.get("reward.reward_manager.name")
    if name != "consensuspr" or run.get("reward.reward_manager.source") != "register":
        yield FAIL, f"{name!r} cannot be loaded: {reason}", _advice(run)
    elif run.release < PLUGINS_SINCE:
        yield (
            FAIL,
            f"verl {run.version} knows no manager 'consensuspr': it reads no entry points",
            "export VERL_USE_EXTERNAL_MODULES=consensuspr.client.verl.plugin on every node before"
            f" Ray starts, or {_BY_PATH}",
        )
    else:
        yield (
            FAIL,
            f"verl has no manager {name!r}: {run.errors.get('plugin', reason)}",
            f"mend that on every node, or {_BY_PATH}",
        )


def _advice(run: VerlRun) -> str:
    return _BY_NAME if run.release >= PLUGINS_SINCE else _BY_PATH


def check_settings(case: Case) -> Iterator[Said]:
    """Read the reward's settings as training will."""
    run = case.run
    case.by_manager = (run.manager is not None and run.manager.ours) or not (
        run.function and run.function.ours
    )
    source = MANAGER_SOURCE if case.by_manager else FUNCTION_SOURCE
    given = run.get(source) or {}
    try:
        if case.by_manager:
            read = ManagerConfig.of(run.config)
            case.settings, case.overlong = read.settings, read.overlong
        else:
            case.settings = RewardSettings.of(given, source)
    except InputError as error:
        address = run.get(f"{source}.address")
        known = {"address": address} if isinstance(address, str) else {}
        case.settings = RewardSettings(**known)
        yield FAIL, str(error), "correct it"
        return
    case.settings_are_known = True
    shown = ", ".join(f"{key}={value}" for key, value in given.items()) or "all defaults"
    yield OK, f"{source}: {shown}"


def check_ignored_keys(case: Case) -> Iterator[Said]:
    """Name every setting that nothing will read."""
    run, silent = case.run, True
    legacy = {} if run.migrates else run.legacy
    for key, value in legacy.items():
        silent = False
        yield Finding(
            "ignored key",
            Level.FAIL,
            f"{run.trainer} of verl {run.version} never reads {key}={value}",
            f"set {_moved_to(key)}={value}",
        )
    for key in run.unread:
        if any(name == key or name.startswith(f"{key}.") for name in legacy):
            continue
        silent = False
        yield Finding(
            "ignored key",
            Level.WARN,
            f"verl {run.version} has no key {key}, and nothing in its code reads one",
            "correct or remove it, unless a plugin of yours reads it",
        )
    if silent:
        yield OK, "none is set"


def _moved_to(key: str) -> str:
    for old, new in _MOVED:
        if key == old or key.startswith(f"{old}."):
            return new + key.removeprefix(old)
    return f"reward.{key}"


def check_filter(case: Case) -> Iterator[Said]:
    """Look at DAPO's group filter (dynamic sampling)."""
    run, reward = case.run, case.settings.reward
    groups = run.get("algorithm.filter_groups")
    if not groups or groups.get("enable") is not True:
        return
    metric = groups.get("metric")
    fields = ScoredSample(0.0, Score(Status.OK), 0, "server").numbers()
    numbers = [_REWARD, *(key for key, value in fields.items() if not isinstance(value, str))]
    if metric not in numbers:
        yield (
            FAIL,
            f"algorithm.filter_groups.metric={metric} is no number that samples have",
            f"set algorithm.filter_groups.metric=acc (there is {', '.join(numbers)})",
        )
    elif reward == "curriculum" and metric == "acc":
        yield (
            WARN,
            "algorithm.filter_groups.metric=acc: in the first stage of the curriculum, groups"
            " whose answers are all wrong are dropped though their NCR differs",
            "set algorithm.filter_groups.metric=score, which follows the stage",
        )
    elif not _is_apt(str(metric), case):
        why = "the overlong penalty" if reward == "outcome" else "nodes"
        yield (
            WARN,
            f"algorithm.filter_groups.metric={metric}: groups whose answers are all wrong, or all"
            f" right, pass the filter by {why}",
            "set algorithm.filter_groups.metric=acc, unless that is what you want",
        )
    else:
        yield OK, f"algorithm.filter_groups.metric={metric}"
    limit = groups.get("max_num_gen_batches") or 0
    if isinstance(limit, int) and limit > 0 and run.get("trainer.use_v1") is True:
        yield (
            WARN,
            f"algorithm.filter_groups.max_num_gen_batches={limit} is ignored by verl's V1 trainer",
            "set algorithm.filter_groups.max_inflight_gen_batches",
        )


def _is_apt(metric: str, case: Case) -> bool:
    """Tell whether a metric drops the groups that have nothing to learn from, and no others."""
    if case.settings.reward in ("linear", "max"):
        return metric == "acc"
    follows = metric == "score" or (metric == _REWARD and case.overlong is None)
    return follows or (metric == "acc" and case.settings.reward == "outcome")


def check_overlong(case: Case) -> Iterator[Said]:
    """Compare the penalty of long responses with how long they can get."""
    penalty = case.overlong
    if penalty is None:
        yield OK, "off"
        return
    longest = penalty.free_tokens + penalty.buffer_tokens
    limit = case.run.get("data.max_response_length")
    if not isinstance(limit, int):
        limit = longest
    if limit <= penalty.free_tokens:
        yield (
            FAIL,
            f"it begins at {penalty.free_tokens:,} tokens and responses end at {limit:,}: it never"
            " applies",
            f"set +reward.reward_kwargs.max_resp_len={limit}",
        )
    elif limit != longest:
        yield (
            WARN,
            f"max_resp_len={longest:,}, but data.max_response_length={limit:,}: the longest"
            f" response gets {penalty(limit):g} instead of {penalty(longest):g}",
            f"set +reward.reward_kwargs.max_resp_len={limit}",
        )
    elif penalty.free_tokens == 0:
        yield (
            WARN,
            "overlong_buffer_cfg.len equals max_resp_len: every token of every response costs",
            "shorten overlong_buffer_cfg.len",
        )
    else:
        yield (
            OK,
            f"from {penalty.free_tokens:,} tokens on, {penalty(longest):g} at {longest:,}",
        )


def check_step_credit(case: Case) -> Iterator[Said]:
    """Say whether what places rewards on tokens and what uses the places go together."""
    run = case.run
    manager = run.get("actor_rollout_ref.rollout.agent.agent_loop_manager_class")
    estimator = run.get("algorithm.adv_estimator")
    placed, used = manager == STEP_CREDIT_MANAGER, estimator == STEP_ESTIMATOR
    if not placed and not used:
        return
    if not placed:
        yield (
            FAIL,
            f"algorithm.adv_estimator={STEP_ESTIMATOR}, and rewards are not placed on tokens",
            "set +actor_rollout_ref.rollout.agent.agent_loop_manager_class="
            f"{STEP_CREDIT_MANAGER}, or another estimator",
        )
    elif run.release < PLUGINS_SINCE or run.get("trainer.use_v1") is not True:
        yield (
            FAIL,
            f"step credit needs the V1 trainer of verl 0.9.1 or newer, this is {run.trainer} of"
            f" verl {run.version} with trainer.use_v1={run.get('trainer.use_v1')}",
            "set trainer.use_v1=True, or leave out agent_loop_manager_class",
        )
    elif not case.by_manager:
        yield FAIL, "step credit needs the reward manager, which knows the tokens", _advice(run)
    elif case.settings.spec.kind is RewardKind.OUTCOME:
        yield WARN, "reward=outcome rewards no node: step credit places nothing", "leave it out"
    elif estimator in ADDED_UP:
        yield (
            WARN,
            f"algorithm.adv_estimator={estimator} adds up what the tokens earn: as without step"
            " credit",
            f"set algorithm.adv_estimator={STEP_ESTIMATOR}",
        )
    elif used:
        yield from _check_step_estimator(run)
    else:
        yield OK, f"rewards are placed on tokens, for algorithm.adv_estimator={estimator}"


def _check_step_estimator(run: VerlRun) -> Iterator[Said]:
    """Look for what the estimator refuses when the first step has been paid for."""
    for key, wanted in (("use_kl_in_reward", False), ("gamma", 1.0)):
        value = run.get(f"algorithm.{key}")
        if value not in (None, wanted):
            yield (
                FAIL,
                f"algorithm.{key}={value}, which adv_estimator={STEP_ESTIMATOR} refuses",
                f"set algorithm.{key}={wanted}",
            )
            return
    size = run.get("actor_rollout_ref.rollout.n")
    if size == 1:
        yield (
            FAIL,
            f"actor_rollout_ref.rollout.n=1: adv_estimator={STEP_ESTIMATOR} compares the rollouts"
            " of a prompt, and every advantage would be 0",
            "set it to 2 or more",
        )
    else:
        yield OK, f"rewards are placed on tokens, and {STEP_ESTIMATOR} uses the places"


def check_unscorable(case: Case) -> Iterator[Said]:
    """Say what becomes of a sample that cannot be scored."""
    policy = case.settings.on_unscorable
    if policy != "raise":
        yield (
            WARN,
            f"on_unscorable={policy:g}: samples that cannot be scored are trained on with this"
            " reward",
            "look at status in the score log",
        )
        return
    yield OK, f"on_unscorable=raise: {consequence(case.run)}"


def check_workers(case: Case) -> Iterator[Said]:
    """Look at the number of reward workers."""
    run = case.run
    workers, nodes = run.get("reward.num_workers"), run.get("trainer.nnodes")
    if not isinstance(workers, int) or workers < 1:
        yield (FAIL, f"reward.num_workers must be 1 or more, got {workers!r}", "set it to 8")
    elif workers > _MANY_WORKERS:
        yield (
            WARN,
            f"reward.num_workers={workers}: each is a process with a tokenizer of its own",
            "8 to 64 do; each has hundreds of samples on the way at a time",
        )
    else:
        where = f", one after the other on {nodes} nodes" if nodes != 1 else ""
        yield OK, f"{workers} reward workers{where}"


def check_score_log(case: Case) -> Iterator[Said]:
    """Look at the folder of the score log, which need not be there yet."""
    folder, nodes = case.settings.score_log, case.run.get("trainer.nnodes")
    if folder is None:
        return
    yield from _check_relative(folder)
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        yield FAIL, f"{place} is no folder", "choose another for score_log"
    elif not os.access(place, os.W_OK | os.X_OK):
        yield FAIL, f"{place} cannot be written to", "choose another for score_log"
    elif (free := shutil.disk_usage(place).free) < min(case.settings.score_log_bytes, _LITTLE_ROOM):
        yield (
            WARN,
            f"{place} has {ByteSize(free).human_readable()} free: on a full disk the log drops"
            " texts, then rows",
            "make room, or choose another for score_log",
        )
    else:
        several = isinstance(nodes, int) and nodes > 1
        where = "; each node writes its own, unless the folder is shared" if several else ""
        yield OK, f"{folder} can be written to{where}"


def check_dataset_path(case: Case) -> Iterator[Said]:
    """Look at how the path of the dataset is written."""
    if case.settings.dataset_path is not None:
        yield from _check_relative(case.settings.dataset_path)


def _check_relative(path: Path) -> Iterator[Said]:
    if not path.is_absolute():
        yield (
            WARN,
            f"{path} is taken from the folder in which Ray starts a worker, not from here",
            "give the whole path",
        )


def check_server(case: Case) -> Iterator[Said]:
    """Ask the server what it is."""
    address = case.address
    try:
        access = case.access
    except InputError as error:
        yield FAIL, str(error), "give files that can be read here, and on each node"
        return
    try:
        client = RewardClient(address, case.setup.timeout_s, access=access)
    except InputError as error:
        yield FAIL, str(error), "give its address as HOST:PORT"
        return
    try:
        info = client.server_info(min(case.setup.timeout_s, _CONNECT_TIMEOUT_S))
    except RewardServiceError as error:
        client.close()
        advice = "install the same version of consensuspr on both sides"
        if isinstance(error, AccessDenied):
            advice = "give --token-file and --tls-ca here, token_file and tls_ca to the run"
        elif isinstance(error, Unavailable | DeadlineExceeded):
            advice = f"start it: consensuspr serve --dataset PATH --address {address}"
        yield FAIL, f"{address}: {error}", advice
        return
    case.client, case.info = client, info
    yield from _check_others(case, info, access)
    if info.core_backend == "native":
        yield OK, f"{address} answers: version {info.server_version}, compiled core"
    else:
        yield (
            WARN,
            f"{address} answers: version {info.server_version}, pure-Python core",
            "install it where there is a C compiler; this core is many times slower",
        )


def _check_others(case: Case, info: ServerInfo, access: Access | None) -> Iterator[Said]:
    """Ask each of several servers: scores of one call have to be of one dataset and version."""
    several = split_addresses(case.address)
    for address in several if len(several) > 1 else ():
        try:
            with RewardClient(address, case.setup.timeout_s, access=access) as client:
                other = client.server_info(min(case.setup.timeout_s, _CONNECT_TIMEOUT_S))
        except RewardServiceError as error:
            yield WARN, f"{address}: {error}", "the others do its work, unless they fail too"
            continue
        held = [{one.name: one.digest for one in each.datasets} for each in (info, other)]
        if held[0] != held[1] or info.server_version != other.server_version:
            yield (
                FAIL,
                f"{address} serves other datasets, or is of another version, than another of"
                f" {case.address}",
                "bring all to the same; a call that meets both ends with an error",
            )


def check_versions(case: Case) -> Iterator[Said]:
    """Compare the server's versions with those of this install."""
    if (info := case.info) is None:
        return
    from consensuspr.core import NORMAL_FORM_VERSION
    from consensuspr.scoring.answers import ANSWER_VERSION

    pairs = {
        "release": (info.server_version, VERSION),
        "normal form": (info.normal_form_version, NORMAL_FORM_VERSION),
        "answers": (info.answer_version, ANSWER_VERSION),
        "scoring": (info.scoring_version, SCORING_VERSION),
    }
    other = [
        f"{name} {server} there and {here} here"
        for name, (server, here) in pairs.items()
        if server != here
    ]
    if other:
        yield (
            WARN,
            ", ".join(other),
            "install the same version on both sides; scores made here may differ from the server's",
        )
    else:
        yield (
            OK,
            f"protocol {info.protocol_version}, normal form {info.normal_form_version}, answers"
            f" {info.answer_version}, scoring {info.scoring_version}, as here",
        )


def check_dataset(case: Case) -> Iterator[Said]:
    """Find the dataset that samples will be scored with."""
    if (info := case.info) is None:
        return
    name = case.setup.dataset or case.settings.dataset
    names = ", ".join(repr(dataset.name) for dataset in info.datasets)
    unnamed = name is None and len(info.datasets) > 1
    has_run = case.setup.command is not None or case.setup.config_file is not None
    if unnamed and has_run and any(one.name == DEFAULT_DATASET for one in info.datasets):
        # What a request means that names none.
        name, unnamed = DEFAULT_DATASET, False
    if unnamed:
        name = _name_by_content(case, info)
    if unnamed and (name is None or has_run):
        # Training would be refused, whatever file was given here.
        yield (
            FAIL,
            f"the server has several ({names}) and none is named",
            f"set +reward.reward_kwargs.dataset={name or 'NAME'}"
            if has_run
            else "give --dataset, a name or a file",
        )
        if name is None:
            return
    case.dataset = next((one for one in info.datasets if name in (None, one.name)), None)
    if case.dataset is None:
        yield (
            FAIL,
            f"the server has no {name!r}, it has {names}",
            "correct reward.reward_kwargs.dataset, or serve it: --dataset NAME=PATH",
        )
    else:
        yield (
            OK,
            f"{case.dataset.name!r}: {count_of(case.dataset.num_problems, 'problem')},"
            f" {case.dataset.num_without_nodes:,} of them without nodes,"
            f" {_short(case.dataset.digest)}",
        )
        default_budget = missing_budgets(case.dataset, case.settings)
        if default_budget is not None:
            # Not a warning: the guard has its default budget.
            yield Finding("budgets", OK, default_budget, "consensusbench build --budgets adds them")


def _name_by_content(case: Case, info: ServerInfo) -> str | None:
    """Return what the server calls the content of the file that was given here."""
    if case.setup.dataset_file is None:
        return None
    try:
        digest = case.digest_of(case.setup.dataset_file)
    except DataError:  # a check of its own tells of it
        return None
    return next((one.name for one in info.datasets if one.digest == digest), None)


def _short(digest: str) -> str:
    return f"{digest[:_DIGEST_CHARS]}…"


def check_files(case: Case) -> Iterator[Said]:
    """Compare the content of the dataset's files with the server's dataset."""
    dataset = case.dataset
    named = {"--dataset": case.setup.dataset_file, "dataset_path": case.settings.dataset_path}
    for role, path in named.items():
        if path is None:
            continue
        try:
            digest = case.digest_of(Path(path))
        except DataError as error:
            yield FAIL, f"{role}: {error}", "correct the path or the file"
            continue
        if dataset is None:
            yield OK, f"{role}: {path}, {_short(digest)}"
        elif digest == dataset.digest:
            yield OK, f"{role}: {path} has the content of {dataset.name!r}"
        else:
            yield (
                FAIL,
                f"{role}: {path} ({_short(digest)}) is not the server's {dataset.name!r}"
                f" ({_short(dataset.digest)})",
                "serve this file, or name the one that is served",
            )


def check_attacks(case: Case) -> Iterator[Said]:
    """Compare what attacks earn with wrong rollouts, as a build measured it."""
    named = (case.setup.dataset_file, case.settings.dataset_path)
    for path in dict.fromkeys(Path(path) for path in named if path is not None):
        if not case.settings.guard:
            yield SKIP, f"{path.name}: measured with the guard, which guard=False turns off"
            continue
        try:
            sources = _earned(path)
        except DataError as error:
            yield SKIP, str(error)
            continue
        if not sources:
            yield (
                SKIP,
                f"{path.name} has no NCR of wrong rollouts",
                "measure it: consensusbench validate --probes --rollouts FILE",
            )
        for source, earned in sources.items():
            wrong = earned.pop(_WRONG)
            attack, most = max(earned.items(), key=lambda one: one[1])
            said = (
                f"attack `{attack}` scores {100 * most:.1f} % NCR on "
                f"{source or 'problems without a source'}; wrong rollouts score "
                f"{100 * wrong:.1f} %"
            )
            if most > wrong:
                yield (
                    WARN,
                    said,
                    "store budgets if problems have none (consensusbench build --budgets), or drop"
                    " nodes that need no reasoning",
                )
            else:
                yield OK, said


def _earned(path: Path) -> dict[str, dict[str, float]]:
    """Return the mean NCR of wrong rollouts and of attacks, by data source.

    A build leaves it in the metadata of problems; sources without both are left out.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for problem in read_problems(path):
        construction = problem.metadata.get("construction")
        earned = construction.get("earned") if isinstance(construction, dict) else None
        for name, ncr in earned.items() if isinstance(earned, dict) else ():
            if type(ncr) in (int, float):
                found.setdefault(problem.data_source, {}).setdefault(name, []).append(ncr)
    return {
        source: {name: sum(values) / len(values) for name, values in earned.items()}
        for source, earned in found.items()
        if _WRONG in earned and len(earned) > 1
    }


def check_address(case: Case) -> Iterator[Said]:
    """Say whether reward workers on all nodes reach the server that was asked here."""
    address, settings = case.address, case.settings
    if address != settings.address:
        yield (
            WARN,
            f"{address} was asked here, the run will ask {settings.address}",
            f"set +reward.reward_kwargs.address={address}, or leave out --address",
        )
    nodes = case.run.get("trainer.nnodes")
    if not isinstance(nodes, int) or nodes < 2:
        return
    local = [one for one in split_addresses(settings.address) if is_local(one)]
    if local:
        yield (
            FAIL,
            f"{local[0]} is each node itself, and trainer.nnodes is {nodes}: reward"
            " workers on the other nodes would find no server",
            "set +reward.reward_kwargs.address to the server's name in the network, and serve on"
            " it (--address 0.0.0.0:PORT)",
        )
    else:
        yield OK, f"{settings.address}, for workers on {nodes} nodes"


def check_data(case: Case) -> Iterator[Said]:
    """Read the rows of both splits, and ask the server for their problems."""
    setup, run = case.setup, case.run
    files = {
        Split.TRAIN: setup.train_files or _named(run.get("data.train_files")),
        Split.VALIDATION: setup.val_files or _named(run.get("data.val_files")),
    }
    if not any(files.values()):
        return
    server = (case.client, case.dataset.name) if case.client and case.dataset else None
    scan = RowScan(case.settings, run.get("data.prompt_key") or "prompt", server)
    scan.run(files, case.progress)
    train = scan.rows[Split.TRAIN]
    case.train_rows = train.rows if train.files and not train.bad_files else None
    yield from check_rows(scan)
    yield from check_ids(scan)
    yield from check_problems(scan, run, case.settings)


def _named(files: Any) -> tuple[str, ...]:
    """Return the files that a run's configuration names, one or a list."""
    return (files,) if isinstance(files, str) else tuple(map(str, files or ()))


def check_schedule(case: Case) -> Iterator[Said]:
    """Say how many steps the planned run has."""
    run, steps = case.run, _steps_per_epoch(case)
    if steps is None:
        yield SKIP, "the training rows or data.train_batch_size are not known"
    elif steps == 0:
        yield (
            FAIL,
            f"{case.train_rows:,} training rows do not fill one batch of"
            f" {run.get('data.train_batch_size')}",
            "lower data.train_batch_size",
        )
    else:
        yield OK, _shown(run, steps)


def _steps_per_epoch(case: Case) -> int | None:
    rows, batch = case.train_rows, case.run.get("data.train_batch_size")
    if rows is None or not isinstance(batch, int) or batch < 1:
        return None
    most = case.run.get("data.train_max_samples")
    return (min(rows, most) if isinstance(most, int) and most > 0 else rows) // batch


def _shown(run: VerlRun, steps_per_epoch: int) -> str:
    epochs, total = run.get("trainer.total_epochs"), run.get("trainer.total_training_steps")
    steps = f"{steps_per_epoch:,} steps in an epoch"
    if run.get("data.filter_overlong_prompts") is True:
        steps = f"at most {steps} (data.filter_overlong_prompts)"
    if total is not None:
        return f"{steps}, {total:,} steps in all (trainer.total_training_steps)"
    return f"{steps}, {epochs} epochs" if isinstance(epochs, int) else steps


def check_curriculum(case: Case) -> Iterator[Said]:
    """Say at which step the curriculum switches."""
    run, settings, planned = case.run, case.settings, _steps_per_epoch(case)
    if settings.reward != "curriculum" or planned == 0:
        return
    try:
        _clock(case, planned)
    except InputError as error:
        yield FAIL, str(error)
        return
    if settings.epoch is not None:
        stage = "Acc" if settings.epoch >= settings.switch_epoch else "NCR"
        yield OK, f"epoch={settings.epoch} is fixed: {stage} is rewarded all the time"
        return
    steps = settings.steps_per_epoch or planned
    if steps is None:
        yield SKIP, "the step at which it switches cannot be known without training rows"
        return
    switch = settings.switch_epoch * steps + 1
    epochs, last = run.get("trainer.total_epochs"), run.get("trainer.total_training_steps")
    if last is None and planned is not None and isinstance(epochs, int):
        last = planned * epochs
    if isinstance(last, int) and switch > last:
        yield (
            WARN,
            f"it would switch at step {switch:,}, and training ends with step {last:,}: only NCR"
            " is ever rewarded",
            "lower switch_epoch, or train for more epochs",
        )
    elif planned is not None and steps != planned:
        yield (
            WARN,
            f"steps_per_epoch={steps:,} is set, by its rows the run has {planned:,}; it switches"
            f" to Acc at step {switch:,}",
            "leave steps_per_epoch out, unless this is meant",
        )
    else:
        yield OK, f"switches from NCR to Acc at step {switch:,} of {last or 'unknown'}"


def _clock(case: Case, steps_per_epoch: int | None) -> EpochClock:
    """Make the clock that training would make.

    Raises:
        InputError: the epoch cannot be known.
    """
    run, settings = case.run, case.settings
    if not case.by_manager:
        return EpochClock(settings, None, "a reward function does not see the training step")
    old = run.release[:2] == (0, 8) and run.trainer != SYNC_TRAINER_OF_0_8
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
    updates = (v1.get(trainer_mode(config)) or {}).get("parameter_sync_step") or 1
    if total is None and isinstance(epochs, int):
        total = steps_per_epoch * epochs
    actor = planned.setdefault("actor_rollout_ref", {}).setdefault("actor", {})
    actor.setdefault("optim", {})["total_training_steps"] = (
        total * updates if isinstance(total, int) else None
    )
    return planned


# What has to be known for a check: nothing, a run, or the reward's settings in it too.
_NOTHING, _RUN, _SETTINGS = range(3)

# Every check in its turn, by what it is called: each can use what those before it found out.
CHECKS: tuple[tuple[str, int, Check], ...] = (
    ("verl", _RUN, check_verl),
    ("reward manager", _RUN, check_manager),
    ("settings", _RUN, check_settings),
    ("ignored keys", _RUN, check_ignored_keys),
    ("group filter", _SETTINGS, check_filter),
    ("overlong penalty", _SETTINGS, check_overlong),
    ("step credit", _SETTINGS, check_step_credit),
    ("unscorable", _SETTINGS, check_unscorable),
    ("workers", _RUN, check_workers),
    ("score log", _NOTHING, check_score_log),
    ("dataset path", _NOTHING, check_dataset_path),
    ("server", _NOTHING, check_server),
    ("address", _SETTINGS, check_address),
    ("versions", _NOTHING, check_versions),
    ("dataset", _NOTHING, check_dataset),
    ("dataset file", _NOTHING, check_files),
    ("attacks", _NOTHING, check_attacks),
    ("rows", _NOTHING, check_data),
    ("schedule", _SETTINGS, check_schedule),
    ("curriculum", _SETTINGS, check_curriculum),
)


def findings(name: str, check: Check, case: Case) -> Iterator[Finding]:
    """Make a check; what does not say itself what it is about gets the check's name."""
    for said in check(case):
        yield said if isinstance(said, Finding) else Finding(name, *said)


def examine(setup: TrainingSetup, progress: ProgressBar) -> Iterator[Finding]:
    """Yield one finding after the other, as soon as it is known.

    Args:
        setup: what is to be trained.
        progress: shows how far the reading of rows is.

    Raises:
        InputError: the setup names a configuration that does not exist.
    """
    case = Case(setup, progress)
    for fault in check_configuration(case):
        yield fault
        if setup.address is None:
            advice = "or give --address"
            yield Finding("server", Level.SKIP, "its address is in the configuration", advice)
            return
    try:
        for name, needed, check in CHECKS:
            # Asked each time: the checks find it out.
            known = _SETTINGS if case.settings_are_known else _RUN if case.run is not NO_RUN else 0
            if needed <= known:
                yield from findings(name, check, case)
    finally:
        if case.client is not None:
            case.client.close()
