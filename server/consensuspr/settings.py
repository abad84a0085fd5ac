"""Settings of a command or a server: named once, given in a file, the environment or options.

A command shows the dozen options that people set.  Everything else that can be set stands, with
the shown ones, in one :class:`Settings` value: names, defaults, ranges and meanings once.
:func:`load_settings` fills it from a TOML file (``--config FILE``), then from environment
variables, then from the command line, the later one winning; :func:`settings_template` writes it
as a TOML file to start from (``--list-settings``).

A setting that is misspelt is an error that names it, wherever it stands: what runs with a default
where its user meant something else is found out at the worst time.  Environment variables of the
prefix that belong to other parts of the product cannot be told from misspelt ones in general;
those that nearly spell a setting are refused.

A field may be a frozen dataclass or another model: its fields are settings too, in a TOML table
of its name, in the environment with the name in front (``CONSENSUSBENCH_BUILD_REFINE_MIN_NODES``).
A dataclass describes them where it does so anyway, under ``Attributes:`` of its docstring.
Deeper nesting is not supported.  In the environment, commas separate the items of a list, and
``""`` is an empty one.  Of a setting that has no default, ``""`` in a file or the environment says
that it is not set.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import json
import re
import textwrap
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined

from consensuspr.errors import InputError

# Similar by this share of letters: a misspelling (WORKER), not another variable (SHARED).
_NEAR = 0.8
# Of a line of comment in a template.
_WIDTH = 96
# ``name: meaning``, the meaning on indented lines where it is long.
_ATTRIBUTE = re.compile(r"^    (\w+): ((?:.+\n)(?:     +.+\n)*)", re.MULTILINE)
_MARKUP = re.compile(r":\w+:`~?(?:\w+\.)*(\w+)`|``(.+?)``")
# What is accepted, by pydantic's name for the fault; a check of our own says it itself.
_ACCEPTED = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "byte_size": "a number of bytes, such as 1048576 or '1MiB'",
    "byte_size_unit": "a number of bytes, such as 1048576 or '1MiB'",
    "dataclass_type": "a table of settings",
    "dict_type": "a table of names and values",
    "enum": "{expected}",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "int_type": "a whole number",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "list_type": "a list, in square brackets",
    "literal_error": "{expected}",
    "mapping_type": "a table of names and values",
    "model_type": "a table of settings",
    "multiple_of": "a multiple of {multiple_of}",
    "path_type": "a path",
    "string_type": "text",
    "tuple_type": "a list, in square brackets",
}
# What a plain type and "one of these types" have for an origin.
_CHOICES = (None, Union, UnionType)


class Settings(BaseModel):
    """Base of all settings values: frozen, checked when made, no unknown names."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    # What the words of the environment or of a repeated option mean, by setting, where the words
    # themselves will not do.
    read_words: ClassVar[Mapping[str, Callable[[Sequence[str]], object]]] = {}

    def check_options(self, given: Collection[str]) -> None:
        """Refuse options of a command line that have no effect beside the other settings.

        Where a file or a variable says them, they are for other calls too.

        Args:
            given: names of the settings that the command line gives.

        Raises:
            InputError: one does nothing.
        """


SettingsT = TypeVar("SettingsT", bound=Settings)


@dataclass(frozen=True, slots=True)
class _Value:
    """One value, None for "not set", and where it was given, as an error message calls it."""

    value: Any
    source: str


class Setting(NamedTuple):
    """One thing that can be set: its name (``"workers"``, ``"refine.min_nodes"``) and field."""

    name: str
    field: FieldInfo

    @property
    def default(self) -> Any:
        """The default; None where there is none."""
        value = self.field.get_default(call_default_factory=True)
        return None if value is PydanticUndefined else value


def all_settings(model: type[Settings]) -> dict[str, Setting]:
    """Return everything that can be set in a model by name, in the order of its fields."""
    return {setting.name: setting for setting in _walk(model)}


def _walk(model: type[Settings]) -> Iterator[Setting]:
    for name, field in model.model_fields.items():
        nested = field.annotation
        if isinstance(nested, type) and issubclass(nested, BaseModel):
            for inner, inner_field in nested.model_fields.items():
                yield Setting(f"{name}.{inner}", inner_field)
        elif isinstance(nested, type) and dataclasses.is_dataclass(nested):
            hints = get_type_hints(nested, include_extras=True)
            described = _attributes(nested)
            for member in dataclasses.fields(nested):
                inner_field = _field_of(member, hints[member.name])
                inner_field.description = inner_field.description or described.get(member.name)
                yield Setting(f"{name}.{member.name}", inner_field)
        else:
            yield Setting(name, field)


