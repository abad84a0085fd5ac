"""Columns of keys that nobody declared: which type fits all values, found while they pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from consensuspr.data.json_text import dump_json
from consensuspr.data.parquet import JSON_MARK

if TYPE_CHECKING:
    import pyarrow as pa

_EXACT_IN_A_DOUBLE = range(-(1 << 53), (1 << 53) + 1)
_INT64 = range(-(1 << 63), 1 << 63)


class Kinds:
    """Takes note of the values of several keys, then gives each key one type.

    Text, truth values, whole numbers and numbers have a type of their own; whatever mixes
    them, and objects and lists, becomes JSON text.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, set[str]] = {}

    def note(self, values: dict[str, Any]) -> None:
        """Take note of some keys and their values."""
        for key, value in values.items():
            kinds = self._kinds.setdefault(key, set())
            if value is not None:
                kinds.add(_kind(value))

    def fields(self) -> list[pa.Field]:
        """Return a field for each key, in order of first appearance."""
        import pyarrow as pa

        return [
            pa.field(key, pa.type_for_alias(kind))
            if (kind := self._settled(key)) != "json"
            else pa.field(key, pa.string(), metadata=JSON_MARK)
            for key in self._kinds
        ]

    def settled(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the values as their types have them."""
        return {
            key: dump_json(value) if value is not None and self._settled(key) == "json" else value
            for key, value in values.items()
        }

    def _settled(self, key: str) -> str:
        kinds = self._kinds[key]
        if not kinds:
            return "string"
        if kinds <= {"int64", "long"}:
            return "int64"
        if len(kinds) == 1:
            return next(iter(kinds))
        return "double" if kinds == {"int64", "double"} else "json"


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        if value in _EXACT_IN_A_DOUBLE:
            return "int64"
        return "long" if value in _INT64 else "json"
    if isinstance(value, float):
        return "double"
    return "string" if isinstance(value, str) else "json"
