"""Keys of a configuration: which of them verl's own configuration does not know.

Hydra refuses a misspelt key, except where it is added (``+key=value``) or stands in a file;
then nobody says a word about it, whether or not anything reads it.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from consensuspr.errors import ConsensusPRError, InputError

# Whoever is configured by these reads them itself: other libraries, or this one.
_PASSED_ON = ("_kwargs", "override_config", "override_transformer_config", "ray_init")

KeyPath = tuple[str, ...]


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


# MERGED Which names a package's source code uses, found without running any of it.
#
# A key of a configuration is read as an attribute (``config.trainer.nnodes``), as a text
# (``config.get("nnodes")``) or as an argument (``f(**config)``).  A name that occurs in none of
# these ways is read by nobody; a name that does occur may still belong to something else, so
# that the answer errs towards silence.

# Dotted ones too: OmegaConf.select(config, "trainer.nnodes").
_NAME = re.compile(r"[\w.\-]{1,200}")


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


# MERGED The run that a person means: the training command itself, or its Hydra overrides alone.
#
# ``consensuspr doctor --`` may be put before the whole command, environment variables included,
# so that what is checked is what will be run.

DEFAULT_MODULE = "verl.trainer.main_ppo"

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_CONFIG_FLAGS = {"--config-name": "name", "-cn": "name", "--config-path": "path", "-cp": "path"}


@dataclass(frozen=True, slots=True)
class TrainingCommand:
    """How verl is started.

    Attributes:
        module: that ``python -m`` runs.
        overrides: of Hydra.
        config_name: of Hydra; None for the module's own.
        config_path: of Hydra; None for the module's own.
        environment: variables set before the command.
    """

    module: str = DEFAULT_MODULE
    overrides: tuple[str, ...] = ()
    config_name: str | None = None
    config_path: str | None = None
    environment: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, words: Sequence[str]) -> TrainingCommand:
        """Read ``[NAME=VALUE …] python -m MODULE OVERRIDES``, or overrides alone.

        Raises:
            InputError: it is neither.
        """
        at = next((i for i, word in enumerate(words) if _is_python(word)), None)
        if at is None:
            return _with_hydra(cls(), words)
        before, after = words[:at], list(words[at + 1 :])
        odd = [word for word in before if not _ASSIGNMENT.match(word)]
        if odd:
            raise InputError(f"the training command may begin with NAME=VALUE, got {odd[0]!r}")
        while after and after[0] in ("-u", "-O", "-B"):
            after.pop(0)
        if len(after) < 2 or after[0] != "-m":
            raise InputError(
                "the training command must be python -m MODULE with Hydra overrides, got"
                f" {' '.join([words[at], *after[:1]])!r}"
            )
        environment = dict(word.split("=", 1) for word in before)
        return _with_hydra(cls(module=after[1], environment=environment), after[2:])


def _is_python(word: str) -> bool:
    return re.fullmatch(r"python[0-9.]*", os.path.basename(word)) is not None


def _with_hydra(command: TrainingCommand, words: Sequence[str]) -> TrainingCommand:
    """Return the command with its overrides, and the configuration that they are for."""
    config: dict[str, str] = {}
    overrides = []
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        if flag in _CONFIG_FLAGS:
            config[_CONFIG_FLAGS[flag]] = value if equals else next(rest, "")
            if not config[_CONFIG_FLAGS[flag]]:
                raise InputError(f"{flag} needs a value")
        elif word.startswith("-"):
            raise InputError(f"{word} is neither a Hydra override nor one of its config flags")
        else:
            overrides.append(word)
    return replace(
        command,
        overrides=tuple(overrides),
        config_name=config.get("name"),
        config_path=config.get("path"),
    )


# MERGED The verl run that is to be checked, as verl itself sees it.
#
# The probe runs in a child process (``probe.py``); what it says is a :class:`VerlRun`.

# Of verl 0.8 the trainer that became V1: it tells samples their step, and moves no settings of old.
SYNC_TRAINER_OF_0_8 = "verl.trainer.main_ppo_sync"

# Importing torch and Ray from a network disk takes minutes.
_PATIENCE_S = 600.0


class ProbeFailed(ConsensusPRError):
    """The run could not be described: verl, Hydra or the configuration refused."""


@dataclass(frozen=True, slots=True)
class Named:
    """A manager or function that verl found: its name, and whether it is ours."""

    name: str
    ours: bool


@dataclass(frozen=True, slots=True)
class VerlRun:
    """A run, described.

    Attributes:
        config: resolved and migrated; what the trainer fills in later is missing.
        trainer: module that is started.
        version: of verl; None where it could not be imported.
        migrates: the trainer moves reward settings of old to where they are read now.
        legacy: reward settings of old that are set, by dotted key.
        unread: keys, dotted, that were added and that nothing reads.
        manager: class of the reward manager; None where verl found none.
        function: the custom reward function, None where none is set or none was found.
        errors: by step (``verl``, ``plugin``, ``manager``, ``function``) why it failed.
    """

    config: Mapping[str, Any]
    trainer: str
    version: str | None = None
    migrates: bool = False
    legacy: Mapping[str, Any] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    manager: Named | None = None
    function: Named | None = None
    errors: Mapping[str, str] = field(default_factory=dict)

    def get(self, dotted: str) -> Any:
        """Return a value of the configuration, None where it is not there."""
        place: Any = self.config
        for key in dotted.split("."):
            if not isinstance(place, Mapping):
                return None
            place = place.get(key)
        return place


def describe(command: TrainingCommand, config_file: Path | None) -> VerlRun:
    """Ask verl about a run.

    Args:
        command: how it is started; its overrides do not count where there is a file.
        config_file: the run's configuration, as Hydra writes it beside the run's output.

    Raises:
        InputError: verl or what it configures with is not installed, or there is no such file.
        ProbeFailed: the configuration cannot be composed.
    """
    if importlib.util.find_spec("verl") is None:
        raise InputError(
            "verl is not installed in this environment, so that its run cannot be checked; without"
            " --config and training command, server and Parquet files are"
        )
    if config_file is not None and not config_file.is_file():
        raise InputError(f"--config: there is no file {config_file}")
    answer = _ask({"command": asdict(command), "config_file": config_file}, command.environment)
    if "config" not in answer:
        raise ProbeFailed(answer["config_error"])
    manager, function = answer.get("manager"), answer.get("function")
    return VerlRun(
        config=answer["config"],
        trainer=command.module,
        version=answer.get("version"),
        migrates=answer["migrates"],
        legacy=answer["legacy"],
        unread=tuple(answer.get("unread", ())),
        manager=Named(**manager) if manager else None,
        function=Named(**function) if function else None,
        errors={k.removesuffix("_error"): v for k, v in answer.items() if k.endswith("_error")},
    )


def _ask(request: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="consensuspr-doctor-") as folder:
        result, log = Path(folder, "result.json"), Path(folder, "log")
        with log.open("w") as out:
            try:
                code = subprocess.run(
                    [sys.executable, "-m", "consensuspr.doctor.probe", str(result)],
                    input=json.dumps(request, default=str),
                    stdout=out,
                    stderr=out,
                    text=True,
                    env={**os.environ, **environment},
                    timeout=_PATIENCE_S,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                raise ProbeFailed(f"verl did not answer within {_PATIENCE_S:g} s") from None
        if not result.exists():
            last = (log.read_text(errors="replace").strip().splitlines() or ["no word"])[-1]
            raise ProbeFailed(f"the process that asks verl ended with code {code}: {last}")
        answer: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return answer
