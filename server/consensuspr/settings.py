"""Settings of a command or a server, from a TOML file, the environment and the command line.

A :class:`Settings` model names each setting once, with its default, range and meaning.
:func:`load_settings` fills it: ``--config FILE`` first, then environment variables, then options,
the later one winning.  :func:`settings_template` writes it as a TOML file (``--list-settings``).

A field may be a frozen dataclass or another model.  Its fields are settings too: in a TOML table of
its name, and in the environment with that name in front.  In the environment, commas separate the
items of a list.  For a setting without a default, ``""`` means "not set".
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import json
import re
import textwrap
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import UnionType
from typing import (
    Any,
    ClassVar,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined, to_jsonable_python

from consensuspr.errors import InputError, did_you_mean

# An environment variable that is so similar to a setting's is a misspelling.
_NEAR = 0.8
# Width of comments in a template.
_WIDTH = 96
# ``name: meaning`` in the docstring of a dataclass; further lines are indented.
_ATTRIBUTE = re.compile(r"^    (\w+): ((?:.+\n)(?:     +.+\n)*)", re.MULTILINE)
_MARKUP = re.compile(r":\w+:`~?(?:\w+\.)*(\w+)`|``(.+?)``")
# Pydantic's words, and plain ones.
_PLAIN_WORDS = (
    (r"^Value error, ", ""),
    (r", unable to .*|, got a number with a fractional part", ""),
    (r"^Input should be ", "must be "),
    (r"greater than or equal to", "at least"),
    (r"less than or equal to", "at most"),
    (r"greater than", "more than"),
    (r"a valid boolean", "true or false"),
    (r"a valid integer", "a whole number"),
    (r"a valid number", "a number"),
    (r"a valid string", "text"),
    (r"a valid (?:tuple|list)", "a list"),
    (r"an? (?:valid )?(?:dictionary|mapping).*", "a table"),
    (r"^could not .* byte .*", "must be a number of bytes, such as 1048576 or '1MiB'"),
    (r"^Unable to parse input string as an integer.*", "must be a whole number of fewer digits"),
    (r"^Input is not a valid path.*", "must be a path"),
)


class Settings(BaseModel):
    """Base of all settings: frozen, checked when made, no unknown names."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    # By setting: a reader of words of the environment or of a repeated option.
    read_words: ClassVar[Mapping[str, Callable[[Sequence[str]], object]]] = {}

    def check_options(self, given: Collection[str]) -> None:
        """Raise InputError if one of the given options has no effect beside the other settings."""


SettingsT = TypeVar("SettingsT", bound=Settings)
# A value, None for "not set", and where it was given, for error messages.
_Values: TypeAlias = dict[str, tuple[Any, str]]


class Setting(NamedTuple):
    """One setting: its name (``"workers"``, ``"refine.min_nodes"``) and field."""

    name: str
    field: FieldInfo

    @property
    def default(self) -> Any:
        """The default; None if it has none."""
        value = self.field.get_default(call_default_factory=True)
        return None if value is PydanticUndefined else value


def all_settings(model: type[Settings]) -> dict[str, Setting]:
    """Return all settings of a model by name, in the order of its fields."""
    settings: dict[str, Setting] = {}
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            inner = {f"{name}.{key}": each for key, each in kind.model_fields.items()}
        elif isinstance(kind, type) and dataclasses.is_dataclass(kind):
            inner = {f"{name}.{key}": each for key, each in _dataclass_fields(kind).items()}
        else:
            inner = {name: field}
        settings |= {key: Setting(key, each) for key, each in inner.items()}
    return settings


def _dataclass_fields(kind: type) -> dict[str, FieldInfo]:
    """Return the fields of a dataclass, described under ``Attributes:`` in its docstring."""
    described: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        text = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")[2]
        for name, meaning in _ATTRIBUTE.findall(text.partition("\n\n")[0] + "\n"):
            sentence = _MARKUP.sub(r"\1\2", " ".join(meaning.split()))
            described[name] = sentence[:1].upper() + sentence[1:]
    hints = get_type_hints(kind, include_extras=True)
    fields = {}
    for member in dataclasses.fields(kind):
        field = FieldInfo.from_annotated_attribute(hints[member.name], member)
        field.description = field.description or described.get(member.name)
        fields[member.name] = field
    return fields


def check_fields(value: Any, of: str = "") -> None:
    """Check the fields of a dataclass against their annotations; for its ``__post_init__``.

    The InputError names the first wrong field, and ``of``, its owner: ``" of gpt-5"``.
    """
    kind: type = type(value)
    for name, adapter in _adapters(kind).items():
        try:
            adapter.validate_python(getattr(value, name), strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise InputError(f"{name}{of} {what_is_wrong(first)}") from None


@cache
def _adapters(kind: type) -> dict[str, TypeAdapter[Any]]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: TypeAdapter(hints[field.name]) for field in dataclasses.fields(kind)}


def environment_name(prefix: str, setting: str) -> str:
    """Return the environment variable of a setting: ``CONSENSUSPR_WORKERS``."""
    return f"{prefix}_{setting.upper().replace('.', '_')}"


