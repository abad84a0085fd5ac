"""Recipes: files of Hydra overrides, one a topic, merged so that each key occurs once.

Hydra rejects a second ``+key``, and a key that verl's schema lacks without the ``+``.  Here a later
override replaces an earlier one, and settings of the reward get their ``+`` automatically.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Self

from consensuspr.client.training import RewardSettings
from consensuspr.client.verl.config import BUFFER_KEYS, OLD_GROUPS, OVERLONG, SOURCE, key_now
from consensuspr.errors import InputError

COMMON = "common"
STEP_CREDIT = "step-credit"
# Sizes of Qwen3-Base that have a recipe; any other model is named by its path or hub name.
MODELS = {"1.7b": "qwen3-1.7b", "4b": "qwen3-4b", "8b": "qwen3-8b"}

SUFFIX = ".overrides"

# Settings of verl's own among ours.
_VERLS = (OVERLONG[0], *(f"{OVERLONG[1]}.{key}" for key in BUFFER_KEYS))

_OVERRIDE = re.compile(r"(?P<mark>\+\+|\+|~)?(?P<key>[A-Za-z_][\w./@-]*)(?:=(?P<value>.*))?", re.S)

# Texts that Hydra reads as they stand, without quotes.
_PLAIN = re.compile(r"[\w/.+@%:-]+", re.ASCII)
_NOT_A_TEXT = re.compile(r"(?i)[+-]?(\d[\d_.e+-]*|\.\d+|inf|nan)|true|false|null", re.ASCII)


def hydra_text(value: object) -> str:
    """Return a text in the form in which Hydra reads it as that text."""
    text = str(value)
    if _PLAIN.fullmatch(text) and not _NOT_A_TEXT.fullmatch(text):
        return text
    # Hydra's grammar: a quote and the backslashes before it, or at the end, are escaped.
    escaped = re.sub(r"(\\*)('|\Z)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), text)
    return f"'{escaped}'"


def hydra_list(values: Iterable[object]) -> str:
    """Return a list of texts as Hydra reads it; a single one as that text alone."""
    texts = [hydra_text(value) for value in values]
    return texts[0] if len(texts) == 1 else f"[{','.join(texts)}]"


@dataclass(frozen=True, slots=True)
class Override:
    """One override: its mark (``""``, ``"+"``, ``"++"`` or ``"~"``), dotted key and value."""

    mark: str
    key: str
    value: str | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``key=value``, with a mark or without; raise InputError for another form."""
        found = _OVERRIDE.fullmatch(text)
        if found is None or (found["value"] is None and found["mark"] != "~"):
            raise InputError(f"an override must be KEY=VALUE, got {text[:200]!r}")
        mark, key = found["mark"] or "", found["key"]
        if key == SOURCE:
            raise InputError(
                f"set each setting of the reward separately: {SOURCE}.NAME=VALUE,"
                f" got {text[:200]!r}"
            )
        if key.startswith(f"{SOURCE}."):
            if mark == "~":
                raise InputError(f"set {key} to another value, or to null, instead of removing it")
            mark = "+"
        return cls(mark, key, found["value"])

    def __str__(self) -> str:
        return f"{self.mark}{self.key}" + ("" if self.value is None else f"={self.value}")


class Overrides:
    """Overrides by key, in the order of first appearance."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._by_key: dict[str, Override] = {}
        self.add(texts)

    def add(self, texts: Iterable[str]) -> None:
        """Add overrides; each replaces an earlier one of its key."""
        for text in texts:
            override = Override.parse(text)
            earlier = self._by_key.get(override.key)
            if override.mark == "~" and earlier is not None and earlier.mark == "+":
                # The key exists only because of the earlier override.
                del self._by_key[override.key]
                continue
            if earlier is not None and earlier.mark and not override.mark:
                override = Override(earlier.mark, override.key, override.value)
            self._by_key[override.key] = override

    def add_default(self, key: str, value: object) -> None:
        """Set a text if the key is not set yet."""
        if key not in self._by_key:
            self.add([f"{key}={hydra_text(value)}"])

    def value(self, key: str) -> str | None:
        """Return the value of a key without its quotes; None if none is set."""
        override = self._by_key.get(key)
        if override is None or override.value is None:
            return None
        return override.value.strip().strip("'\"")

    def below(self, prefix: str) -> dict[str, str | None]:
        """Return the values below a key, by the remainders of their keys."""
        start = f"{prefix}."
        return {key.removeprefix(start): self.value(key) for key in self if key.startswith(start)}

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def arguments(self) -> list[str]:
        """Return the overrides as arguments of a command."""
        return [str(override) for override in self._by_key.values()]


def recipe(name: str) -> list[str]:
    """Return the overrides of a recipe of ours."""
    source = files("consensuspr.launch").joinpath("recipe_files", name + SUFFIX)
    return _overrides(source.read_text(encoding="utf-8"))


def read_recipe(path: Path) -> list[str]:
    """Return the overrides of a user's own file; raise InputError if it cannot be read."""
    try:
        return _overrides(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None


def _overrides(text: str) -> list[str]:
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def check_overrides(overrides: Overrides) -> None:
    """Reject settings that verl would ignore and those that the reward does not know.

    Raises:
        InputError: names the setting, and its replacement if there is one.
    """
    for key in overrides:
        if key.partition(".")[0] in OLD_GROUPS:
            raise InputError(f"verl would ignore {key}, since 0.9 the key is {key_now(key)}")
        inside = next((other for other in overrides if other.startswith(f"{key}.")), None)
        if inside is not None:
            raise InputError(f"{key} is a group of settings, such as {inside}; set those inside it")
    given: dict[str, object] = {}
    for key, value in overrides.below(SOURCE).items():
        if key in _VERLS:
            continue
        if key.startswith(f"{OVERLONG[1]}."):
            raise InputError(
                f"unknown setting {key!r} in {SOURCE}; verl's own are {', '.join(_VERLS)}"
            )
        # The manager checks values that Hydra fills in when training starts.
        if value is None or "${" not in value or key not in RewardSettings.model_fields:
            given[key] = None if value in (None, "null") else value
    RewardSettings.of(given, SOURCE)
