"""The datasets of a server, and how they change while it serves.

A change adds, replaces or removes a dataset.  It has three steps, one change after the other:

1. **prepare**: a process reads the file and saves a snapshot.
2. **map**: every worker maps and verifies the snapshot, and goes on as before.
3. **serve**: every worker scores new requests with the new set.  A request that has begun keeps its
   dataset; with its last request the old one is unmapped.

If a step before the third fails, nothing changes.  A worker that fails in the third is killed, and
its replacement starts with the new set.  For some milliseconds workers differ; clients that must
not see both send ``expect_digest``.

The admin RPCs (:mod:`consensuspr.server.admin`) and SIGHUP (all datasets, from their files) ask for
changes.  :class:`ServedDatasets` is the supervisor's part, :class:`WorkerDatasets` a worker's.
A dataset that was added in service and is not in ``dataset_folder`` is gone after a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import shutil
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.server import logs
from consensuspr.server.config import ServerConfig
from consensuspr.server.processes import Message

if TYPE_CHECKING:
    from consensuspr.scoring import DatasetIndex, MatcherCache
    from consensuspr.server.endpoint import MetricsEndpoint
    from consensuspr.server.service import ScoringService

# Changes that wait for their turn.
MAX_WAITING = 64

_log = logging.getLogger(logs.LOGGER_NAME)

# Runs the process that reads datasets, with a payload; returns the result.
RunReader: TypeAlias = Callable[[Message], Awaitable[Message]]
# Sends an order to all workers; returns the answers by worker, None from one that gave none.
OrderAll: TypeAlias = Callable[[Message], Awaitable[dict[int, Message | None]]]


class Mode(StrEnum):
    """Whether a dataset of the name may be served already: either, no, or it must."""

    ANY = "any"
    ADD = "add"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Served:
    """A dataset as it is served."""

    snapshot: str  # file that workers map, in a folder of its own
    path: str  # file that it was read from
    digest: str
    loaded_unix_s: float  # when it was read


class _Read(NamedTuple):
    """The result of reading, by name."""

    loaded: dict[str, Served]
    faults: dict[str, str]  # sentences about bad ones
    folder: set[str] | None  # names in dataset_folder; None if it was not read, or cannot be


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one dataset that a client asks for."""

    name: str
    path: str | None  # absolute, of the file to read; None: the dataset is removed
    mode: Mode = Mode.ANY
    expect_digest: str = ""  # that the file must have; empty: any


class _Refused(Exception):
    """A change cannot be made; ``code`` is a name of gRPC's."""

    def __init__(self, code: str, reason: str) -> None:
        self.code = code
        super().__init__(reason)


