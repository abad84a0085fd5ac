"""The child process that asks verl: ``python -m consensuspr.doctor.probe RESULT < request``.

verl prints, configures logging and loads torch when it is imported, and its plugins may do
anything; none of that belongs into the process of a command.  The request and the result are
JSON; a step that fails leaves its reason in the result, and the steps before it stand.

Hydra refuses a misspelt key, except where it is added (``+key=value``) or stands in a file; then
nobody says a word about it, whether or not anything reads it.  Such keys are found here: a key is
read as an attribute (``config.trainer.nnodes``), as a text (``config.get("nnodes")``) or as an
argument (``f(**config)``), so that a name that occurs in none of these ways in the source code of
verl and of the trainer, which is not run for it, is read by nobody.  A name that does occur may
still belong to something else: the answer errs towards silence.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from consensuspr.doctor.verl_config import DEFAULT_MODULE, TrainingCommand

V1_TRAINER = "verl.trainer.ppo.v1"
MIGRATION = "migrate_legacy_reward_impl"
PLUGIN = "consensuspr"
_LEGACY_FILE = "legacy_reward_impl.yaml"

# Whoever is configured by these reads them itself: other libraries, or this one.
_PASSED_ON = ("_kwargs", "override_config", "override_transformer_config", "ray_init")

KeyPath = tuple[str, ...]

# Dotted ones too: OmegaConf.select(config, "trainer.nnodes").
_NAME = re.compile(r"[\w.\-]{1,200}")


class _Refused(Exception):
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
    text = str(error) if isinstance(error, _Refused) else f"{type(error).__name__}: {error}"
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
        raise _Refused(f"there is no module {module!r} in this environment")
    folder = next(iter(spec.submodule_search_locations or []), None)
    file = Path(folder, *rest).with_suffix(".py") if folder and rest else Path(spec.origin or "")
    if not file.is_file():
        raise _Refused(f"there is no module {module!r} in this environment")
    return file


def _hydra_config(command: TrainingCommand, main_file: Path) -> tuple[Path, str]:
    """Return folder and name of the configuration that the command starts from."""
    own_path, own_name = hydra_config(main_file)
    name = command.config_name or own_name
    if name is None:
        raise _Refused(
            f"@hydra.main of {command.module} names no configuration; give --config-name"
        )
    # A path in the decorator and one on the command line are both relative to the module.
    folder = main_file.parent / (command.config_path or own_path or ".")
    return folder.resolve(), name.removesuffix(".yaml")


def _compose(folder: Path, name: str, overrides: Any) -> Any:
    from hydra import compose, initialize_config_dir

    if not folder.is_dir():
        raise _Refused(f"there is no folder {folder} of configurations")
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
    _step(result, "trainer", lambda: _import_trainer(config))
    if result["migrates"] and result["legacy"]:
        from verl.experimental import reward_loop

        config = getattr(reward_loop, MIGRATION)(config)
        result["config"] = _plain(config)
    _step(result, "manager", lambda: result.update(manager=_manager(config)))
    _step(result, "function", lambda: result.update(function=_function(config)))
    # Last: it registers the manager, also where verl would not have.
    _step(result, "plugin", _load_plugin)


def _import_trainer(config: Any) -> None:
    """Import the V1 trainer; verl declares some of its packages only in extras."""
    if config.trainer.get("use_v1") and importlib.util.find_spec(V1_TRAINER) is not None:
        importlib.import_module(V1_TRAINER)


def _load_plugin() -> None:
    """Load our entry point as verl 0.9.1 does, which keeps it to itself where that fails."""
    policy = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto").strip().lower()
    if policy != "auto" and PLUGIN not in [name.strip() for name in policy.split(",")]:
        raise _Refused(f"VERL_USE_EXTERNAL_PLUGINS={policy} leaves it out")
    entries = importlib.metadata.entry_points(group="verl.plugins", name=PLUGIN)
    if not entries:
        raise _Refused("this install of consensuspr has no entry point in verl.plugins")
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
        raise _Refused(
            f"reward.reward_manager.source must be register or importlib: {chosen.source}"
        )
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


def leaves(config: Mapping[str, Any], above: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield path and value of all that is no mapping, and of empty mappings."""
    for key, value in config.items():
        path = (*above, str(key))
        if isinstance(value, Mapping) and value:
            yield from leaves(value, path)
        else:
            yield path, value


def added(config: Mapping[str, Any], own: Mapping[str, Any]) -> list[KeyPath]:
    """Return the leaves of a run's configuration that verl's own has no place for.

    Left out is what stands below a mapping that verl passes on as a whole (``engine_kwargs``),
    or below one that its own configuration leaves empty, to be filled by the user.

    Args:
        config: of the run.
        own: verl's, without any override.
    """
    return [path for path, _ in leaves(config) if _is_foreign(path, own)]


def _is_foreign(path: KeyPath, own: Mapping[str, Any]) -> bool:
    place: Any = own
    for key in path:
        if any(key.endswith(name) for name in _PASSED_ON):
            return False
        if not isinstance(place, Mapping):
            # A null that the user has filled with a mapping.
            return False
        if key not in place:
            return bool(place)
        place = place[key]
    return False


def first_unread(path: KeyPath, own: Mapping[str, Any], read: frozenset[str]) -> str | None:
    """Return the first key on a foreign path, dotted from the top, that no code reads.

    Args:
        path: of :func:`added`.
        own: verl's configuration; keys that it knows are taken as read.
        read: names that occur in code as an attribute, a text or an argument.
    """
    place: Any = own
    for depth, key in enumerate(path):
        place = place.get(key) if isinstance(place, Mapping) else None
        if place is None and key not in read:
            return ".".join(path[: depth + 1])
    return None


def set_below(config: Mapping[str, Any], roots: Sequence[str]) -> dict[str, Any]:
    """Return what is set below some top keys: dotted path and value, nulls left out."""
    return {
        ".".join(path): value
        for root in roots
        for path, value in leaves({root: config.get(root)})
        if value is not None and value != {}
    }


def used_names(folders: Iterable[Path]) -> frozenset[str]:
    """Return the names used in all Python files below some folders; unreadable ones are skipped."""
    found: set[str] = set()
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            found.update(_names_in(file))
    return frozenset(found)


def calls(file: Path, name: str) -> bool:
    """Tell whether a file calls a function of this name."""
    return any(
        isinstance(node, ast.Call) and _last_name(node.func) == name for node in _nodes(file)
    )


def hydra_config(file: Path) -> tuple[str | None, str | None]:
    """Return config_path and config_name that a file gives to ``@hydra.main``."""
    for node in _nodes(file):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "hydra.main":
            given = {
                keyword.arg: keyword.value.value
                for keyword in node.keywords
                if isinstance(keyword.value, ast.Constant)
            }
            path, name = given.get("config_path"), given.get("config_name")
            return (
                path if isinstance(path, str) else None,
                name if isinstance(name, str) else None,
            )
    return None, None


def _names_in(file: Path) -> Iterator[str]:
    for node in _nodes(file):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Constant) and _NAME.fullmatch(str(node.value)):
            yield from str(node.value).split(".")


def _nodes(file: Path) -> Iterator[ast.AST]:
    try:
        with warnings.catch_warnings():
            # Odd escapes in others' code are not ours to report.
            warnings.simplefilter("ignore")
            tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return iter(())
    return ast.walk(tree)


def _last_name(function: ast.expr) -> str | None:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None


if __name__ == "__main__":
    # As python -m MODULE would have it, for reward functions and trainers that lie beside.
    sys.path.insert(0, os.getcwd())
    main()
