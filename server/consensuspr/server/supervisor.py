"""The process model of ``serve``: one supervisor, N workers that share a port.

::

    supervisor ── claims the port, loads nothing, never imports gRPC
      ├── prepare   loads the datasets once, saves snapshots, ends
      ├── worker 0  maps the snapshots, listens with SO_REUSEPORT (HTTP likewise, if it is on)
      ├── …
      ├── worker N-1
      └── page      shows the score log to people, if that is on; nothing waits for it

Why processes: Python parses and builds messages under one lock, so that one process is one
core of RPC.  Why a supervisor: something must hold the port, the snapshots and the metrics
while a worker is replaced.  The kernel spreads connections (not requests) over the workers:
one connection is served by one worker for as long as it lives.

A worker that dies is replaced, the sooner the longer it lived.  So is one that hangs: each sends
heartbeats from its event loop.  While any worker serves, the server does; where none can be started
any more, it ends with code 1.

Not covered: other machines (run a server on each, or Ray Serve).
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
from consensuspr.server.datasets import Change, ServedDatasets
from consensuspr.server.endpoint import MetricsEndpoint
from consensuspr.server.folders import temporary_folder
from consensuspr.server.processes import CAUGHT, Child, Message, caught_signals

_log = logging.getLogger(logs.LOGGER_NAME)

# Wait before a dead worker is replaced: doubled with each death, forgotten by a long life.
FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 30.0
LONG_LIFE_S = 60.0
# Deaths of a worker in a row before it was ready; when all workers have had so many, the server
# ends: then it is not bad luck.
MAX_FAILED_STARTS = 5
# Of glibc's allocator in workers.  By its own choice it hands the memory of every large message
# back to the system and has it zeroed anew for the next one, which takes longer than receiving.
# What is larger than clients send goes back; and few arenas, since what one has freed is of no
# use to another.
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
    "MALLOC_TOP_PAD_": str(1 << 20),
    "MALLOC_ARENA_MAX": "2",
}
# gRPC writes a line for every handshake that fails: whoever likes could fill the log.
QUIET_GRPC = {"GRPC_VERBOSITY": "ERROR"}
# Without connections a worker has 25 open; gRPC crashes without a descriptor for its event loop.
MIN_OPEN_FILES = 256
ENOUGH_OPEN_FILES = 65_536
# Between two looks at the children.  Reports and signals are noticed at once; this is for a
# death whose pipe somebody else keeps open.
TICK_S = 0.2
# A worker that is not ready after this long has failed to start; one whose event loop stands still
# for so long is replaced.
START_TIMEOUT_S = 120.0
HEARTBEAT_TIMEOUT_S = 15.0
# Of the time between two looks, so much counts as a worker's silence: where it was longer, the
# supervisor itself was kept from looking (stopped, suspended, on a machine without a free core),
# and the workers may have been too.
MAX_LOOK_S = 2 * TICK_S
# What a worker needs, past delay and grace, to stop.
STOP_MARGIN_S = 5.0


# Of the folders of servers under the temporary directory.
FOLDER_PREFIX = "consensuspr-serve-"
# What is run for both roles of a process, prepare and worker.
WORKER_MODULE = "consensuspr.server.worker"
PAGE_MODULE = "consensuspr.web.app"


def raise_open_files() -> None:
    """Raise the limit on open files as far as this process may.

    Raises:
        InputError: it is too low for a server.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, ENOUGH_OPEN_FILES)
    if 0 <= soft < wanted:  # unlimited is negative
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    if wanted < MIN_OPEN_FILES:
        raise InputError(
            f"the limit on open files (ulimit -n) is {wanted};"
            f" a server needs at least {MIN_OPEN_FILES}"
        )


class _Stopped(Exception):
    """SIGTERM or SIGINT arrived."""


class _CannotGoOnError(ConsensusPRError):
    """A worker that died cannot be replaced."""


@dataclass(slots=True)
class _Slot:
    """The place of one worker; its process changes.  Times are monotonic."""

    number: int
    child: Child | None = None  # None while a replacement waits
    ready: bool = False
    started: float = 0.0
    heartbeats: int = 0  # that had come at the last look
    silent_s: float = 0.0  # without a heartbeat, while somebody looked
    failed_starts: int = 0  # in a row
    backoff_s: float = 0.0  # before the latest replacement, 0 where there was none
    replace_at: float = 0.0


def print_address(address: Address) -> None:
    """Print the one line that says where a server listens."""
    print(f"listening on {address}", flush=True)


