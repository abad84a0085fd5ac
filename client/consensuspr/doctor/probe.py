"""The child process that asks verl: ``python -m consensuspr.doctor.probe RESULT < request``.

verl prints, configures logging and loads torch when it is imported, and its plugins may do
anything; none of that belongs into the process of a command.  The request and the result are
JSON; a step that fails leaves its reason in the result, and the steps before it stand.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from consensuspr.doctor.verl_config import (
    DEFAULT_MODULE,
    TrainingCommand,
    added,
    calls,
    first_unread,
    hydra_config,
    set_below,
    used_names,
)

MIGRATION = "migrate_legacy_reward_impl"
PLUGIN = "consensuspr"
_LEGACY_FILE = "legacy_reward_impl.yaml"


class Failed(Exception):
    """A step failed for a reason that the user can mend."""


def main() -> None:
    """Answer the request on standard input into the file that is named."""
    request = json.load(sys.stdin)
    command = TrainingCommand(**request["command"])
    result: dict[str, Any] = {}
    _step(result, "config", lambda: _configure(result, command, request["config_file"]))
    Path(sys.argv[1]).write_text(json.dumps(result, default=str), encoding="utf-8")


def _step(result: dict[str, Any], name: str, work: Callable[[], None]) -> None:
    try:
        work()
    except Exception as error:
        result[f"{name}_error"] = _reason(error)


def _reason(error: BaseException) -> str:
    """Return the first lines of an error; Hydra says in the second what to do."""
    text = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines[:2])[:600]


def _configure(result: dict[str, Any], command: TrainingCommand, config_file: str | None) -> None:
    from omegaconf import OmegaConf

    started = main_file = _module_file(command.module)
    if hydra_config(main_file) == (None, None):
        # It prepares something and calls verl's own.
        main_file = _module_file(DEFAULT_MODULE)
    folder, name = _hydra_config(command, main_file)
    if config_file is None:
        run = _compose(folder, name, command.overrides)
        # Whatever is not added by force has to be in verl's configuration, chosen groups included.
        own = _compose(folder, name, [word for word in command.overrides if word[:1] != "+"])
    else:
        run = OmegaConf.load(config_file)
        engine = OmegaConf.select(run, "model_engine")
        own = _compose(folder, name, [f"model_engine={engine}"] if isinstance(engine, str) else [])
    own_keys, run_keys = _plain(own, resolve=False), _plain(run, resolve=False)
    foreign = added(run_keys, own_keys)
    if foreign:
        read = used_names(_source_folders(started))
        result["unread"] = sorted({k for p in foreign if (k := first_unread(p, own_keys, read))})
    result["legacy"] = set_below(run_keys, _legacy_roots(folder))
    result["migrates"] = calls(main_file, MIGRATION)
    result["config"] = _plain(run)
    _step(result, "verl", lambda: _ask_verl(result, run))


def _module_file(module: str) -> Path:
    """Return a module's file; its packages are not imported, which would run verl."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None:
        raise Failed(f"there is no module {module!r} in this environment")
    folder = next(iter(spec.submodule_search_locations or []), None)
    file = Path(folder, *rest).with_suffix(".py") if folder and rest else Path(spec.origin or "")
    if not file.is_file():
        raise Failed(f"there is no module {module!r} in this environment")
    return file


def _hydra_config(command: TrainingCommand, main_file: Path) -> tuple[Path, str]:
    """Return folder and name of the configuration that the command starts from."""
    own_path, own_name = hydra_config(main_file)
    name = command.config_name or own_name
    if name is None:
        raise Failed(f"@hydra.main of {command.module} names no configuration; give --config-name")
    # A path in the decorator and one on the command line are both relative to the module.
    folder = main_file.parent / (command.config_path or own_path or ".")
    return folder.resolve(), name.removesuffix(".yaml")


def _compose(folder: Path, name: str, overrides: Any) -> Any:
    from hydra import compose, initialize_config_dir

    if not folder.is_dir():
        raise Failed(f"there is no folder {folder} of configurations")
    with initialize_config_dir(str(folder), version_base=None):
        return compose(name, overrides=list(overrides))


