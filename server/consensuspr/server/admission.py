"""Which requests a worker accepts, and which one it works on next.

Each request counts with the memory that it needs (:func:`charge`), from its admission until its
work is over and its reply has been sent.  The sum is bounded: beyond it a request is rejected with
a hint when to try again.  One run, the name that a client gives its training run, may hold three
quarters of the bytes.  Waiting requests are served round robin over runs, and in order of arrival
within a run.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor

from consensuspr.core import count_fields
from consensuspr.errors import InvalidRequest

# The request as received and as parsed.  An explanation also holds the normal form: as text, in
# the reply, and as the reply is sent.
COPIES = 2
COPIES_EXPLAINED = 6
# One field as protobuf and as Python hold it; 237 bytes were measured for an inline node.
FIELD_BYTES = 256
# One call beside its message: gRPC's own state, headers, two tasks.  27 KB were measured.
REQUEST_OVERHEAD_BYTES = 24 << 10
# The largest part of the limit that one run may hold.
RUN_SHARE = 0.75
# Bounds of the hint; with a longer one a trainer idles after the server has caught up.
MIN_RETRY_S = 0.02
MAX_RETRY_S = 5.0
# Scoring threads are this much nicer than the event loop, which receives, rejects and replies.
THREAD_NICENESS = 5
# After requests of this size have ended, freed memory goes back to the system, once in a while.
TRIM_BYTES = 32 << 20
TRIM_PAUSE_S = 1.0

_KIND_FIELDS = 32


def field_table(message: Descriptor) -> bytes:
    """Return the table of :func:`consensuspr.core.count_fields` for a message type."""
    kinds, rows = [message], bytearray()
    for kind in kinds:
        row = bytearray(_KIND_FIELDS)
        for field in kind.fields:
            if field.message_type is not None:
                if field.message_type not in kinds:
                    kinds.append(field.message_type)
                row[field.number] = kinds.index(field.message_type)
        rows += row
    return bytes(rows)


def charge(request: bytes, table: bytes, max_fields: int, copies: int = COPIES) -> int:
    """Return an upper bound of the memory that a request needs until it is answered.

    Two bytes on the wire can become a rollout of some hundred bytes, so fields count too.  More
    than ``max_fields`` of them raise InvalidRequest.
    """
    fields = count_fields(request, table, max_fields)
    if fields > max_fields:
        raise InvalidRequest(
            f"a request has at most {max_fields} fields, with those of its rollouts and nodes;"
            f" this one of {len(request)} bytes has more"
        )
    return copies * len(request) + FIELD_BYTES * fields + REQUEST_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is rejected, and after how many seconds to try again."""

    reason: str
    retry_after_s: float


class Job(Future[Any]):
    """One request of a run: its work, which a thread runs, and the memory that it counts with."""

    def __init__(self, work: Callable[[], Any], num_bytes: int, run: str = "") -> None:
        super().__init__()
        self.work = work
        self.num_bytes = num_bytes
        self.run = run
        self.admitted_at = 0.0
        self._open_ends = 2  # its work and its call


