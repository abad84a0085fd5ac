"""The checks of a training set-up, in the order in which they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from consensuspr.client.local import LocalClient
from consensuspr.client.rpc import RewardClient
from consensuspr.client.servers import is_local, split_addresses
from consensuspr.client.training import RewardSettings
from consensuspr.client.training.source import chosen_dataset, local_client
from consensuspr.client.transport import Access
from consensuspr.client.verl.config import (
    INSTALL_VERL,
    OLD_GROUPS,
    STEP_CREDIT_MANAGER,
    STEP_ESTIMATOR,
    ManagerConfig,
    OverlongPenalty,
    file_names,
    key_now,
    verl_is_installed,
)
from consensuspr.client.verl.config import SOURCE as MANAGER_SOURCE
from consensuspr.client.verl.files import FAIL, OK, TRAIN, VALIDATION, WARN, Finding, Level, RowScan
from consensuspr.client.verl.function import SOURCE as FUNCTION_SOURCE
from consensuspr.console import ProgressBar, count_of
from consensuspr.doctor.verl_run import RunUnreadable, TrainingCommand, VerlRun, describe
from consensuspr.errors import AccessDenied, DataError, InputError, RewardServiceError
from consensuspr.scoring.types import SCORING_VERSION
from consensuspr.version import VERSION
from consensuspr.wire.server_info import DatasetInfo, ServerInfo

# Long enough for a server that is just starting, short enough for a wrong address.
CONNECT_TIMEOUT_S = 10.0
# Versions of verl: the oldest that works, the first that reads entry points and ignores old keys.
OLDEST, PLUGINS_SINCE = (0, 7, 1), (0, 9, 1)

BY_NAME = "set reward.reward_manager.name=consensuspr"
BY_PATH = (
    "set reward.reward_manager.source=importlib"
    " reward.reward_manager.module.path=pkg://consensuspr.client.verl"
    " reward.reward_manager.name=ConsensusRewardManager"
)


# Level, finding and advice.
Outcome: TypeAlias = tuple[Level, str] | tuple[Level, str, str]


@dataclass(slots=True)
class Case:
    """A training set-up, and the results of its checks so far.

    Attributes:
        address: of the server to ask; None: the run's own, as for what follows.
        dataset_path: file; the server's dataset must have its content.
        config_file: configuration of the run, instead of the command's.
        by_manager: whether rewards come from our reward manager, not from a function.
        dataset: at the server, that will score the samples.
        train_rows: of all training files; None if they could not be counted.
    """

    address: str | None = None
    token_file: Path | None = None
    tls_ca: Path | None = None
    dataset_name: str | None = None
    dataset_path: Path | None = None
    train_files: tuple[str, ...] = ()
    val_files: tuple[str, ...] = ()
    command: TrainingCommand | None = None
    config_file: Path | None = None
    timeout_s: float = 60.0

    run: VerlRun = field(default_factory=lambda: VerlRun({}, ""))  # without a version if none
    settings: RewardSettings = field(default_factory=RewardSettings)
    settings_are_known: bool = False
    overlong: OverlongPenalty | None = None
    by_manager: bool = True
    client: RewardClient | LocalClient | None = None
    info: ServerInfo | None = None
    dataset: DatasetInfo | None = None
    train_rows: int | None = None


def check_verl(case: Case) -> Iterator[Outcome]:
    """Check that verl and its trainer can be imported."""
    run, errors = case.run, case.run.errors
    if "verl" in errors or "trainer" in errors:
        reason = errors.get("verl") or errors["trainer"]
        yield FAIL, f"the trainer cannot be imported: {reason}", f"install it: {INSTALL_VERL}"
    elif run.release < OLDEST:
        yield FAIL, f"version {run.version} is older than 0.7.1", "upgrade verl"
    else:
        yield OK, f"version {run.version}, {run.trainer}"


def check_old_keys(case: Case) -> Iterator[Outcome]:
    """Find reward settings that verl 0.9 accepts and does not read."""
    if case.run.release < PLUGINS_SINCE:
        return
    values = [(group, case.run.get(group)) for group in OLD_GROUPS]
    for key, value in values:
        if isinstance(value, dict):
            values += [(f"{key}.{name}", inner) for name, inner in value.items()]
        elif value is not None:
            yield (
                FAIL,
                f"verl {case.run.version} ignores {key}={value}",
                f"set {key_now(key)}={value}",
            )


def check_manager(case: Case) -> Iterator[Outcome]:
    """Check where verl will take rewards from."""
    run, errors = case.run, case.run.errors
    manager, function = run.manager, run.function
    advice = BY_NAME if run.release >= PLUGINS_SINCE else BY_PATH
    if manager is None:
        reason = errors.get("plugin") or errors.get("manager") or "verl cannot be asked"
        name = run.get("reward.reward_manager.name")
        yield FAIL, f"reward manager {name!r} cannot be loaded: {reason}", advice
    elif manager.ours and run.get("reward.reward_model.enable") is True and function is None:
        yield (
            FAIL,
            "reward.reward_model.enable=True: verl uses the reward model and ignores the manager",
            "set reward.reward_model.enable=False",
        )
    elif manager.ours:
        yield OK, manager.name
    elif function is not None and function.ours:
        yield OK, f"{manager.name} with compute_score of consensuspr"
    else:
        detail = f"; {errors['function']}" if "function" in errors else ""
        yield FAIL, f"rewards come from {manager.name}, not from consensuspr{detail}", advice


def check_settings(case: Case) -> Iterator[Outcome]:
    """Read the reward's settings as training will."""
    run = case.run
    by_function = run.function is not None and run.function.ours
    case.by_manager = (run.manager is not None and run.manager.ours) or not by_function
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
        if address:
            with suppress(ValueError):  # the address is the fault
                case.settings = RewardSettings(address=address)
        yield FAIL, str(error), "correct it"
        return
    case.settings_are_known = True
    shown = ", ".join(f"{key}={value}" for key, value in given.items()) or "all defaults"
    yield OK, f"{source}: {shown}"


