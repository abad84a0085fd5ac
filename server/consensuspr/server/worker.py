"""The processes below the supervisor: one that loads the datasets, and those that serve them.

The first ends when it is done, which frees the memory of reading.  A snapshot of each dataset
stays, which the workers map and share.  A worker maps the snapshots, serves until SIGTERM, SIGINT
or the end of the supervisor, drains, and exits with code 0.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.server import logs
from consensuspr.server.config import ServerConfig
from consensuspr.server.datasets import WorkerDatasets
from consensuspr.server.processes import Message, Parent

if TYPE_CHECKING:
    from consensuspr.server.metrics import Metrics
    from consensuspr.server.service import ScoringService

# Python's own 5 ms would make the event loop wait several times in a request.
SWITCH_INTERVAL_S = 0.0005
# Between two heartbeats.
HEARTBEAT_S = 1.0
# Past the drain of a worker whose supervisor is gone: a stuck one must not stay for ever.
_LAST_RESORT_S = 10.0

_log = logging.getLogger(logs.LOGGER_NAME)


class Front(Protocol):
    """Another endpoint beside gRPC, on the same event loop."""

    async def start(self) -> None:
        """Listen and serve; raise ConsensusPRError if it cannot."""

    def announce_shutdown(self) -> None:
        """Tell load balancers to look elsewhere, and serve on."""

    async def stop(self) -> None:
        """Send the replies that are ready, and stop."""


OrderHandler = Callable[[Message], Awaitable[None]]
# Makes a front from settings, the service and the address that the supervisor claimed.
FrontFactory = Callable[[ServerConfig, "ScoringService", str], Front]


def main(make_front: FrontFactory | None = None) -> int:
    """Load the datasets or serve, as the payload orders; return the exit code of the process."""
    # It is for the supervisor alone.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    parent = Parent()
    config = ServerConfig.model_validate(parent.payload["config"])
    number = parent.payload.get("worker")
    role = "reader" if number is None else f"worker {number}"
    logs.configure(config.log_format, config.log_level, role)
    dropped = 0
    try:
        if number is None:
            parent.listen(lambda: os._exit(1))  # nothing here needs an orderly end
            parent.send(read_datasets(config, parent.payload))
            parent.report_ready()
        else:
            dropped = asyncio.run(_serve(parent, config, make_front))
    except ConsensusPRError as error:
        parent.report_failure(error)
        return 1
    if dropped:
        # An orderly end of the interpreter would wait for the threads of dropped requests.
        logging.shutdown()
        os._exit(0)
    return 0


def read_datasets(config: ServerConfig, order: Message) -> Message:
    """Load the datasets of ``config`` one after the other, and save a snapshot of each.

    Args:
        order: ``snapshots``, a new folder; ``with_folder``, whether to load the files of
            ``dataset_folder`` too, of which bad ones are faults; ``optional``, whether all are.

    Returns:
        ``loaded``: snapshot, path and digest by name, ``faults``: sentences by name, ``folder``:
        names of ``dataset_folder``, None if it cannot be read.
    """
    from consensuspr.scoring import DatasetIndex

    place, optional = order["snapshots"], order["optional"]
    loaded, faults, in_folder = {}, {}, None
    datasets = config.datasets
    if order["with_folder"]:
        try:
            found = config.folder_datasets()
            in_folder = sorted(found.keys() - config.datasets.keys())
            datasets = found | config.datasets
        except ConsensusPRError as error:
            if not optional:
                raise
            _log.error("%s; its datasets are still served", error)
    for number, (name, path) in enumerate(datasets.items()):
        snapshot = os.path.join(place, str(number), "dataset.index")
        at_first = order["with_folder"] and not optional and name in config.datasets
        try:
            if not at_first and not os.path.isfile(path):  # a pipe may have no end
                raise InputError(f"{path}: is not a regular file")
            os.makedirs(os.path.dirname(snapshot))
            _log.info("dataset %s: reading %s", name, path)
            index = DatasetIndex.load(Path(path), name=name, derive=config.derive)
            index.save(snapshot)
        except (ConsensusPRError, OSError) as error:
            if isinstance(error, OSError):
                error = ConsensusPRError(f"{error.filename or place}: {error.strerror}")
            if not optional and name in config.datasets:
                raise error from None
            faults[name] = str(error)
            shutil.rmtree(os.path.dirname(snapshot), ignore_errors=True)
        else:
            loaded[name] = (snapshot, os.fspath(path), index.digest)
    return {"loaded": loaded, "faults": faults, "folder": in_folder}


async def _serve(parent: Parent, config: ServerConfig, make_front: FrontFactory | None) -> int:
    """Serve until a signal; return how many requests were dropped at the end."""
    from consensuspr.scoring import MatcherCache
    from consensuspr.server.admin import AdminService
    from consensuspr.server.grpc_server import GrpcServer
    from consensuspr.server.metrics import Metrics
    from consensuspr.server.service import ScoringService

    sys.setswitchinterval(SWITCH_INTERVAL_S)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def left_alone() -> None:
        _log.error("the supervisor has ended; draining")
        limit_s = config.drain_delay_s + config.grace_s + _LAST_RESORT_S
        last_resort = threading.Timer(limit_s, os._exit, args=(1,))
        last_resort.daemon = True
        last_resort.start()
        loop.call_soon_threadsafe(stop.set)

    supervisor = Supervisor(parent, left_alone)
    cache = MatcherCache(max_bytes=int(config.matcher_cache_bytes))
    datasets = WorkerDatasets(parent.payload["datasets"], cache)
    service = ScoringService(config, datasets.indexes(), Metrics())
    admin = AdminService(config, datasets, supervisor.change_dataset)
    server = GrpcServer(service, config, admin.methods())
    front = None
    if make_front is not None:
        front = make_front(config, service, parent.payload["http_address"])
    handlers: dict[str, OrderHandler] = {
        "map_datasets": datasets.map,
        "serve_datasets": partial(datasets.serve, service=service),
    }
    tasks = [asyncio.create_task(supervisor.obey(handlers))]
    try:
        # Orders that came during the start: without them it would serve the datasets of before.
        await supervisor.caught_up()
        await server.start(parent.payload["address"])
        if front is not None:
            await front.start()
        parent.report_ready()
        metrics = None if config.metrics_address is None else service.metrics
        tasks.append(asyncio.create_task(supervisor.beat(metrics)))
        await stop.wait()
        if front is not None:
            front.announce_shutdown()
        dropped = await server.drain(config.drain_delay_s, config.grace_s)
        if front is not None:
            await front.stop()
        return dropped
    finally:
        for task in tasks:
            task.cancel()
        service.close()


class Supervisor:
    """The supervisor as a worker sees it from its event loop, which must be running."""

    def __init__(self, parent: Parent, when_gone: Callable[[], None]) -> None:
        self._parent = parent
        self._orders: asyncio.Queue[Message] = asyncio.Queue()
        self._replies: dict[int, asyncio.Future[Message]] = {}
        self._ids = itertools.count(1)
        call = asyncio.get_running_loop().call_soon_threadsafe
        parent.listen(when_gone, lambda message: call(self._take, message))

    async def beat(self, metrics: Metrics | None) -> None:
        """Send heartbeats for ever, with metrics if there are any to send."""

        def send() -> None:
            self._parent.send({"alive": True})
            if metrics is not None:  # thousands of series take tens of milliseconds
                self._parent.send({"metrics": metrics.samples()})

        while True:
            await asyncio.to_thread(send)
            await asyncio.sleep(HEARTBEAT_S)

    async def obey(self, handlers: Mapping[str, OrderHandler]) -> None:
        """Carry out orders for ever, one after the other, and answer each.

        The sentence of a ConsensusPRError is the answer, too.
        """
        while True:
            order = await self._orders.get()
            name = order["order"]
            answer = {}
            try:
                await handlers[name](order)
            except ConsensusPRError as error:
                answer = {"error": str(error)}
            except Exception:
                _log.exception("order %s failed", name)
                answer = {"error": f"order {name} failed; see the worker's log"}
            await asyncio.to_thread(self._parent.send, {"answer": order["id"], **answer})
            self._orders.task_done()

    async def caught_up(self) -> None:
        """Return when the orders that have come so far are carried out."""
        await asyncio.sleep(0)  # the listening thread has handed them over by then
        await self._orders.join()

    async def change_dataset(self, change: Message, timeout_s: float) -> Message:
        """Have the supervisor change a dataset; return the fields of its reply."""
        number = next(self._ids)
        reply = self._replies[number] = asyncio.get_running_loop().create_future()
        try:
            await asyncio.to_thread(self._parent.send, {"ask": number, "change": change})
            return await asyncio.wait_for(reply, timeout_s)
        except TimeoutError:
            raise ConsensusPRError(
                f"the supervisor did not change the dataset within {timeout_s:g} s"
            ) from None
        finally:
            del self._replies[number]

    def _take(self, message: Message) -> None:
        if "order" in message:
            self._orders.put_nowait(message)
            return
        reply = self._replies.get(message["reply"])
        if reply is not None and not reply.done():
            reply.set_result(message["fields"])


if __name__ == "__main__":
    sys.exit(main())