def _plain(config: Any, resolve: bool = True) -> dict[str, Any]:
    from omegaconf import OmegaConf

    plain: dict[str, Any] = OmegaConf.to_container(config, resolve=resolve)
    return plain


def _source_folders(started: Path) -> list[Path]:
    """Return where keys of the configuration may be read: verl, and the trainer beside it."""
    spec = importlib.util.find_spec("verl")
    verl = [Path(folder) for folder in (spec and spec.submodule_search_locations) or []]
    outside = not any(started.is_relative_to(folder) for folder in verl)
    return [*verl, started.parent] if outside else verl


def _legacy_roots(folder: Path) -> list[str]:
    """Return the top keys of the reward settings of old; verl keeps them in one file."""
    from omegaconf import OmegaConf

    file = folder / _LEGACY_FILE
    return [str(key) for key in OmegaConf.load(file)] if file.is_file() else []


def _ask_verl(result: dict[str, Any], config: Any) -> None:
    """Let verl migrate the configuration, and say which manager it will use."""
    import verl

    result["version"] = verl.__version__
    if result["migrates"] and result["legacy"]:
        from verl.experimental import reward_loop

        config = getattr(reward_loop, MIGRATION)(config)
        result["config"] = _plain(config)
    _step(result, "manager", lambda: result.update(manager=_manager(config)))
    _step(result, "function", lambda: result.update(function=_function(config)))
    # Last: it registers the manager, also where verl would not have.
    _step(result, "plugin", _load_plugin)


def _load_plugin() -> None:
    """Load our entry point as verl 0.9.1 does, which keeps it to itself where that fails."""
    policy = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto").strip().lower()
    if policy != "auto" and PLUGIN not in [name.strip() for name in policy.split(",")]:
        raise Failed(f"VERL_USE_EXTERNAL_PLUGINS={policy} leaves it out")
    entries = importlib.metadata.entry_points(group="verl.plugins", name=PLUGIN)
    if not entries:
        raise Failed("this install of consensuspr has no entry point in verl.plugins")
    for entry in entries:
        entry.load()


def _manager(config: Any) -> dict[str, Any]:
    from verl.trainer.ppo import reward

    from consensuspr.client.verl import ConsensusRewardManager

    found: Any = getattr(reward, "resolve_reward_manager_cls", _resolve_manager_of_0_7)(config)
    return {
        "name": f"{found.__module__}.{found.__qualname__}",
        "ours": _same_source(found.run_single, ConsensusRewardManager.run_single),
    }


def _resolve_manager_of_0_7(config: Any) -> type:
    """Find the manager's class as verl 0.7 does where it makes the manager."""
    from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls
    from verl.utils.import_utils import load_extern_object

    chosen = config.reward.reward_manager
    found: type
    if chosen.source == "register":
        found = get_reward_manager_cls(chosen.name)
    elif chosen.source == "importlib":
        found = load_extern_object(chosen.module.path, chosen.name)
    else:
        raise Failed(f"reward.reward_manager.source must be register or importlib: {chosen.source}")
    return found


def _function(config: Any) -> dict[str, Any] | None:
    """Return the custom reward function, whether or not the manager will call it."""
    given = config.reward.get("custom_reward_function") or {}
    if not given.get("path"):
        return None
    from verl.utils.import_utils import load_extern_object

    from consensuspr.client.verl import compute_score

    found = load_extern_object(module_path=given["path"], object_name=given["name"])
    return {
        "name": f"{given['name']} of {given['path']}",
        "ours": _same_source(found, compute_score),
    }


def _same_source(one: Any, two: Any) -> bool:
    """Tell whether two functions are one; loaded from a file it is another object each time."""
    same_file = inspect.getsourcefile(one) == inspect.getsourcefile(two)
    return same_file and one.__qualname__ == two.__qualname__


if __name__ == "__main__":
    # As python -m MODULE would have it, for reward functions and trainers that lie beside.
    sys.path.insert(0, os.getcwd())
    main()