def check_overlong(case: Case) -> Iterator[Outcome]:
    """Compare the penalty of long responses with how long they can get."""
    penalty, limit = case.overlong, case.run.get("data.max_response_length")
    if penalty is None or not isinstance(limit, int):
        return
    longest = penalty.free_tokens + penalty.buffer_tokens
    if limit != longest:
        yield (
            FAIL if limit <= penalty.free_tokens else WARN,
            f"max_resp_len={longest:,}, but data.max_response_length={limit:,}: the longest"
            f" response gets {penalty(limit):g} instead of {penalty(longest):g}",
            f"set +reward.reward_kwargs.max_resp_len={limit}",
        )
    else:
        yield OK, f"from {penalty.free_tokens:,} tokens on, {penalty(longest):g} at {longest:,}"


def check_step_credit(case: Case) -> Iterator[Outcome]:
    """Check that rewards are placed on tokens and that the estimator uses the places."""
    run, agents = case.run, "actor_rollout_ref.rollout.agent.agent_loop_manager_class"
    estimator = run.get("algorithm.adv_estimator")
    placed, used = run.get(agents) == STEP_CREDIT_MANAGER, estimator == STEP_ESTIMATOR
    if not placed and not used:
        return
    needs = {
        f"{agents}={STEP_CREDIT_MANAGER}": placed,
        f"algorithm.adv_estimator={STEP_ESTIMATOR}, gae or reinforce_plus_plus": used
        or estimator in ("gae", "reinforce_plus_plus"),
        "trainer.use_v1=True of verl 0.9.1": run.get("trainer.use_v1") is True,
        "the reward manager, not a function": case.by_manager,
        "a reward of nodes": case.settings.reward != "outcome",
    }
    if used:
        needs["algorithm.use_kl_in_reward=False"] = not run.get("algorithm.use_kl_in_reward")
        needs["algorithm.gamma=1"] = run.get("algorithm.gamma") in (None, 1)
        needs["rollout.n of 2 or more"] = run.get("actor_rollout_ref.rollout.n") != 1
    missing = [need for need, met in needs.items() if not met]
    if missing:
        yield FAIL, f"step credit needs {' and '.join(missing)}", "set it, or leave out step credit"
    else:
        yield OK, f"rewards are placed on tokens for algorithm.adv_estimator={estimator}"


