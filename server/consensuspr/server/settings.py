"""Where settings come from: file < environment < command line.

A setting that is misspelt is an error that names it, wherever it stands; a server that
runs with a default where its operator meant something else is found out at the worst time.
Environment variables of the prefix that belong to other parts of the product cannot be
told from misspelt ones in general; those that nearly spell a setting are refused.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from consensuspr.errors import InputError
from consensuspr.server.config import DEFAULT_DATASET, ServerConfig

ENVIRONMENT_PREFIX = "CONSENSUSPR_"
# Similar by this share of letters: a misspelling (WORKER), not another variable (SHARED).
_NEAR = 0.8


@dataclass(frozen=True, slots=True)
class _Value:
    """One value and where it was given, as an error message calls it."""

    value: Any
    source: str


def environment_name(setting: str) -> str:
    """Return the environment variable of a setting."""
    return ENVIRONMENT_PREFIX + setting.upper()


def parse_datasets(arguments: Sequence[str]) -> dict[str, Path]:
    """Read ``PATH`` or ``NAME=PATH`` each; a bare path gets the name ``default``.

    Raises:
        InputError: two datasets have one name, or a name or path is empty.
    """
    datasets: dict[str, Path] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals or "/" in name:
            name, path = DEFAULT_DATASET, argument
        if not (name and path):
            raise InputError(f"dataset must be PATH or NAME=PATH, got {argument!r}")
        if name in datasets:
            raise InputError(
                f"two datasets are called {name!r} ({datasets[name]} and {path});"
                " name them with NAME=PATH"
            )
        datasets[name] = Path(path)
    return datasets


def load_config(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> ServerConfig:
    """Merge the sources of settings, the later one winning, and check the result.

    Args:
        file: TOML; relative dataset paths in it are relative to its directory.
        environment: variables named ``CONSENSUSPR_`` and the setting in capitals.
        overrides: settings by name, as the command line gave them; None is "not given".

    Raises:
        InputError: a setting is unknown, has a wrong type or value, or the file cannot be
            read; names the setting and where it was given.
    """
    values: dict[str, _Value] = {}
    if file is not None:
        values |= _from_file(file)
    values |= _from_environment(environment or {})
    for key, value in (overrides or {}).items():
        if value is not None:
            _check_known(key, "the command line")
            values[key] = _Value(value, f"--{key.replace('_', '-')}")
    if not values.get("datasets"):
        raise InputError("no dataset was given; serve needs at least one, PATH or NAME=PATH")
    try:
        return ServerConfig(**{key: item.value for key, item in values.items()})
    except ValidationError as error:
        raise InputError(_one_sentence(error, values)) from None


def _from_file(path: Path) -> dict[str, _Value]:
    try:
        with path.open("rb") as stream:
            table = tomllib.load(stream)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
    values = {}
    for key, value in table.items():
        _check_known(key, str(path))
        if key == "datasets":
            value = _relative_to(path.parent, value)
        values[key] = _Value(value, f"in {path}")
    return values


def _relative_to(directory: Path, datasets: object) -> object:
    """Resolve the paths of a ``[datasets]`` table; leave another shape to validation."""
    if not isinstance(datasets, dict):
        return datasets
    return {
        name: directory / path if isinstance(path, str) else path for name, path in datasets.items()
    }


def _from_environment(environment: Mapping[str, str]) -> dict[str, _Value]:
    names = {environment_name(setting): setting for setting in ServerConfig.model_fields}
    values = {}
    for variable, text in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        setting = names.get(variable)
        if setting is None:
            _check_not_misspelt(variable)
            continue
        value = parse_datasets(text.split(",")) if setting == "datasets" else text
        values[setting] = _Value(value, f"environment variable {variable}")
    return values


def _check_not_misspelt(variable: str) -> None:
    key = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
    near = difflib.get_close_matches(key, ServerConfig.model_fields, n=1, cutoff=_NEAR)
    if near:
        raise InputError(
            f"unknown setting in the environment: {variable};"
            f" did you mean {environment_name(near[0])}?"
        )


def _check_known(key: str, source: str) -> None:
    known = ServerConfig.model_fields
    if key in known:
        return
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known settings: {', '.join(known)}"
    raise InputError(f"unknown setting {key!r} in {source}; {hint}")


def _one_sentence(error: ValidationError, values: Mapping[str, _Value]) -> str:
    """Return the first thing that is wrong, with its setting, value and source."""
    first = error.errors(include_url=False)[0]
    reason = first["msg"].removeprefix("Value error, ")
    location = [str(part) for part in first["loc"]]
    if not location:  # how several settings fit together
        return reason
    given = values.get(location[0])
    source = f" ({given.source})" if given else ""
    # Checks of our own name the value in their sentence, pydantic's do not.
    value = "" if first["type"] == "value_error" else f", got {first['input']!r}"
    return f"{'.'.join(location)}{source}: {reason}{value}"
