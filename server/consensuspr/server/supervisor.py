"""The process model of ``serve``: one supervisor, N workers that share a port.

::

    supervisor ── claims the port, never imports gRPC
      ├── prepare   loads the datasets, saves snapshots, ends
      ├── worker 0  maps the snapshots, listens with SO_REUSEPORT
      ├── …
      └── page      shows the score log, if that is on

Python parses and builds messages under one lock, so one process is one core of RPC.  The supervisor
holds the port, the snapshots and the metrics while a worker is replaced.  The kernel spreads
connections over the workers.

A worker that dies is replaced, with a growing pause.  So is one that hangs: each sends heartbeats
from its event loop.  When no worker can be started any more, the server ends with code 1.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import resource
import selectors
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.server import logs, security
from consensuspr.server.config import Address, ServerConfig, claim
from consensuspr.server.datasets import Change, Mode, ServedDatasets
from consensuspr.server.endpoint import MetricsEndpoint
from consensuspr.server.folders import temporary_folder
from consensuspr.server.processes import CAUGHT, Child, Message, caught_signals

_log = logging.getLogger(logs.LOGGER_NAME)

# Before a dead process is replaced: doubled with each death, forgotten after a long life.
FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 30.0
LONG_LIFE_S = 60.0
# Failed starts in a row; when all workers have had so many, the server ends.
MAX_FAILED_STARTS = 5
# Of glibc's allocator in workers.  By default it gives the memory of every large message back to
# the system, which zeroes it again for the next one; that takes longer than receiving.
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
    "MALLOC_TOP_PAD_": str(1 << 20),
    "MALLOC_ARENA_MAX": "2",
}
# gRPC writes a line for every handshake that fails, and could fill the log.
QUIET_GRPC = {"GRPC_VERBOSITY": "ERROR"}
# Without connections a worker has 25 open; gRPC crashes without a descriptor for its event loop.
MIN_OPEN_FILES = 256
ENOUGH_OPEN_FILES = 65_536
# Between two looks at the children; messages and signals are noticed at once.
TICK_S = 0.2
# For a worker to get ready, and for its event loop to send a heartbeat.
START_TIMEOUT_S = 120.0
HEARTBEAT_TIMEOUT_S = 15.0
# The most that counts as silence between two looks: after a longer one, the supervisor itself was
# stopped, and the workers may have been too.
MAX_LOOK_S = 2 * TICK_S
# For a worker to stop, past delay and grace.
STOP_MARGIN_S = 5.0

FOLDER_PREFIX = "consensuspr-serve-"
# Run for both prepare and worker.
WORKER_MODULE = "consensuspr.server.worker"
PAGE_MODULE = "consensuspr.web.app"

# Gets the answers of workers by number, and the numbers of those that did not answer.
RoundDone = Callable[[dict[int, Message], list[int]], None]


class _Stopped(Exception):
    """SIGTERM or SIGINT arrived."""


class _CannotGoOnError(ConsensusPRError):
    """A worker that died cannot be replaced."""


@dataclass(slots=True)
class _Slot:
    """The place of one worker, or of the page; its process changes.  Times are monotonic."""

    name: str
    module: str
    number: int
    is_page: bool = False
    child: Child | None = None  # None while a replacement waits
    ready: bool = False
    started: float = 0.0
    heartbeats: int = 0  # at the last look
    silent_s: float = 0.0
    failed_starts: int = 0  # in a row
    backoff_s: float = 0.0  # before the latest replacement
    replace_at: float = 0.0

    def hangs(self, looked_s: float) -> bool:
        """Return whether a worker sent no heartbeat for too long; adds ``looked_s`` of silence."""
        assert self.child is not None
        self.silent_s += looked_s
        if self.child.heartbeats != self.heartbeats:
            self.heartbeats, self.silent_s = self.child.heartbeats, 0.0
        return not self.is_page and self.silent_s > HEARTBEAT_TIMEOUT_S


@dataclass(slots=True)
class _Round:
    """One order to all workers, until each has answered, has died, or time is up."""

    asked: dict[int, Child]  # by the worker's number, those that have not answered
    end: float
    done: RoundDone
    answers: dict[int, Message] = field(default_factory=dict)


def print_address(address: Address) -> None:
    """Print the one line that says where a server listens."""
    print(f"listening on {address}", flush=True)


def run(
    config: ServerConfig,
    announce: Callable[[Address], None] = print_address,
    worker_module: str = WORKER_MODULE,
) -> int:
    """Serve until SIGTERM or SIGINT, then drain.

    Takes over the signals and the logging of this process; for its main thread.

    Args:
        config: settings.
        announce: called with the address when all workers serve; by default prints ``listening on
            HOST:PORT``.
        worker_module: what to run; :func:`consensuspr.http.run` sets it for ``http_address``.

    Returns:
        0 after draining, 1 if a worker that died could not be replaced.

    Raises:
        InputError: a dataset or an address is wrong, or too few files may be open.
        ConsensusPRError: the port is in use, or a worker cannot start.
    """
    if config.http_address is not None and worker_module == WORKER_MODULE:
        raise InputError("http_address is set: start the server with consensuspr.http.run")
    logs.configure(config.log_format, config.log_level, "supervisor")
    _raise_open_files()
    with contextlib.ExitStack() as stack:
        return _Supervisor(config, announce, worker_module, stack).run()


def _raise_open_files() -> None:
    """Raise the limit on open files as far as this process may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, ENOUGH_OPEN_FILES)
    if 0 <= soft < wanted:  # unlimited is negative
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    if wanted < MIN_OPEN_FILES:
        raise InputError(
            f"the limit on open files (ulimit -n) is {wanted};"
            f" a server needs at least {MIN_OPEN_FILES}"
        )