class ServedDatasets:
    """The datasets as the supervisor serves and changes them.

    Snapshots lie in ``folder``, ``endpoint`` counts changes, and ``end_worker`` ends a worker for a
    reason, which is then replaced.
    """

    def __init__(
        self,
        config: ServerConfig,
        folder: Path,
        run_reader: RunReader,
        order_all: OrderAll,
        end_worker: Callable[[int, str], None],
        endpoint: MetricsEndpoint | None,
    ) -> None:
        self._config = config
        self._folder = folder
        self._run_reader = run_reader
        self._order_all = order_all
        self._end_worker = end_worker
        self._endpoint = endpoint
        self._served: dict[str, Served] = {}
        self._of_folder: set[str] = set()
        self._snapshots = itertools.count(1)
        self._turn = asyncio.Lock()
        self._num_waiting = 0
        self._reload_waits = False

    async def load_first(self) -> None:
        """Load the datasets that the server begins with; raise InputError if there are none.

        A bad file of ``dataset_folder`` is logged and counted, and the others are served.
        """
        datasets = {name: os.path.abspath(path) for name, path in self._config.datasets.items()}
        async with self._turn:  # a reload at once waits
            read = await self._read(datasets, with_folder=True)
            self._served, self._of_folder = read.loaded, read.folder or set()
        if not self._served:
            place = f"dataset_folder {self._config.dataset_folder}"
            if not read.faults:
                raise InputError(f"{place} holds no dataset")
            raise InputError(
                f"{place}: no file can be served, {len(read.faults)} are bad; the first:"
                f" {read.faults[min(read.faults)]}"
            )
        for name in read.loaded:
            self._mark_bad(name, False)
        for name, fault in sorted(read.faults.items()):
            _log.error("dataset %s is not served: %s", name, fault)
            self._count(False)
            self._mark_bad(name, True)

    def payload(self) -> Message:
        """Return the part of a worker's payload, and of an order, that names the served set."""
        return {"datasets": {name: asdict(served) for name, served in self._served.items()}}

    async def change(self, change: Change) -> Message:
        """Make a change when those before it are made; return the fields of the reply."""
        name, before = change.name, None
        try:
            if self._num_waiting >= MAX_WAITING:
                reason = f"{MAX_WAITING} changes of datasets are waiting; try again later"
                raise _Refused("RESOURCE_EXHAUSTED", reason)
            self._num_waiting += 1
            try:
                async with self._turn:
                    before = self._served.get(name)
                    await self._make(change, before)
                    now = self._served.get(name)
            finally:
                self._num_waiting -= 1
        except _Refused as refused:
            self._log_failure(name, str(refused), "an admin")
            return {"refused": refused.code, "reason": str(refused)}
        self._log_change(name, before, now, "an admin")
        previous = "" if before is None else before.digest
        return {**({} if now is None else asdict(now)), "previous_digest": previous}

    async def _make(self, change: Change, before: Served | None) -> None:
        name, path = change.name, change.path
        if before is None and (path is None or change.mode == Mode.REPLACE):
            known = ", ".join(sorted(self._served))
            raise _Refused("NOT_FOUND", f"no dataset is called {name!r}; known datasets: {known}")
        if before is not None and change.mode == Mode.ADD:
            reason = f"dataset {name!r} exists already, from {before.path}; use replace"
            raise _Refused("ALREADY_EXISTS", reason)
        if path is None:
            if len(self._served) == 1:
                reason = f"dataset {name!r} is the only one; a server needs at least one"
                raise _Refused("FAILED_PRECONDITION", reason)
            await self._serve({key: item for key, item in self._served.items() if key != name})
            return
        try:
            read = await self._read({name: path})
            new = read.loaded[name]
            if change.expect_digest not in ("", new.digest):
                _delete(new)
                reason = f"{path} has digest {new.digest}, expected {change.expect_digest}"
                raise _Refused("FAILED_PRECONDITION", reason)
            await self._map(read)
        except InputError as error:
            raise _Refused("INVALID_ARGUMENT", str(error)) from None
        except ConsensusPRError as error:
            raise _Refused("UNAVAILABLE", str(error)) from None
        await self._serve({**self._served, name: new})

    async def reload_all(self) -> None:
        """Read all datasets again from their files, after the changes that wait."""
        if self._reload_waits:
            return
        self._reload_waits = True
        async with self._turn:
            self._reload_waits = False
            try:
                await self._reload()
            except ConsensusPRError as error:
                for name in sorted(self._served):
                    self._log_failure(name, str(error), "SIGHUP")

    async def _reload(self) -> None:
        before = self._served
        datasets = {name: item.path for name, item in before.items() if name not in self._of_folder}
        read = await self._read(datasets, with_folder=True, optional=True)
        folder = self._of_folder if read.folder is None else read.folder
        gone = self._of_folder - folder
        kept = {name: item for name, item in before.items() if name not in gone}
        if not kept and not read.loaded:
            raise ConsensusPRError("a server needs at least one dataset, and none would be left")
        await self._map(read)
        await self._serve(kept | read.loaded)
        self._of_folder = folder
        for name in [*read.loaded, *gone]:
            self._log_change(name, before.get(name), read.loaded.get(name), "SIGHUP")
        for name, fault in sorted(read.faults.items()):
            self._log_failure(name, fault, "SIGHUP")

    # -- the three steps

    async def _read(
        self, datasets: Mapping[str, str], *, with_folder: bool = False, optional: bool = False
    ) -> _Read:
        """Have a process read datasets, and perhaps ``dataset_folder``, and save their snapshots.

        If they are ``optional``, bad ones are faults and no failure, as those of the folder are.
        """
        place = self._folder / f"{next(self._snapshots)}"
        payload = {
            "config": self._config.model_dump(mode="json") | {"datasets": dict(datasets)},
            "snapshots": os.fspath(place),
            "with_folder": with_folder,
            "optional": optional,
        }
        try:
            result = await self._run_reader(payload)
        except ConsensusPRError:
            shutil.rmtree(place, ignore_errors=True)
            raise
        now = time.time()
        loaded = {
            name: Served(snapshot, path, digest, now)
            for name, (snapshot, path, digest) in result["loaded"].items()
        }
        folder = None if result["folder"] is None else set(result["folder"])
        return _Read(loaded, result["faults"], folder)

    async def _map(self, read: _Read) -> None:
        """Have the workers map the datasets that were read; delete them and raise if one cannot."""
        snapshots = {name: item.snapshot for name, item in read.loaded.items()}
        answers = await self._order_all({"order": "map_datasets", "snapshots": snapshots})
        for number, answer in answers.items():
            if answer is None or "error" in answer:
                for item in read.loaded.values():
                    _delete(item)
                await self._serve(self._served)  # workers forget the mapped ones
                fault = "it did not answer" if answer is None else answer["error"]
                raise ConsensusPRError(f"worker {number} cannot map the dataset: {fault}")

    async def _serve(self, datasets: dict[str, Served]) -> None:
        """Have the workers serve these datasets; new workers do from now on."""
        before, self._served = self._served, datasets
        answers = await self._order_all({"order": "serve_datasets", **self.payload()})
        for number, answer in answers.items():
            if answer is None:
                self._end_worker(number, "did not answer to a change of datasets")
            elif "error" in answer:
                self._end_worker(number, f"cannot serve its datasets: {answer['error']}")
        for item in before.values():
            if item not in datasets.values():
                _delete(item)

    # -- logs and metrics

    def _count(self, done: bool) -> None:
        if self._endpoint is not None:
            self._endpoint.dataset_changes.labels("done" if done else "failed").inc()

    def _mark_bad(self, name: str, bad: bool) -> None:
        if self._endpoint is not None:
            self._endpoint.dataset_bad.labels(name).set(bad)

    def _log_change(self, name: str, before: Served | None, now: Served | None, by: str) -> None:
        self._count(True)
        self._mark_bad(name, False)
        if now is None or before is None:
            verb, served = ("removed", before) if now is None else ("added", now)
            _log.warning("dataset %s: %s by %s, %s", name, verb, by, served and served.digest)
        elif now.digest == before.digest:
            _log.info("dataset %s: read again for %s, same content %s", name, by, now.digest)
        else:
            text = "dataset %s: replaced by %s, %s (before: %s)"
            _log.warning(text, name, by, now.digest, before.digest)

    def _log_failure(self, name: str, reason: str, by: str) -> None:
        self._count(False)
        if name in self._of_folder or by == "SIGHUP":
            self._mark_bad(name, name not in self._served)
        _log.error("dataset %s: change by %s failed: %s", name, by, reason)


