"""The process model of ``serve``: one supervisor, N workers that share a port.

::

    supervisor ── claims the port, never imports gRPC
      ├── reader    loads the datasets, saves snapshots, ends
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

import asyncio
import contextlib
import logging
import os
import resource
import signal
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.server import logs, security
from consensuspr.server.config import Address, ServerConfig, claim
from consensuspr.server.datasets import Change, ServedDatasets
from consensuspr.server.endpoint import MetricsEndpoint
from consensuspr.server.folders import temporary_folder
from consensuspr.server.processes import Child, ChildEnded, Message

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
# Between two looks at a child's heartbeats.
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
READER_MODULE = WORKER_MODULE = "consensuspr.server.worker"
HTTP_WORKER_MODULE = "consensuspr.http.app"
PAGE_MODULE = "consensuspr.web.app"


class _CannotGoOnError(ConsensusPRError):
    """No worker can be started any more."""


@dataclass(slots=True)
class _Slot:
    """The place of one worker, or of the page; its process changes."""

    name: str
    module: str
    number: int
    is_page: bool = False
    child: Child | None = None  # None while a replacement waits
    ready: bool = False
    started: float = 0.0  # monotonic
    failed_starts: int = 0  # in a row
    backoff_s: float = 0.0  # before the latest replacement


def print_address(address: Address) -> None:
    """Print the server's one line of standard output."""
    print(f"listening on {address}", flush=True)


