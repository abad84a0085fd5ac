"""JSON text of any row value.

What JSON cannot say is written as what it can: NaN and the infinities (which only Parquet
input brings) as null, bytes as text, dates as ISO 8601, all else as its ``str``.
"""

from __future__ import annotations

import json
import math
from typing import Any


def dump_json(value: object, ensure_ascii: bool = False) -> str:
    """Return ``value`` as one line of JSON."""
    try:
        return json.dumps(value, ensure_ascii=ensure_ascii, allow_nan=False, default=_as_json)
    except ValueError:
        plain = _finite(value)
        return json.dumps(plain, ensure_ascii=ensure_ascii, allow_nan=False, default=_as_json)


def dump_json_line(value: object) -> bytes:
    """Return ``value`` as UTF-8 with a line end; a lone surrogate is escaped and survives."""
    try:
        return dump_json(value).encode("utf-8") + b"\n"
    except UnicodeEncodeError:
        return dump_json(value, ensure_ascii=True).encode("ascii") + b"\n"


def _as_json(value: Any) -> object:
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "replace")
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return str(value)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