def load_settings(
    model: type[SettingsT],
    *,
    prefix: str,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> SettingsT:
    """Merge the sources of settings and check the result.

    Args:
        model: the settings.
        prefix: of environment variables, such as ``"CONSENSUSPR"`` or ``"CONSENSUSBENCH_BUILD"``.
        file: TOML; relative paths in it are relative to its directory.
        environment: variables by name.
        overrides: values of the command line by setting; None is "not given".

    Raises:
        InputError: a setting is unknown, has a wrong type or value, or the file cannot be
            read; names the setting and where it was given.
    """
    known = all_settings(model)
    values = {} if file is None else _from_file(file, known)
    values |= _from_environment(environment or {}, known, prefix, model)
    for name, value in (overrides or {}).items():
        if value is not None:
            _check_known(name, known, "the command line")
            if name in model.read_words and isinstance(value, list):
                value = model.read_words[name](value)
            values[name] = value, "--" + name.rpartition(".")[2].replace("_", "-")
    tree: dict[str, Any] = {}
    for name, (value, _) in values.items():
        if value is not None:
            group, _, leaf = name.rpartition(".")
            (tree.setdefault(group, {}) if group else tree)[leaf] = value
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise InputError(_one_sentence(error, values)) from None


def _from_file(path: Path, known: Mapping[str, Setting]) -> _Values:
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
    groups = {name.partition(".")[0] for name in known if "." in name}
    values: _Values = {}
    for key, value in table.items():
        is_group = key in groups and isinstance(value, dict)
        inner = (
            {f"{key}.{name}": item for name, item in value.items()} if is_group else {key: value}
        )
        for name, item in inner.items():
            _check_known(name, known, str(path))
            setting = known[name]
            is_unset = item == "" and setting.default is None
            given = _relative_to(path.parent, item, setting.field.annotation)
            values[name] = None if is_unset else given, f"in {path}"
    return values


def _relative_to(directory: Path, value: Any, annotation: Any) -> Any:
    """Resolve a path, or those of a table or list."""
    parts = get_args(annotation)
    origin = get_origin(annotation)
    if isinstance(value, str) and (annotation is Path or Path in parts):
        return directory / value if origin in (None, Union, UnionType) else value
    if isinstance(value, dict) and origin is dict:
        return {name: _relative_to(directory, item, parts[1]) for name, item in value.items()}
    if isinstance(value, list) and origin in (list, tuple):
        return [_relative_to(directory, item, parts[0]) for item in value]
    return value


def _from_environment(
    environment: Mapping[str, str],
    known: Mapping[str, Setting],
    prefix: str,
    model: type[Settings],
) -> _Values:
    settings = {environment_name(prefix, name): name for name in known}
    values: _Values = {}
    for variable, text in environment.items():
        name = settings.get(variable)
        if name is None:
            # A variable that nearly spells a setting is an error; others are of other commands.
            if variable.startswith(f"{prefix}_"):
                ends = [each.removeprefix(prefix) for each in settings]
                near = difflib.get_close_matches(variable.removeprefix(prefix), ends, 1, _NEAR)
                if near:
                    raise InputError(
                        f"unknown setting in the environment: {variable};"
                        f" did you mean {prefix}{near[0]}?"
                    )
            continue
        value: object = text
        words = [word.strip() for word in text.split(",")] if text else []
        if text == "" and known[name].default is None:
            value = None
        elif name in model.read_words:
            value = model.read_words[name](words)
        elif get_origin(known[name].field.annotation) in (list, tuple):
            value = words
        values[name] = value, f"environment variable {variable}"
    return values


def _check_known(name: str, known: Mapping[str, Setting], source: str) -> None:
    if name not in known:
        hint = did_you_mean(name, known, f"; known settings: {', '.join(known)}")
        raise InputError(f"unknown setting {name!r} in {source}{hint}")


def _one_sentence(error: ValidationError, values: _Values) -> str:
    """Return the first fault, with its setting, value and source."""
    first = error.errors(include_url=False)[0]
    location = [str(part) for part in first["loc"]]
    if not location:  # how several settings fit together
        return what_is_wrong(first)
    if first["type"] == "missing":
        return f"{'.'.join(location)} is not set; give --{location[-1].replace('_', '-')}"
    given = values.get(".".join(location[:2])) or values.get(location[0])
    source = f" ({given[1]})" if given else ""
    return f"{'.'.join(location)}{source}: {what_is_wrong(first)}"


def what_is_wrong(fault: ErrorDetails) -> str:
    """Return in a clause the demand on a value, and the value."""
    sentence = fault["msg"]
    for pattern, plain in _PLAIN_WORDS:
        sentence = re.sub(pattern, plain, sentence)
    # A check of ours names the value itself.
    return sentence if fault["type"] == "value_error" else f"{sentence}, got {fault['input']!r}"


def settings_template(model: type[Settings], *, prefix: str) -> str:
    """Return a TOML file of all settings: each with its meaning and its default, commented out."""
    lines = [
        "# Every setting with its default: take the # away and change what you need.",
        f"# Each can also be an environment variable, its name in capitals after {prefix}_.",
    ]
    table = ""
    # Tables last: a key behind one would belong to it.
    for name, setting in sorted(all_settings(model).items(), key=lambda item: "." in item[0]):
        group, _, leaf = name.rpartition(".")
        if group != table:
            table = group
            lines += ["", f"[{table}]"]
        lines.append("")
        for line in (setting.field.description or "").splitlines():
            lines += [f"# {part}" for part in textwrap.wrap(line, _WIDTH)]
        default = setting.default
        shown = '""  # not set' if default is None else _toml(to_jsonable_python(default))
        lines.append(f"# {leaf} = {shown}")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """Return a value as TOML, which differs from JSON in tables only."""
    if isinstance(value, dict):
        pairs = [f"{json.dumps(name)} = {_toml(item)}" for name, item in value.items()]
        return f"{{{', '.join(pairs)}}}"
    return json.dumps(value)
