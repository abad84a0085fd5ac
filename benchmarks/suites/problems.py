"""Datasets from a thousand problems to a million: when they are ready, and what they take.

Loading from each format, with equal forms stored and without; mapping a prepared dataset; the
first and a later touch of a problem; a server of two workers.  Every load is in a process of its
own (:mod:`benchmarks.children.dataset`), and none is timed before its digest is that of all others
of the same content.

The content of a pool of generated problems repeats; ids do not, and come in no order.  Loading
costs the same as if all were different: nothing is shared between problems but by deriving,
which looks at fewer problems at a time than the pool has.

Not covered: matching itself (the core), rewards, other machines.
"""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from benchmarks.children.dataset import problem_id
from benchmarks.harness import texts
from benchmarks.harness.measure import (
    REPOSITORY,
    Context,
    Resident,
    WrongAnswerError,
    require,
    resident,
)
from benchmarks.harness.processes import family, serving
from benchmarks.harness.results import Parameters, SuiteResult
from consensuspr.client import RewardClient, Rollout
from consensuspr.data import JsonRows, open_writer
from consensuspr.scoring.dataset_index import prepare_dataset

# Prime, and no divisor of any size that is measured: steps of it visit every number once.
_STRIDE = 7919

SERVER_WORKERS = 2
# Connections, so that the kernel's spreading of them reaches both workers, and rollouts of each.
_CLIENTS = 8
_ROLLOUTS = 512
MB = 1e6
PAPER = 5577
MILLION = 1_000_000
NOTES = [
    "Problems have 7 nodes of one expression and 3 equal forms each. The content of 5,577 of them "
    "repeats under ids of its own, in no order of ids; nothing that is measured profits from it.",
    "Every load is a process of its own; its time begins when all modules are imported. Loads of "
    "fewer than 50,000 problems are the fastest of some rounds, in which the formats take turns.",
    "Memory is what the process has more than before the load. Own memory is anonymous; mapped "
    "pages are files', shared by all that map them, and the system takes them back when it wants.",
    "A prepared dataset is what `consensuspr derive DATASET --output NAME.index` writes; it is "
    "read once to verify its checksum.",
]


def make_pool(seed: int, largest: int) -> list[dict[str, Any]]:
    """Return generated problems with their equal forms stored, for datasets up to a size."""
    return texts.problems(min(PAPER, largest), seed)


def content(problems: list[dict[str, Any]], number: int, count: int) -> dict[str, Any]:
    """Return the row of the pool that a problem of a dataset of ``count`` repeats."""
    return problems[number * pow(_STRIDE, -1, count) % count % len(problems)]


def write(path: Path, problems: list[dict[str, Any]], count: int, *, stored: bool) -> Path:
    """Write a dataset in the format of the path's suffix; in memory is never more than the pool.

    ``stored`` says whether the equal forms stay.
    """
    bare = [row if stored else _without_forms(row) for row in problems]
    with open_writer(path) as out:
        if isinstance(out, JsonRows):
            # The rest of a row is the same text each time it comes.
            rest = [json.dumps({**row, "problem_id": ""}, ensure_ascii=False) for row in bare]
            tails = [line.replace('{"problem_id": ""', "", 1).encode() for line in rest]
            for number, tail in zip(_numbers(count), itertools.cycle(tails), strict=False):
                out.write_lines(b'{"problem_id": "%s"%s\n' % (problem_id(number).encode(), tail))
        else:
            for number, row in zip(_numbers(count), itertools.cycle(bare), strict=False):
                out.write({**row, "problem_id": problem_id(number)})
    return path


def _numbers(count: int) -> Iterator[int]:
    return (position * _STRIDE % count for position in range(count))


def _without_forms(row: dict[str, Any]) -> dict[str, Any]:
    nodes = [{k: v for k, v in node.items() if k != "derived"} for node in row["nodes"]]
    return {**row, "nodes": nodes}


class Loaded(BaseModel):
    """A dataset loaded from a file or mapped from a prepared one.

    Attributes:
        seconds: until it can score.
        cpu_seconds: of them, those that this process computed; without its children.
        before: memory once all is imported.
        after: memory with the dataset loaded.
        read: memory once every record was read, as after a long training.
        peak: most bytes that were resident up to ``after``.
        digest: of the content.
    """

    seconds: float
    cpu_seconds: float
    before: Resident
    after: Resident
    read: Resident
    peak: int
    digest: str


class Touched(BaseModel):
    """Microseconds until the matcher of a problem is at hand.

    ``first_…`` is of the first time (looked up, unpacked, compiled), ``later_…`` of the second;
    ``matcher_bytes`` is what a matcher takes on average.
    """

    first_p50: float
    first_p99: float
    later_p50: float
    later_p99: float
    matcher_bytes: float


def load(path: Path) -> Loaded:
    """Load a dataset in a fresh process and return what it took."""
    return Loaded.model_validate_json(_run("load", path))


def touch(path: Path, count: int, seed: int) -> Touched:
    """Touch problems of a dataset of ``count`` in a fresh process."""
    return Touched.model_validate_json(_run("touch", path, count, seed))


