"""Requests spaced out so that a model's limits a minute are kept.

Each request books the next free moment of two clocks, one that advances by a request and one
that advances by tokens; there are no bursts, since servers count in windows of their own.  How
many tokens a reply will take is not known before: a booking uses the mean so far and is put
right when the reply is there.  A server's ``Retry-After`` holds both clocks, so that not every
request in flight has to be told.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SECONDS = 60.0


class Pace:
    """The two clocks of one model.

    Args:
        requests_per_minute: None: no limit.
        tokens_per_minute: None: no limit.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        requests_per_minute: float | None,
        tokens_per_minute: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_request = SECONDS / requests_per_minute if requests_per_minute else 0.0
        self._per_token = SECONDS / tokens_per_minute if tokens_per_minute else 0.0
        self._clock = clock
        self._next_request = self._next_tokens = self._held_until = clock()

    def book(self, tokens: int) -> float:
        """Book the next free moment for a request of so many tokens.

        Returns:
            Seconds until then, 0 or more.
        """
        now = self._clock()
        start = max(now, self._next_request, self._next_tokens, self._held_until)
        self._next_request = start + self._per_request
        self._next_tokens = start + tokens * self._per_token
        return start - now

    def correct(self, booked: int, taken: int) -> None:
        """Put a booking right once it is known how many tokens it took."""
        self._next_tokens += (taken - booked) * self._per_token

    def hold(self, seconds: float) -> None:
        """Let no request begin for so long."""
        self._held_until = max(self._held_until, self._clock() + seconds)
