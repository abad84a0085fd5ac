"""What stage 2 made of a problem, as plain values and back: for the journal and for files."""

from __future__ import annotations

from typing import Any

from consensusbench.extraction.types import Candidate, Dropped, Extraction
from consensuspr.data import NODE_TYPES, Row
from consensuspr.errors import InputError


def extraction_to_row(extraction: Extraction) -> Row:
    """Return candidates and what was dropped, in their order."""
    return {
        "candidates": [
            {
                "label": one.label,
                "type": one.type,
                "expressions": list(one.expressions),
                "derived": list(one.derived),
                "support": one.support,
                "num_models": one.num_models,
                "position": one.position,
                "is_final": one.is_final,
            }
            for one in extraction.candidates
        ],
        "dropped": [dropped_to_row(one) for one in extraction.dropped],
    }


def dropped_to_row(dropped: Dropped) -> Row:
    """Return a conclusion that is no node, and why."""
    return {
        "stage": dropped.stage,
        "reason": dropped.reason,
        "detail": dropped.detail,
        "label": dropped.label,
        "expressions": list(dropped.expressions),
        "support": dropped.support,
    }


def extraction_from_row(row: Row) -> Extraction:
    """Return the extraction that a row describes.

    Raises:
        InputError: the row is not of this shape; the message is one clause.
    """
    return Extraction(
        tuple(_candidate(raw, at) for at, raw in enumerate(_list(row, "candidates"))),
        tuple(_dropped(raw, at) for at, raw in enumerate(_list(row, "dropped"))),
    )


def _candidate(raw: Any, at: int) -> Candidate:
    where = f"candidates[{at}]"
    kind = _value(raw, "type", str, where)
    if kind not in NODE_TYPES:
        raise InputError(f"{where}.type must be one of {', '.join(NODE_TYPES)}, got {kind!r}")
    expressions = _texts(raw, "expressions", where)
    if not expressions:
        raise InputError(f"{where} has no expressions")
    return Candidate(
        label=_value(raw, "label", str, where),
        type=kind,
        expressions=expressions,
        derived=_texts(raw, "derived", where),
        support=_value(raw, "support", int, where),
        num_models=_value(raw, "num_models", int, where),
        position=float(_value(raw, "position", (int, float), where)),
        is_final=_value(raw, "is_final", bool, where),
    )


def _dropped(raw: Any, at: int) -> Dropped:
    where = f"dropped[{at}]"
    stage = _value(raw, "stage", str, where)
    if stage not in ("extract", "refine"):
        raise InputError(f"{where}.stage must be extract or refine, got {stage!r}")
    support = raw.get("support")
    return Dropped(
        stage=stage,
        reason=_value(raw, "reason", str, where),
        detail=_value(raw, "detail", str, where),
        label=_value(raw, "label", str, where),
        expressions=_texts(raw, "expressions", where),
        support=None if support is None else _value(raw, "support", int, where),
    )


def _list(row: Row, key: str) -> list[Any]:
    value = row.get(key)
    if not isinstance(value, list):
        raise InputError(f"{key} must be a list")
    return value


def _value(raw: Any, key: str, kind: type | tuple[type, ...], where: str) -> Any:
    value = raw.get(key) if isinstance(raw, dict) else None
    # A truth value is a whole number to Python, and to nobody else.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise InputError(f"{where}.{key} is missing or of a wrong type")
    return value


def _texts(raw: Any, key: str, where: str) -> tuple[str, ...]:
    value = raw.get(key) if isinstance(raw, dict) else None
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise InputError(f"{where}.{key} must be a list of strings")
    return tuple(value)
