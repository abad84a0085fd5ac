"""How much work a worker process lets in, and when a refused caller should come back.

Two bounds.  **In bytes**, always: memory.  **In number**, where somebody sends without regard to
replies.  A trainer's clients have a few requests under way each and send the next one when a reply
has come: however many clients there are, what waits is bounded, and refusing would only idle the
worker while they wait to try again.  But a sender (a connection) of which many requests have been
waiting for longer than a burst takes sends more than is served, and would fill the queue without
end.  From then on as many requests may wait as one client has under way, or a hundredth of a second
of work where they are so short that it is more, and the rest is refused at once, until nothing had
to be refused for as long as a burst takes: what is let in is served about as fast as under ordinary
load.

Counted in bytes of requests, not in requests: one batch of long rollouts is a thousand
times one short rollout.  A request counts from its arrival until its work is really over, also
when its caller has left; it waits until its work begins.  The hint of a refusal is the time in
which the backlog, at the pace of late, falls to what is let in.  Not covered: bytes that gRPC has
received but not yet handed over; they are bounded by the message limit and the number of
concurrent streams of a connection.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
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
# So many requests of one sender wait only where it does not wait for replies: four times what a
# client of default settings has under way.
FLOOD_REQUESTS = 32
# What may wait while the worker is flooded, whichever is more: work of this length, or what one
# client of default settings (eight requests) has under way beside the one in work.
STANDING_WAIT_S = 0.01
STANDING_REQUESTS = 3
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
        burst_s: seconds for which :data:`FLOOD_REQUESTS` of one sender may wait without a pause
            before more are refused.
        clock: seconds, monotonic.
    """

    def __init__(
        self, limit_bytes: int, burst_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit_bytes = limit_bytes
        self._burst_s = burst_s
        self._clock = clock
        self._lock = threading.Lock()
        self._bytes = 0
        self._requests = 0
        self._waiting_bytes = 0
        self._waiting = 0
        self._waiting_of: Counter[str] = Counter()
        self._flooding = 0  # senders of which too many wait
        self._flooded_since = clock()
        self._late_at = -math.inf
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

    @property
    def refusing(self) -> bool:
        """Whether the worker was flooded of late, and refused requests for it."""
        return self._clock() - self._late_at < self._burst_s

    def closed(self) -> Refusal | None:
        """Return why a request of any size would be refused now; None where it would not."""
        with self._lock:
            return self._too_late()

    def admit(self, num_bytes: int, sender: str = "") -> Refusal | None:
        """Count a request in, as one that waits; return why not where it is refused.

        Args:
            num_bytes: of the request.
            sender: names the connection that it came by.
        """
        with self._lock:
            if self._requests and self._bytes + num_bytes > self._limit_bytes:
                return Refusal(
                    f"{self._bytes} bytes of requests are unfinished and {num_bytes} more would"
                    f" exceed the limit of {self._limit_bytes} bytes of this worker",
                    self._drain_s(self._bytes),
                )
            refusal = self._too_late()
            if refusal is not None:
                return refusal
            if not self._requests:
                # Time spent idle says nothing about the pace of work.
                self._window_start = self._clock()
                self._window_bytes = 0
            self._requests += 1
            self._bytes += num_bytes
            self._waiting += 1
            self._waiting_bytes += num_bytes
            self._waiting_of[sender] += 1
            if self._waiting_of[sender] == FLOOD_REQUESTS:
                if not self._flooding:
                    self._flooded_since = self._clock()
                self._flooding += 1
            return None

    def begin(self, num_bytes: int, sender: str = "") -> None:
        """Say that work on a request has begun that :meth:`admit` let in."""
        with self._lock:
            self._leave_queue(num_bytes, sender)

    def finish(self, num_bytes: int, sender: str = "", *, begun: bool, served: bool) -> None:
        """Count a request out that :meth:`admit` let in.

        Args:
            num_bytes: as it was admitted.
            sender: as it was admitted.
            begun: whether :meth:`begin` was called for it.
            served: False where the work was abandoned, which says nothing of the pace.
        """
        with self._lock:
            self._requests -= 1
            self._bytes -= num_bytes
            if not begun:
                self._leave_queue(num_bytes, sender)
            if not served:
                return
            self._window_bytes += num_bytes
            elapsed = self._clock() - self._window_start
            if elapsed >= RATE_WINDOW_S:
                self._bytes_per_s = (self._bytes_per_s + self._window_bytes / elapsed) / 2
                self._window_start += elapsed
                self._window_bytes = 0

    def _leave_queue(self, num_bytes: int, sender: str) -> None:
        self._waiting -= 1
        self._waiting_bytes -= num_bytes
        if self._waiting_of[sender] == FLOOD_REQUESTS:
            self._flooding -= 1
        self._waiting_of[sender] -= 1
        if not self._waiting_of[sender]:
            del self._waiting_of[sender]

    def _too_late(self) -> Refusal | None:
        """Return why a request would be one too many, None where it would not."""
        may_wait = STANDING_WAIT_S * self._bytes_per_s
        if self._waiting < STANDING_REQUESTS or self._waiting_bytes < may_wait:
            return None
        now = self._clock()
        flooded = self._flooding and now - self._flooded_since > self._burst_s
        if not flooded and not self.refusing:
            return None
        self._late_at = now
        return Refusal(
            f"this worker does not catch up: {self._waiting} requests of {self._waiting_bytes}"
            f" bytes wait for their turn; no more are let in until fewer do",
            self._drain_s(min(self._waiting_bytes - may_wait, self._waiting_bytes / 2)),
        )

    def _drain_s(self, num_bytes: float) -> float:
        """Return in how long so many bytes are worked off."""
        drain_s = num_bytes / max(self._bytes_per_s, 1.0)
        return min(MAX_RETRY_S, max(MIN_RETRY_S, drain_s))
