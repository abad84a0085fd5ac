"""Which requests a worker lets in, and which of them computes next.

**Admission** has three bounds.  **In bytes**, always: memory; of which no run, and no host, may
hold all.  **In time**: what would not be done before its deadline is refused, since it would be
work for nothing.  **In number**, for a sender that sends without regard to replies.  A trainer's
clients have a few requests under way each and send the next one when a reply has come: however
many clients there are, what waits is bounded, and refusing would only idle the worker while they
wait to try again.  But a sender (a connection) of which many requests have been waiting for longer
than a burst takes, or which sends what is too late, sends more than is served, and would fill the
queue without end; so does one that goes on sending what is refused for its bytes.  Until none of
its requests had to be refused for a while, they are let in only while next to nothing of their run
waits, and are served about as fast as under ordinary load. Other senders are queued as ever.

**The queue** gives each run an equal share of the work: the run that had the least comes next, and
no host gets more than a run does, whatever names it gives itself.  Within a run connections take
turns, each in order of arrival.  Shares are of processor time, so that a byte of inline nodes that
were not seen of late, which costs some thirty times as much as one of a response, is paid for by
who sends it.  Where calls come through a proxy that names nobody, all without a name are one run.

Admission counts in bytes of requests, not in requests: one batch of long rollouts is a thousand
times one short rollout.  A request counts from its arrival until its work is really over, also
when its caller has left; it waits until its work begins.  The hint of a refusal is the time in
which the backlog, at the pace of late, falls to what is let in.  Not covered: bytes that gRPC has
received but not yet handed over; they are bounded by the message limit and the number of
pending requests.  A call has a price of its own, from its header until its reply has been taken:
callers that begin requests and never end them, or never take a reply, hold memory too.

**Turns to compute**: a worker has more requests in work than cores, because some only wait for an
answer process.  If all of them computed at once, each would be as slow as all together, and the
event loop, which receives, refuses and replies, would get a share of a core as small as theirs:
under more load than the worker can do, requests would pile up in front of the admission.
"""

from __future__ import annotations

import contextlib
import ipaddress
import math
import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache
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
# A flood is over when nothing of it was refused for so many times as long as a burst takes: a
# sender that was only held up goes on, and until it were known anew, seconds of work would wait.
QUIET_BURSTS = 8
# What may wait where a request of a flooding sender is let in, whichever is more: work of this
# length, or so many requests; enough that the worker does not idle.
STANDING_WAIT_S = 0.01
STANDING_REQUESTS = 3
# Of the time until its deadline, the share in which a request has to be done by the pace of late:
# the pace varies, the reply has its way to go too, and a queue of many megabytes costs all that
# pass through it: their bytes have left the core's cache when their turn comes.
TIMELY_SHARE = 0.25
# What has longer is begun, however long it would take by the pace of late: were nothing begun
# after a slow spell, it would never be known that the spell is over.
MAX_HOPELESS_S = 0.05
# A run may hold so many times the bytes that it leaves free, so three quarters of the queue where
# it is alone, and so many times the threads: what others bring then finds room.
BYTES_TO_FREE = 3
THREADS_TO_FREE = 3
# Of what has not been measured yet, at most; it is corrected when the work is done.
MAX_CHARGE_S = 1.0
# Who is looked at for each turn, in all and of a host; what runs there are beyond counts as one.
MAX_FLOWS = 256
MAX_RUNS_OF_A_HOST = 64
# Runs, and hosts, of which it is known what they have got.
MAX_REMEMBERED = 1024
IPV6_HOST_BITS = 64
# Requests whose bytes are coming that count as if they waited, at most.
MOST_COMING = 2
# Longer, and a trainer idles after the server has long caught up.
MAX_RETRY_S = 5.0

# A core that was yielded for longer was another program's meanwhile, and is kept for so long then.
OTHERS_TURN_S = 0.004
KEPT_S = 0.1

