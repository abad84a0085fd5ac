"""The datasets of a server, and how they change while it serves.

A change (a dataset is added, replaced by other content, or removed) goes through three steps, one
change after the other:

1. **prepare**: a process of its own reads the file and saves a snapshot, beside what is served.
2. **map**: every worker maps and verifies the snapshot, and goes on as before.
3. **serve**: every worker scores new requests with the new set; it is one assignment in each.  A
   request that has begun keeps the dataset that it began with, and with its last request the old
   one is unmapped.  The supervisor deletes its files.

Whatever fails in the first two steps changes nothing: the old set serves on.  A worker that fails
in the third is killed, and its replacement starts with the new set; so does every worker that is
started from then on.  Between the first and the last worker lie the milliseconds in which each
gets to its order.  Who must not see both says which it expects (``expect_digest``).

Who asks for changes: the admin RPCs (:mod:`consensuspr.server.admin`), SIGHUP (all datasets anew
from their files), and, with ``watch_s``, files that changed.

:class:`ServedDatasets` is the supervisor's part, which loads nothing and never waits;
:class:`WorkerDatasets` is that of a worker.

Not covered: what was added in service and is not in ``dataset_folder`` is forgotten when the server
ends; the settings say what a server begins with.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import shutil
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from consensuspr.credentials import Stamp, file_stamp
from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.server import logs
from consensuspr.server.config import ServerConfig
from consensuspr.server.processes import Child, Message

if TYPE_CHECKING:
    from consensuspr.scoring import DatasetIndex, MatcherCache
    from consensuspr.server.metrics import MeteredScorer

# Changes that wait for their turn; each may take minutes.
MAX_WAITING = 64
# Between two looks whether the last request of an old dataset has ended.
_RELEASE_POLL_S = 0.1

_log = logging.getLogger(logs.LOGGER_NAME)

# Sends an order to all workers; then calls back with the answers by worker, and the numbers of
# those that live and were silent.
OrderAll: TypeAlias = Callable[[Message, Callable[[dict[int, Message], list[int]], None]], None]


class ChangeStatus(StrEnum):
    """Why a change is not made; the names of gRPC's codes for it."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    UNAVAILABLE = "UNAVAILABLE"


class Mode(StrEnum):
    """What there may be already under the name of a dataset that is put."""

    ANY = "any"
    ADD = "add"
    REPLACE = "replace"


class _Refused(Exception):
    """A change cannot be made; the text is one sentence."""

    def __init__(self, code: ChangeStatus, reason: str) -> None:
        self.code = code
        super().__init__(reason)


def look_at(path: str) -> Stamp | None:
    """Return what changes when a file does; None where there is none, or no regular one.

    A pipe, say, would never end to be read.
    """
    return file_stamp(Path(path)) if os.path.isfile(path) else None


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


@dataclass(frozen=True, slots=True)
class Change:
    """A change that is asked for.

    Attributes:
        name: of the dataset.
        path: absolute, of the file to read; None: the dataset is removed.
        stamp: of the file when it was looked at; None: it is no file that can be read.
        mode: what there may be already.
        expect_digest: that the file must turn out to have; empty: any.
        by: who asks, for the log.
        reply: told the outcome, once; None: nobody waits for it.
    """

    name: str
    path: str | None
    stamp: Stamp | None = None
    mode: Mode = Mode.ANY
    expect_digest: str = ""
    by: str = "an admin"
    reply: Callable[[Message], None] | None = field(default=None, compare=False)

    @classmethod
    def of(cls, message: Message, reply: Callable[[Message], None]) -> Change:
        """Return the change of which a worker made a message by :meth:`message`."""
        stamp = message["stamp"]
        return cls(
            name=message["name"],
            path=message["path"],
            stamp=None if stamp is None else tuple(stamp),
            mode=Mode(message["mode"]),
            expect_digest=message["expect_digest"],
            reply=reply,
        )

    def message(self) -> Message:
        """Return what a worker sends to the supervisor."""
        names = ("name", "path", "stamp", "mode", "expect_digest")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class _Look:
    """What there was when files were looked at.

    Attributes:
        asked: whether somebody asked for it (SIGHUP), who wants everything loaded anew.
        folder: files of ``dataset_folder`` by the names of their datasets.
        stamps: of all files that were looked at.
    """

    asked: bool
    folder: Mapping[str, str]
    stamps: Mapping[str, Stamp | None]


