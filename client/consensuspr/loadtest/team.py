"""The load processes, seen from the one that leads them.

They are spawned, not forked: gRPC does not survive a fork.  All run by one clock, the
system's monotonic one, and begin at one moment that lies ahead when they are told.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Self

from consensuspr.errors import ConsensusPRError
from consensuspr.loadtest.load import Load
from consensuspr.loadtest.orders import Done, Failed, Part, Quit, Ready, Sample, Setup, Start, Stop
from consensuspr.loadtest.pool import Pool
from consensuspr.loadtest.settings import MAX_PROCESSES, Settings
from consensuspr.loadtest.tally import Tally
from consensuspr.loadtest.worker import work

# Between the order and the start of the warm-up: for orders to arrive everywhere.
LEAD_S = 0.2
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 10.0
TICK_S = 0.25


class LoadProcessLost(ConsensusPRError):
    """A load process ended by itself; its part of the load is missing."""


@dataclass(slots=True)
class Progress:
    """How a run goes.

    Attributes:
        elapsed_s: since the end of the warm-up, negative before.
        tally: so far.
        in_flight: requests that wait for their reply.
    """

    elapsed_s: float
    tally: Tally
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

    tally: Tally = field(default_factory=Tally)
    elapsed_s: float = 0.0
    interrupted: bool = False
    cpu_shares: list[float] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)


_LOST = "a load process ended before the run was over"

Watch = Callable[[Progress], bool]


class Team:
    """The load processes; a context manager that leaves none behind.

    Args:
        settings: of the load test.
        pool: what they send.
        search: runs are open loops although the settings name no rate.

    Raises:
        ConsensusPRError: one of them cannot reach the server.
    """

    def __init__(self, settings: Settings, pool: Pool, *, search: bool = False) -> None:
        self._settings = settings
        self._pool = pool
        # In a closed loop each has at least one request at a time.
        closed = settings.rate is None and not search
        self.processes = min(settings.processes, settings.concurrency if closed else MAX_PROCESSES)
        context = multiprocessing.get_context("spawn")
        self._members: list[tuple[Any, Connection[Any, Any]]] = []
        for _ in range(self.processes):
            here, there = context.Pipe()
            process = context.Process(target=work, args=(there,), daemon=True)
            process.start()
            there.close()
            self._members.append((process, here))

    def __enter__(self) -> Self:
        try:
            # When all are starting: a large setup is not taken before its process runs.
            for number, (_, pipe) in enumerate(self._members):
                self._send(pipe, self._setup(number))
            self._await_ready()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def run(self, load: Load | None, watch: Watch = lambda progress: False) -> RunResult:
        """Carry out one run.

        Args:
            load: open loop; None: the closed loop of the settings.
            watch: called some times a second; the run is stopped where it returns True.

        Returns:
            Its result, also where Ctrl-C ended it early.

        Raises:
            LoadProcessLost: a load process ended.
        """
        start_at = time.monotonic() + LEAD_S + self._settings.warmup_s
        for number, (_, pipe) in enumerate(self._members):
            self._send(pipe, self._order(number, start_at, load))
        result = RunResult()
        # By process: the sum over all is what is in flight.
        in_flight: dict[Connection[Any, Any], int] = {}
        running = [pipe for _, pipe in self._members]
        stopped = False
        while running:
            try:
                for ready in wait(running, timeout=TICK_S):
                    pipe = _pipe_of(ready, running)
                    said = self._receive(pipe)
                    if isinstance(said, Part):
                        result.tally.add(said.tally)
                        in_flight[pipe] = said.in_flight
                    elif isinstance(said, Done):
                        running.remove(pipe)
                        result.cpu_shares.append(said.cpu_s / said.wall_s)
                        result.samples += said.samples
                result.elapsed_s = time.monotonic() - start_at
                progress = Progress(result.elapsed_s, result.tally, sum(in_flight.values()))
                if watch(progress) and not stopped:
                    stopped = True
                    self._stop(running)
            except KeyboardInterrupt:
                if result.interrupted:  # twice: no patience for a report either
                    raise
                result.interrupted = stopped = True
                self._stop(running)
        return result

    def _setup(self, number: int) -> Setup:
        connections = max(self._settings.connections, self.processes)
        share = connections // self.processes + (number < connections % self.processes)
        return Setup(self._settings, self._pool.rollouts, number, self.processes, share)

    def _order(self, number: int, start_at: float, load: Load | None) -> Start:
        settings = self._settings

        def share(total: int) -> int:
            return total // self.processes + (number < total % self.processes)

        requests = settings.requests
        if load is None and requests is not None:
            requests = share(requests)
        # Far apart, so that processes send different rollouts at a time.
        first = number * 1_000_003
        return Start(start_at, load, share(settings.concurrency), first, requests)

    def _await_ready(self) -> None:
        give_up_at = time.monotonic() + START_TIMEOUT_S
        for _, pipe in self._members:
            if not pipe.poll(max(0.0, give_up_at - time.monotonic())):
                raise LoadProcessLost(
                    f"a load process was not ready after {START_TIMEOUT_S:g} seconds"
                )
            said = self._receive(pipe)
            assert isinstance(said, Ready)

    def _receive(self, pipe: Connection[Any, Any]) -> object:
        try:
            said = pipe.recv()
        except (EOFError, OSError):
            raise LoadProcessLost(_LOST) from None
        if isinstance(said, Failed):
            raise said.error
        return said

    def _send(self, pipe: Connection[Any, Any], message: Setup | Start | Stop) -> None:
        try:
            pipe.send(message)
        except OSError:
            raise LoadProcessLost(_LOST) from None

    def _stop(self, running: list[Connection[Any, Any]]) -> None:
        for pipe in running:
            self._send(pipe, Stop())

    def _end(self) -> None:
        for _, pipe in self._members:
            with contextlib.suppress(OSError):  # it has gone already
                pipe.send(Quit())
            pipe.close()  # nobody reads any more: what it still wants to say must not block it
        give_up_at = time.monotonic() + STOP_TIMEOUT_S
        for process, _ in self._members:
            process.join(max(0.0, give_up_at - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
            process.close()


def _pipe_of(ready: object, running: list[Connection[Any, Any]]) -> Connection[Any, Any]:
    return next(pipe for pipe in running if pipe is ready)
