"""Which models to ask: ``NAME[@BASE_URL]`` on the command line, or a TOML file.

::

    [defaults]                    # of all models of the file
    max_tokens = 16384

    [[models]]
    model = "gpt-5-mini"
    price_in = 0.25               # US dollars for a million tokens
    price_out = 2.0
    requests_per_minute = 500

    [[models]]
    model = "Qwen/Qwen3-32B"
    base_url = "http://127.0.0.1:8000/v1"
    api_key_env = "VLLM_KEY"
    temperature = "default"       # not sent
    extra_body = { top_k = 20 }

The keys are the attributes of :class:`ModelSettings`.  A model says more than the file's
defaults, and these more than those of the caller.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from consensusbench.models.settings import ModelSettings
from consensuspr.data import Row
from consensuspr.errors import DataError, InputError

NOT_SENT = "default"

_NAME_AND_URL = re.compile(r"(?P<name>.+?)(?:@(?P<url>https?://.+))?", re.DOTALL)
# After the last "@": a port, a path, a dotted or a numeric host.  A version (model@v2) is none,
# nor is what follows a slash (workers/@cf/model).
_ADDRESS = re.compile(
    r".*[^/]@(?P<address>[^@]*(?::[0-9]|/)[^@]*|localhost|(?:[\w-]+\.)+[A-Za-z]{2,}|[0-9]+(?:\.[0-9]+){3})",
    re.DOTALL,
)
_KEYS = tuple(one.name for one in fields(ModelSettings))
_TEXTS = ("model", "base_url", "api_key_env", "label", "max_tokens_field")
_NOT_SENT = ("temperature", "top_p", "max_tokens")
_WHOLE = ("max_tokens", "max_retries", "concurrency")


def read_models(
    names: Sequence[str], file: Path | None, defaults: Mapping[str, Any]
) -> tuple[ModelSettings, ...]:
    """Return the models that were named, then those of the file.

    Args:
        names: each ``NAME`` or ``NAME@BASE_URL``.
        file: TOML as above, None where there is none.
        defaults: values of attributes for models that do not say; None says nothing either.

    Raises:
        InputError: there is no model, two have one name, an address has no scheme, or a name or
            value is wrong.
        DataError: the file cannot be read, or holds something else.
    """
    models = [_settings(_named(name), defaults, f"--model {name}") for name in names]
    if file is not None:
        own, entries = _entries(file)
        models += [_settings(entry, {**defaults, **own}, str(file)) for entry in entries]
    if not models:
        raise InputError("no model is named: give --model NAME[@BASE_URL] or --models FILE")
    seen: set[str] = set()
    for model in models:
        if model.name in seen:
            raise InputError(
                f"two models are called {model.name!r}: give one a label in a models file"
            )
        seen.add(model.name)
    return tuple(models)


def _named(text: str) -> Row:
    match = _NAME_AND_URL.fullmatch(text)
    if match is None:
        raise InputError("a model has an empty name")
    address = _ADDRESS.fullmatch(text)
    if match["url"] is None and address is not None:
        raise InputError(
            f"--model {text}: the address {address['address']} must begin with http:// or https://"
        )
    return {"model": match["name"], **({"base_url": match["url"]} if match["url"] else {})}


def _entries(file: Path) -> tuple[Row, list[Row]]:
    """Return a file's defaults and its models."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(str(file), None, f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise DataError(str(file), None, f"is not TOML: {error}") from None
    own, entries = content.pop("defaults", {}), content.pop("models", None)
    if content:
        raise DataError(str(file), None, f"has an unknown table or key {next(iter(content))!r}")
    good = isinstance(entries, list) and all(isinstance(one, dict) for one in entries)
    if not isinstance(entries, list) or not good or not isinstance(own, dict):
        raise DataError(str(file), None, "must hold [[models]] tables, and [defaults] if any")
    return own, entries


def _settings(entry: Row, defaults: Mapping[str, Any], where: str) -> ModelSettings:
    given = {name: value for name, value in defaults.items() if value is not None} | entry
    if not isinstance(given.get("model"), str):
        raise InputError(f"{where}: a model has no name (key model)")
    for name, value in given.items():
        _check(name, value, f"{where}: model {given['model']!r}")
    values: dict[str, Any] = {
        name: None if value == NOT_SENT and name in _NOT_SENT else value
        for name, value in given.items()
    }
    return ModelSettings(**values)


def _check(name: str, value: object, where: str) -> None:
    if name == "api_key":
        raise InputError(f"{where}: keys stand in the environment; name it with api_key_env")
    if name not in _KEYS:
        raise InputError(f"{where}: unknown key {name!r}; known are {', '.join(_KEYS)}")
    if value == NOT_SENT and name in _NOT_SENT:
        return
    if name in _TEXTS:
        expected, good = "text", isinstance(value, str)
    elif name == "extra_body":
        expected, good = "a table", isinstance(value, dict)
    elif name == "stream_usage":
        expected, good = "true or false", isinstance(value, bool)
    elif name in _WHOLE:
        expected, good = "a whole number", isinstance(value, int) and not isinstance(value, bool)
    else:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        expected, good = "a number", number
    if not good:
        raise InputError(f"{where}: {name} must be {expected}, got {value!r}")
