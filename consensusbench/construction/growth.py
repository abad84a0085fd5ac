"""Nodes that grow with a training run: made of its own right rollouts, in service between epochs.

:func:`add_nodes` gives nodes to problems of a dataset that have none.  :class:`Growth` does so over
and over beside a run, and puts each dataset into service::

    score log ─▶ add_nodes ─▶ run/nodes/grown-….jsonl ─▶ server ─▶ ready.json ─▶ the next epoch

:mod:`consensuspr.client.training.grown` decides which dataset rewards which epoch.

Nodes that are ready stay as they are: made again, they would let the policy choose its own reward.
Nodes that wrong rollouts reach as often as right ones are left out; a problem with too few nodes
waits for more rollouts.  Each round reads the log again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from consensusbench.construction.outputs import NothingBuilt, OutputPaths
from consensusbench.construction.pipeline import BuildJob, build
from consensuspr.client import Access
from consensuspr.client.admin import AdminClient, ServedDataset
from consensuspr.client.training.grown import GrownDataset, GrownDatasets
from consensuspr.console import count_of
from consensuspr.data import Problem, open_writer, problem_to_row, read_problems
from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.score_log import keep_dataset
from consensuspr.score_log.files import log_files
from consensuspr.scoring import DatasetIndex

# In the folder of a run.
NODES_FOLDER = "nodes"
PREFIX = "grown-"
# Prefix of folders for drafts.
_DRAFTS = ".grow-"
# Digits of the digest in a name: the same content has the same name.
_NAME_DIGITS = 16

# A build takes at most a quarter of the time, on one core and with the least priority.
_PAUSE_FACTOR = 3.0
_POLL_S = 1.0
# The longest pause between rounds that fail.
_LONGEST_PAUSE_S = 60.0
NICENESS = 19


@dataclass(frozen=True, slots=True)
class Grown:
    """A dataset after a round: its problems, those with nodes, and those that got them now."""

    problems: int
    with_nodes: int
    added: int
    digest: str

    def sentence(self) -> str:
        """Return it as a sentence."""
        return (
            f"{self.with_nodes:,} of {count_of(self.problems, 'problem')} have nodes,"
            f" {self.added:,} of them new; {self.digest}"
        )


def add_nodes(job: BuildJob) -> Grown:
    """Write a dataset with nodes for problems that had none; all else stays as it is.

    Args:
        job: its ``problems`` are the dataset that grows; writes ``paths.dataset``.

    Raises:
        InputError: an input or an output is bad.
        ConsensusPRError: problems failed, or the work as a whole.
    """
    dataset, output, refiner = job.problems, job.paths.dataset, job.refiner
    assert dataset is not None and output is not None and refiner is not None
    job.paths.refuse_inputs(dataset)
    problems = with_nodes = added = 0
    # Beside the output; /tmp is often memory.
    with TemporaryDirectory(prefix=_DRAFTS, dir=output.parent) as folder:
        made = Path(folder) / "made.jsonl"
        with suppress(NothingBuilt):  # there may be enough another time
            paths = replace(job.paths, dataset=made)
            build(replace(job, paths=paths, only_without_nodes=True))
        new_problems = _new_problems(made, refiner.min_nodes)
        new = next(new_problems, None)
        with open_writer(output) as out:
            for problem in read_problems(dataset):
                if new is not None and new.problem_id == problem.problem_id:
                    problem, new = new, next(new_problems, None)
                    added += 1
                problems += 1
                with_nodes += bool(problem.nodes)
                out.write(problem_to_row(problem))
    assert new is None, "problems are built in the order of the dataset"
    return Grown(problems, with_nodes, added, DatasetIndex.load(output).digest)


def _new_problems(made: Path, min_nodes: int) -> Iterator[Problem]:
    """Yield problems with nodes that weigh something, or whose weight is not known."""
    for problem in read_problems(made) if made.exists() else ():
        nodes = tuple(node for node in problem.nodes if node.weight != 0.0)
        if len(nodes) >= min_nodes:
            yield replace(problem, nodes=nodes)


class Growth:
    """A run whose nodes grow, and the server that rewards it; a context manager.

    Args:
        job: how nodes are made; of one run, its ``problems`` being the dataset that it began with.
        address: of the server, which reads files in the run's folder of nodes.
        access: token and certificates for the server.
        report: prints a sentence.

    Raises:
        InputError: when entered, that the folder cannot be made, or another process is at it.
    """

    def __init__(
        self, job: BuildJob, address: str, access: Access, report: Callable[[str], None]
    ) -> None:
        assert job.problems is not None
        [self.run] = job.rollouts
        self.folder = (self.run / NODES_FOLDER).absolute()
        self._job = job
        self._dataset = job.problems.absolute()
        self._address = address
        self._access = access
        self._report = report
        self._grown = GrownDatasets(self.folder)
        self._seen: dict[str, int] = {}

    def __enter__(self) -> Self:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = (self.folder / ".lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise InputError(f"another process is growing the nodes of {self.run}") from None
        except OSError as error:
            raise InputError(f"{self.folder}: {(error.strerror or str(error)).lower()}") from None
        for left in self.folder.glob(f"{_DRAFTS}*"):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        return self

    def __exit__(self, *exception: object) -> None:
        self._lock.close()

    def begin(self) -> GrownDataset:
        """Put the datasets of this run into service; return the one that is ready.

        Raises:
            InputError: the run was begun with another dataset, or the server refuses one.
            RewardServiceError: the server cannot be asked.
        """
        taken = self._grown.taken()
        ready = self._grown.ready()
        with AdminClient(self._address, access=self._access) as client:
            served = {dataset.info.name: dataset for dataset in client.list()}
            first = self._first(client, served.values())
            known = [*taken.values(), *([] if ready is None else [ready])]
            for name, digest in {dataset.name: dataset.digest for dataset in known}.items():
                if not name.startswith(PREFIX):
                    if digest != first.digest:
                        raise InputError(
                            f"{self.run} started with the dataset {digest}, but {self._dataset}"
                            f" is {first.digest}; use the first one, or another folder"
                        )
                elif name not in served or served[name].info.digest != digest:
                    client.put(name, str(self._path(name)), expect_digest=digest)
        if ready is None:
            ready = first
            self._grown.publish(ready)
        return ready

    def keep_on(self) -> None:
        """Grow until a signal ends this process.

        A round that fails is reported and tried again: a server may come back, and a disk get room.
        """
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
        pause_s = _POLL_S
        while True:
            started = time.monotonic()
            try:
                self.grow()
                pause_s = _POLL_S
            except Exception as error:
                self._seen = {}
                known = isinstance(error, ConsensusPRError | OSError)
                reason = str(error) if known else f"{type(error).__name__}: {error}"
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                self._report(f"could not grow nodes: {reason}; retrying in {pause_s:g} s")
            time.sleep(max(pause_s, _PAUSE_FACTOR * (time.monotonic() - started)))

    def grow(self) -> GrownDataset | None:
        """Make a dataset of the run's scores, and put it into service.

        Returns:
            The dataset; None if there are no new scores, or no new nodes.

        Raises:
            ConsensusPRError: it cannot be made, or the server rejects it; epochs go on with the
                dataset before.
        """
        last_rows = {writer: files[-1].end for writer, files in log_files(self.run).items()}
        if last_rows in ({}, self._seen):
            return None
        before = self._grown.ready()
        assert before is not None, "begin() was called"
        base = self._path(before.name) if before.name.startswith(PREFIX) else self._dataset
        draft = self.folder / ".draft.jsonl"
        grown = add_nodes(replace(self._job, problems=base, paths=OutputPaths(draft)))
        if not grown.added:
            draft.unlink()
            self._seen = last_rows
            return None
        name = PREFIX + grown.digest.removeprefix("sha256:")[:_NAME_DIGITS]
        path = self._path(name)
        os.replace(draft, path)
        # So that the scores of its epochs can be explained when it is no longer served.
        keep_dataset(self.run, DatasetIndex.load(path))
        with AdminClient(self._address, access=self._access) as client:
            info = client.put(name, str(path)).dataset.info
        ready = GrownDataset(name, info.digest, grown.problems, grown.with_nodes)
        self._grown.publish(ready)
        # Not before: if the server rejects it, all of it is tried again.
        self._seen = last_rows
        self._report(f"ready for the next epoch: {grown.sentence()}")
        self._tidy({ready.name, before.name})
        return ready

    def _first(self, client: AdminClient, served: Iterable[ServedDataset]) -> GrownDataset:
        """Have the server serve the dataset that the run begins with, and return it."""
        with_nodes = sum(bool(problem.nodes) for problem in read_problems(self._dataset))
        real = os.path.realpath(self._dataset)
        found = next((each for each in served if os.path.realpath(each.path) == real), None)
        if found is None:
            found = client.put(f"{self.run.name}-begins", str(self._dataset)).dataset
        info = found.info
        return GrownDataset(info.name, info.digest, info.num_problems, with_nodes)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.jsonl"

    def _tidy(self, names: set[str]) -> None:
        """Remove datasets that no epoch uses, but for the named ones.

        The dataset that was ready just before stays: a worker may be taking it.
        """
        kept = names | {taken.name for taken in self._grown.taken().values()}
        with AdminClient(self._address, access=self._access) as client:
            served = {dataset.info.name for dataset in client.list()}
            for path in self.folder.glob(f"{PREFIX}*.jsonl"):
                if path.stem not in kept:
                    if path.stem in served:
                        client.remove(path.stem)
                    path.unlink()