class _Supervisor:
    """The life of one server; what it holds is given up when ``stack`` is left."""

    def __init__(
        self,
        config: ServerConfig,
        announce: Callable[[Address], None],
        worker_module: str,
        stack: contextlib.ExitStack,
    ) -> None:
        self._config = config
        self._announce = announce
        security.check_exposure(config)
        self._signals = stack.enter_context(caught_signals((*CAUGHT, signal.SIGHUP)))
        folder = temporary_folder(FOLDER_PREFIX, stack)
        self._addresses: dict[str, Address] = {}
        for name in ("address", "http_address", "web"):
            text = getattr(config, name)
            if text is not None:
                claimed = claim(Address.parse(text))
                stack.enter_context(contextlib.closing(claimed))
                self._addresses[name] = claimed.address
        self._workers = [
            _Slot(f"worker {number}", worker_module, number) for number in range(config.workers)
        ]
        self._slots = [*self._workers]
        if config.web is not None:
            self._slots.append(_Slot("the page", PAGE_MODULE, -1, is_page=True))
        self._stopping = False
        # Also if only workers need it: errors in it come before anything is loaded.
        secured = security.Security.of(config)
        self._scheme = "http" if secured.tls is None else "https"
        if config.http_address is not None:
            _log.info("HTTP endpoint on %s://%s", self._scheme, self._addresses["http_address"])
        self._endpoint = None
        if config.metrics_address is not None:
            self._endpoint = MetricsEndpoint(
                Address.parse(config.metrics_address),
                secured,
                workers=config.workers,
                serving=self._serving,
            )
            stack.callback(self._endpoint.close)
            _log.info("metrics on %s://%s/metrics", self._scheme, self._endpoint.address)
        self._datasets = ServedDatasets(
            config,
            folder,
            lambda payload: Child(worker_module, payload, {}),
            self._order_all,
            self._end_worker,
            self._count_change,
            self._mark_bad,
        )
        self._order_ids = itertools.count(1)
        self._rounds: dict[int, _Round] = {}
        stack.callback(self._kill_all)

    def run(self) -> int:
        try:
            self._datasets.load_first(self._wait)
            self._start_workers()
            address = self._addresses["address"]
            workers = "worker" if len(self._workers) == 1 else "workers"
            _log.info("listening on %s with %d %s", address, len(self._workers), workers)
            self._announce(address)
            looked = time.monotonic()
            while True:
                self._wait()
                before, looked = looked, time.monotonic()
                for slot in self._slots:
                    self._look_after(slot, min(looked - before, MAX_LOOK_S))
                self._end_rounds()
                self._datasets.tick()
        except _Stopped:
            self._drain()
            return 0
        except _CannotGoOnError as error:
            _log.error("%s; the server ends", error)
            self._drain()
            return 1

    # -- orders and questions

    def _end_worker(self, number: int, reason: str) -> None:
        """End a worker at once; it is replaced."""
        child = self._workers[number].child
        if child is not None:
            _log.error("worker %d %s; it is ended", number, reason)
            child.kill()

    def _count_change(self, done: bool) -> None:
        if self._endpoint is not None:
            self._endpoint.dataset_changes.labels("done" if done else "failed").inc()

    def _mark_bad(self, name: str, bad: bool) -> None:
        if self._endpoint is not None:
            self._endpoint.dataset_bad.labels(name).set(bad)

    def _order_all(self, order: Message, done: RoundDone) -> None:
        """Order something of all workers, without waiting.

        A worker that starts later gets the same from its payload.

        Args:
            order: ``order``, its name, and fields of its own.
            done: called once; a worker that died meanwhile is in neither argument.
        """
        number = next(self._order_ids)
        asked = {slot.number: slot.child for slot in self._workers if slot.child is not None}
        self._rounds[number] = _Round(asked, time.monotonic() + START_TIMEOUT_S, done)
        for child in asked.values():
            child.send({**order, "id": number})

    def _take_messages(self, slot: _Slot, child: Child) -> None:
        for message in child.take():
            if "metrics" in message:
                if self._endpoint is not None:
                    self._endpoint.workers.told(child.pid, message["metrics"])
            elif "ask" in message:
                reply = functools.partial(self._reply, child, message["id"])
                change = message["change"]
                self._datasets.ask(Change(**{**change, "mode": Mode(change["mode"])}, reply=reply))
            else:
                current = self._rounds.get(message["answer"])
                if current is not None and current.asked.pop(slot.number, None) is not None:
                    current.answers[slot.number] = message

    def _reply(self, child: Child, number: int, fields: Message) -> None:
        if child.exit_code() is None:
            child.send({"reply": number, **fields})

    def _end_rounds(self) -> None:
        now = time.monotonic()
        for number, current in list(self._rounds.items()):
            silent = [at for at, child in current.asked.items() if child.exit_code() is None]
            if not silent or now >= current.end:
                del self._rounds[number]
                current.done(current.answers, silent)

    # -- processes

    def _start(self, slot: _Slot) -> None:
        payload = {
            "config": self._config.model_dump(mode="json"),
            **self._datasets.payload(),
            "worker": slot.number,
            **{name: str(address) for name, address in self._addresses.items()},
        }
        ours = {} if slot.is_page else ALLOCATOR | QUIET_GRPC
        chosen = {name: os.environ.get(name, value) for name, value in ours.items()}
        try:
            slot.child = Child(slot.module, payload, chosen)
        except OSError as error:
            raise ConsensusPRError(f"{slot.name} cannot be started: {error.strerror}") from None
        slot.started = time.monotonic()
        slot.ready = False
        _log.debug("%s started as process %d", slot.name, slot.child.pid)

    def _start_workers(self) -> None:
        """Start all workers and wait until every one of them serves."""
        deadline = time.monotonic() + START_TIMEOUT_S
        for slot in self._workers:
            self._start(slot)
        while True:
            # All are asked, so that one that failed is found while another is still loading.
            started = [self._has_started(slot) for slot in self._workers]
            if all(started):
                return
            if time.monotonic() >= deadline:
                raise ConsensusPRError(f"workers were not ready after {START_TIMEOUT_S:g} s")
            self._wait()

    def _has_started(self, slot: _Slot) -> bool:
        assert slot.child is not None
        report = slot.child.report()
        if report is not None and not report.ready:
            raise type(report.error())(f"{slot.name} cannot start: {report.reason}")
        if slot.child.exit_code() is not None:
            raise ConsensusPRError(f"{slot.name} {slot.child.describe_exit()} before it was ready")
        slot.ready = report is not None
        return slot.ready

    def _look_after(self, slot: _Slot, looked_s: float) -> None:
        """Replace a process that died or hangs; ``looked_s`` is the time since the last look."""
        now = time.monotonic()
        if slot.child is None:
            if now >= slot.replace_at:
                try:
                    self._start(slot)
                except ConsensusPRError as error:
                    slot.failed_starts += 1
                    self._replace_later(slot, str(error), 0.0)
            return
        self._take_messages(slot, slot.child)
        if slot.child.exit_code() is not None:
            self._bury(slot, slot.child, slot.child.describe_exit())
        elif slot.ready:
            if slot.hangs(looked_s):
                self._bury(slot, slot.child, f"hangs, no heartbeat for {slot.silent_s:.1f} s")
        else:
            report = slot.child.report()
            if report is not None and report.ready:
                slot.ready = True
                slot.failed_starts = 0
                slot.silent_s = 0.0
                if slot.is_page:
                    _log.info("page on %s://%s", self._scheme, self._addresses["web"])
                else:
                    _log.warning("%s serves again, process %d", slot.name, slot.child.pid)
            elif now - slot.started > START_TIMEOUT_S:
                self._bury(slot, slot.child, "did not get ready")

    def _bury(self, slot: _Slot, child: Child, how: str) -> None:
        """Clean up after a process that died or is of no use, and plan its replacement."""
        lived_s = time.monotonic() - slot.started
        self._take_messages(slot, child)
        report = child.report()
        if report is not None and report.reason:
            how += f" ({report.reason})"
        child.kill()
        slot.child = None
        slot.failed_starts = 0 if slot.ready else slot.failed_starts + 1
        slot.ready = False
        if self._endpoint is not None and not slot.is_page:
            self._endpoint.worker_restarts.inc()
            self._endpoint.workers.died(child.pid)
        self._replace_later(
            slot, f"{slot.name}, process {child.pid}, {how} after {lived_s:.1f} s", lived_s
        )

    def _replace_later(self, slot: _Slot, how: str, lived_s: float) -> None:
        """Plan the next start for a slot whose process ended, or could not be started."""
        if all(worker.failed_starts >= MAX_FAILED_STARTS for worker in self._workers):
            raise _CannotGoOnError(
                f"no worker serves, and {slot.name} failed to start"
                f" {slot.failed_starts} times; the last: {how}"
            )
        if slot.backoff_s == 0.0 or lived_s >= LONG_LIFE_S:
            slot.backoff_s = FIRST_BACKOFF_S
        else:
            slot.backoff_s = min(MAX_BACKOFF_S, 2 * slot.backoff_s)
        slot.replace_at = time.monotonic() + slot.backoff_s
        starts = f", failed start {slot.failed_starts}" if slot.failed_starts else ""
        _log.error(
            "%s%s; it is replaced in %.1f s; %d of %d workers serve",
            how, starts, slot.backoff_s, self._serving(), len(self._workers),
        )  # fmt: skip

    def _serving(self) -> int:
        """Return how many workers take requests."""
        return 0 if self._stopping else sum(slot.ready for slot in self._workers)

    # -- the end

    def _drain(self) -> None:
        """Tell all workers to end, wait for them, and kill what does not."""
        limit_s = self._config.drain_delay_s + self._config.grace_s + STOP_MARGIN_S
        deadline = time.monotonic() + limit_s
        _log.info("stopping")
        self._stopping = True
        ending = [(slot, slot.child) for slot in self._slots if slot.child is not None]
        for slot, child in ending:
            if slot.is_page:
                child.kill()  # it holds nothing that anybody would miss
            else:
                child.terminate()
        looked = time.monotonic()
        while any(child.exit_code() is None for _, child in ending):
            before, looked = looked, time.monotonic()
            if looked >= deadline:
                _log.warning("workers did not stop within %g s and are killed", limit_s)
                return
            for slot, child in ending:
                child.report()  # takes its heartbeats, too
                hangs = slot.hangs(min(looked - before, MAX_LOOK_S))
                if hangs and child.exit_code() is None:
                    _log.warning("%s hangs and is killed", slot.name)
                    child.kill()
            # A second Ctrl-C means: do not wait.
            if signal.SIGINT in self._pause():
                _log.warning("interrupted while draining; workers are killed")
                return

    def _kill_all(self) -> None:
        for child in self._children():
            child.kill()

    def _wait(self) -> None:
        """Sleep until something may have happened; SIGTERM and SIGINT raise _Stopped."""
        for number in self._pause():
            if number != signal.SIGHUP:
                raise _Stopped
            self._datasets.reload_all()

    def _pause(self) -> list[signal.Signals]:
        """Sleep until a child or a signal arrives, or a tick; return the signals."""
        # It takes no file descriptor, unlike others: there may be none left.
        with selectors.PollSelector() as selector:
            selector.register(self._signals.socket, selectors.EVENT_READ)
            for child in self._children():
                # The socket of a dead child is always readable, which would make this a busy loop.
                if child.exit_code() is None and child.socket.fileno() >= 0:
                    unsent = selectors.EVENT_WRITE if child.unsent else 0
                    selector.register(child.socket, selectors.EVENT_READ | unsent)
            selector.select(TICK_S)
        return self._signals.take()

    def _children(self) -> list[Child]:
        children = [self._datasets.child, *(slot.child for slot in self._slots)]
        return [child for child in children if child is not None]
