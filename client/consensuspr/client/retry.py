"""When a failed attempt is made again: only if it can help, spread out, and inside the timeout."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from consensuspr.client.rpc_errors import RpcFailure
from consensuspr.errors import DeadlineExceeded, InputError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait before an attempt is repeated.

    The wait is drawn evenly from nothing to ``initial_backoff_s`` doubled per failed
    attempt, at most ``max_backoff_s`` ("full jitter"): a thousand workers that lost one
    server do not come back in step.  A server's hint is waited out first.

    Attributes:
        initial_backoff_s: upper end of the first wait.
        max_backoff_s: upper end of any wait, without a hint.
        max_attempts: of one request; None: as many as the timeout allows.
    """

    initial_backoff_s: float = 0.1
    max_backoff_s: float = 5.0
    max_attempts: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.initial_backoff_s <= self.max_backoff_s:
            raise InputError(
                f"initial_backoff_s must be in (0, max_backoff_s={self.max_backoff_s}],"
                f" got {self.initial_backoff_s}"
            )
        if self.max_attempts is not None and self.max_attempts < 1:
            raise InputError(f"max_attempts must be at least 1, got {self.max_attempts}")

    def delay_s(
        self, attempts: int, failure: RpcFailure, uniform: Callable[[float, float], float]
    ) -> float | None:
        """Return how long to wait after the ``attempts``-th attempt; None: do not repeat it."""
        if not failure.is_transient or attempts == self.max_attempts:
            return None
        # 2 ** 30 times any sensible start is past any sensible end; more would overflow.
        ceiling = min(self.max_backoff_s, self.initial_backoff_s * 2 ** min(attempts - 1, 30))
        return (failure.retry_after_s or 0.0) + uniform(0.0, ceiling)


@dataclass(frozen=True, slots=True)
class Deadline:
    """The end of a caller's patience.

    Attributes:
        at: ``clock()`` at which it ends.
        timeout_s: how long it was when it began.
        clock: seconds, monotonic.
    """

    at: float
    timeout_s: float
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def after(cls, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> Deadline:
        """Return the deadline that is ``timeout_s`` from now.

        Raises:
            InputError: the timeout is not a positive number.
        """
        if not 0 < timeout_s < math.inf:
            raise InputError(f"timeout_s must be a positive number of seconds, got {timeout_s}")
        return cls(clock() + timeout_s, timeout_s, clock)

    def remaining_s(self) -> float:
        """Return the seconds left, 0 or less when it has passed."""
        return self.at - self.clock()

    def error(self, context: str) -> DeadlineExceeded:
        """Return the exception for a call that was not over in time."""
        return DeadlineExceeded(f"{context}: not done within timeout_s={self.timeout_s:g}")