def check_server(case: Case) -> Iterator[Outcome]:
    """Ask the server, or each of several, for its versions and datasets."""
    own, asked = case.settings, case.address or case.settings.address
    if asked is None:
        try:
            case.client = local_client(own)
        except InputError as error:
            yield FAIL, str(error), "correct the path or the file"
            return
        case.info = case.client.server_info()
        yield OK, f"none: each worker scores with {own.dataset_path}"
        return
    infos = []
    try:
        token_file, tls_ca = case.token_file or own.token_file, case.tls_ca or own.tls_ca
        access = Access(token_file, tls_ca, own.tls_cert, own.tls_key)
        for address in split_addresses(asked):
            with RewardClient(address, case.timeout_s, access=access) as client:
                infos.append(client.server_info(min(case.timeout_s, CONNECT_TIMEOUT_S)))
    except (InputError, RewardServiceError) as error:
        advice = f"start it: consensuspr serve --dataset PATH --address {asked}"
        if isinstance(error, AccessDenied) and "token" in str(error):
            source = MANAGER_SOURCE if case.by_manager else FUNCTION_SOURCE
            advice = f"set +{source}.token_file=FILE"
            if case.address is not None:
                advice = "give it: --token-file FILE"
        elif isinstance(error, InputError | AccessDenied):
            advice = "correct it"
        yield FAIL, f"{asked}: {error}", advice
        return
    case.client = RewardClient(asked, case.timeout_s, access=access)
    info = case.info = infos[0]
    level = OK if info.core_backend == "native" else WARN
    yield level, f"{asked} answers: version {info.server_version}, {info.core_backend} core"
    if len({tuple((served.name, served.digest) for served in each.datasets) for each in infos}) > 1:
        yield FAIL, f"the servers {asked} have different datasets", "serve the same"
    for each in infos:
        if (each.server_version, each.scoring_version) != (VERSION, SCORING_VERSION):
            yield (
                WARN,
                f"version {each.server_version} (scoring {each.scoring_version}) there, {VERSION}"
                f" (scoring {SCORING_VERSION}) here",
                "install the same version on both sides",
            )


def check_address(case: Case) -> Iterator[Outcome]:
    """Check that reward workers on all nodes reach the server."""
    run_address, nodes = case.settings.address, case.run.get("trainer.nnodes")
    if case.address not in (None, run_address):
        yield WARN, f"checked {case.address}, but the run uses {run_address}"
    servers = [] if run_address is None else split_addresses(run_address)
    local = [server for server in servers if is_local(server)]
    if local and isinstance(nodes, int) and nodes > 1:
        yield (
            FAIL,
            f"{local[0]} is a different machine on each node, and trainer.nnodes is {nodes}",
            "set +reward.reward_kwargs.address to the server's host name, and start the server with"
            " --address 0.0.0.0:PORT",
        )


def check_dataset(case: Case) -> Iterator[Outcome]:
    """Find the dataset that will score samples, and compare its content with files."""
    if case.info is None:
        return
    wanted, own = case.dataset_name or case.settings.dataset, case.settings
    try:
        dataset = case.dataset = chosen_dataset(case.info, wanted, case.address or own.address)
    except InputError as error:
        advice = "set reward.reward_kwargs.dataset, or serve it: --dataset NAME=PATH"
        yield FAIL, str(error), advice
        return
    yield (
        OK,
        f"{dataset.name!r}: {count_of(dataset.num_problems, 'problem')},"
        f" {dataset.num_without_nodes:,} of them without nodes, {dataset.digest[:19]}…",
    )
    from consensuspr.scoring import DatasetIndex

    for role, path in {"--dataset": case.dataset_path, "dataset_path": own.dataset_path}.items():
        if path is None:
            continue
        try:
            digest = DatasetIndex.load(path).digest
        except DataError as error:
            yield FAIL, f"{role}: {error}", "correct the path or the file"
            continue
        if digest == dataset.digest:
            yield OK, f"{role}: {path} has the content of {dataset.name!r}"
        else:
            advice = "serve this file, or name the dataset that is served"
            found = f"{role}: {path} ({digest[:19]}…) is not the server's {dataset.name!r}"
            yield FAIL, found, advice


