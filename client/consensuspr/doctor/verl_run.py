"""The verl run to check: the command that starts it, read by verl's own code."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from consensuspr.client.verl.config import select
from consensuspr.errors import ConsensusPRError, InputError

DEFAULT_MODULE = "verl.trainer.main_ppo"
V1_TRAINER = "verl.trainer.ppo.v1"
_PYTHON = re.compile(r"python[0-9.]*")


@dataclass(frozen=True, slots=True)
class TrainingCommand:
    """How verl is started: module that ``python -m`` runs, Hydra overrides, variables."""

    module: str = DEFAULT_MODULE
    overrides: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, words: Sequence[str]) -> TrainingCommand:
        """Read ``[NAME=VALUE …] python -m MODULE OVERRIDES``, or overrides alone.

        Raises:
            InputError: it is neither.
        """
        module, overrides, before = DEFAULT_MODULE, words, words[:0]
        programs = [os.path.basename(word) for word in words]
        at = next((i for i, name in enumerate(programs) if _PYTHON.fullmatch(name)), None)
        if at is not None:
            before, after = words[:at], words[at + 1 :]
            if len(after) < 2 or after[0] != "-m" or not all("=" in word for word in before):
                raise InputError(
                    "the training command must be [NAME=VALUE …] python -m MODULE with Hydra"
                    f" overrides, got {' '.join(words[: at + 2])!r}"
                )
            module, overrides = after[1], after[2:]
        flag = next((word for word in overrides if word.startswith("-")), None)
        if flag is not None:
            raise InputError(
                f"{flag} is not a Hydra override; give a configuration of your own by --config FILE"
            )
        return cls(module, tuple(overrides), dict(word.split("=", 1) for word in before))


class RunUnreadable(ConsensusPRError):
    """The configuration of a run cannot be composed."""


@dataclass(frozen=True, slots=True)
class Named:
    """A reward manager or function that verl loads."""

    name: str
    ours: bool


@dataclass(slots=True)
class VerlRun:
    """A run as verl sees it.

    Attributes:
        config: composed and resolved, without the values that the trainer fills in later.
        trainer: module that is started.
        version: of verl; None if it could not be imported.
        manager: the reward manager; None if verl found none.
        function: the custom reward function; None if none is set or none was found.
        errors: why a step failed (``verl``, ``trainer``, ``plugin``, ``manager``, ``function``).
    """

    config: Mapping[str, Any]
    trainer: str
    version: str | None = None
    manager: Named | None = None
    function: Named | None = None
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def release(self) -> tuple[int, ...]:
        """The version as numbers."""
        numbers = takewhile(str.isdigit, (self.version or "").split("."))
        return tuple(int(number) for number in numbers)

    def get(self, dotted: str) -> Any:
        """Return a value of the configuration, None if it is not there."""
        return select(self.config, *dotted.split("."))


def describe(command: TrainingCommand, config_file: Path | None) -> VerlRun:
    """Compose the configuration of a run, import verl and its trainer, and load what rewards.

    User code that training would run, such as a reward function, runs here too.  With a file, the
    overrides of the command do not count.  Raises RunUnreadable if nothing can be composed.
    """
    from omegaconf import OmegaConf

    os.environ.update(command.environment)
    sys.path.insert(0, os.getcwd())  # as python -m does
    # verl and its plugins print while they are imported.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            config: Any = OmegaConf.load(config_file) if config_file else _compose(command)
            plain: Any = OmegaConf.to_container(config, resolve=True)
        except Exception as error:
            raise RunUnreadable(_reason(error)) from error
        run = VerlRun(plain, command.module)
        _step(run, "verl", lambda: _ask_verl(run, config))
    return run


def _step(run: VerlRun, name: str, work: Callable[[], object]) -> None:
    try:
        work()
    except Exception as error:
        run.errors[name] = _reason(error)


def _reason(error: Exception) -> str:
    """Return the first two lines of an error; Hydra's advice is in the second."""
    lines = f"{type(error).__name__}: {error}".splitlines()
    return "; ".join([line.strip() for line in lines if line.strip()][:2])[:600]


def _compose(command: TrainingCommand) -> Any:
    from hydra import compose, initialize_config_module

    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides=list(command.overrides))


def _ask_verl(run: VerlRun, config: Any) -> None:
    import verl
    from omegaconf import OmegaConf

    run.version = verl.__version__
    _step(run, "trainer", lambda: _import_trainer(run))
    if run.release < (0, 9):
        # These trainers move old reward settings before they read any.
        from verl.experimental.reward_loop import migrate_legacy_reward_impl

        config = migrate_legacy_reward_impl(config)
        run.config = dict(OmegaConf.to_container(config, resolve=True))
    _step(run, "manager", lambda: _load_manager(run, config))
    _step(run, "function", lambda: _load_function(run, config))
    if run.manager is None:
        # verl logs no failure of a plugin.
        _step(run, "plugin", _load_plugin)


def _import_trainer(run: VerlRun) -> None:
    """Import the trainer; verl declares some of its packages only in extras."""
    if run.trainer.startswith("verl."):
        importlib.import_module(run.trainer)
    if run.get("trainer.use_v1") and importlib.util.find_spec(V1_TRAINER) is not None:
        importlib.import_module(V1_TRAINER)


def _load_manager(run: VerlRun, config: Any) -> None:
    from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls
    from verl.utils.import_utils import load_extern_object

    from consensuspr.client.verl import ConsensusRewardManager

    chosen = config.reward.reward_manager
    found: Any
    if chosen.source == "importlib":
        found = load_extern_object(chosen.module.path, chosen.name)
    else:
        found = get_reward_manager_cls(chosen.name)
    same = _same_source(found.run_single, ConsensusRewardManager.run_single)
    run.manager = Named(f"{found.__module__}.{found.__qualname__}", same)


def _load_function(run: VerlRun, config: Any) -> None:
    """Load the custom reward function, whether or not the manager will call it."""
    given = config.reward.get("custom_reward_function") or {}
    if given.get("path"):
        from verl.utils.import_utils import load_extern_object

        from consensuspr.client.verl import compute_score

        found = load_extern_object(module_path=given["path"], object_name=given["name"])
        name = f"{given['name']} of {given['path']}"
        run.function = Named(name, _same_source(found, compute_score))


def _load_plugin() -> None:
    for entry in importlib.metadata.entry_points(group="verl.plugins", name="consensuspr"):
        entry.load()


def _same_source(first: Any, second: Any) -> bool:
    """Return whether two functions have the same source; each load makes another object."""
    same_file = inspect.getsourcefile(first) == inspect.getsourcefile(second)
    return same_file and first.__qualname__ == second.__qualname__
