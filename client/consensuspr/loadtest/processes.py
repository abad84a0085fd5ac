"""Load processes: each sends its part of a run and counts what comes back; one leads them.

Open loop: a request is due when the schedule says so, whatever the server does, and its
latency counts from then on.  Where memory allows no more requests in flight, it waits and its
latency goes on counting (no coordinated omission).  Closed loop: a request is due when the
one before it ended.

The processes are spawned, not forked: gRPC does not survive a fork.  All run by one clock, the
system's monotonic one, and begin at one moment that lies ahead when they are told.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from multiprocessing.connection import Connection, wait
from typing import Any, Self

from consensuspr.errors import ConsensusPRError
from consensuspr.loadtest.load import Load, Pool, Target, due_times, in_flight_limit
from consensuspr.loadtest.senders import BatchSender, SampleSender, Sender
from consensuspr.loadtest.settings import MAX_PROCESSES, LoadSettings, Profile
from consensuspr.loadtest.stats import (
    DEADLINE,
    LoadTally,
    Recorder,
    RequestOutcome,
    ScoreSample,
    ScoreSampler,
)
from consensuspr.scoring.types import Rollout

# After a request that was not answered, where the server gave no hint: a closed loop would
# else call a server that is down as fast as it can.
PAUSE_S = 0.1
# Handed over at a time where several are due: fewer wake-ups of the loop at high rates.
_TOGETHER_S = 0.0002
# Between two parts of a tally.
REPORT_S = 0.25
# A fresh server takes seconds until its first answers come: what it starts for them, as the
# processes for computer algebra, it starts when it first needs it.
WAKE_S = 30.0
# Between the order and the start of the warm-up: for orders to arrive everywhere.
LEAD_S = 0.2
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 10.0
TICK_S = 0.25


@dataclass(frozen=True, slots=True)
class ProcessSetup:
    """What a load process is made with: its number, from 0, and its own connections."""

    target: Target
    settings: LoadSettings
    rollouts: tuple[Rollout, ...]
    number: int
    processes: int
    connections: int


@dataclass(frozen=True, slots=True)
class Start:
    """The order to carry out a run.

    Attributes:
        at: the end of the warm-up on the system's monotonic clock, the same for all processes.
        load: open loop; None: a closed one.
        concurrency: of this process in a closed loop.
        first: number of this process's first request of a closed loop.
        requests: measured requests: of all processes in an open loop, of this one in a closed
            loop; None: no limit.
    """

    at: float
    load: Load | None
    concurrency: int
    first: int
    requests: int | None


class _Word(Enum):
    """What leader and load processes say besides; a leader that hangs up lets them leave."""

    READY = "connected, and waiting for a run"
    STOP = "end the run now: send nothing more, and give up what is in flight"


@dataclass(frozen=True, slots=True)
class _Part:
    """What became of requests since the last part, and how many are in flight now."""

    tally: LoadTally
    in_flight: int


@dataclass(frozen=True, slots=True)
class _Done:
    """A run is over: the process's share of a core while it lasted, and scores to compare."""

    cpu_share: float
    samples: tuple[ScoreSample, ...]