def _delete(served: Served) -> None:
    """Delete the files of a dataset; mapped files stay readable."""
    with contextlib.suppress(OSError):
        shutil.rmtree(os.path.dirname(served.snapshot))
        os.rmdir(os.path.dirname(os.path.dirname(served.snapshot)))  # the last of its process


class WorkerDatasets:
    """The datasets of a worker, and how they change; for its event loop."""

    def __init__(self, served: Mapping[str, Mapping[str, Any]], cache: MatcherCache) -> None:
        self._cache = cache
        self._opened: dict[str, DatasetIndex] = {}  # by snapshot
        self.served = {name: Served(**fields) for name, fields in served.items()}
        for name, item in self.served.items():
            self._open(name, item.snapshot)

    def indexes(self) -> dict[str, DatasetIndex]:
        """Return the indexes of the served datasets, by name."""
        return {name: self._opened[item.snapshot] for name, item in self.served.items()}

    async def map(self, order: Message) -> None:
        """Map snapshots, and go on as before."""
        for name, snapshot in order["snapshots"].items():
            await asyncio.to_thread(self._open, name, snapshot)

    async def serve(self, order: Message, service: ScoringService) -> None:
        """Score new requests with these datasets, and forget all others."""
        served = {name: Served(**fields) for name, fields in order["datasets"].items()}
        for name, item in served.items():
            if item.snapshot not in self._opened:  # this worker started after it was mapped
                await asyncio.to_thread(self._open, name, item.snapshot)
        self.served = served
        service.serve(self.indexes())
        kept = {item.snapshot for item in served.values()}
        for snapshot in [*self._opened]:
            if snapshot not in kept:
                self._release(self._opened.pop(snapshot))

    def _open(self, name: str, snapshot: str) -> None:
        from consensuspr.scoring import DatasetIndex

        self._opened[snapshot] = DatasetIndex.open(snapshot, name=name, cache=self._cache)

    def _release(self, index: DatasetIndex) -> None:
        """Forget the matchers of an index when its last request has ended."""
        loop = asyncio.get_running_loop()
        # Not in the finalizer, which may run in any thread, also one that holds the cache's lock.
        last = weakref.finalize(index, loop.call_soon_threadsafe, self._forget, index.digest)
        last.atexit = False

    def _forget(self, digest: str) -> None:
        if all(index.digest != digest for index in self._opened.values()):
            self._cache.forget(digest)
        _log.debug("dataset %s is released", digest)