def run(config: ServerConfig, announce: Callable[[Address], None] = print_address) -> int:
    """Serve until SIGTERM or SIGINT, then drain; return the exit code, 1 if no worker is left.

    Takes over the signals and the logging of this process; for its main thread.

    Args:
        announce: called with the address when all workers serve.

    Raises:
        InputError: a setting or dataset is wrong, or a package is missing.
        ConsensusPRError: the port is in use, or a worker cannot start.
    """
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if config.http_address is not None and missing:
        raise InputError(
            f"http_address needs {' and '.join(missing)}, which are not installed:"
            ' pip install "consensuspr[http]"'
        )
    logs.configure(config.log_format, config.log_level, "supervisor")
    _raise_open_files()
    with contextlib.ExitStack() as stack:
        return asyncio.run(_Supervisor(config, stack).run(announce))


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
    """The life of one server; the resources that it holds are closed with ``stack``."""

    def __init__(self, config: ServerConfig, stack: contextlib.ExitStack) -> None:
        self._config = config
        security.check_exposure(config)
        folder = temporary_folder(FOLDER_PREFIX, stack)
        self._addresses: dict[str, Address] = {}
        for name in ("address", "http_address", "web"):
            text = getattr(config, name)
            if text is not None:
                claimed = stack.enter_context(claim(Address.parse(text)))
                self._addresses[name] = Address.of(claimed)
        module = WORKER_MODULE if config.http_address is None else HTTP_WORKER_MODULE
        self._workers = [
            _Slot(f"worker {number}", module, number) for number in range(config.workers)
        ]
        self._slots = [*self._workers]
        if config.web is not None:
            self._slots.append(_Slot("the page", PAGE_MODULE, -1, is_page=True))
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
            config, folder, self._run_reader, self._order_all, self._end_worker, self._endpoint
        )
        self._children: set[Child] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._stop, self._hurry = asyncio.Event(), asyncio.Event()

    async def run(self, announce: Callable[[Address], None]) -> int:
        """Serve until a signal; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop_signal, number)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._begin(self._datasets.reload_all()))
        serving = asyncio.create_task(self._serve(announce))
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({serving, stop}, return_when=asyncio.FIRST_COMPLETED)
            code = 0
            if serving.done():
                error = serving.exception()
                assert error is not None, "it serves for ever"
                if not isinstance(error, _CannotGoOnError):
                    raise error
                _log.error("%s; the server exits", error)
                code = 1
            await self._cancel(serving, *self._tasks)
            await self._drain()
            return code
        finally:
            await self._cancel(serving, stop, *self._tasks)
            for child in [*self._children]:
                self._kill(child)

    def _on_stop_signal(self, number: signal.Signals) -> None:
        # A second Ctrl-C means: do not wait.
        if self._stopping and number is signal.SIGINT:
            self._hurry.set()
        self._stop.set()

    async def _serve(self, announce: Callable[[Address], None]) -> None:
        await self._datasets.load_first()
        await self._start_workers()
        address = self._addresses["address"]
        workers = "worker" if len(self._workers) == 1 else "workers"
        _log.info("listening on %s with %d %s", address, len(self._workers), workers)
        announce(address)
        await asyncio.gather(*map(self._keep, self._slots))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @staticmethod
    async def _cancel(*tasks: asyncio.Task[Any]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- orders and questions

    async def _run_reader(self, payload: Message) -> Message:
        """Run the process that reads datasets; return its result, or raise ConsensusPRError."""
        results: list[Message] = []
        try:
            child = await self._start_child(
                READER_MODULE, payload, {}, lambda _, message: results.append(message)
            )
        except OSError as error:
            raise ConsensusPRError(
                f"cannot start the process that reads datasets: {error.strerror}"
            ) from None
        try:
            await child.ready()
            return results[0]
        except ChildEnded as error:
            raise ConsensusPRError(f"loading the datasets failed: the process {error}") from None
        finally:
            self._kill(child)

    async def _order_all(self, order: Message) -> dict[int, Message | None]:
        """Order something of all workers; return the answers, None from one that gave none.

        A worker that dies meanwhile is left out; its replacement gets the same from its payload.
        """

        async def ask(child: Child) -> tuple[Message | None, bool]:
            try:
                async with asyncio.timeout(START_TIMEOUT_S):
                    answer = await child.order(order)
                    return answer, answer is not None
            except TimeoutError:
                return None, child.exit_code() is None

        asked = {slot.number: slot.child for slot in self._workers if slot.child is not None}
        answers = await asyncio.gather(*map(ask, asked.values()))
        return {
            number: answer
            for number, (answer, counts) in zip(asked, answers, strict=True)
            if counts
        }

    def _end_worker(self, number: int, reason: str) -> None:
        """End a worker at once; it is replaced."""
        child = self._workers[number].child
        if child is not None:
            _log.error("worker %d %s; killing it", number, reason)
            self._kill(child)

    def _on_message(self, child: Child, message: Message) -> None:
        if "metrics" in message:
            if self._endpoint is not None:
                self._endpoint.workers.update(child.pid, message["metrics"])
        else:
            self._begin(self._reply(child, message))

    async def _reply(self, child: Child, message: Message) -> None:
        fields = await self._datasets.change(Change(**message["change"]))
        child.send({"reply": message["ask"], "fields": fields})

    # -- processes

    async def _start_child(
        self,
        module: str,
        payload: Message,
        environment: Mapping[str, str],
        on_message: Callable[[Child, Message], None],
    ) -> Child:
        child = await Child.start(module, payload, environment, on_message)
        self._children.add(child)
        return child

    def _kill(self, child: Child) -> None:
        child.kill()
        self._children.discard(child)

    async def _start(self, slot: _Slot) -> Child:
        payload = {
            "config": self._config.model_dump(mode="json"),
            **self._datasets.payload(),
            "worker": slot.number,
            **{name: str(address) for name, address in self._addresses.items()},
        }
        ours = {} if slot.is_page else ALLOCATOR | QUIET_GRPC
        environment = {name: os.environ.get(name, value) for name, value in ours.items()}
        slot.ready, slot.started = False, time.monotonic()
        try:
            child = await self._start_child(slot.module, payload, environment, self._on_message)
        except OSError as error:
            raise ConsensusPRError(f"{slot.name} cannot start: {error.strerror}") from None
        slot.child = child
        _log.debug("%s started as process %d", slot.name, child.pid)
        return child

    async def _start_workers(self) -> None:
        """Start all workers and wait until every one of them serves."""

        async def start(slot: _Slot) -> None:
            child = await self._start(slot)
            try:
                await child.ready()
            except ConsensusPRError as error:
                raise type(error)(f"{slot.name} cannot start: {error}") from None
            slot.ready = True

        starting = [asyncio.create_task(start(slot)) for slot in self._workers]
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await asyncio.gather(*starting)
        except TimeoutError:
            raise ConsensusPRError(f"workers were not ready after {START_TIMEOUT_S:g} s") from None
        finally:
            await self._cancel(*starting)

    async def _keep(self, slot: _Slot) -> None:
        """Run the process of a slot for ever: replace it when it dies, hangs or cannot start."""
        while True:
            try:
                end = await self._run_once(slot)
            except ConsensusPRError as error:
                end = str(error)
            lived_s = time.monotonic() - slot.started
            if slot.child is not None:
                end = f"{slot.name} (process {slot.child.pid}) {end} after {lived_s:.1f} s"
                self._kill(slot.child)
                if self._endpoint is not None and not slot.is_page:
                    self._endpoint.worker_restarts.inc()
                    self._endpoint.workers.died(slot.child.pid)
                slot.child = None
            slot.failed_starts = 0 if slot.ready else slot.failed_starts + 1
            slot.ready = False
            if all(worker.failed_starts >= MAX_FAILED_STARTS for worker in self._workers):
                raise _CannotGoOnError(
                    f"no worker can start; {slot.name} failed {slot.failed_starts} times,"
                    f" the last time: {end}"
                )
            if slot.backoff_s == 0.0 or lived_s >= LONG_LIFE_S:
                slot.backoff_s = FIRST_BACKOFF_S
            else:
                slot.backoff_s = min(MAX_BACKOFF_S, 2 * slot.backoff_s)
            starts = f", failed start {slot.failed_starts}" if slot.failed_starts else ""
            _log.error(
                "%s%s; restarting it in %.1f s; %d of %d workers serve",
                end, starts, slot.backoff_s, self._serving(), len(self._workers),
            )  # fmt: skip
            await asyncio.sleep(slot.backoff_s)

    async def _run_once(self, slot: _Slot) -> str:
        """Start the process of a slot, if none runs, and watch it; return how it ended."""
        child = slot.child or await self._start(slot)
        if not slot.ready:
            try:
                async with asyncio.timeout(START_TIMEOUT_S):
                    await child.ready()
            except TimeoutError:
                return "did not get ready"
            slot.ready, slot.failed_starts = True, 0
            if slot.is_page:
                _log.info("page on %s://%s", self._scheme, self._addresses["web"])
            else:
                _log.warning("%s serves again, process %d", slot.name, child.pid)
        if slot.is_page:
            await child.ended()
        elif silent_s := await _hangs(child):
            return f"sent no heartbeat for {silent_s:.1f} s"
        return child.describe_exit()

    def _serving(self) -> int:
        """Return how many workers take requests."""
        return 0 if self._stopping else sum(slot.ready for slot in self._workers)

    async def _drain(self) -> None:
        """Have all workers end, and wait for them for a limited time."""
        limit_s = self._config.drain_delay_s + self._config.grace_s + STOP_MARGIN_S
        _log.info("stopping")
        self._stopping = True

        async def end(slot: _Slot, child: Child) -> None:
            if slot.is_page:
                self._kill(child)  # nothing in it is missed
                return
            child.terminate()
            if await _hangs(child):
                _log.warning("%s hangs; killing it", slot.name)
                self._kill(child)

        ending = [
            asyncio.create_task(end(slot, slot.child))
            for slot in self._slots
            if slot.child is not None
        ]
        hurry = asyncio.create_task(self._hurry.wait())
        ended: asyncio.Future[Any] = asyncio.gather(*ending)
        first: set[asyncio.Future[Any]] = {ended, hurry}
        await asyncio.wait(first, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if hurry.done():
            _log.warning("interrupted while draining; killing the workers")
        elif not ended.done():
            _log.warning("workers did not stop within %g s; killing them", limit_s)
        await self._cancel(hurry, *ending)


async def _hangs(child: Child) -> float:
    """Wait until a process ends, or sends no heartbeat for too long; return that time, else 0."""
    heartbeats, silent_s, looked = child.heartbeats, 0.0, time.monotonic()
    while not await child.ended(TICK_S):
        before, looked = looked, time.monotonic()
        silent_s += min(looked - before, MAX_LOOK_S)
        if child.heartbeats != heartbeats:
            heartbeats, silent_s = child.heartbeats, 0.0
        if silent_s > HEARTBEAT_TIMEOUT_S:
            return silent_s
    return 0.0
