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
import functools
import itertools
import logging
import os
import shutil
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.server import logs
from consensuspr.server.config import ServerConfig
from consensuspr.server.processes import Child, Message

if TYPE_CHECKING:
    from consensuspr.scoring import DatasetIndex, MatcherCache
    from consensuspr.server.metrics import MeteredScorer

# Changes that wait for their turn.
MAX_WAITING = 64

_log = logging.getLogger(logs.LOGGER_NAME)

# Sends an order to all workers, and calls back with the answers by worker, and the numbers of those
# that did not answer.
OrderAll: TypeAlias = Callable[[Message, Callable[[dict[int, Message], list[int]], None]], None]


class Mode(StrEnum):
    """What there may be already under the name of a dataset that is put."""

    ANY = "any"
    ADD = "add"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Served:
    """A dataset as it is served.

    Attributes:
        snapshot: what workers map, in a folder of its own.
        path: file that it was read from.
        digest: of its content.
        loaded_unix_s: when all workers began to score with it.
    """

    snapshot: str
    path: str
    digest: str
    loaded_unix_s: float


class _Read(NamedTuple):
    """What a process has read: datasets, sentences about bad ones, names of ``dataset_folder``.

    ``folder`` is None if it was not read, or cannot be.
    """

    loaded: dict[str, Served]
    faults: dict[str, str]
    folder: list[str] | None


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one dataset that a client asks for.

    Attributes:
        name: of the dataset.
        path: absolute, of the file to read; None: the dataset is removed.
        mode: what there may be already.
        expect_digest: that the file must turn out to have; empty: any.
        reply: called with the outcome, once.
    """

    name: str
    path: str | None
    mode: Mode
    expect_digest: str
    reply: Callable[[Message], None]


class ServedDatasets:
    """What the supervisor knows and does; for its loop alone.

    Args:
        config: settings.
        folder: for snapshots.
        start: starts the process that reads datasets, with a payload.
        order_all: sends an order to all workers.
        kill: ends the worker of a number, which is then replaced.
        count: called after each change of a dataset, with whether it was made.
        mark_bad: called with a dataset's name, and whether its file in ``dataset_folder`` is bad.

    Attributes:
        child: the process that reads datasets, while there is one.
    """

    def __init__(
        self,
        config: ServerConfig,
        folder: Path,
        start: Callable[[Message], Child],
        order_all: OrderAll,
        kill: Callable[[int, str], None],
        count: Callable[[bool], None],
        mark_bad: Callable[[str, bool], None],
    ) -> None:
        self._config = config
        self._folder = folder
        self._start = start
        self._order_all = order_all
        self._kill = kill
        self._count = count
        self._mark_bad = mark_bad
        self._served: dict[str, Served] = {}
        self._of_folder: set[str] = set()
        self._snapshots = itertools.count(1)
        self._waiting: deque[Change] = deque()
        self._hangup = False  # everything is to be read again
        self._busy = False
        self.child: Child | None = None
        # What to do with the result of ``child``.
        self._then: Callable[[_Read], None] = lambda read: None
        self._failed: Callable[[ConsensusPRError], None] = lambda error: None

    def load_first(self, wait: Callable[[], None]) -> None:
        """Load what the server begins with; ``wait`` sleeps until a child may have ended.

        A bad file of ``dataset_folder`` is logged and counted, and the others are served.

        Raises:
            ConsensusPRError: it cannot be loaded; an InputError if a dataset of the settings is
                bad, or if all of the folder are bad and there is no other.
        """
        datasets = {name: os.path.abspath(path) for name, path in self._config.datasets.items()}
        self._read(datasets, with_folder=True, optional=False)
        assert self.child is not None
        while self._is_reading(self.child):
            wait()
        read = self._take_read()
        self._served, self._of_folder = read.loaded, {*(read.folder or ())}
        if not self._served:
            place = f"dataset_folder {self._config.dataset_folder}"
            if not read.faults:
                raise InputError(f"{place} holds no dataset")
            raise InputError(
                f"{place}: none of its {len(read.faults)} files can be served, the first:"
                f" {read.faults[min(read.faults)]}"
            )
        for name in read.loaded:
            self._mark_bad(name, False)
        for name, fault in sorted(read.faults.items()):
            _log.error("dataset %s is not served: %s", name, fault)
            self._count(False)
            self._mark_bad(name, True)

    def payload(self) -> Message:
        """Return what workers need at their start and to serve a new set."""
        return {"datasets": {name: asdict(served) for name, served in self._served.items()}}

    def reload_all(self) -> None:
        """Read all datasets again from their files, after the changes that wait."""
        self._hangup = True

    def ask(self, change: Change) -> None:
        """Make a change as soon as its turn comes."""
        if len(self._waiting) < MAX_WAITING:
            self._waiting.append(change)
        else:
            reason = f"{MAX_WAITING} changes of datasets are waiting; try again later"
            self._refuse(change, "RESOURCE_EXHAUSTED", reason)

    def tick(self) -> None:
        """Go on with what can be gone on with; to be called often."""
        try:
            self._go_on()
        except ConsensusPRError as error:
            self._failed(error)

    def _go_on(self) -> None:
        if self.child is not None:
            if not self._is_reading(self.child):
                self._then(self._take_read())
        elif self._busy:
            pass
        elif self._waiting:
            self._begin(self._waiting.popleft())
        elif self._hangup:
            self._hangup = False
            self._begin_reload()

    # -- one change

    def _begin(self, change: Change) -> None:
        name, path, served = change.name, change.path, self._served.get(change.name)
        if served is None and (path is None or change.mode is Mode.REPLACE):
            known = ", ".join(sorted(self._served))
            reason = f"no dataset is called {name!r}; there is: {known}"
            self._refuse(change, "NOT_FOUND", reason)
        elif served is not None and change.mode is Mode.ADD:
            reason = f"dataset {name!r} is there, from {served.path}; replace it"
            self._refuse(change, "ALREADY_EXISTS", reason)
        elif path is not None:
            _log.info("dataset %s: an admin asks for %s", name, path)
            self._then = functools.partial(self._change_to, change)
            self._failed = functools.partial(self._failed_to_read, change)
            self._read({name: path}, with_folder=False, optional=False)
        elif len(self._served) == 1:
            reason = f"dataset {name!r} is the only one; a server needs at least one"
            self._refuse(change, "FAILED_PRECONDITION", reason)
        else:
            left = {n: one for n, one in self._served.items() if n != name}
            self._serve(left, functools.partial(self._made, change, served))

    def _failed_to_read(self, change: Change, error: ConsensusPRError) -> None:
        code = "INVALID_ARGUMENT" if isinstance(error, InputError) else "UNAVAILABLE"
        self._refuse(change, code, str(error))

    def _change_to(self, change: Change, read: _Read) -> None:
        new, before = read.loaded[change.name], self._served.get(change.name)
        if change.expect_digest in ("", new.digest):
            self._map(
                read,
                {**self._served, change.name: new},
                functools.partial(self._made, change, before),
                functools.partial(self._refuse, change, "UNAVAILABLE"),
            )
        else:
            _delete(new)
            reason = f"{new.path} has digest {new.digest}, expected is {change.expect_digest}"
            self._refuse(change, "FAILED_PRECONDITION", reason)

    def _made(self, change: Change, before: Served | None) -> None:
        now = self._served.get(change.name)
        self._log_change(change.name, before, now, "an admin")
        outcome: Message = {} if now is None else asdict(now)
        change.reply({**outcome, "previous_digest": "" if before is None else before.digest})

    def _refuse(self, change: Change, code: str, reason: str) -> None:
        self._log_failure(change.name, reason, "an admin")
        change.reply({"refused": code, "reason": reason})

    # -- all datasets

    def _begin_reload(self) -> None:
        datasets = {n: one.path for n, one in self._served.items() if n not in self._of_folder}
        self._then = self._reload_to
        self._failed = self._reload_failed
        self._read(datasets, with_folder=True, optional=True)

    def _reload_failed(self, error: object) -> None:
        for name in sorted(self._served):
            self._log_failure(name, str(error), "SIGHUP")

    def _reload_to(self, read: _Read) -> None:
        folder = self._of_folder if read.folder is None else {*read.folder}
        gone = self._of_folder - folder
        kept = {n: one for n, one in self._served.items() if n not in gone}
        before = self._served

        def made() -> None:
            self._of_folder = folder
            for name in [*read.loaded, *gone]:
                self._log_change(name, before.get(name), read.loaded.get(name), "SIGHUP")
            for name, fault in sorted(read.faults.items()):
                self._log_failure(name, fault, "SIGHUP")

        if kept or read.loaded:
            self._map(read, kept | read.loaded, made, self._reload_failed)
        else:
            self._reload_failed("no dataset would be left")

    # -- the three steps

    def _read(self, datasets: Mapping[str, str], *, with_folder: bool, optional: bool) -> None:
        """Start the process that reads datasets and saves their snapshots.

        Args:
            datasets: paths by name.
            with_folder: whether to read ``dataset_folder`` too.
            optional: whether bad datasets are faults, and no failure, as those of the folder are.

        Raises:
            ConsensusPRError: the process cannot be started.
        """
        self._place = self._folder / f"{next(self._snapshots)}"
        config = self._config.model_dump(mode="json") | {"datasets": dict(datasets)}
        payload = {
            "config": config,
            "snapshots": os.fspath(self._place),
            "with_folder": with_folder,
            "optional": optional,
        }
        try:
            self.child = self._start(payload)
        except OSError as error:
            raise ConsensusPRError(f"cannot start the reading process: {error.strerror}") from None

    def _is_reading(self, child: Child) -> bool:
        child.report()  # it ends when all that it sends has been received
        return child.exit_code() is None

    def _take_read(self) -> _Read:
        """Return the result of the process that has ended.

        Raises:
            ConsensusPRError: why there is none, in its words.
        """
        child, self.child = self.child, None
        assert child is not None
        report, messages, code = child.report(), child.take(), child.exit_code()
        child.kill()
        if report is not None and report.ready and code == 0:
            [message] = messages
            now = time.time()
            loaded = {
                name: Served(snapshot, path, digest, now)
                for name, (snapshot, path, digest) in message["loaded"].items()
            }
            return _Read(loaded, message["faults"], message["folder"])
        shutil.rmtree(self._place, ignore_errors=True)
        if report is not None and not report.ready:
            raise report.error()
        how = child.describe_exit()
        raise ConsensusPRError(f"loading the datasets failed: its process {how}")

    def _map(
        self,
        read: _Read,
        datasets: dict[str, Served],
        done: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        """Have the workers map what was read, then serve ``datasets``."""

        def mapped(answers: dict[int, Message], silent: list[int]) -> None:
            faults = [answer["error"] for answer in answers.values() if "error" in answer]
            faults += [f"worker {number} does not answer" for number in silent]
            if not faults:
                self._serve(datasets, done)
                return
            for one in read.loaded.values():
                _delete(one)
            # Workers forget what they have mapped.
            self._serve(self._served, functools.partial(failed, f"cannot be mapped: {faults[0]}"))

        self._busy = True
        snapshots = {name: one.snapshot for name, one in read.loaded.items()}
        self._order_all({"order": "map_datasets", "snapshots": snapshots}, mapped)

    def _serve(self, datasets: dict[str, Served], done: Callable[[], None]) -> None:
        """Have the workers serve these datasets; new workers do from now on."""
        before, self._served, self._busy = self._served, datasets, True

        def served(answers: dict[int, Message], silent: list[int]) -> None:
            for number in silent:
                self._kill(number, "did not answer when datasets were changed")
            for number, answer in answers.items():
                if "error" in answer:
                    self._kill(number, f"cannot serve its datasets: {answer['error']}")
            for one in before.values():
                if one not in datasets.values():
                    _delete(one)
            self._busy = False
            done()

        self._order_all({"order": "serve_datasets", **self.payload()}, served)

    def _log_change(self, name: str, before: Served | None, now: Served | None, by: str) -> None:
        self._count(True)
        self._mark_bad(name, False)
        _log.warning(
            "dataset %s: %s, changed by %s, before: %s",
            name, "removed" if now is None else now.digest, by,
            "nothing" if before is None else before.digest,
        )  # fmt: skip

    def _log_failure(self, name: str, reason: str, by: str) -> None:
        self._count(False)
        if name in self._of_folder or by == "SIGHUP":
            self._mark_bad(name, name not in self._served)
        _log.error("dataset %s: nothing is changed, as %s asked for: %s", name, by, reason)


def _delete(served: Served) -> None:
    """Delete the files of a dataset; who has them mapped keeps them until the end."""
    with contextlib.suppress(OSError):
        shutil.rmtree(os.path.dirname(served.snapshot))
        os.rmdir(os.path.dirname(os.path.dirname(served.snapshot)))  # the last of its process


class WorkerDatasets:
    """What a worker serves, and how it changes; for its event loop.

    Args:
        served: of the payload: what is known of each dataset by name.
        cache: of matchers, for all datasets.

    Raises:
        DataError: a snapshot cannot be mapped.
    """

    def __init__(self, served: Mapping[str, Mapping[str, Any]], cache: MatcherCache) -> None:
        self._cache = cache
        self._opened: dict[str, DatasetIndex] = {}  # by snapshot
        self._scorer: MeteredScorer | None = None
        for name, one in served.items():
            self._open(name, one["snapshot"])
        self.served = {name: Served(**one) for name, one in served.items()}

    def indexes(self) -> dict[str, DatasetIndex]:
        """Return the indexes of what is served, by name."""
        return {name: self._opened[one.snapshot] for name, one in self.served.items()}

    def attach(self, scorer: MeteredScorer) -> None:
        """Take what scores with the indexes."""
        self._scorer = scorer

    async def map(self, order: Message) -> Message:
        """Map snapshots, and go on as before."""
        for name, snapshot in order["snapshots"].items():
            await asyncio.to_thread(self._open, name, snapshot)
        return {}

    async def serve(self, order: Message) -> Message:
        """Score new requests with these datasets, and forget all others."""
        served = {name: Served(**one) for name, one in order["datasets"].items()}
        for name, one in served.items():
            if one.snapshot not in self._opened:  # this worker started after it was mapped
                await asyncio.to_thread(self._open, name, one.snapshot)
        self.served = served
        assert self._scorer is not None
        self._scorer.serve(self.indexes())
        kept = {one.snapshot for one in served.values()}
        for snapshot in [*self._opened]:
            if snapshot not in kept:
                self._release(self._opened.pop(snapshot))
        return {}

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
        if all(one.digest != digest for one in self._opened.values()):
            self._cache.forget(digest)
        _log.debug("dataset %s is released", digest)
