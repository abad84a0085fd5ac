"""The course of one RPC with all its requests, without any input or output.

An RPC is a row of requests (the pieces of a large batch, or a single one).  The pipeline says
which to send next, what to do about a failure, how long to wait, and when all is over; the
synchronous and the asynchronous client only carry out what it says.  So there is one place for
order, bounds, retries and deadlines, and it is tested without a network.  A failed attempt is
made again only if that can help, spread out, and inside the timeout.

Requests are built when their turn comes: of a batch of any size, only what is in flight is
held as messages.  Not thread-safe: one call belongs to one thread or task.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message
from grpc import StatusCode

from consensuspr.client.transport import RpcFailure
from consensuspr.errors import DeadlineExceeded, InputError, RewardServiceError

R = TypeVar("R", bound=Message)


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
    """The end of a caller's patience: when ``clock()`` is ``at``, after ``timeout_s``."""

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


@dataclass(slots=True)
class PendingRequest(Generic[R]):
    """The bytes of one request, and what is called once with its reply."""

    request: bytes
    deliver: Callable[[R], None]


@dataclass(slots=True)
class Attempt(Generic[R]):
    """One sending of a request, to be carried out at once, by its number from 1."""

    pending: PendingRequest[R]
    number: int
    timeout_s: float


class Pipeline(Generic[R]):
    """Keeps a bounded number of requests in flight until all have their replies.

    Args:
        requests: in order; drawn from one at a time.
        context: which call this is, the beginning of error messages.
        max_in_flight: requests at a time, those that wait to be repeated included.
        uniform: draws the random part of a wait.
    """

    def __init__(
        self,
        requests: Iterator[PendingRequest[R]],
        *,
        context: str,
        deadline: Deadline,
        policy: RetryPolicy,
        max_in_flight: int,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._requests = requests
        self._context = context
        self._deadline = deadline
        self._policy = policy
        self._max_in_flight = max_in_flight
        self._uniform = uniform
        self._open = 0  # requests drawn and not delivered
        self._exhausted = False
        # (due, tie-break, number of the next attempt, request) of what waits to be repeated.
        self._waiting: list[tuple[float, int, int, PendingRequest[R]]] = []
        self._order = itertools.count()
        # The latest transient failure since the latest success, and after how many attempts.
        self._last: tuple[int, RpcFailure] | None = None

    @property
    def done(self) -> bool:
        """Whether every request has been drawn and delivered."""
        return self._exhausted and not self._open

    @property
    def on_last(self) -> bool:
        """Whether one request alone is left, so that nothing happens before it ends."""
        return self._exhausted and self._open == 1

    def due(self) -> list[Attempt[R]]:
        """Return the attempts to start now.

        Raises:
            RewardServiceError: the caller's timeout passed.
        """
        remaining_s = self._deadline.remaining_s()
        if remaining_s <= 0 and not self.done:
            raise self._out_of_time()
        attempts = []
        now = self._deadline.clock()
        while self._waiting and self._waiting[0][0] <= now:
            _, _, number, pending = heapq.heappop(self._waiting)
            attempts.append(Attempt(pending, number, remaining_s))
        while not self._exhausted and self._open < self._max_in_flight:
            drawn = next(self._requests, None)
            if drawn is None:
                self._exhausted = True
            else:
                self._open += 1
                attempts.append(Attempt(drawn, 1, remaining_s))
        return attempts

    def wait_s(self) -> float:
        """Return how long nothing is due, unless a reply arrives: at least 0."""
        until = min(self._deadline.at, self._waiting[0][0] if self._waiting else self._deadline.at)
        return max(0.0, until - self._deadline.clock())

    def succeeded(self, attempt: Attempt[R], reply: R) -> None:
        """Take the reply to an attempt."""
        self._open -= 1
        self._last = None
        attempt.pending.deliver(reply)

    def failed(self, attempt: Attempt[R], failure: RpcFailure) -> None:
        """Take the failure of an attempt, and plan its repetition.

        Raises:
            RewardServiceError: it is not to be repeated, or not before the deadline.
        """
        if failure.code is StatusCode.DEADLINE_EXCEEDED and self._deadline.remaining_s() <= 0:
            raise self._out_of_time()
        delay_s = self._policy.delay_s(attempt.number, failure, self._uniform)
        if delay_s is None:
            raise failure.exception(self._context_after(attempt.number))
        self._last = (attempt.number, failure)
        if delay_s >= self._deadline.remaining_s():
            raise self._out_of_time()
        due = self._deadline.clock() + delay_s
        heapq.heappush(self._waiting, (due, next(self._order), attempt.number + 1, attempt.pending))

    def _out_of_time(self) -> RewardServiceError:
        """Return the exception for a call whose timeout has passed.

        Where attempts failed until then, it is their failure: that nobody listens says more
        than that time has passed.
        """
        if self._last is None:
            return self._deadline.error(self._context)
        attempts, failure = self._last
        timeout_s = self._deadline.timeout_s
        return failure.exception(
            f"{self._context_after(attempts)}, no time left of timeout_s={timeout_s:g}"
        )

    def _context_after(self, attempts: int) -> str:
        return self._context if attempts == 1 else f"{self._context}, {attempts} attempts"
