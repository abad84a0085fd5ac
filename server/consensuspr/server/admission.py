"""Which requests a worker lets in, and which of them computes next.

**Admission** has two bounds.  **In bytes**, always: memory.  **In number**, for a sender that sends
without regard to replies.  A trainer's clients have a few requests under way each and send the next
one when a reply has come: however many clients there are, what waits is bounded, and refusing would
only idle the worker while they wait to try again.  But a sender (a connection) of which many
requests have been waiting for longer than a burst takes sends more than is served, and would fill
the queue without end.  Until none of its requests had to be refused for as long as a burst takes,
they are let in only while next to nothing waits, and are served about as fast as under ordinary
load.  Other senders are queued as ever.

Counted in bytes of requests, not in requests: one batch of long rollouts is a thousand times one
short rollout.  Bytes bound work too, because no text and no nodes make a byte of a response cost
more than a few times the usual (``docs/design/core.md``, "Matching"). A byte of inline nodes that
were not seen of late costs some thirty times as much, and is not charged more: they are a few
kilobytes, are compiled with an eye on the deadline, and the pace of late, by which all is told
when to come again, slows with them.  A request counts from its arrival until its work is really
over, also when its caller has left; it waits until its work begins.  The hint of a refusal is the
time in which the backlog, at the pace of late, falls to what is let in.  Not covered: bytes that
gRPC has received but not yet handed over; they are bounded by the message limit and the number of
concurrent streams of a connection.

**Turns to compute**: a worker has more requests in work than cores, because some only wait for an
answer process.  If all of them computed at once, each would be as slow as all together, and the
event loop, which receives, refuses and replies, would get a share of a core as small as theirs:
under more load than the worker can do, requests would pile up in front of the admission.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

# Before anything was measured: what one core does with matching, RPC and answers together.
INITIAL_BYTES_PER_S = 20e6
# A rate is measured over stretches of work of this length and blended half and half, so
# that it follows a change of load within a second and a single odd request moves it little.
RATE_WINDOW_S = 0.5
MIN_RETRY_S = 0.02
# So many requests of one sender wait only where it does not wait for replies: four times what a
# client of default settings has under way.
FLOOD_REQUESTS = 32
# What may wait where a request of a flooding sender is let in, whichever is more: work of this
# length, or so many requests; enough that the worker does not idle.
STANDING_WAIT_S = 0.01
STANDING_REQUESTS = 3
# Longer, and a trainer idles after the server has long caught up.
MAX_RETRY_S = 5.0

# What has to be received, refused and replied to must not wait behind work of the same process:
# threads that work are so much nicer than the process.
THREAD_NICENESS = 5

R = TypeVar("R")


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
            before more of it are refused.
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
        # Of senders: since when too many wait, and when one of them was last refused for that.
        self._flooding_since: dict[str, float] = {}
        self._refused_at: dict[str, float] = {}
        self._last_refused_at = -math.inf
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
        """Whether requests of a flooding sender were refused of late."""
        return self._clock() - self._last_refused_at < self._burst_s

    def closed(self, sender: str) -> Refusal | None:
        """Return why a request of any size would be refused now; None where it would not."""
        with self._lock:
            return self._flood(sender)

    def admit(self, num_bytes: int, sender: str = "") -> Refusal | None:
        """Count a request in, as one that waits; return why not where it is refused.

        ``sender`` names the connection that it came by; empty where that says nothing of who
        sent it, and nobody is taken to flood.
        """
        with self._lock:
            if self._requests and self._bytes + num_bytes > self._limit_bytes:
                return Refusal(
                    f"{self._bytes} bytes of requests are unfinished and {num_bytes} more would"
                    f" exceed the limit of {self._limit_bytes} bytes of this worker",
                    self._drain_s(self._bytes),
                )
            refusal = self._flood(sender)
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
            if sender:
                self._waiting_of[sender] += 1
                if self._waiting_of[sender] == FLOOD_REQUESTS:
                    self._flooding_since[sender] = self._clock()
            return None

    def begin(self, num_bytes: int, sender: str = "") -> None:
        """Say that work on a request has begun that :meth:`admit` let in."""
        with self._lock:
            self._leave_queue(num_bytes, sender)

    def finish(self, num_bytes: int, sender: str = "", *, begun: bool, served: bool) -> None:
        """Count a request out that :meth:`admit` let in, and :meth:`begin` where it is begun.

        Not ``served`` is work that was abandoned, which says nothing of the pace.
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
        if not sender:
            return
        if self._waiting_of[sender] == FLOOD_REQUESTS:
            del self._flooding_since[sender]
        self._waiting_of[sender] -= 1
        if not self._waiting_of[sender]:
            del self._waiting_of[sender]

    def _flood(self, sender: str) -> Refusal | None:
        """Return why a request is refused that a flooding sender sends, else None."""
        may_wait = STANDING_WAIT_S * self._bytes_per_s
        if self._waiting < STANDING_REQUESTS or self._waiting_bytes < may_wait:
            return None
        now = self._clock()
        since = self._flooding_since.get(sender)
        if since is None or now - since <= self._burst_s:
            refused_at = self._refused_at.get(sender)
            if refused_at is None:
                return None
            if now - refused_at >= self._burst_s:
                del self._refused_at[sender]
                return None
        elif sender not in self._refused_at:
            # Those of senders that have left are not asked for again.
            past = now - self._burst_s
            self._refused_at = {s: at for s, at in self._refused_at.items() if at > past}
        self._refused_at[sender] = self._last_refused_at = now
        return Refusal(
            f"more comes by this connection than is served: {self._waiting} requests of"
            f" {self._waiting_bytes} bytes wait for their turn; no more of its requests are let in"
            " until fewer do",
            self._drain_s(min(self._waiting_bytes - may_wait, self._waiting_bytes / 2)),
        )

    def _drain_s(self, num_bytes: float) -> float:
        """Return in how long so many bytes are worked off."""
        drain_s = num_bytes / max(self._bytes_per_s, 1.0)
        return min(MAX_RETRY_S, max(MIN_RETRY_S, drain_s))


