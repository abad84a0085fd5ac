"""Hydra overrides as a list in which each key stands once.

Hydra applies overrides in order, but refuses a second ``+key``, and without the ``+`` a key that
verl's schema lacks.  Here a later override of a key replaces the earlier one, whoever gave it,
and the settings of the reward, for which verl has no schema, get their ``+`` by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from consensuspr.errors import InputError

REWARD_KWARGS = "reward.reward_kwargs"

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
    """One override.

    Attributes:
        mark: ``""``, ``"+"`` (new key), ``"++"`` (new or not) or ``"~"`` (remove).
        key: dotted.
        value: as Hydra reads it; None for a removal without one.
    """

    mark: str
    key: str
    value: str | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``key=value``, with a mark or without.

        Raises:
            InputError: it is not of that form.
        """
        found = _OVERRIDE.fullmatch(text)
        if found is None or (found["value"] is None and found["mark"] != "~"):
            raise InputError(f"an override must be KEY=VALUE as Hydra takes it, got {text[:200]!r}")
        mark, key = found["mark"] or "", found["key"]
        if key == REWARD_KWARGS:
            raise InputError(
                f"give each setting of the reward on its own: {REWARD_KWARGS}.NAME=VALUE,"
                f" got {text[:200]!r}"
            )
        if key.startswith(f"{REWARD_KWARGS}."):
            if mark == "~":
                raise InputError(f"set {key} to another value, or to null, instead of removing it")
            mark = "+"
        return cls(mark, key, found["value"])

    def __str__(self) -> str:
        return f"{self.mark}{self.key}" + ("" if self.value is None else f"={self.value}")


class Overrides:
    """Overrides by key, in the order in which their keys first came."""

    def __init__(self) -> None:
        self._by_key: dict[str, Override] = {}

    def add(self, texts: Iterable[str]) -> None:
        """Take overrides; each replaces an earlier one of its key.

        Raises:
            InputError: one is no override.
        """
        for text in texts:
            override = Override.parse(text)
            earlier = self._by_key.get(override.key)
            if override.mark == "~" and earlier is not None and earlier.mark == "+":
                # What only an override had added is gone when that override is.
                del self._by_key[override.key]
                continue
            if earlier is not None and earlier.mark and not override.mark:
                override = Override(earlier.mark, override.key, override.value)
            self._by_key[override.key] = override

    def value(self, key: str) -> str | None:
        """Return the value of a key without its quotes; None where none is set."""
        override = self._by_key.get(key)
        if override is None or override.value is None:
            return None
        return override.value.strip().strip("'\"")

    def below(self, prefix: str) -> dict[str, str | None]:
        """Return what is set below a key: values by the rest of their keys."""
        start = f"{prefix}."
        return {key.removeprefix(start): self.value(key) for key in self if key.startswith(start)}

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def arguments(self) -> list[str]:
        """Return the overrides as arguments of a command."""
        return [str(override) for override in self._by_key.values()]
