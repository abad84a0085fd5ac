"""Settings that this verl takes without a word and never reads."""

from __future__ import annotations

from collections.abc import Iterator

from consensuspr.doctor.findings import Finding, fail, ok, warn
from consensuspr.doctor.verl_run import VerlRun

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