def _run(*arguments: object) -> str:
    command = [sys.executable, "-m", "benchmarks.children.dataset", *map(str, arguments)]
    return subprocess.run(
        command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


@dataclass(frozen=True, slots=True)
class Served:
    """A server that has scored rollouts of many problems: seconds until it listens, and memory.

    ``fresh`` is of all processes when it listens, ``used`` after the rollouts, and ``workers`` the
    part of that which is not the supervisor's.
    """

    seconds: float
    fresh: Resident
    used: Resident
    workers: Resident


def serve(
    dataset: Path, scratch: Path, problems: list[dict[str, Any]], count: int, seed: int
) -> Served:
    """Start a server, score rollouts of random problems, and return what it holds.

    ``problems`` is the pool that the dataset of ``count`` repeats.
    """
    rng = random.Random(f"served {seed}")
    start = time.perf_counter()
    with serving(dataset, scratch, workers=SERVER_WORKERS) as (address, pid):
        seconds = time.perf_counter() - start
        fresh = _all_of(family(pid))
        for _ in range(_CLIENTS):
            numbers = [rng.randrange(count) for _ in range(_ROLLOUTS)]
            expected = [[position % 2 == 0 for position in range(7)]] * len(numbers)
            rollouts = [
                Rollout(problem_id(number), _reaching(content(problems, number, count)))
                for number in numbers
            ]
            with RewardClient(address) as client:
                batch = client.score(rollouts, timeout_s=600)
            require("the server", [score.matched for score in batch], expected)
        processes = family(pid)
        used = _all_of(processes)
        return Served(
            seconds=seconds,
            fresh=fresh,
            used=used,
            workers=_all_of(processes[1 : 1 + SERVER_WORKERS]),
        )


def _reaching(problem: dict[str, Any]) -> str:
    """Return a text that says every second node of a problem, and its answer as one says it.

    Without an answer the check would start processes, whose memory is not that of the dataset.
    """
    said = [node["expressions"][0] for node in problem["nodes"][::2]]
    return f"{'; '.join(said)}. The answer is \\boxed{{{problem['ground_truth']}}}."


def _all_of(processes: list[int]) -> Resident:
    return sum((resident(pid) for pid in processes), Resident())


@dataclass(frozen=True)
class Sizes:
    """Numbers of problems that are loaded with equal forms stored, loaded bare, and served.

    ``rounds`` are loads of each file below 50,000 problems.
    """

    stored: tuple[int, ...]
    bare: tuple[int, ...]
    served: tuple[int, ...]
    rounds: int


QUICK = Sizes((1000, PAPER, 10_000, 100_000), (1000, PAPER), (PAPER, 100_000), 3)
FULL = Sizes(
    (1000, PAPER, 10_000, 100_000, 1_000_000),
    (1000, PAPER, 10_000, 100_000),
    (PAPER, 100_000, 1_000_000),
    5,
)


def measure(context: Context, sizes: Sizes) -> SuiteResult:
    """Measure datasets of the sizes given."""
    found = SuiteResult(suite="problems", title="Many problems", notes=list(NOTES))
    for name, label in (
        ("Ready to score", "seconds"),
        ("Resident bytes of each problem", "bytes"),
    ):
        found.plot(name, "problems", label, {})
    context.say("generating problems")
    pool = make_pool(context.seed, max(sizes.stored))
    smallest = None
    for count in sizes.stored:
        size = _Size(context, sizes, found, pool, count)
        size.measure()
        smallest = smallest or size
        size.report(smallest)
    return found


class _Size:
    """All that is measured with one number of problems."""

    def __init__(
        self,
        context: Context,
        sizes: Sizes,
        found: SuiteResult,
        pool: list[dict[str, Any]],
        count: int,
    ) -> None:
        self._context = context
        self._sizes = sizes
        self._found = found
        self._pool = pool
        self._count = count
        self._rounds = sizes.rounds if count < 50_000 else 1
        self._loads: dict[str, list[Loaded]] = {}

    def measure(self) -> None:
        self._context.say(f"{self._count:,} problems")
        paths = {"prepared": self._path("prepared.index")}
        for name in ("jsonl", "jsonl.gz", "parquet"):
            path = write(self._path(name), self._pool, self._count, stored=True)
            if name == "jsonl":
                prepare_dataset(path, paths["prepared"])
            self._figure("on disk", path.stat().st_size / self._count, "B a problem", name)
            paths[name] = path
            if self._rounds == 1:  # large: one file on disk at a time
                self._load({name: path})
                path.unlink()
        self._figure(
            "on disk", paths["prepared"].stat().st_size / self._count, "B a problem", "prepared"
        )
        if self._count in self._sizes.bare:
            paths["jsonl, forms to make"] = write(
                self._path("bare.jsonl"), self._pool, self._count, stored=False
            )
        here = {name: path for name, path in paths.items() if path.exists()}
        for _ in range(self._rounds):
            self._load(here)
        self._touch(paths["prepared"])
        if self._count in self._sizes.served:
            self._serve(paths["prepared"])
        for path in here.values():
            path.unlink()

    def _path(self, name: str) -> Path:
        return self._context.scratch / f"problems-{self._count}.{name}"

    def _load(self, paths: dict[str, Path]) -> None:
        for name, path in paths.items():
            self._loads.setdefault(name, []).append(load(path))

    def report(self, smallest: _Size) -> None:
        """Add what the loads have shown, beside those of the smallest dataset."""
        digests = {load.digest for loads in self._loads.values() for load in loads}
        if len(digests) != 1:
            raise WrongAnswerError(f"{self._count} problems have {len(digests)} digests")
        ready, bytes_each = self._found.series
        for name, some in self._loads.items():
            load = _fastest(some)
            grown = load.after.rss - load.before.rss
            self._figure("ready to score", load.seconds, "s", name)
            self._figure("ready to score, CPU time", load.cpu_seconds, "s", name)
            self._figure("more own memory", _own(load) / MB, "MB", name)
            self._figure("more resident when ready", grown / MB, "MB", name)
            self._figure(
                "more resident at the peak", (load.peak - load.before.rss) / MB, "MB", name
            )
            read = load.read.rss - load.before.rss
            self._figure(
                "more resident, every record read", read / self._count, "B a problem", name
            )
            ready.lines.setdefault(name, []).append((self._count, load.seconds))
            bytes_each.lines.setdefault(name, []).append((self._count, max(1, read) / self._count))
        if self._count == PAPER:
            self._check_paper()
        if self._count == max(self._sizes.stored):
            self._check_largest(smallest)

    def _check_paper(self) -> None:
        best = {name: _fastest(some) for name, some in self._loads.items()}
        others = "; ".join(f"{name} {load.seconds:.2f} s" for name, load in best.items())
        load = best["jsonl"]
        note = f"JSONL with equal forms stored, {load.cpu_seconds:.2f} s of CPU time; {others}"
        self._found.check("ready_5577_s", load.seconds, note)
        grown = (load.after.rss - load.before.rss) / MB
        note = (
            f"more resident than before the load; the whole process has {load.after.rss / MB:.0f} "
            f"MB, and {load.peak / MB:.0f} MB at the peak"
        )
        self._found.check("ready_5577_mb", grown, note)

    def _check_largest(self, smallest: _Size) -> None:
        """Check what each further problem takes, at a peak or with every page touched.

        What does not depend on the number of problems (the modules of a format, the heap's
        reserve) is taken off as that of the smallest dataset.
        """
        most = 0.0
        for name, small in smallest._loads.items():
            if name in self._loads:
                grown = _most_grown(self._loads[name]) - _most_grown(small)
                most = max(most, grown / (self._count - smallest._count))
        own = _own(self._loads["prepared"][0]) / self._count
        note = (
            f"of each further problem up to {self._count:,}, the most of any format, at the peak "
            "of loading or with every record read; mapped from a prepared file, "
            f"{own:.1f} bytes of it are the process's own"
        )
        reached = self._count == MILLION
        if not reached:
            note = f"{most:,.0f} bytes {note}; the target is about {MILLION:,}, with --full"
        self._found.check("million_resident_bytes", most if reached else None, note)

    def _touch(self, path: Path) -> None:
        touched = touch(path, self._count, self._context.seed)
        for name, value in (
            ("first touch, median", touched.first_p50),
            ("first touch, 99th percentile", touched.first_p99),
            ("later touch, median", touched.later_p50),
            ("later touch, 99th percentile", touched.later_p99),
        ):
            self._figure(name, value, "µs", "prepared")
        self._figure("a compiled matcher", touched.matcher_bytes / 1e3, "kB", "prepared")

    def _serve(self, path: Path) -> None:
        served = serve(path, self._context.scratch, self._pool, self._count, self._context.seed)
        name = f"server, {SERVER_WORKERS} workers"
        self._figure("start to listening", served.seconds, "s", name)
        self._figure("all processes, listening (sum of PSS)", served.fresh.pss / MB, "MB", name)
        self._figure("all processes, used (sum of PSS)", served.used.pss / MB, "MB", name)
        self._figure("workers, used: own memory", served.workers.anonymous / MB, "MB", name)
        self._figure("workers, used: sum of RSS", served.workers.rss / MB, "MB", name)
        self._figure("workers, used: sum of PSS", served.workers.pss / MB, "MB", name)

    def _figure(self, name: str, value: float, unit: str, source: str) -> None:
        parameters: Parameters = {"problems": self._count, "from": source}
        self._found.add(name, value, unit, parameters)


def _fastest(some: list[Loaded]) -> Loaded:
    return min(some, key=lambda one: one.seconds)


def _most_grown(some: list[Loaded]) -> int:
    return max(max(load.peak, load.read.rss) - load.before.rss for load in some)


def _own(load: Loaded) -> int:
    return load.after.anonymous - load.before.anonymous


def run(context: Context) -> SuiteResult:
    """Measure datasets; to 100,000 problems, or with ``full`` to a million."""
    return measure(context, FULL if context.full else QUICK)
