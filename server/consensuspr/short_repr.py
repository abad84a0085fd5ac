"""The repr of public values: short, also for a value with thousands of nodes."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from enum import Enum
from typing import Any

# Items of a collection, and characters of a text, that a repr shows.
_ITEMS, _CHARACTERS = 4, 60


class _Shortened(reprlib.Repr):
    """Enum members by value, floats to six digits, rows of values counted, long values cut."""

    def __init__(self) -> None:
        super().__init__()
        self.maxtuple = self.maxlist = self.maxdict = self.maxset = _ITEMS
        self.maxstring = self.maxlong = _CHARACTERS
        self.maxother = 20 * _CHARACTERS  # values with a short repr of their own

    def repr1(self, x: Any, level: int) -> str:
        if isinstance(x, Enum):
            return repr(x.value)
        if isinstance(x, float):
            return repr(float(f"{x:.6g}"))
        if isinstance(x, Sequence) and x and isinstance(x[0], ShortRepr):
            return f"<{len(x):,} {type(x[0]).__name__}>"
        if isinstance(x, bytes):
            return self.repr_str(x, level)  # type: ignore[arg-type]  # cuts bytes as well
        return super().repr1(x, level)


_shortened = _Shortened().repr


class ShortRepr:
    """Base of a dataclass whose repr shows the fields that differ from their defaults.

    The dataclass needs ``repr=False``.  A field with ``repr=False`` is never shown.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        shown = {}
        for each in fields(self):  # type: ignore[arg-type]  # a dataclass inherits this
            value = getattr(self, each.name)
            default = each.default
            if each.default_factory is not MISSING:
                default = each.default_factory()
            if each.repr and not (default is not MISSING and value == default):
                shown[each.name] = value
        return f"{type(self).__name__}({short_fields(shown)})"


def short_fields(values: Mapping[str, object]) -> str:
    """Return ``name=value, ...`` of the values that are not None."""
    return ", ".join(
        f"{name}={_shortened(value)}" for name, value in values.items() if value is not None
    )


def short_list(values: Sequence[object]) -> str:
    """Return the repr of a list, of a long one that of its first items."""
    shown = [repr(value) for value in values[:_ITEMS]]
    if len(values) > _ITEMS:
        shown.append(f"... {len(values) - _ITEMS:,} more")
    return f"[{', '.join(shown)}]"
