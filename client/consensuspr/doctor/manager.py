"""Will verl use our reward, and are its settings right?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from consensuspr.client.training import RewardSettings
from consensuspr.client.verl.config import SOURCE as MANAGER_SOURCE
from consensuspr.client.verl.config import ManagerConfig
from consensuspr.client.verl.function import SOURCE as FUNCTION_SOURCE
from consensuspr.client.verl.overlong import OverlongPenalty
from consensuspr.doctor.findings import Finding, fail, ok, skip, warn
from consensuspr.doctor.verl_run import VerlRun
from consensuspr.errors import InputError

OLDEST = (0, 7, 1)
PLUGINS_SINCE = (0, 9, 1)

_BY_NAME = "set reward.reward_manager.name=consensuspr"
_BY_PATH = (
    "set reward.reward_manager.source=importlib"
    " reward.reward_manager.module.path=pkg://consensuspr.client.verl"
    " reward.reward_manager.name=ConsensusRewardManager"
)


@dataclass(frozen=True, slots=True)
class Reward:
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


def read_reward(run: VerlRun) -> tuple[Reward, Finding]:
    """Read the reward's settings as training will."""
    by_manager = not (run.function and run.function.ours and not _ours(run))
    source = MANAGER_SOURCE if by_manager else FUNCTION_SOURCE
    try:
        if by_manager:
            read = ManagerConfig.of(run.config)
            reward = Reward(read.settings, read.overlong)
        else:
            settings = RewardSettings.of(run.get(FUNCTION_SOURCE) or {}, FUNCTION_SOURCE)
            if settings.score_log is not None:
                raise InputError("score_log: only the reward manager keeps one")
            reward = Reward(settings, by_manager=False)
    except InputError as error:
        given = run.get(f"{source}.address")
        known = {"address": given} if isinstance(given, str) else {}
        return Reward(RewardSettings(**known), valid=False), fail(
            "settings", str(error), "correct it"
        )
    given = run.get(source) or {}
    shown = ", ".join(f"{key}={value}" for key, value in given.items()) or "all defaults"
    return reward, ok("settings", f"{source}: {shown}")


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


def check_manager(run: VerlRun) -> Iterator[Finding]:
    """Say where verl will take rewards from."""
    check = "reward manager"
    if run.version is None:
        yield skip(check, "verl cannot be asked")
    elif run.manager is None:
        yield _not_found(run)
    elif _ours(run):
        yield from _checked_ours(run)
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


def release(run: VerlRun) -> tuple[int, ...]:
    """Return the version as numbers, for comparisons; what is no number ends it."""
    numbers = []
    for part in (run.version or "").split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _ours(run: VerlRun) -> bool:
    return run.manager is not None and run.manager.ours


def _checked_ours(run: VerlRun) -> Iterator[Finding]:
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