# What has to be received, refused and replied to must not wait behind work of the same process:
# threads that work are so much nicer than the process.
THREAD_NICENESS = 5

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not let in, and after how long to try again."""

    reason: str
    retry_after_s: float


@dataclass(frozen=True, slots=True)
class Origin:
    """Who sends a request, as far as that is known before it is read.

    Attributes:
        connection: ``SCHEME:HOST:PORT`` or ``HOST:PORT``; empty where the connection says nothing
            of who sent the request, and nobody is taken to flood.
        run: the name that the sender gives its training run; empty: none.
    """

    connection: str = ""
    run: str = ""

    @property
    def host(self) -> str:
        """The connection without its port; gRPC and HTTP call one host the same."""
        return _host_of(self.connection)


NOBODY = Origin()


@lru_cache(4096)
def _host_of(connection: str) -> str:
    host = connection.rpartition(":")[0] or connection
    host = host.removeprefix("ipv4:").removeprefix("ipv6:")
    host = host.removeprefix("%5B").removesuffix("%5D").strip("[]")
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    # Any address of its network is a host's to take.
    return str(ipaddress.IPv6Network((int(address), IPV6_HOST_BITS), strict=False))


@dataclass(slots=True, eq=False)
class _Share:
    """What a run, or a host, has got so far and has under way.

    Attributes:
        worked_s: seconds of work spent on it, by a clock that does not stand still for who sends
            nothing: whose is least comes next.
        s_per_byte: that its requests have cost of late.
        flows: that there are of it now.
    """

    worked_s: float = 0.0
    s_per_byte: float = 1 / INITIAL_BYTES_PER_S
    flows: int = 0
    waiting: int = 0
    in_work: int = 0
    unfinished_bytes: int = 0


@dataclass(slots=True, eq=False)
class _Line:
    """What waits of one connection, in order of arrival; jobs that were ended meanwhile too."""

    jobs: deque[Job]
    waiting: int = 0
    waiting_bytes: int = 0


@dataclass(slots=True, eq=False)
class _Flow:
    """What is unfinished of one run from one host; lines take turns, the first one is next.

    Attributes:
        refused_at: when a connection of it was last refused because it floods.
    """

    key: tuple[str, str]
    run: _Share
    host: _Share
    unfinished: int = 0
    waiting: int = 0
    waiting_bytes: int = 0
    lines: dict[str, _Line] = field(default_factory=dict)
    refused_at: float = -math.inf


class Job(Future[Any]):
    """One request: what is to be done, and what the books hold of it.

    It ends with what ``work`` returns or raises; cancelled, nobody waits for it.

    Args:
        work: carries it out.
        num_bytes: that it is counted with.
        caller: who sent it.
        deadline: on the admission's clock; None: it may take as long as it wants.
        call_bytes: of these, those that are its call's, which lasts until the reply has been taken:
            they count until :meth:`Admission.replied`.

    Attributes:
        worked_s: processor time that was spent on it.
    """

    def __init__(
        self,
        work: Callable[[], Any],
        num_bytes: int,
        caller: Origin = NOBODY,
        deadline: float | None = None,
        call_bytes: int = 0,
    ) -> None:
        super().__init__()
        self.work = work
        self.num_bytes = num_bytes
        self.caller = caller
        self.deadline = deadline
        self.call_bytes = call_bytes
        self.worked_s = 0.0
        self._replied = not call_bytes
        self._kept_by: _Flow | None = None  # from the end of its work to that of its call
        self._flow: _Flow | None = None  # while it is unfinished
        self._begun = False
        self._charged_s = 0.0


class Admission:
    """The books of one worker's unfinished requests, and their queue; safe to use from any thread.

    Args:
        limit_bytes: refuse what would bring unfinished requests above this.  Where nothing is
            unfinished, anything is let in: it could otherwise never be served.
        burst_s: seconds for which :data:`FLOOD_REQUESTS` of one connection may wait without a
            pause before more of it are refused.
        max_in_work: jobs that are in work at a time.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        limit_bytes: int,
        burst_s: float,
        max_in_work: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit_bytes = limit_bytes
        self._burst_s = burst_s
        self._max_in_work = max_in_work
        self._clock = clock
        self._lock = threading.Lock()
        self._bytes = 0
        self._held_bytes = 0  # of these, those that are of no request yet
        self._unpacking_bytes = 0  # those of requests that are not unpacked yet
        self._call_bytes = 0  # and those of calls without their body yet, or with their reply
        self._requests = 0
        self._in_work = 0
        self._waiting_bytes = 0
        self._flows: dict[tuple[str, str], _Flow] = {}
        self._runs: dict[str, _Share] = {}
        self._hosts: dict[str, _Share] = {}
        # The least that was spent on any run, or host, of which something waited: where one
        # begins that had nothing to do, so that it has saved nothing up.
        self._least_run_s = 0.0
        self._least_host_s = 0.0
        self._coming: Counter[tuple[str, str]] = Counter()  # by flow
        self._coming_by: Counter[str] = Counter()  # by connection
        self._waiting_of: Counter[str] = Counter()
        # Of connections: since when too many wait, and when one was last refused for that.
        self._flooding_since: dict[str, float] = {}
        self._refused_at: dict[str, float] = {}
        self._last_refused_at = self._last_full_at = -math.inf
        # Likewise: since when, and when last, how many were refused for their bytes.
        self._turned_away_of: dict[str, tuple[float, float, int]] = {}
        self._bytes_per_s = INITIAL_BYTES_PER_S
        self._window_start = clock()
        self._window_bytes = 0

    def hold(self, num_bytes: int, own_bytes: int) -> Refusal | None:
        """Count bytes in that are of no request yet, as of a body that arrives.

        They may be half of the limit, so that slow bodies keep no requests out; the only body is
        let in beyond that, as the only request is.

        Args:
            num_bytes: that have arrived.
            own_bytes: of the same body, counted before.

        Returns:
            Why they are not counted where they are refused; :meth:`release` counts them out.
        """
        with self._lock:
            others = self._bytes - self._call_bytes - own_bytes
            if others > 0 and self._bytes + num_bytes > self._limit_bytes:
                return self._over(num_bytes)
            limit = self._limit_bytes // 2
            if self._held_bytes > own_bytes and self._held_bytes + num_bytes > limit:
                return Refusal(
                    f"{self._held_bytes} bytes are arriving and {num_bytes} more would exceed"
                    f" the limit of {limit} bytes of this worker",
                    self._drain_s(self._held_bytes),
                )
            self._bytes += num_bytes
            self._held_bytes += num_bytes
            return None

    def release(self, num_bytes: int) -> None:
        """Count bytes out that :meth:`hold` counted in."""
        with self._lock:
            self._bytes -= num_bytes
            self._held_bytes -= num_bytes

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of the requests that are let in and not finished."""
        return self._bytes

    @property
    def unfinished_requests(self) -> int:
        """Requests that are let in and not finished."""
        return self._requests

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the requests whose work has not begun."""
        return self._waiting_bytes

    @property
    def refusing(self) -> bool:
        """Whether requests were refused of late, for their bytes too."""
        latest = max(self._last_refused_at, self._last_full_at)
        return self._clock() - latest < QUIET_BURSTS * self._burst_s

    @property
    def flooded(self) -> bool:
        """Whether requests were refused of late because more come than are served."""
        return self._clock() - self._last_refused_at < QUIET_BURSTS * self._burst_s

    @contextlib.contextmanager
    def coming(
        self, caller: Origin, deadline: float | None = None, call_bytes: int = 0
    ) -> Iterator[Refusal | None]:
        """Count a request in while its bytes are received; yield why it is refused before that.

        None: it is not refused now, and waits from now on as far as others are concerned.  It
        counts with ``call_bytes`` meanwhile.
        """
        with self._lock:
            key = self._key(caller)
            flow = self._flows.get(key)
            own = self._coming_by[caller.connection] if caller.connection else 0
            usual_bytes = flow.waiting_bytes // flow.waiting if flow and flow.waiting else 0
            refusal = (
                self._full(caller, flow, max(usual_bytes, call_bytes), call_bytes)
                or self._flood(caller, flow, own)
                or self._late(caller, flow, 0, deadline, own)
            )
            if refusal is None:
                self._coming[key] += 1
                self._coming_by[caller.connection] += 1
                flow = flow or self._open(key)
                self._count_call(flow, call_bytes)
        try:
            yield refusal
        finally:
            if refusal is None:
                with self._lock:
                    assert flow is not None, "it was let in"
                    count_out(self._coming, key)
                    count_out(self._coming_by, caller.connection)
                    self._count_call_out(flow, call_bytes)

    @contextlib.contextmanager
    def unpacking(self, caller: Origin, num_bytes: int) -> Iterator[Refusal | None]:
        """Count a request in while it is unpacked, which waits its turn; yield why it is refused.

        Args:
            caller: who sent it.
            num_bytes: that it takes meanwhile.
        """
        with self._lock:
            key = self._key(caller)
            flow = self._flows.get(key)
            refusal = self._full(caller, flow, num_bytes, 0)
            if refusal is None:
                flow = flow or self._open(key)
                flow.unfinished += 1
                self._unpacking_bytes += num_bytes
                self._count_bytes(flow, num_bytes)
        try:
            yield refusal
        finally:
            if refusal is None:
                with self._lock:
                    assert flow is not None, "it was counted in"
                    self._unpacking_bytes -= num_bytes
                    self._count_bytes(flow, -num_bytes)
                    self._count_out_of(flow)

    def admit(self, job: Job) -> Refusal | None:
        """Put a job into the queue; return why not where it is refused."""
        with self._lock:
            num_bytes, caller = job.num_bytes, job.caller
            key = self._key(caller)
            flow = self._flows.get(key)
            refusal = (
                self._full(caller, flow, num_bytes, job.call_bytes)
                or self._flood(caller, flow)
                or self._late(caller, flow, num_bytes, job.deadline)
            )
            if refusal is not None:
                return refusal
            if not self._requests:
                # Time spent idle says nothing about the pace of work.
                self._window_start = self._clock()
                self._window_bytes = 0
            if flow is None:
                flow = self._open(key)
            self._requests += 1
            self._count_bytes(flow, num_bytes)
            flow.unfinished += 1
            self._enter_queue(job, flow)
            return None

    def take(self) -> Job | None:
        """Take the job that is next out of the queue, to be begun now; None: nothing is due."""
        with self._lock:
            flow = self._next()
            if flow is None:
                return None
            connection, line = next(iter(flow.lines.items()))
            job = line.jobs.popleft()
            while job._flow is None:  # it was ended while it waited
                job = line.jobs.popleft()
            self._leave_queue(job, flow)
            if line.waiting:  # the next one is another line's
                flow.lines[connection] = flow.lines.pop(connection)
            job._begun = True
            job._charged_s = min(MAX_CHARGE_S, job.num_bytes * flow.run.s_per_byte)
            self._in_work += 1
            for share in (flow.run, flow.host):
                share.in_work += 1
                share.worked_s += job._charged_s
            return job

    @property
    def due(self) -> bool:
        """Whether there is a job to take."""
        with self._lock:
            return self._next() is not None

    def waiting(self) -> list[Job]:
        """Return what is in the queue."""
        with self._lock:
            lines = [line for flow in self._flows.values() for line in flow.lines.values()]
            return [job for line in lines for job in line.jobs if job._flow is not None]

    def too_late(self, num_bytes: int, deadline: float | None) -> bool:
        """Whether a request would not be done before its deadline if it were begun now."""
        if deadline is None:
            return False
        takes_s = num_bytes / max(self._bytes_per_s, 1.0)
        return self._clock() + min(takes_s, MAX_HOPELESS_S) >= deadline

    def finish(self, job: Job, *, served: bool, reply_bytes: int = 0) -> None:
        """Count a job out that :meth:`admit` let in, all but its call.

        Not ``served`` is work that was abandoned, which says nothing of the pace.  ``reply_bytes``
        count with the call.
        """
        with self._lock:
            flow, num_bytes = job._flow, job.num_bytes
            assert flow is not None, "a job is finished once"
            if job._begun:
                self._in_work -= 1
                for share in (flow.run, flow.host):
                    share.in_work -= 1
                    share.worked_s += job.worked_s - job._charged_s
            else:
                self._leave_queue(job, flow)
            job._flow = None
            self._requests -= 1
            self._count_bytes(flow, -num_bytes)
            if not job._replied:
                job._kept_by = flow
                job.call_bytes += reply_bytes
                self._count_call(flow, job.call_bytes)
            self._count_out_of(flow)
            if not served:
                return
            flow.run.s_per_byte = (flow.run.s_per_byte + job.worked_s / num_bytes) / 2
            self._window_bytes += num_bytes
            elapsed = self._clock() - self._window_start
            if elapsed >= RATE_WINDOW_S:
                self._bytes_per_s = (self._bytes_per_s + self._window_bytes / elapsed) / 2
                self._window_start += elapsed
                self._window_bytes = 0

    def replied(self, job: Job) -> None:
        """Count the call of a job out: its reply has been taken, or its caller has left."""
        with self._lock:
            job._replied = True
            if job._kept_by is not None:  # else its work is still under way
                self._count_call_out(job._kept_by, job.call_bytes)
                job._kept_by = None

    def _count_bytes(self, flow: _Flow, num_bytes: int) -> None:
        self._bytes += num_bytes
        flow.run.unfinished_bytes += num_bytes
        flow.host.unfinished_bytes += num_bytes

    def _count_call(self, flow: _Flow, num_bytes: int) -> None:
        flow.unfinished += 1
        self._call_bytes += num_bytes
        self._count_bytes(flow, num_bytes)

    def _count_call_out(self, flow: _Flow, num_bytes: int) -> None:
        self._call_bytes -= num_bytes
        self._count_bytes(flow, -num_bytes)
        self._count_out_of(flow)

    # -- flows

    def _key(self, caller: Origin) -> tuple[str, str]:
        """Return whose turn a caller's requests take, by host and run."""
        host = caller.host
        key = (host, caller.run)
        if key in self._flows:
            return key
        if caller.run and host in self._hosts and self._hosts[host].flows >= MAX_RUNS_OF_A_HOST:
            key = (host, "")
        if key not in self._flows and len(self._flows) >= MAX_FLOWS:
            key = ("", "")
        return key

    def _open(self, key: tuple[str, str]) -> _Flow:
        host, run = key
        # No name of a run begins with a NUL: what has none is a run of its host.
        name = run or f"\0{host}"
        flow = _Flow(key, self._remembered(self._runs, name), self._remembered(self._hosts, host))
        flow.run.flows += 1
        flow.host.flows += 1
        self._flows[key] = flow
        return flow

    def _count_out_of(self, flow: _Flow) -> None:
        flow.unfinished -= 1
        if not flow.unfinished:
            del self._flows[flow.key]
            flow.run.flows -= 1
            flow.host.flows -= 1

    def _remembered(self, shares: dict[str, _Share], name: str) -> _Share:
        """Return a share by name; those are forgotten first that had nothing for longest."""
        share = shares.pop(name, None) or _Share()
        if len(shares) >= MAX_REMEMBERED:
            idle = [other for other, its in shares.items() if not its.flows]
            for other in idle[: len(shares) - MAX_REMEMBERED // 2]:
                del shares[other]
        shares[name] = share  # the last, which was asked for latest
        return share

    def _next(self) -> _Flow | None:
        """Return the flow whose turn it is.

        A run that holds nearly all threads, for example with answers that take long, gets no
        more of them: who comes then finds one.
        """
        most = THREADS_TO_FREE * (self._max_in_work - self._in_work)
        best: _Flow | None = None
        best_turn = (math.inf, math.inf)
        least_run_s = least_host_s = math.inf
        for flow in self._flows.values():
            if not flow.waiting:
                continue
            run, host = flow.run, flow.host
            least_run_s = min(least_run_s, run.worked_s)
            least_host_s = min(least_host_s, host.worked_s)
            # The less, the sooner: a run has one share however many its hosts are, and so has a
            # host however many names its requests have.
            turn = (max(run.worked_s, host.worked_s), run.worked_s)
            if turn < best_turn and max(run.in_work, host.in_work) <= most:
                best, best_turn = flow, turn
        if best is not None:
            self._least_run_s = max(self._least_run_s, least_run_s)
            self._least_host_s = max(self._least_host_s, least_host_s)
        return best

    def _enter_queue(self, job: Job, flow: _Flow) -> None:
        job._flow = flow
        connection, num_bytes = job.caller.connection, job.num_bytes
        run, host = flow.run, flow.host
        if not run.waiting:
            run.worked_s = max(run.worked_s, self._least_run_s)
        if not host.waiting:
            host.worked_s = max(host.worked_s, self._least_host_s)
        line = flow.lines.get(connection)
        if line is None:
            line = flow.lines[connection] = _Line(deque())
        line.jobs.append(job)
        line.waiting += 1
        line.waiting_bytes += num_bytes
        run.waiting += 1
        host.waiting += 1
        flow.waiting += 1
        flow.waiting_bytes += num_bytes
        self._waiting_bytes += num_bytes
        if connection:
            self._waiting_of[connection] += 1
            if self._waiting_of[connection] == FLOOD_REQUESTS:
                self._flooding_since[connection] = self._clock()

    def _leave_queue(self, job: Job, flow: _Flow) -> None:
        connection, num_bytes = job.caller.connection, job.num_bytes
        line = flow.lines[connection]
        line.waiting -= 1
        line.waiting_bytes -= num_bytes
        if not line.waiting:
            del flow.lines[connection]
        flow.run.waiting -= 1
        flow.host.waiting -= 1
        flow.waiting -= 1
        flow.waiting_bytes -= num_bytes
        self._waiting_bytes -= num_bytes
        if not connection:
            return
        if self._waiting_of[connection] == FLOOD_REQUESTS:
            del self._flooding_since[connection]
        self._waiting_of[connection] -= 1
        if not self._waiting_of[connection]:
            del self._waiting_of[connection]

    # -- refusals

    def _full(
        self, caller: Origin, flow: _Flow | None, num_bytes: int, call_bytes: int
    ) -> Refusal | None:
        """Return why a request is refused for its bytes, else None."""
        if not self._bytes:
            return None
        if self._bytes == self._call_bytes:  # the only one, whatever its size
            num_bytes = call_bytes
        free = self._limit_bytes - self._bytes - num_bytes
        held = max(flow.run.unfinished_bytes, flow.host.unfinished_bytes) if flow else 0
        if free >= 0 and (not held or held + num_bytes <= BYTES_TO_FREE * free):
            return None
        self._last_full_at = self._clock()
        if flow is not None and caller.connection:
            self._turned_away(caller.connection, flow)
        if free < 0:
            return self._over(num_bytes)
        return Refusal(
            f"{held} bytes of requests of this run or host are unfinished, and {num_bytes}"
            f" more would be above its share: {BYTES_TO_FREE} times what is left for others of"
            f" the {self._limit_bytes} bytes of this worker",
            self._drain_s(held),
        )

    def _turned_away(self, connection: str, flow: _Flow) -> None:
        """Take note that a request was refused for its bytes, and whether its sender floods.

        Bytes can be full before so many requests of one connection wait as make a flood.  What
        it goes on sending counts with them: who waits for replies heeds the hint.
        """
        now = self._last_full_at
        since, last, number = self._turned_away_of.pop(connection, (now, now, 0))
        if now - last > self._burst_s:
            since, number = now, 0
        number += 1
        if len(self._turned_away_of) >= MAX_REMEMBERED:
            self._turned_away_of.clear()
        self._turned_away_of[connection] = since, now, number
        if now - since > self._burst_s and number + self._waiting_of[connection] >= FLOOD_REQUESTS:
            self._known_to_flood(connection, flow, now)

    def _over(self, num_bytes: int) -> Refusal:
        return Refusal(
            f"{self._bytes} bytes of requests are unfinished and {num_bytes} more would"
            f" exceed the limit of {self._limit_bytes} bytes of this worker",
            self._drain_s(self._bytes),
        )

    def _flood(self, caller: Origin, flow: _Flow | None, own: int = 0) -> Refusal | None:
        """Return why a request is refused that a flooding connection sends, else None.

        ``own``: as of :meth:`_waiting_soon`.
        """
        may_wait = STANDING_WAIT_S * self._bytes_per_s
        if flow is None:
            return None
        waiting, waiting_bytes = self._waiting_soon(flow, own)
        if waiting < STANDING_REQUESTS or waiting_bytes < may_wait:
            return None
        now = self._clock()
        connection = caller.connection
        since = self._flooding_since.get(connection)
        # A flood by several connections is one: the others need not each take as long to be known.
        joins = (
            now - flow.refused_at < QUIET_BURSTS * self._burst_s
            and self._waiting_of[connection] >= FLOOD_REQUESTS // 2
        )
        if (since is None or now - since <= self._burst_s) and not joins:
            refused_at = self._refused_at.get(connection)
            if refused_at is None:
                return None
            if now - refused_at >= QUIET_BURSTS * self._burst_s:
                del self._refused_at[connection]
                return None
        self._known_to_flood(connection, flow, now)
        return Refusal(
            f"more comes by this connection than is served: {waiting} requests of"
            f" {waiting_bytes} bytes wait for their turn; no more of its requests are let in"
            " until fewer do",
            self._drain_s(min(waiting_bytes - may_wait, waiting_bytes / 2)),
        )

    def _known_to_flood(self, connection: str, flow: _Flow, now: float) -> None:
        if connection not in self._refused_at:
            # Those of connections that have left are not asked for again.
            past = now - QUIET_BURSTS * self._burst_s
            self._refused_at = {s: at for s, at in self._refused_at.items() if at > past}
        flow.refused_at = now
        self._refused_at[connection] = self._last_refused_at = now

    def _late(
        self,
        caller: Origin,
        flow: _Flow | None,
        num_bytes: int,
        deadline: float | None,
        own: int = 0,
    ) -> Refusal | None:
        """Return why a request is refused that would not be done before its deadline, else None.

        ``own``: as of :meth:`_waiting_soon`.
        """
        if deadline is None or flow is None:
            return None
        waiting, waiting_bytes = self._waiting_soon(flow, own)
        if waiting < STANDING_REQUESTS:
            return None
        num_bytes = (num_bytes or waiting_bytes // waiting) + waiting_bytes - flow.waiting_bytes
        now = self._clock()
        in_time = TIMELY_SHARE * (deadline - now) * self._bytes_per_s
        if self._waiting_bytes + num_bytes <= in_time:
            return None
        until_done = self._until_done(caller, flow, num_bytes)
        if until_done <= in_time:
            return None
        self._refused_at[caller.connection] = self._last_refused_at = now
        pace = max(self._bytes_per_s, 1.0)
        return Refusal(
            f"at the pace of late it would take {until_done / pace:.2f} s until the request is"
            f" done, and the caller waits for {max(0.0, deadline - now):.2f} s more",
            self._drain_s(until_done - in_time),
        )

    def _waiting_soon(self, flow: _Flow, own: int) -> tuple[int, int]:
        """Return requests, and their bytes, that wait, and some of those whose bytes are coming.

        Few of others': who never sends the bytes would keep them out.  Of the caller's own
        connection ``own``, which are all of them where it asks before its bytes come: a flood
        would otherwise queue up for being received, and what is let in at last would be late.
        """
        waiting, num_bytes = flow.waiting, flow.waiting_bytes
        coming = max(own, min(MOST_COMING, self._coming[flow.key]))
        if waiting:
            each = num_bytes // waiting
        else:
            of_none = self._held_bytes + self._unpacking_bytes + self._call_bytes
            of_requests = self._bytes - of_none
            each = of_requests // max(1, self._requests)
        return waiting + coming, num_bytes + coming * each

    def _until_done(self, caller: Origin, flow: _Flow, num_bytes: int) -> int:
        """Return how much is worked off at most until a request would be.

        Whoever waits beside it gets as much as it does meanwhile, or all that it waits for: among
        the connections of a run, the runs of a host and the hosts.
        """
        line = flow.lines.get(caller.connection)
        in_line = num_bytes + (line.waiting_bytes if line is not None else 0)
        in_flow = in_line + sum(
            [
                min(in_line, other.waiting_bytes)
                for other in flow.lines.values()
                if other is not line
            ]
        )
        of_host, of_others = in_flow, Counter[str]()
        for other in self._flows.values():
            if other.host is not flow.host:
                of_others[other.key[0]] += other.waiting_bytes
            elif other is not flow:
                of_host += min(in_flow, other.waiting_bytes)
        return of_host + sum([min(of_host, waiting) for waiting in of_others.values()])

    def _drain_s(self, num_bytes: float) -> float:
        """Return in how long so many bytes are worked off."""
        drain_s = num_bytes / max(self._bytes_per_s, 1.0)
        return min(MAX_RETRY_S, max(MIN_RETRY_S, drain_s))


def count_out(counts: Counter[Any], key: object) -> None:
    """Count one less of a key, which is forgotten with the last."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


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
    """Carry out the jobs of a queue.

    A thread that is ready waits for a turn to compute first and takes what is next then: threads
    get turns in any order, so that one which had its job in hand could wait long behind what came
    later.  Of idle threads the one that worked last is woken: the memory that it freed, each has
    some of its own, is still in the core's cache.

    Args:
        number: of threads, those that only wait for an answer included.
        slots: the turns.
        queue: where jobs wait.
    """

    def __init__(self, number: int, slots: Slots, queue: Admission) -> None:
        self._slots = slots
        self._number = number
        self._queue = queue
        self._lock = threading.Lock()
        self._started = 0
        self._idle: list[threading.Lock] = []  # what idle threads wait for, in order of their end
        self._closed = False

    def wake(self) -> None:
        """Have a thread look into the queue, into which a job was put.

        Raises:
            RuntimeError: the threads were closed, or there can be no thread.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("the threads were closed")
            if self._idle:
                self._idle.pop().release()
            elif self._started < self._number:
                self._start()
            # A thread that works looks there before it rests.

    def close(self) -> None:
        """Cancel what has not begun, and wait for nothing."""
        with self._lock:
            self._closed = True
            while self._idle:
                self._idle.pop().release()
        for job in self._queue.waiting():
            job.cancel()

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
            while self._work_on_next():
                pass
            with self._lock:
                if self._queue.due:
                    continue
                if self._closed:
                    return
                self._idle.append(woken)
            woken.acquire()

    def _work_on_next(self) -> bool:
        """Take a job and carry it out; tell whether there was one."""
        if not self._queue.waiting_bytes:
            return False
        with self._slots.held():
            job = self._queue.take()
            if job is None:
                return False
            if not job.set_running_or_notify_cancel():
                return True
            result: Any = None
            failure: BaseException | None = None
            began = time.thread_time()
            try:
                result = job.work()
            except BaseException as error:  # whatever it is, it is for who waits for the result
                failure = error
            job.worked_s = time.thread_time() - began
        # What has to be done for who waits takes no turn.
        if failure is None:
            job.set_result(result)
        else:
            job.set_exception(failure)
        # A failure's frames know this one: where nobody waits any more, all that hangs together
        # here, the request above all, would stay until the garbage collector runs.
        del job, result, failure
        return True


class Yielding:
    """Called between pieces of work, lets what waits for this core go first.

    A thread that goes from one request to the next without a pause keeps its core for several
    milliseconds, and all that arrives meanwhile waits to be refused, or to be let in.  But where
    other programs want the core, it is theirs that this gives away, for a turn of each of them:
    where it was gone for longer than this process needs it, it is kept for a while.

    Args:
        give: the core away; returns when it has come back.  None: as the system does it, if at all.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        give: Callable[[], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._give = give or getattr(os, "sched_yield", None)
        self._clock = clock
        self._kept_until = -math.inf

    def __call__(self) -> None:
        """Let others go first, now and then."""
        began = self._clock()
        if self._give is None or began < self._kept_until:
            return
        self._give()
        ended = self._clock()
        if ended - began > OTHERS_TURN_S:
            self._kept_until = ended + KEPT_S


def give_way() -> None:
    """Let the event loop and gRPC's threads go before the calling one, where the system can."""
    # Linux has a niceness for each thread; elsewhere it is the process's, and stays as it is.
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a sandbox may forbid it
            os.nice(THREAD_NICENESS)