def run(
    config: ServerConfig,
    announce: Callable[[Address], None] = print_address,
    worker_module: str = WORKER_MODULE,
) -> int:
    """Serve until SIGTERM or SIGINT, then drain.

    Takes over the signals and the logging of this process; to be called in its main thread.

    Args:
        config: settings.
        announce: told the address when all workers serve; prints ``listening on HOST:PORT`` on
            standard output where not given.
        worker_module: what to run; :func:`consensuspr.http.run` says for ``http_address``.

    Returns:
        0 after draining, 1 where a worker that died could not be replaced.

    Raises:
        InputError: a dataset or an address is wrong, or a limit of the system is too low.
        ConsensusPRError: the port is in use, or a worker cannot start.
    """
    if config.http_address is not None and worker_module == WORKER_MODULE:
        raise InputError("http_address is set: start the server with consensuspr.http.run")
    logs.configure(config.log_format, config.log_level, "supervisor")
    raise_open_files()
    with contextlib.ExitStack() as stack:
        return _Supervisor(config, announce, worker_module, stack).run()


@dataclass(slots=True)
class _Round:
    """One order to all workers, until each has answered, has died, or time is up."""

    asked: dict[int, Child]  # by the worker's number, those that have not answered
    end: float
    done: Callable[[dict[int, Message], list[int]], None]
    answers: dict[int, Message] = field(default_factory=dict)


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
        self._worker_module = worker_module
        security.check_exposure(config)
        self._signals = stack.enter_context(caught_signals((*CAUGHT, signal.SIGHUP)))
        self._folder = temporary_folder(FOLDER_PREFIX, stack)
        self._addresses: dict[str, Address] = {}
        for name in ("address", "http_address", "web"):
            text = getattr(config, name)
            if text is not None:
                claimed = claim(Address.parse(text))
                stack.enter_context(contextlib.closing(claimed))
                self._addresses[name] = claimed.address
        self._slots = [_Slot(number) for number in range(config.workers)]
        self._page: Child | None = None
        self._page_ready = False
        self._page_backoff_s = FIRST_BACKOFF_S
        self._page_at = 0.0
        self._stopping = False
        # Also where only workers need it: what is wrong with it is said before anything is loaded.
        secured = security.Security.of(config)
        scheme = "http" if secured.tls is None else "https"
        if config.http_address is not None:
            _log.info("HTTP endpoint on %s://%s", scheme, self._addresses["http_address"])
        self._endpoint = None
        if config.metrics_address is not None:
            self._endpoint = MetricsEndpoint(
                Address.parse(config.metrics_address),
                secured,
                workers=config.workers,
                serving=self._serving,
            )
            stack.callback(self._endpoint.close)
            _log.info("metrics on %s://%s/metrics", scheme, self._endpoint.address)
        self._datasets = ServedDatasets(
            config,
            self._folder,
            lambda payload: Child(worker_module, payload, {}),
            functools.partial(self._order_all, timeout_s=START_TIMEOUT_S),
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
            many = len(self._slots)
            workers = "worker" if many == 1 else "workers"
            _log.info("listening on %s with %d %s", address, many, workers)
            self._announce(address)
            looked = time.monotonic()
            while True:
                self._wait()
                before, looked = looked, time.monotonic()
                for slot in self._slots:
                    self._look_after(slot, min(looked - before, MAX_LOOK_S))
                self._look_after_page()
                self._end_rounds()
                self._datasets.tick()
        except _Stopped:
            self._drain()
            return 0
        except _CannotGoOnError as error:
            _log.error("%s; the server ends", error)
            self._drain()
            return 1

    def _end_worker(self, number: int, reason: str) -> None:
        """End a worker at once; it is replaced."""
        child = self._slots[number].child
        if child is not None:
            _log.error("worker %d %s; it is ended", number, reason)
            child.kill()

    def _count_change(self, done: bool) -> None:
        if self._endpoint is not None:
            self._endpoint.dataset_changes.labels("done" if done else "failed").inc()

    def _mark_bad(self, name: str, bad: bool) -> None:
        if self._endpoint is not None:
            self._endpoint.dataset_bad.labels(name).set(bad)

    def _order_all(
        self,
        order: Message,
        done: Callable[[dict[int, Message], list[int]], None],
        timeout_s: float,
    ) -> None:
        """Order something of all workers, without waiting.

        A worker that is started later gets no such order: what it orders must be in the payload of
        new workers by then.

        Args:
            order: ``order``, its name, and fields of its own.
            done: called once, from the supervisor's loop, with the answers by worker, and the
                workers that live and were silent; of one that died meanwhile there is neither.
            timeout_s: for all to answer.
        """
        number = next(self._order_ids)
        asked = {slot.number: slot.child for slot in self._slots if slot.child is not None}
        self._rounds[number] = _Round(asked, time.monotonic() + timeout_s, done)
        for child in asked.values():
            child.send({**order, "id": number})

    def _take_messages(self, slot: _Slot, child: Child) -> None:
        for message in child.take():
            if "metrics" in message:
                if self._endpoint is not None:
                    self._endpoint.workers.told(child.pid, message["metrics"])
                continue
            if "ask" in message:
                self._do(message, functools.partial(self._reply, child, message["id"]))
                continue
            current = self._rounds.get(message["answer"])
            if current is not None and current.asked.pop(slot.number, None) is not None:
                current.answers[slot.number] = message

    def _do(self, request: Message, reply: Callable[[Message], None]) -> None:
        """Do what a worker asked for, without waiting; ``reply`` is to be called once."""
        if request["ask"] == "change_dataset":
            self._datasets.ask(Change.of(request["change"], reply))
        else:
            reply({"error": f"the supervisor cannot {request['ask']}"})

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

    def _kill_all(self) -> None:
        for child in self._children():
            child.kill()

    def _start(self, slot: _Slot) -> None:
        payload = {
            "config": self._config.model_dump(mode="json"),
            **self._datasets.payload(),
            "worker": slot.number,
            **{name: str(address) for name, address in self._addresses.items()},
        }
        ours = ALLOCATOR | QUIET_GRPC
        chosen = {name: os.environ.get(name, value) for name, value in ours.items()}
        slot.child = Child(self._worker_module, payload, chosen)
        slot.started = time.monotonic()
        slot.ready = False
        _log.debug("worker %d started as process %d", slot.number, slot.child.pid)

    def _start_workers(self) -> None:
        """Start all workers and wait until every one of them serves."""
        deadline = time.monotonic() + START_TIMEOUT_S
        for slot in self._slots:
            self._start(slot)
        while not self._all_started():
            if time.monotonic() >= deadline:
                raise ConsensusPRError(f"workers were not ready after {START_TIMEOUT_S:g} s")
            self._wait()

    def _all_started(self) -> bool:
        # All are asked, so that one that failed is found although another is still loading.
        started = [self._has_started(slot) for slot in self._slots]
        return all(started)

    def _has_started(self, slot: _Slot) -> bool:
        assert slot.child is not None
        report = slot.child.report()
        if report is not None and not report.ready:
            kind = InputError if report.bad_input else ConsensusPRError
            raise kind(f"worker {slot.number} cannot start: {report.reason}")
        if slot.child.exit_code() is not None:
            raise ConsensusPRError(
                f"worker {slot.number} {slot.child.describe_exit()} before it was ready"
            )
        slot.ready = report is not None
        return slot.ready

    def _look_after(self, slot: _Slot, looked_s: float) -> None:
        """See to one worker: replace it where it died or hangs, give up where that does not help.

        ``looked_s`` is how long the supervisor has looked since the last time.
        """
        now = time.monotonic()
        if slot.child is None:
            if now >= slot.replace_at:
                self._start(slot)
            return
        self._take_messages(slot, slot.child)
        if slot.child.exit_code() is not None:
            self._bury(slot, slot.child, slot.child.describe_exit())
        elif slot.ready:
            if self._hangs(slot, slot.child, looked_s):
                self._bury(slot, slot.child, f"hangs, no heartbeat for {slot.silent_s:.1f} s")
        else:
            report = slot.child.report()
            if report is not None and report.ready:
                slot.ready = True
                slot.failed_starts = 0
                slot.silent_s = 0.0
                _log.warning("worker %d serves again, process %d", slot.number, slot.child.pid)
            elif now - slot.started > START_TIMEOUT_S:
                self._bury(slot, slot.child, "did not get ready")

    def _look_after_page(self) -> None:
        """Start the page, and again where it died, ever more seldom; scoring goes on without it."""
        if "web" not in self._addresses:
            return
        if self._page is None:
            if time.monotonic() >= self._page_at:
                payload = {
                    "config": self._config.model_dump(mode="json"),
                    "web": str(self._addresses["web"]),
                }
                self._page = Child(PAGE_MODULE, payload, {})
                self._page_ready = False
            return
        report = self._page.report()
        if self._page.exit_code() is not None:
            told = f" ({report.reason})" if report is not None and report.reason else ""
            how = self._page.describe_exit() + told
            _log.error("the page %s; it is started again in %.1f s", how, self._page_backoff_s)
            self._page.kill()
            self._page = None
            self._page_at = time.monotonic() + self._page_backoff_s
            self._page_backoff_s = min(MAX_BACKOFF_S, 2 * self._page_backoff_s)
        elif report is not None and report.ready and not self._page_ready:
            self._page_ready = True
            scheme = "http" if self._config.tls_cert is None else "https"
            _log.info("page on %s://%s", scheme, self._addresses["web"])

    def _hangs(self, slot: _Slot, child: Child, looked_s: float) -> bool:
        slot.silent_s += looked_s
        if child.heartbeats != slot.heartbeats:
            slot.heartbeats, slot.silent_s = child.heartbeats, 0.0
        return slot.silent_s > HEARTBEAT_TIMEOUT_S

    def _bury(self, slot: _Slot, child: Child, how: str) -> None:
        """Clear up after a worker that died or is of no use, and plan its replacement."""
        lived_s = time.monotonic() - slot.started
        self._take_messages(slot, child)
        report = child.report()
        if report is not None and report.reason:
            how += f" ({report.reason})"
        child.kill()
        slot.child = None
        slot.failed_starts = 0 if slot.ready else slot.failed_starts + 1
        slot.ready = False
        if self._endpoint is not None:
            self._endpoint.worker_restarts.inc()
            self._endpoint.workers.died(child.pid)
        if all(slot.failed_starts >= MAX_FAILED_STARTS for slot in self._slots):
            raise _CannotGoOnError(
                f"no worker serves, and worker {slot.number} failed to start"
                f" {slot.failed_starts} times; the last {how}"
            )
        if slot.backoff_s == 0.0 or lived_s >= LONG_LIFE_S:
            slot.backoff_s = FIRST_BACKOFF_S
        else:
            slot.backoff_s = min(MAX_BACKOFF_S, 2 * slot.backoff_s)
        slot.replace_at = time.monotonic() + slot.backoff_s
        starts = f", the {slot.failed_starts}. failed start" if slot.failed_starts else ""
        _log.error(
            "worker %d, process %d, %s after %.1f s%s; it is replaced in %.1f s; %d of %d serve",
            slot.number, child.pid, how, lived_s, starts, slot.backoff_s, self._serving(),
            len(self._slots),
        )  # fmt: skip

    def _serving(self) -> int:
        """Return how many workers take requests."""
        return 0 if self._stopping else sum(slot.ready for slot in self._slots)

    def _drain(self) -> None:
        """Tell all workers to end, wait for them, and kill what does not."""
        config = self._config
        limit_s = config.drain_delay_s + config.grace_s + STOP_MARGIN_S
        deadline = time.monotonic() + limit_s
        _log.info("stopping")
        self._stopping = True
        workers = [(slot, slot.child) for slot in self._slots if slot.child is not None]
        for _, worker in workers:
            worker.terminate()
        if self._page is not None:
            self._page.kill()  # it holds nothing that anybody would miss
            self._page = None
        looked = time.monotonic()
        while any(worker.exit_code() is None for _, worker in workers):
            before, looked = looked, time.monotonic()
            if looked >= deadline:
                _log.warning("workers did not stop within %g s and are killed", limit_s)
                return
            for slot, worker in workers:
                worker.report()  # takes its heartbeats, too
                hangs = self._hangs(slot, worker, min(looked - before, MAX_LOOK_S))
                if worker.exit_code() is None and hangs:
                    _log.warning("worker %d hangs and is killed", slot.number)
                    worker.kill()
            # Whoever presses Ctrl-C again while it drains does not want to wait.
            if signal.SIGINT in self._pause():
                _log.warning("interrupted while draining; workers are killed")
                return

    def _wait(self) -> None:
        """Sleep until something may have happened; SIGTERM and SIGINT raise _Stopped."""
        for number in self._pause():
            if number != signal.SIGHUP:
                raise _Stopped
            self._datasets.reload_all()

    def _pause(self) -> list[signal.Signals]:
        """Sleep until a child or a signal makes itself felt, or a tick; return the signals."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._signals.socket, selectors.EVENT_READ)
            for child in self._children():
                # What has ended is readable for ever, which would make this a busy loop; what was
                # killed and does not go has no socket any more.
                if child.exit_code() is None and child.socket.fileno() >= 0:
                    unsent = selectors.EVENT_WRITE if child.unsent else 0
                    selector.register(child.socket, selectors.EVENT_READ | unsent)
            selector.select(TICK_S)
        return self._signals.take()

    def _children(self) -> list[Child]:
        children = [slot.child for slot in self._slots]
        others = [self._datasets.child, self._page]
        return [child for child in [*others, *children] if child is not None]
