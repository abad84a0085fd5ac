"""How much work a worker process lets in, and when a refused caller should come back.

Two bounds.  **In bytes**, always: memory.  **In time**, where the worker does not catch up: a
training step sends all it has at once, and its requests are better queued than refused; but a
worker that has not been idle for longer than such a burst takes is offered more than it can do,
and a longer queue would only make everybody wait.  Then it lets in what it can work on at once,
and a few hundredths of a second of work more for short requests, and refuses the rest at once:
what is let in is served about as fast as under ordinary load.

Counted in bytes of requests, not in requests: one batch of long rollouts is a thousand
times one short rollout.  A request counts from its arrival until its work is really over, also
when its caller has left.  The hint of a refusal is the time in which the backlog, at the pace of
late, falls to what is let in.  Not covered: bytes that gRPC has received but not yet handed
over; they are bounded by the message limit and the number of concurrent streams of a connection.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

# Before anything was measured: what one core does with matching, RPC and answers together.
INITIAL_BYTES_PER_S = 20e6
# A rate is measured over stretches of work of this length and blended half and half, so
# that it follows a change of load within a second and a single odd request moves it little.
RATE_WINDOW_S = 0.5
MIN_RETRY_S = 0.02
# What a request costs beside its bytes, so that a flood of empty ones is bounded too.
REQUEST_OVERHEAD_BYTES = 4096
# While the worker does not catch up: wait for work of this length, or for what is in work.
STANDING_WAIT_S = 0.03
# Longer, and a trainer idles after the server has long caught up.
MAX_RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not let in, and after how long to try again."""

    reason: str
    retry_after_s: float


class Admission:
    """The books of one worker's unfinished requests; safe to use from any thread.

    Args:
        limit_bytes: refuse what would bring unfinished requests above this.  Where nothing is
            unfinished, anything is let in: it could otherwise never be served.
        at_once: requests that are worked on at a time; that many are never refused for time.
        burst_s: seconds for which the worker may have more without having been idle.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        limit_bytes: int,
        at_once: int,
        burst_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit_bytes = limit_bytes
        self._at_once = at_once
        self._burst_s = burst_s
        self._busy_since = clock()
        self._clock = clock
        self._lock = threading.Lock()
        self._bytes = 0
        self._requests = 0
        self._bytes_per_s = INITIAL_BYTES_PER_S
        self._window_start = clock()
        self._window_bytes = 0

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of the requests that are let in and not finished."""
        return self._bytes

    @property
    def unfinished_requests(self) -> int:
        """Requests that are let in and not finished."""
        return self._requests

    def admit(self, num_bytes: int) -> Refusal | None:
        """Count a request in; return why not where it is refused."""
        with self._lock:
            if self._requests and self._bytes + num_bytes > self._limit_bytes:
                return Refusal(
                    f"{self._bytes} bytes of requests are unfinished and {num_bytes} more would"
                    f" exceed the limit of {self._limit_bytes} bytes of this worker",
                    self._drain_s(0),
                )
            if not self._requests:
                # Time spent idle says nothing about the pace of work.
                self._window_start = self._busy_since = self._clock()
                self._window_bytes = 0
            refusal = self._too_late()
            if refusal is not None:
                return refusal
            self._requests += 1
            self._bytes += num_bytes
            return None

    def finish(self, num_bytes: int, *, served: bool) -> None:
        """Count a request out that :meth:`admit` let in.

        Args:
            num_bytes: as it was admitted.
            served: False where the work was abandoned, which says nothing of the pace.
        """
        with self._lock:
            self._requests -= 1
            self._bytes -= num_bytes
            if not served:
                return
            self._window_bytes += num_bytes
            elapsed = self._clock() - self._window_start
            if elapsed >= RATE_WINDOW_S:
                self._bytes_per_s = (self._bytes_per_s + self._window_bytes / elapsed) / 2
                self._window_start += elapsed
                self._window_bytes = 0

    def _too_late(self) -> Refusal | None:
        """Return why a request would wait too long, None where it would not."""
        if self._requests < self._at_once:
            return None
        busy_s = self._clock() - self._busy_since
        let_in_bytes = max(
            self._bytes * self._at_once // self._requests,
            int(STANDING_WAIT_S * self._bytes_per_s),
        )
        if busy_s <= self._burst_s or self._bytes < let_in_bytes:
            return None
        return Refusal(
            f"this worker has been busy for {busy_s:.1f} s without a pause and has"
            f" {self._requests} requests of {self._bytes} bytes unfinished; it lets in no more"
            f" than it works on at once until it has caught up",
            self._drain_s(let_in_bytes),
        )

    def _drain_s(self, let_in_bytes: int) -> float:
        """Return in how long the unfinished bytes fall to so many."""
        drain_s = (self._bytes - let_in_bytes) / max(self._bytes_per_s, 1.0)
        return min(MAX_RETRY_S, max(MIN_RETRY_S, drain_s))