def _field_of(member: dataclasses.Field[Any], hint: Any) -> FieldInfo:
    """Return a dataclass's field as pydantic describes one of a model."""
    if member.default is not dataclasses.MISSING:
        return FieldInfo.from_annotated_attribute(hint, member.default)
    if member.default_factory is not dataclasses.MISSING:
        field = FieldInfo.from_annotation(hint)
        field.default_factory = member.default_factory
        return field
    return FieldInfo.from_annotation(hint)


def _attributes(kind: type) -> dict[str, str]:
    """Return what the docstrings of a dataclass and its bases say of their fields."""
    described: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        text = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")[2]
        section = text.partition("\n\n")[0]
        for name, meaning in _ATTRIBUTE.findall(section + "\n"):
            sentence = _MARKUP.sub(r"\1\2", " ".join(meaning.split()))
            described[name] = sentence[:1].upper() + sentence[1:]
    return described


def check_fields(value: Any, of: str = "") -> None:
    """Refuse a dataclass whose fields hold something else than their annotations say.

    For its ``__post_init__``: limits stand in annotations (``Annotated[int, Field(ge=1)]``), which
    only :func:`load_settings` would heed, and whoever makes a value in Python has them too.

    Args:
        of: what the value is of, for the message, such as ``" of gpt-5"``.

    Raises:
        InputError: names the first such field.
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
    return {one.name: TypeAdapter(hints[one.name]) for one in dataclasses.fields(kind)}


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
    """Merge the sources of settings, the later one winning, and check the result.

    Validators of the model get as context which settings the file says as they are anyway: it
    may be a whole template, of which nothing but the changes is anybody's wish.

    Args:
        model: what can be set.
        prefix: of environment variables, such as ``"CONSENSUSPR"`` or ``"CONSENSUSBENCH_BUILD"``.
        file: TOML; relative paths in it are relative to its directory.
        environment: variables by name; those of other programs are not looked at.
        overrides: values by setting (``"refine.min_nodes"``), as the command line gave them;
            None is "not given".

    Raises:
        InputError: a setting is unknown, has a wrong type or value, or the file cannot be
            read; names the setting and where it was given.
    """
    known = all_settings(model)
    in_file = _from_file(file, known) if file is not None else {}
    later = _from_environment(environment or {}, known, prefix, model)
    for name, value in (overrides or {}).items():
        if value is not None:
            _check_known(name, known, "the command line")
            option = name.rpartition(".")[2].replace("_", "-")
            if name in model.read_words and isinstance(value, list):
                value = model.read_words[name](value)
            later[name] = _Value(value, f"--{option}")
    values = in_file | later
    restated = {name for name, given in in_file.items() if given.value == known[name].default}
    tree: dict[str, Any] = {}
    for name, given in values.items():
        if given.value is None:
            continue
        group, dot, leaf = name.partition(".")
        if dot:
            tree.setdefault(group, {})[leaf] = given.value
        else:
            tree[group] = given.value
    try:
        return model.model_validate(tree, context=restated - later.keys())
    except ValidationError as error:
        raise InputError(_one_sentence(error, values)) from None


def _from_file(path: Path, known: Mapping[str, Setting]) -> dict[str, _Value]:
    try:
        with path.open("rb") as stream:
            table = tomllib.load(stream)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
    groups = {name.partition(".")[0] for name in known if "." in name}
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if key in groups and isinstance(value, dict):
            flat |= {f"{key}.{name}": item for name, item in value.items()}
        else:
            flat[key] = value
    values = {}
    for name, value in flat.items():
        _check_known(name, known, str(path))
        if _means_not_set(value, known[name]):
            value = None
        annotation = known[name].field.annotation
        values[name] = _Value(_relative_to(path.parent, value, annotation), f"in {path}")
    return values


def _means_not_set(value: object, setting: Setting) -> bool:
    """Return whether a value is what a template says of a setting without a default."""
    return value == "" and setting.default is None


def _relative_to(directory: Path, value: Any, annotation: Any) -> Any:
    """Resolve a path, or those of a table or list; leave another shape to validation."""
    parts = get_args(annotation)
    origin = get_origin(annotation)
    if isinstance(value, str):
        return directory / value if Path in (annotation, *parts) and origin in _CHOICES else value
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
) -> dict[str, _Value]:
    settings = {environment_name(prefix, name): name for name in known}
    values = {}
    for variable, text in environment.items():
        if not variable.startswith(f"{prefix}_"):
            continue
        name = settings.get(variable)
        if name is None:
            near = difflib.get_close_matches(variable, settings, n=1, cutoff=_NEAR)
            # Alike but for the prefix does not count.
            if near and _alike(variable, near[0], prefix):
                raise InputError(
                    f"unknown setting in the environment: {variable}; did you mean {near[0]}?"
                )
            continue
        value: object = text
        words = text.split(",") if text else []
        if _means_not_set(text, known[name]):
            value = None
        elif name in model.read_words:
            value = model.read_words[name](words)
        elif get_origin(known[name].field.annotation) in (list, tuple):
            value = [item.strip() for item in words]
        values[name] = _Value(value, f"environment variable {variable}")
    return values


def _alike(variable: str, name: str, prefix: str) -> bool:
    cut = len(prefix) + 1
    return difflib.SequenceMatcher(None, variable[cut:], name[cut:]).ratio() >= _NEAR


def _check_known(name: str, known: Mapping[str, Setting], source: str) -> None:
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known settings: {', '.join(known)}"
    raise InputError(f"unknown setting {name!r} in {source}; {hint}")


def _one_sentence(error: ValidationError, values: Mapping[str, _Value]) -> str:
    """Return the first thing that is wrong, with its setting, value and source."""
    first = error.errors(include_url=False)[0]
    location = [str(part) for part in first["loc"]]
    if not location:  # how several settings fit together
        return what_is_wrong(first)
    if first["type"] == "missing":
        option = "--" + location[-1].replace("_", "-")
        return f"{'.'.join(location)} is not set; give {option}"
    given = values.get(".".join(location[:2])) or values.get(location[0])
    source = f" ({given.source})" if given else ""
    return f"{'.'.join(location)}{source}: {what_is_wrong(first)}"


def what_is_wrong(fault: ErrorDetails) -> str:
    """Say what pydantic found wrong with one value: what it must be, and what it is."""
    if fault["type"] == "value_error":  # of ours: it names the value
        return fault["msg"].removeprefix("Value error, ")
    accepted = _ACCEPTED.get(fault["type"])
    if accepted is None:
        return f"{fault['msg']}, got {fault['input']!r}"
    limits = {
        name: int(limit) if isinstance(limit, float) and limit.is_integer() else limit
        for name, limit in fault.get("ctx", {}).items()
    }
    return f"must be {accepted.format(**limits)}, got {fault['input']!r}"


def settings_template(model: type[Settings], *, prefix: str) -> str:
    """Return a TOML file of all settings: each with its meaning and its default, commented out."""
    lines = [
        "# Every setting with its default: take the # away and change what you need.",
        f"# Each can also be an environment variable, its name in capitals after {prefix}_.",
    ]
    table = ""
    # Tables last: what stood behind one would belong to it.
    for name, setting in sorted(all_settings(model).items(), key=lambda item: "." in item[0]):
        group, dot, leaf = name.rpartition(".")
        if dot and group != table:
            table = group
            lines += ["", f"[{table}]"]
        lines.append("")
        for line in (setting.field.description or "").splitlines():
            lines += [f"# {part}" for part in textwrap.wrap(line, _WIDTH)]
        lines.append(f"# {leaf} = {_toml(setting)}")
    return "\n".join(lines) + "\n"


def _toml(setting: Setting) -> str:
    """Return a default as TOML; where nothing is set, ``""`` and what kind there could be.

    Either says nothing new once the # in front is taken away.
    """
    value = setting.default
    if value is None:
        return f'""  # not set; {_kind(setting.field.annotation)}'
    return _toml_value(value)


def _toml_value(value: Any) -> str:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(str(key))} = {_toml_value(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple | set | frozenset):
        return f"[{', '.join(map(_toml_value, value))}]"
    return json.dumps(str(value))


def _kind(annotation: Any) -> str:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        return " or ".join(_kind(part) for part in get_args(annotation) if part is not NoneType)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(json.dumps(member.value) for member in annotation)
    if origin is Literal:
        return " or ".join(map(json.dumps, get_args(annotation)))
    plain = {str: "text", int: "number", float: "number", bool: "true or false", Path: "path"}
    return plain.get(annotation, getattr(origin or annotation, "__name__", "value"))