def check_data(case: Case, progress: ProgressBar) -> Iterator[Finding]:
    """Read the rows of both splits, and ask the server for their problems."""
    run = case.run
    files = {
        TRAIN: case.train_files or file_names(run.get("data.train_files")),
        VALIDATION: case.val_files or file_names(run.get("data.val_files")),
    }
    if not any(files.values()):
        return
    server = (case.client, case.dataset.name) if case.client and case.dataset else None
    scan = RowScan(case.settings, server, run.get("data.prompt_key") or "prompt")
    scan.run(files, progress)
    train = scan.rows[TRAIN]
    case.train_rows = train.rows if train.files and not train.bad_files else None
    yield from scan.findings()


def check_schedule(case: Case) -> Iterator[Outcome]:
    """Count the steps of the planned run, and find the step at which the curriculum switches."""
    run, rows, settings = case.run, case.train_rows, case.settings
    batch, most = run.get("data.train_batch_size"), run.get("data.train_max_samples")
    epochs, total = run.get("trainer.total_epochs"), run.get("trainer.total_training_steps")
    if rows is None or not isinstance(batch, int) or batch < 1:
        return
    planned = (min(rows, most) if isinstance(most, int) and most > 0 else rows) // batch
    if not planned:
        yield FAIL, f"{rows:,} training rows do not fill one batch of {batch}", "lower the batch"
        return
    if total is None and isinstance(epochs, int):
        total = planned * epochs
    yield OK, f"{planned:,} steps in an epoch, {total or 'unknown'} steps in all"
    if settings.reward != "curriculum":
        return
    if not case.by_manager and settings.epoch is None:
        yield FAIL, "a reward function does not see the training step", "use the reward manager"
        return
    if run.get("trainer.total_training_steps") and not settings.steps_per_epoch:
        yield FAIL, "trainer.total_training_steps may cut epochs short", "set steps_per_epoch"
        return
    switch = settings.switch_epoch * (settings.steps_per_epoch or planned) + 1
    if settings.epoch is None and isinstance(total, int) and switch > total:
        yield (
            WARN,
            f"the curriculum would switch at step {switch:,}, and training ends with step {total:,}"
            ": only NCR is ever rewarded",
            "lower switch_epoch, or train for more epochs",
        )
    elif settings.epoch is None:
        yield OK, f"the curriculum switches from NCR to Acc at step {switch:,}"


Check: TypeAlias = Callable[[Case], Iterator[Outcome]]

OF_RUN: dict[str, Check] = {
    "verl": check_verl,
    "old keys": check_old_keys,
    "reward manager": check_manager,
    "settings": check_settings,
}
OF_SETTINGS: dict[str, Check] = {
    "overlong penalty": check_overlong,
    "step credit": check_step_credit,
    "address": check_address,
}
OF_SERVER: dict[str, Check] = {"server": check_server, "dataset": check_dataset}


def examine(case: Case, progress: ProgressBar) -> Iterator[Finding]:
    """Yield one finding after the other, as soon as it is known.

    Args:
        case: the set-up as the user gives it; the rest is read from the run's configuration.
        progress: shows the number of rows read.
    """
    try:
        if case.command is not None or case.config_file is not None:
            try:
                if not verl_is_installed():
                    raise RunUnreadable(f"verl is not installed here; install it: {INSTALL_VERL}")
                case.run = describe(case.command or TrainingCommand(), case.config_file)
                yield from _made(OF_RUN, case)
            except RunUnreadable as error:
                yield Finding("configuration", FAIL, str(error), "correct it")
                if case.address is None:
                    return
        if case.settings_are_known:
            yield from _made(OF_SETTINGS, case)
        yield from _made(OF_SERVER, case)
        yield from check_data(case, progress)
        if case.settings_are_known:
            yield from _made({"schedule": check_schedule}, case)
    finally:
        if case.client is not None:
            case.client.close()


def _made(checks: dict[str, Check], case: Case) -> Iterator[Finding]:
    for name, check in checks.items():
        for outcome in check(case):
            yield Finding(name, *outcome)