def available_cores() -> int:
    """Return how many cores this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Slots:
    """A number of turns to compute; safe to use from any thread.

    Who lent a turn gets the next one: what has begun is finished before anything else begins.

    Args:
        number: of turns, at least 1.
    """

    def __init__(self, number: int) -> None:
        lock = threading.Lock()
        self._free = number
        self._lenders = 0  # who want theirs back
        self._given_back = threading.Condition(lock)
        self._next_turn = threading.Condition(lock)
        self._mine = threading.local()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Wait for a turn and hold it; not to be entered twice by one thread."""
        with self._next_turn:
            self._next_turn.wait_for(lambda: self._free > self._lenders)
            self._free -= 1
        self._mine.held = True
        try:
            yield
        finally:
            self._mine.held = False
            self._release()

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Let another thread have this one's turn meanwhile; nothing where it holds none."""
        if not getattr(self._mine, "held", False):
            yield
            return
        self._release()
        try:
            yield
        finally:
            with self._given_back:
                self._lenders += 1
                self._given_back.wait_for(lambda: self._free > 0)
                self._lenders -= 1
                self._free -= 1

    def _release(self) -> None:
        with self._next_turn:
            self._free += 1
            if self._lenders:
                self._given_back.notify()
            # Also where a lender that was told of an earlier one has not come for it yet.
            if self._free > self._lenders:
                self._next_turn.notify()


class WorkingThreads:
    """Carry out work in the order in which it was submitted.

    A thread that is ready waits for a turn to compute first and takes the oldest work then:
    threads get turns in any order, so that one which had its work in hand could wait long behind
    what came later.  Of idle threads the one that worked last is woken: the memory that it freed,
    each has some of its own, is still in the core's cache.

    Args:
        number: of threads, those that only wait for an answer included.
        slots: the turns.
    """

    def __init__(self, number: int, slots: Slots) -> None:
        self._slots = slots
        self._number = number
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._lock = threading.Lock()
        self._started = 0
        self._idle: list[threading.Lock] = []  # what idle threads wait for, in order of their end
        self._closed = False

    def submit(self, work: Callable[[], R]) -> Future[R]:
        """Have work carried out; what is cancelled before its turn is not begun.

        Raises:
            RuntimeError: the threads were closed, or there can be no thread.
        """
        future: Future[R] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the threads were closed")
            if self._idle:
                self._idle.pop().release()
            elif self._started < self._number:
                self._start()
            # A thread that works looks here before it rests.
            self._waiting.append((future, work))
        return future

    def close(self) -> None:
        """Cancel what has not begun, and wait for nothing."""
        with self._lock:
            self._closed = True
            while self._idle:
                self._idle.pop().release()
        while (entry := self._oldest()) is not None:
            entry[0].cancel()

    def _start(self) -> None:
        name = f"scoring_{self._started}"
        try:
            threading.Thread(target=self._work, name=name, daemon=True).start()
        except RuntimeError:
            if not self._started:
                raise
        else:
            self._started += 1

    def _work(self) -> None:
        give_way()
        woken = threading.Lock()
        woken.acquire()
        while True:
            while self._waiting:
                self._work_on_oldest()
            with self._lock:
                if self._waiting:
                    continue
                if self._closed:
                    return
                self._idle.append(woken)
            woken.acquire()

    def _work_on_oldest(self) -> None:
        with self._slots.held():
            entry = self._oldest()
            if entry is None or not entry[0].set_running_or_notify_cancel():
                return  # closed or cancelled meanwhile
            future, work = entry
            result: Any = None
            failure: BaseException | None = None
            try:
                result = work()
            except BaseException as error:  # whatever it is, it is for who waits for the result
                failure = error
        # What has to be done for who waits takes no turn.
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)
        # A failure's frames know this one: where nobody waits any more, all that hangs together
        # here, the request above all, would stay until the garbage collector runs.
        del entry, future, work, result, failure

    def _oldest(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None


def give_way(niceness: int = THREAD_NICENESS) -> None:
    """Let the event loop and gRPC's threads go before the calling one, where the system can."""
    # Linux has a niceness for each thread; elsewhere it is the process's, and stays as it is.
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a sandbox may forbid it
            os.nice(niceness)