class _Watcher:
    """Looks at files in a thread of its own: a dead network disk must not stop the supervisor."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._asked = threading.Event()
        self._looks: queue.SimpleQueue[_Look] = queue.SimpleQueue()
        # Of datasets that are served; replaced as a whole.
        self.paths: frozenset[str] = frozenset()
        threading.Thread(target=self._run, name="dataset-watch", daemon=True).start()

    def look_now(self) -> None:
        """Look although it is not time."""
        self._asked.set()

    def take(self) -> list[_Look]:
        """Return what was seen since the last call."""
        looks = []
        while not self._looks.empty():
            looks.append(self._looks.get())
        return looks

    def _run(self) -> None:
        while True:
            asked = self._asked.wait(self._config.watch_s or None)
            self._asked.clear()
            try:
                folder = {n: os.fspath(path) for n, path in self._config.folder_datasets().items()}
            except ConsensusPRError as error:
                _log.error("%s; what was loaded from it is served on", error)
                continue
            stamps = {path: look_at(path) for path in self.paths.union(folder.values())}
            self._looks.put(_Look(asked, folder, stamps))


class ServedDatasets:
    """What the supervisor knows and does; to be called from its loop alone.

    Args:
        config: settings.
        folder: for snapshots.
        start: starts the process that reads datasets, with a payload.
        order_all: sends an order to all workers.
        kill: ends the worker of a number, which is then replaced.
        count: told of each change whether it was made.
        mark_bad: called with a dataset's name, and whether its file in ``dataset_folder`` is bad.

    Attributes:
        child: the process that reads datasets, while there is one.

    Raises:
        InputError: ``dataset_folder`` cannot be read, or there is no dataset at all.
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
        self._number = 0
        # What somebody waits for, and what files ask for, the latest for each dataset.
        self._waiting: deque[Change] = deque()
        self._of_files: dict[str, Change] = {}
        self._change: Change | None = None
        self._prepared: dict[str, Served] = {}
        self.child: Child | None = None
        self._watcher: _Watcher | None = None
        self._of_folder: set[str] = set()
        # Of files as they were last read, or failed to be; and as the latest look found them.
        self._tried: dict[str, Stamp | None] = {}
        self._seen: _Look | None = None

    def load_first(self, wait: Callable[[], None]) -> None:
        """Load what the server begins with; ``wait`` sleeps until a child may have ended.

        A bad file of ``dataset_folder`` is logged and counted, and the others are served.

        Raises:
            ConsensusPRError: it cannot be loaded; an InputError if a dataset of the settings is
                bad, or if all of the folder are bad and there is no other.
        """
        config = self._config
        folder = config.folder_datasets()
        datasets = {
            name: os.path.abspath(path) for name, path in (folder | config.datasets).items()
        }
        if not datasets:
            raise InputError(f"dataset_folder {config.dataset_folder} holds no dataset")
        self._of_folder = set(folder) - set(config.datasets)
        self._tried = {path: look_at(path) for path in datasets.values()}
        faults = {
            n: f"{datasets[n]}: is no regular file"
            for n in self._of_folder
            if self._tried[datasets[n]] is None
        }
        good = {name: path for name, path in datasets.items() if name not in faults}
        if good:
            self._prepare(good, optional=self._of_folder.intersection(good))
            assert self.child is not None
            while self.child.exit_code() is None:
                wait()
            self._served, more = self._take_prepared()
            for name in more:
                _delete(self._prepared[name])
            faults |= more
        if not self._served:
            raise InputError(
                f"dataset_folder {config.dataset_folder}: none of its {len(faults)} files can be"
                f" served, the first: {faults[min(faults)]}"
            )
        for name in sorted(datasets):
            if name in faults:
                _log.error("dataset %s is not served: %s", name, faults[name])
                self._count(False)
            self._mark_bad(name, name in faults)
        self._watcher = _Watcher(config)
        self._watcher.paths = frozenset(datasets.values())

    def payload(self) -> Message:
        """Return what workers have to know, at their start and to serve a new set."""
        return {"datasets": {name: asdict(served) for name, served in self._served.items()}}

    def reload_all(self) -> None:
        """Load all datasets anew from their files."""
        if self._watcher is not None:
            self._watcher.look_now()

    def ask(self, change: Change) -> None:
        """Make a change that somebody asks for as soon as its turn comes, before those of files."""
        if len(self._waiting) < MAX_WAITING:
            self._waiting.append(change)
            return
        reason = f"{MAX_WAITING} changes of datasets are waiting; try again later"
        self._end(change, _Refused(ChangeStatus.RESOURCE_EXHAUSTED, reason))

    def tick(self) -> None:
        """Go on with what can be gone on with; to be called often."""
        for look in [] if self._watcher is None else self._watcher.take():
            self._compare(look)
        if self.child is not None:
            if self.child.exit_code() is not None:
                self._map()
        elif self._change is None and self._waiting:
            self._begin(self._waiting.popleft())
        elif self._change is None and self._of_files:
            change = self._of_files.pop(next(iter(self._of_files)))
            if not self._outdated(change):
                self._begin(change)

    def _outdated(self, change: Change) -> bool:
        """Whether a file's dataset was given another file or was removed since it was looked at."""
        served = self._served.get(change.name)
        if change.path is None:
            return served is None
        if change.name in self._of_folder:
            return False
        return served is None or served.path != change.path

    def _begin(self, change: Change) -> None:
        self._change = change
        try:
            self._check(change)
            if change.path is None:
                self._serve({n: one for n, one in self._served.items() if n != change.name})
                return
            self._tried[change.path] = change.stamp
            if change.stamp is None:
                raise _Refused(ChangeStatus.INVALID_ARGUMENT, f"{change.path} is no file")
        except _Refused as refused:
            self._end(change, refused)
            return
        _log.info("dataset %s: %s asks for %s", change.name, change.by, change.path)
        try:
            self._prepare({change.name: change.path})
        except OSError as error:
            reason = f"{self._folder}: {error.strerror}"
            self._end(change, _Refused(ChangeStatus.UNAVAILABLE, reason))

    def _check(self, change: Change) -> None:
        """Raise _Refused where a change does not fit what is served."""
        served = self._served.get(change.name)
        if served is None and (change.path is None or change.mode is Mode.REPLACE):
            known = ", ".join(sorted(self._served))
            reason = f"no dataset is called {change.name!r}; there is: {known}"
            raise _Refused(ChangeStatus.NOT_FOUND, reason)
        if served is not None and change.mode is Mode.ADD:
            reason = f"dataset {change.name!r} is there, from {served.path}; replace it"
            raise _Refused(ChangeStatus.ALREADY_EXISTS, reason)
        if change.path is None and len(self._served) == 1:
            reason = f"dataset {change.name!r} is the only one; a server needs at least one"
            raise _Refused(ChangeStatus.FAILED_PRECONDITION, reason)

    def _prepare(self, datasets: Mapping[str, str], optional: Collection[str] = ()) -> None:
        """Start the process that reads datasets and saves their snapshots.

        A bad dataset of ``optional`` does not stop it.
        """
        self._prepared = {}
        for name, path in datasets.items():
            self._number += 1
            own = self._folder / f"{self._number}"
            own.mkdir()
            self._prepared[name] = Served(str(own / "dataset.index"), path, "", 0.0)
        snapshots = {name: one.snapshot for name, one in self._prepared.items()}
        config = self._config.model_dump(mode="json")
        config |= {"datasets": dict(datasets)}
        self.child = self._start(
            {"config": config, "snapshots": snapshots, "optional": sorted(optional)}
        )

    def _take_prepared(self) -> tuple[dict[str, Served], dict[str, str]]:
        """Return the datasets of the process that has ended, and why optional ones are bad.

        Raises:
            ConsensusPRError: why there are none, in its words.
        """
        child, self.child = self.child, None
        assert child is not None
        report, messages, code = child.report(), child.take(), child.exit_code()
        child.kill()
        if report is not None and not report.ready:
            raise report.error()
        if report is None or code != 0:
            how = child.describe_exit()
            raise ConsensusPRError(f"loading the datasets failed: its process {how}")
        [message] = messages
        now = time.time()
        prepared = {
            name: replace(self._prepared[name], digest=digest, loaded_unix_s=now)
            for name, digest in message["digests"].items()
        }
        return prepared, message["faults"]

    def _map(self) -> None:
        """Go on with the change whose file was read: have the workers map it."""
        change = self._change
        assert change is not None
        name = change.name
        try:
            self._prepared, _ = self._take_prepared()
        except ConsensusPRError as error:
            bad = isinstance(error, InputError)
            code = ChangeStatus.INVALID_ARGUMENT if bad else ChangeStatus.UNAVAILABLE
            self._give_up(_Refused(code, str(error)))
            return
        new = self._prepared[name]
        if change.expect_digest not in ("", new.digest):
            reason = f"{new.path} has digest {new.digest}, expected is {change.expect_digest}"
            self._give_up(_Refused(ChangeStatus.FAILED_PRECONDITION, reason))
            return

        def mapped(answers: dict[int, Message], silent: list[int]) -> None:
            faults = [answer["error"] for answer in answers.values() if "error" in answer]
            faults += [f"worker {number} does not answer" for number in silent]
            if faults:
                self._give_up(
                    _Refused(ChangeStatus.UNAVAILABLE, f"it cannot be mapped: {faults[0]}")
                )
            else:
                self._serve({**self._served, name: new})

        self._order_all({"order": "map_dataset", "name": name, "snapshot": new.snapshot}, mapped)

    def _give_up(self, refused: _Refused) -> None:
        """End the change; what was prepared for it is dropped."""
        change, prepared = self._change, self._prepared
        assert change is not None

        def dropped(answers: dict[int, Message], silent: list[int]) -> None:
            for one in prepared.values():
                _delete(one)
            self._end(change, refused)

        self._order_all({"order": "serve_datasets", **self.payload()}, dropped)

    def _serve(self, datasets: dict[str, Served]) -> None:
        """Have the workers serve these datasets; new workers do from now on."""
        change, before = self._change, self._served
        assert change is not None
        self._served = datasets

        def served(answers: dict[int, Message], silent: list[int]) -> None:
            for number in silent:
                self._kill(number, f"did not answer when dataset {change.name!r} was changed")
            for number, answer in answers.items():
                if "error" in answer:
                    self._kill(number, f"cannot serve dataset {change.name!r}: {answer['error']}")
            for one in before.values():
                if one not in datasets.values():
                    _delete(one)
            previous, now = before.get(change.name), datasets.get(change.name)
            outcome: Message = {} if now is None else asdict(now)
            outcome["previous_digest"] = "" if previous is None else previous.digest
            self._end(change, outcome)

        assert self._watcher is not None
        self._watcher.paths = frozenset(one.path for one in datasets.values())
        self._order_all({"order": "serve_datasets", **self.payload()}, served)

    def _end(self, change: Change, outcome: Message | _Refused) -> None:
        """Tell how a change ended; the next may begin."""
        if self._change is change:
            self._change = None
            self._prepared = {}
        done = not isinstance(outcome, _Refused)
        self._count(done)
        if done or change.reply is None:
            self._mark_bad(change.name, not done and change.name not in self._served)
        if isinstance(outcome, _Refused):
            _log.error(
                "dataset %s: nothing is changed, as %s asked for: %s",
                change.name, change.by, outcome,
            )  # fmt: skip
            outcome = {"refused": outcome.code, "reason": str(outcome)}
        else:
            _log.warning(
                "dataset %s: %s, changed by %s, before: %s",
                change.name, outcome.get("digest", "removed"), change.by,
                outcome["previous_digest"] or "nothing",
            )  # fmt: skip
        if change.reply is not None:
            change.reply(outcome)

    def _compare(self, look: _Look) -> None:
        """Ask for the changes that files ask for."""
        before, self._seen = self._seen, look

        def settled(path: str) -> bool:
            # A file that is being written is another one at the next look.
            return before is not None and before.stamps.get(path) == look.stamps.get(path)

        by = "SIGHUP" if look.asked else "the watch"
        wanted = {name: one.path for name, one in self._served.items()}
        for name, path in look.folder.items():
            if name not in wanted or name in self._of_folder:
                wanted[name] = path
                self._of_folder.add(name)
        for name in sorted(self._of_folder - set(look.folder)):
            if look.asked or (before is not None and name not in before.folder):
                self._of_folder.discard(name)
                self._mark_bad(name, False)
                wanted.pop(name, None)
                self._of_files[name] = Change(name, None, by=by)
        for name, path in wanted.items():
            stamp = look.stamps.get(path)
            changed = stamp is not None and stamp != self._tried.get(path) and settled(path)
            if look.asked or changed:
                self._of_files[name] = Change(name, path, stamp, by=by)