def _shares(total: int, parts: int) -> list[int]:
    """Return a number dealt out to so many."""
    return [total // parts + (n < total % parts) for n in range(parts)]


class ProcessRun:
    """One run, from its order to its end; ``recorder`` is told of every request."""

    def __init__(
        self, setup: ProcessSetup, order: Start, sender: Sender, recorder: Recorder
    ) -> None:
        self._settings = setup.settings
        self._process, self._processes = setup.number, setup.processes
        self._order = order
        self._sender = sender
        self._recorder = recorder
        self._limit = in_flight_limit(sender.request_bytes, setup.processes)
        self._numbers = itertools.count(order.first)
        # ... with when its request was due; 0: a closed loop, which counts its own.
        self._in_flight: dict[asyncio.Task[Any], float] = {}
        self._waiting: deque[float] = deque()
        self._stopped = threading.Event()
        self._all_due = asyncio.Event()
        self._over = asyncio.Event()

    @property
    def in_flight(self) -> int:
        """Requests that are sent, or held back, and have not ended."""
        return len(self._in_flight) + len(self._waiting)

    def stop(self) -> None:
        """Send nothing more, and give up what is in flight."""
        self._stopped.set()
        while self._waiting:
            self._give_up(self._waiting.popleft())
        for task, due in self._in_flight.items():
            if task.cancel() and due:
                self._recorder.abandoned(due)
        self._over.set()

    async def carry_out(self) -> None:
        """Return when every request of the run has ended, or the run was stopped."""
        if self._order.load is not None:
            hand_over = asyncio.get_running_loop().call_soon_threadsafe
            threading.Thread(
                target=self._pace, args=(hand_over,), name="pacer", daemon=True
            ).start()
            await self._over.wait()
            await self._all_due.wait()  # the thread is done with this loop
        else:
            wanted, at_a_time = self._order.requests, self._order.concurrency
            quotas = [None] * at_a_time if wanted is None else _shares(wanted, at_a_time)
            loops = [asyncio.create_task(self._loop(quota)) for quota in quotas]
            self._in_flight.update(dict.fromkeys(loops, 0.0))
            await asyncio.wait(loops)
        left = list(self._in_flight)
        if left:
            await asyncio.wait(left)
        # All of them, so that each counts as looked at; a defect of ours is not swallowed.
        for defect in [task.exception() for task in left if not task.cancelled()]:
            if defect is not None:
                raise defect

    # -- open loop

    def _pace(self, hand_over: Callable[..., object]) -> None:
        """Hand requests over to the event loop when they are due, never before.

        In a thread that only sleeps: an event loop wakes up to a millisecond late, which would
        be part of every latency; the thread is late by a tenth of that.
        """
        handed: list[float] = []
        try:
            for due in self._dues():
                if handed and due - handed[0] > _TOGETHER_S:
                    hand_over(self._begin, handed)
                    handed = []
                wait_s = due - time.monotonic()
                if wait_s > 0:
                    self._stopped.wait(wait_s)
                if self._stopped.is_set():
                    break
                handed.append(due)
            hand_over(self._begin, handed)
        finally:
            hand_over(self._no_more)

    def _dues(self) -> Iterator[float]:
        """Yield when this process's requests are due: every n-th of the common schedule."""
        order, settings = self._order, self._settings
        assert order.load is not None
        measured = 0
        for number, due_s in enumerate(due_times(order.load, settings.arrivals, settings.seed)):
            measured += due_s >= 0
            if order.requests is not None and measured > order.requests:
                return
            if number % self._processes == self._process:
                yield order.at + due_s

    def _begin(self, dues: list[float]) -> None:
        for due in dues:
            if self._stopped.is_set():
                self._give_up(due)
            elif len(self._in_flight) < self._limit:
                self._send_later(due, held=False)
            else:
                self._waiting.append(due)

    def _give_up(self, due: float) -> None:
        """Count a request that was due and waited, or came too late for this run."""
        self._recorder.sent(due, held=True)
        self._recorder.abandoned(due)

    def _send_later(self, due: float, *, held: bool) -> None:
        # Here, and not when the task begins: one that is cancelled before that never does.
        self._recorder.sent(due, held=held)
        task = asyncio.get_running_loop().create_task(self._send(due, held=held))
        self._in_flight[task] = due
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.stop()  # ... and the task stays, for carry_out to raise
            return
        self._in_flight.pop(task, None)
        while self._waiting and len(self._in_flight) < self._limit:
            self._send_later(self._waiting.popleft(), held=True)
        self._check_over()

    def _no_more(self) -> None:
        self._all_due.set()
        self._check_over()

    def _check_over(self) -> None:
        if self._all_due.is_set() and not self._in_flight and not self._waiting:
            self._over.set()

    async def _send(self, due: float, *, held: bool) -> RequestOutcome:
        now = time.monotonic()
        left_s = due + self._settings.timeout - now
        if not held:
            self._recorder.left(due, now)
        if left_s <= 0:
            outcome = RequestOutcome(DEADLINE, "its time was over before it could be sent")
        else:
            outcome = await self._sender.send(next(self._numbers), left_s)
        self._recorder.ended(due, time.monotonic(), outcome)
        return outcome

    # -- closed loop

    async def _loop(self, quota: int | None) -> None:
        """Send one request after the other, at most ``quota`` measured ones."""
        order, settings = self._order, self._settings
        await asyncio.sleep(order.at - settings.warmup - time.monotonic())
        while not self._stopped.is_set():
            now = time.monotonic()
            if now >= order.at + settings.end_s or quota == 0:
                return
            if quota is not None and now >= order.at:
                quota -= 1
            self._recorder.sent(now)
            try:
                outcome = await self._send(now, held=False)
            except asyncio.CancelledError:
                self._recorder.abandoned(now)
                raise
            if outcome.reply is None:
                await asyncio.sleep(outcome.retry_after_s or PAUSE_S)


def work(pipe: Connection[Any, Any]) -> None:
    """Be a load process until the one that leads hangs up.

    Its first message is the :class:`ProcessSetup`.
    """
    # Ctrl-C reaches all processes of a terminal; the leading one decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        asyncio.run(_serve(pipe, pipe.recv()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the leader has gone, and nobody is left to tell
    except Exception as error:
        with contextlib.suppress(OSError):
            pipe.send(error)


async def _serve(pipe: Connection[Any, Any], setup: ProcessSetup) -> None:
    """Carry out one run after the other, tell how each goes, and stop it where that is ordered."""
    settings = setup.settings
    starts: asyncio.Queue[Start | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    run: ProcessRun | None = None

    def read() -> None:
        # A run has begun before the next order is read: callbacks come in turn.
        try:
            order = pipe.recv()
        except (EOFError, OSError):
            loop.remove_reader(pipe.fileno())
            order = None
        if order is not _Word.STOP:
            starts.put_nowait(order)
        if run is not None and not isinstance(order, Start):
            run.stop()

    kind = SampleSender if settings.profile is Profile.VERL else BatchSender
    sender = kind(setup.target, settings, setup.rollouts, setup.connections)
    loop.add_reader(pipe.fileno(), read)
    try:
        await sender.open()
        if settings.warmup:
            await _wake(sender, setup)
        pipe.send(_Word.READY)
        while (order := await starts.get()) is not None:
            sampler = ScoreSampler(settings.check, settings.seed + setup.number)
            recorder = Recorder(order.at, sampler)
            run = ProcessRun(setup, order, sender, recorder)
            wall, cpu = time.monotonic(), time.process_time()
            running = asyncio.create_task(run.carry_out())
            while not running.done():
                await asyncio.wait({running}, timeout=REPORT_S)
                pipe.send(_Part(recorder.take(), run.in_flight))
            running.result()
            run = None
            cpu_share = (time.process_time() - cpu) / (time.monotonic() - wall)
            pipe.send(_Done(cpu_share, tuple(sampler.samples)))
    finally:
        await sender.close()


async def _wake(sender: Sender, setup: ProcessSetup) -> None:
    """Return when each connection has brought a reply or a refusal, at most :data:`WAKE_S` later.

    These requests come before the warm-up and are counted nowhere.
    """
    clock = asyncio.get_running_loop().time
    give_up_at = clock() + WAKE_S

    async def ask(number: int) -> None:
        while (left_s := give_up_at - clock()) > 0:
            outcome = await sender.send(number, min(left_s, setup.settings.timeout))
            if outcome.code != DEADLINE:
                return

    await asyncio.gather(*(ask(number) for number in range(setup.connections)))


class LoadProcessLost(ConsensusPRError):
    """A load process ended by itself; its part of the load is missing."""


@dataclass(slots=True)
class RunProgress:
    """How a run goes: seconds since the end of the warm-up, negative before it, and counts."""

    elapsed_s: float
    tally: LoadTally
    in_flight: int


@dataclass(slots=True)
class RunResult:
    """What became of a run.

    Attributes:
        tally: of all processes.
        elapsed_s: measured time: until the last reply, or until the run was stopped.
        interrupted: it was ended by Ctrl-C.
        cpu_shares: processor time of each process over the length of the run.
        samples: scores to compare.
    """

    tally: LoadTally = field(default_factory=LoadTally)
    elapsed_s: float = 0.0
    interrupted: bool = False
    cpu_shares: list[float] = field(default_factory=list)
    samples: list[ScoreSample] = field(default_factory=list)


_LOST = "a load process ended before the run was over"

Watch = Callable[[RunProgress], bool]


class Team:
    """The load processes; a context manager that leaves none behind.

    Raises:
        ConsensusPRError: one of them cannot reach the server.
    """

    def __init__(self, target: Target, settings: LoadSettings, pool: Pool) -> None:
        self._settings = settings
        # In a closed loop each has at least one request at a time.
        closed = settings.rate is None and not settings.find_saturation
        self.processes = min(settings.processes, settings.concurrency if closed else MAX_PROCESSES)
        connections = _shares(max(settings.connections, self.processes), self.processes)
        self._setups = [
            ProcessSetup(target, settings, pool.rollouts, number, self.processes, own)
            for number, own in enumerate(connections)
        ]
        context = multiprocessing.get_context("spawn")
        self._members: list[tuple[Any, Connection[Any, Any]]] = []
        for _ in self._setups:
            here, there = context.Pipe()
            process = context.Process(target=work, args=(there,), daemon=True)
            process.start()
            there.close()
            self._members.append((process, here))

    def __enter__(self) -> Self:
        give_up_at = time.monotonic() + START_TIMEOUT_S
        try:
            # When all are starting: a large setup is not taken before its process runs.
            for setup, (_, pipe) in zip(self._setups, self._members, strict=True):
                self._send(pipe, setup)
            for _, pipe in self._members:
                if not pipe.poll(max(0.0, give_up_at - time.monotonic())):
                    raise LoadProcessLost(
                        f"a load process was not ready after {START_TIMEOUT_S:g} seconds"
                    )
                assert self._receive(pipe) is _Word.READY
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def run(self, load: Load | None, watch: Watch = lambda progress: False) -> RunResult:
        """Carry out one run, also to a result where Ctrl-C ended it early.

        Args:
            load: open loop; None: the closed loop of the settings.
            watch: called some times a second; the run is stopped where it returns True.

        Raises:
            LoadProcessLost: a load process ended.
        """
        start_at = time.monotonic() + LEAD_S + self._settings.warmup
        at_a_time = _shares(self._settings.concurrency, self.processes)
        wanted = self._settings.requests
        requests: Sequence[int | None] = [wanted] * self.processes
        if load is None and wanted is not None:
            requests = _shares(wanted, self.processes)
        for number, (_, pipe) in enumerate(self._members):
            # Far apart, so that processes send different rollouts at a time.
            first = number * 1_000_003
            self._send(pipe, Start(start_at, load, at_a_time[number], first, requests[number]))
        result = RunResult()
        # By process: the sum over all is what is in flight.
        in_flight: dict[Connection[Any, Any], int] = {}
        running = [pipe for _, pipe in self._members]
        stopped = False
        with _noted_interrupt() as interrupted:
            while running:
                ready = wait(running, timeout=TICK_S)
                for pipe in [each for each in running if each in ready]:
                    said = self._receive(pipe)
                    if isinstance(said, _Part):
                        result.tally.add(said.tally)
                        in_flight[pipe] = said.in_flight
                    elif isinstance(said, _Done):
                        running.remove(pipe)
                        result.cpu_shares.append(said.cpu_share)
                        result.samples += said.samples
                result.elapsed_s = time.monotonic() - start_at
                result.interrupted = interrupted.is_set()
                progress = RunProgress(result.elapsed_s, result.tally, sum(in_flight.values()))
                if (watch(progress) or result.interrupted) and not stopped:
                    stopped = True
                    for pipe in running:
                        self._send(pipe, _Word.STOP)
        return result

    def _receive(self, pipe: Connection[Any, Any]) -> object:
        try:
            said = pipe.recv()
        except (EOFError, OSError):
            raise LoadProcessLost(_LOST) from None
        if isinstance(said, Exception):  # the process cannot go on
            raise said
        return said

    def _send(self, pipe: Connection[Any, Any], message: ProcessSetup | Start | _Word) -> None:
        try:
            pipe.send(message)
        except OSError:
            raise LoadProcessLost(_LOST) from None

    def _end(self) -> None:
        for _, pipe in self._members:
            pipe.close()  # lets it leave; what it still wants to say must not block it
        give_up_at = time.monotonic() + STOP_TIMEOUT_S
        for process, _ in self._members:
            process.join(max(0.0, give_up_at - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
            process.close()


@contextlib.contextmanager
def _noted_interrupt() -> Iterator[threading.Event]:
    """Note a first Ctrl-C, which may not raise in the middle of a message; a second one raises."""
    noted = threading.Event()

    def note(number: int, frame: object) -> None:
        if noted.is_set():  # no patience for a report either
            raise KeyboardInterrupt
        noted.set()

    if threading.current_thread() is not threading.main_thread():
        yield noted  # signals are not for this thread
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)
