"""Why an attempt failed, whether another can help, and when.

================================================  =========  =====================
what happened                                     repeated   else
================================================  =========  =====================
no connection, cut or silent stream, broken JSON  yes        ModelUnavailable
408, 409, 425, 429, 5xx                           yes        ModelUnavailable
429 because the account has no credit, 402        no         ModelNoAccess
401, 404                                          no         ModelNoAccess
403 before the first reply                        no         ModelNoAccess
403 later (moderation), 400, 413, 422, other 4xx  no         ModelRefused
================================================  =========  =====================
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import time
from typing import Any

from consensuspr.cli.console import one_line
from consensuspr.errors import ModelError, ModelNoAccess, ModelRefused, ModelUnavailable

REPEATED_CODES = frozenset({408, 409, 425, 429})
NO_ACCESS_CODES = frozenset({401, 402, 404})
NO_CREDIT = frozenset({"insufficient_quota", "billing_hard_limit_reached"})

MAX_BACKOFF_S = 60.0
# A server that asks for more is treated as gone: nobody wants a silent run for an hour.
MAX_RETRY_AFTER_S = 600.0


@dataclass(slots=True, eq=False)
class AttemptFailed(Exception):
    """One attempt came to nothing.

    Attributes:
        reason: one clause.
        kind: what it is where it is not repeated.
        retry_after_s: the server's hint.
    """

    reason: str
    kind: type[ModelError] = ModelUnavailable
    retry_after_s: float | None = None

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later."""
        if self.retry_after_s is not None and self.retry_after_s > MAX_RETRY_AFTER_S:
            return False
        return self.kind is ModelUnavailable


def backoff_s(
    failure: AttemptFailed,
    attempts: int,
    initial_s: float,
    uniform: Callable[[float, float], float],
) -> float:
    """Return how long to wait after the ``attempts``-th attempt.

    Drawn evenly from nothing to a bound that doubles ("full jitter"), after the server's hint.
    """
    # 2 ** 30 times any sensible start is past any sensible end; more would overflow.
    ceiling = min(MAX_BACKOFF_S, initial_s * 2.0 ** min(attempts - 1, 30))
    return (failure.retry_after_s or 0.0) + uniform(0.0, ceiling)


def from_status(
    code: int, headers: Mapping[str, str], body: object, answered_before: bool
) -> AttemptFailed:
    """Return what a status other than 200 means.

    Args:
        code: HTTP status.
        headers: with keys in lower case, or any case-blind mapping.
        body: the error object as openai unpacked it, or text.
        answered_before: the model has replied to something.
    """
    reason = f"HTTP {code}{_said(body)}"
    if code == 429 and _code(body) in NO_CREDIT:
        return AttemptFailed(reason, ModelNoAccess)
    if code in REPEATED_CODES or code >= 500:
        hint = retry_after_s(headers)
        if hint is not None and hint > MAX_RETRY_AFTER_S:
            reason += f" (asks to wait {hint:,.0f} s, the limit is {MAX_RETRY_AFTER_S:,.0f} s)"
        return AttemptFailed(reason, ModelUnavailable, hint)
    if code in NO_ACCESS_CODES or (code == 403 and not answered_before):
        return AttemptFailed(reason, ModelNoAccess)
    return AttemptFailed(reason, ModelRefused)


def from_event(error: object) -> AttemptFailed:
    """Return what an error inside a stream means: refused for a 4xx, else to be repeated."""
    code = error.get("code") if isinstance(error, dict) else None
    refused = isinstance(code, int) and 400 <= code < 500 and code not in REPEATED_CODES
    kind = ModelRefused if refused else ModelUnavailable
    return AttemptFailed(f"the stream reports an error{_said(error)}", kind)


def retry_after_s(headers: Mapping[str, str], now: Callable[[], float] = time) -> float | None:
    """Return the server's hint in seconds: ``retry-after-ms``, seconds, or an HTTP date."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000.0
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now())
    except (ValueError, TypeError, OverflowError):
        return None


def transport_errors() -> tuple[type[Exception], ...]:
    """Return what openai's transport raises while a body is read.

    openai wraps those of sending alone, and comes with either of two transports.
    """
    found = [sys.modules[name].HTTPError for name in ("httpx", "httpx2") if name in sys.modules]
    return (*found, OSError)


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return value if value is not None and math.isfinite(value) and value >= 0 else None


def _code(body: object) -> object:
    return _error(body).get("code") or _error(body).get("type")


def _said(body: object) -> str:
    """Return what the server said about it, as the end of a clause."""
    message = _error(body).get("message") if isinstance(body, dict) else body
    return f": {one_line(message, 300)}" if isinstance(message, str) and message.strip() else ""


def _error(body: object) -> dict[str, Any]:
    if not isinstance(body, dict):
        return {}
    inner = body.get("error")
    return inner if isinstance(inner, dict) else body