def _delete(served: Served) -> None:
    """Delete the files of a dataset; who has them mapped keeps them until the end."""
    shutil.rmtree(os.path.dirname(served.snapshot), ignore_errors=True)


class WorkerDatasets:
    """What a worker serves, and what it does when it is ordered to serve something else.

    Args:
        served: of the payload: what is known of each dataset by name.
        cache: of matchers, for all datasets.

    Raises:
        DataError: a snapshot cannot be mapped.
    """

    def __init__(self, served: Mapping[str, Mapping[str, Any]], cache: MatcherCache) -> None:
        self._cache = cache
        self._opened: dict[str, DatasetIndex] = {}
        self._releases: set[asyncio.Task[None]] = set()
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
        """Map a snapshot, and go on as before."""
        await asyncio.to_thread(self._open, order["name"], order["snapshot"])
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
        """Forget the matchers of an index when its last request has ended.

        The index itself is unmapped by then: nobody holds it any more.
        """
        task = asyncio.create_task(self._forget(weakref.ref(index), index.digest))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def _forget(self, index: weakref.ref[DatasetIndex], digest: str) -> None:
        while index() is not None:
            await asyncio.sleep(_RELEASE_POLL_S)
        if all(one.digest != digest for one in self._opened.values()):
            self._cache.forget(digest)
        _log.debug("dataset %s is released", digest)
