"""DAPO's soft overlong punishment, as verl's own DAPO manager computes it.

With a buffer of ``len`` tokens before the longest response ``max_resp_len``: nothing up to
the buffer, then linearly down to ``-penalty_factor`` at ``max_resp_len`` (and on, where a
response is longer).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeGuard

from consensuspr.errors import InputError

_KEYS = ("enable", "len", "penalty_factor", "log")


@dataclass(frozen=True, slots=True)
class OverlongPenalty:
    """The penalty of long responses; see the module.

    Attributes:
        free_tokens: response length without penalty, ``max_resp_len - len``.
        buffer_tokens: over how many tokens it grows by one ``factor``.
        factor: penalty at ``max_resp_len``.
    """

    free_tokens: int
    buffer_tokens: int
    factor: float

    @classmethod
    def of(cls, max_resp_len: object, buffer: Mapping[str, Any] | None) -> Self | None:
        """Read verl's ``max_resp_len`` and ``overlong_buffer_cfg``; None: no penalty.

        Raises:
            InputError: a key is unknown, missing or out of range.
        """
        if buffer is None:
            return None
        unknown = [key for key in buffer if key not in _KEYS]
        if unknown:
            raise InputError(
                f"unknown setting {unknown[0]!r} in overlong_buffer_cfg; known: {', '.join(_KEYS)}"
            )
        if not buffer.get("enable", False):
            return None
        length, factor = buffer.get("len"), buffer.get("penalty_factor", 1.0)
        if not _is_count(length):
            raise InputError(
                f"overlong_buffer_cfg.len must be a number of tokens of 1 or more, got {length!r}"
            )
        if not _is_count(max_resp_len) or max_resp_len < length:
            raise InputError(
                f"max_resp_len must be a number of tokens of at least overlong_buffer_cfg.len"
                f" ({length}), got {max_resp_len!r}"
            )
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not factor >= 0:
            raise InputError(
                f"overlong_buffer_cfg.penalty_factor must be a number of 0 or more, got {factor!r}"
            )
        return cls(max_resp_len - length, length, float(factor))

    def __call__(self, num_tokens: int) -> float:
        """Return the penalty of a response, 0 or less."""
        exceeding = num_tokens - self.free_tokens
        return min(-exceeding / self.buffer_tokens * self.factor, 0.0)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