class Admission:
    """The unfinished requests of one worker, and their queue.  Thread-safe.

    Their memory is at most ``limit_bytes``, but a request on its own is always accepted.
    """

    def __init__(self, limit_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._bytes_of: Counter[str] = Counter()  # by run
        self._waiting: dict[str, deque[Job]] = {}  # by run; the first run is next
        self._waited_s = 0.0  # by the job that was taken last
        self.unfinished_bytes = 0
        self.unfinished_requests = 0

    def refusal(self, num_bytes: int, run: str) -> Refusal | None:
        """Return why a request of this size is rejected now, before its body is received."""
        with self._lock:
            return self._refusal(num_bytes, run)

    def admit(self, job: Job) -> Refusal | None:
        """Queue a job; return why not if it is rejected."""
        with self._lock:
            refusal = self._refusal(job.num_bytes, job.run)
            if refusal is not None:
                return refusal
            self._count(job.num_bytes, job.run)
            self.unfinished_requests += 1
            job.admitted_at = self._clock()
            self._waiting.setdefault(job.run, deque()).append(job)
        job.add_done_callback(self._work_ended)
        return None

    def take(self) -> Job | None:
        """Return the job to run next, None if none waits."""
        with self._lock:
            while self._waiting:
                run = next(iter(self._waiting))
                jobs = self._waiting.pop(run)
                job = jobs.popleft()
                if jobs:
                    self._waiting[run] = jobs  # behind the other runs
                if job.set_running_or_notify_cancel():
                    self._waited_s = self._clock() - job.admitted_at
                    return job
        return None

    def cancel_waiting(self) -> None:
        """Cancel every job that has not started."""
        with self._lock:
            waiting = [job for jobs in self._waiting.values() for job in jobs]
        for job in waiting:
            job.cancel()

    def call_ended(self, job: Job) -> None:
        """Note that a job's reply has been sent, or that its caller left."""
        with self._lock:
            self._end(job)

    def _work_ended(self, job: Future[Any]) -> None:
        assert isinstance(job, Job)
        with self._lock:
            jobs = self._waiting.get(job.run)
            if job.cancelled() and jobs is not None and job in jobs:
                jobs.remove(job)
                if not jobs:
                    del self._waiting[job.run]
            self._end(job)

    def _end(self, job: Job) -> None:
        job._open_ends -= 1
        if not job._open_ends:
            self._count(-job.num_bytes, job.run)
            self.unfinished_requests -= 1

    def _count(self, num_bytes: int, run: str) -> None:
        self.unfinished_bytes += num_bytes
        self._bytes_of[run] += num_bytes
        if not self._bytes_of[run]:
            del self._bytes_of[run]

    def _refusal(self, num_bytes: int, run: str) -> Refusal | None:
        own, share = self._bytes_of[run], int(RUN_SHARE * self._limit_bytes)
        if self.unfinished_bytes and self.unfinished_bytes + num_bytes > self._limit_bytes:
            queue, held, limit = "queue", self.unfinished_bytes, self._limit_bytes
        elif own and own + num_bytes > share:
            queue, held, limit = "run's share of the queue", own, share
        else:
            return None
        return Refusal(
            f"the {queue} is full: {held} of {limit} bytes are in use, and the request needs"
            f" {num_bytes}",
            # After half of the queueing time, some of the present requests are done.
            min(MAX_RETRY_S, max(MIN_RETRY_S, self._waited_s / 2)),
        )


def available_cores() -> int:
    """Return how many cores this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class ScoringThreads:
    """Threads that run admitted jobs, of which ``cores`` compute at a time.

    If all threads computed, the event loop would get a small share of a core and requests would
    pile up in front of the admission.
    """

    def __init__(self, number: int, cores: int, admission: Admission) -> None:
        self._admission = admission
        self._cores = threading.Semaphore(cores)
        self._mine = threading.local()
        self._executor = ThreadPoolExecutor(number, "scoring", initializer=_give_way)

    def run_next(self) -> None:
        """Have a thread run the next job; raise RuntimeError if the threads are closed."""
        self._executor.submit(self._run_next)

    def close(self) -> None:
        """Cancel jobs that have not started; do not wait for the others."""
        self._executor.shutdown(wait=False)
        self._admission.cancel_waiting()

    @contextlib.contextmanager
    def core_lent(self) -> Iterator[None]:
        """Let another job compute while the calling thread waits for something."""
        if not getattr(self._mine, "computes", False):
            yield
            return
        self._cores.release()
        try:
            yield
        finally:
            self._cores.acquire()

    def _run_next(self) -> None:
        with self._cores:
            job = self._admission.take()
            if job is None:  # it was cancelled
                return
            self._mine.computes = True
            result: Any = None
            failure: BaseException | None = None
            try:
                result = job.work()
            except BaseException as error:  # for the waiting caller
                failure = error
            self._mine.computes = False
        if failure is None:
            job.set_result(result)
        else:
            job.set_exception(failure)
        # The failure's frames refer to this one: without this the request would stay in memory
        # until the garbage collector runs.
        del job, result, failure


def _give_way() -> None:
    # Linux has a niceness per thread; elsewhere it is the process's.
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a sandbox may forbid it
            os.nice(THREAD_NICENESS)


def trim_memory() -> None:
    """Give freed memory back to the system; glibc only.  Takes milliseconds without the GIL."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
