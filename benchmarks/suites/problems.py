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
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import texts
from benchmarks.children.dataset import Loaded, load, problem_id, touch
from benchmarks.harness.results import Parameters, SuiteResult
from benchmarks.measure import Context, WrongAnswerError, require, resident
from benchmarks.processes import family, fresh, serving
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


def run(context: Context) -> SuiteResult:
    """Measure datasets; to 100,000 problems, or with ``full`` to a million."""
    return measure(context, FULL if context.full else QUICK)


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
    by_size = []
    for count in sizes.stored:
        context.say(f"{count:,} problems")
        size = _Size(context, sizes, found, pool, count)
        size.measure()
        size.report()
        by_size.append(size)
    _check_largest(by_size[0], max(by_size, key=lambda size: size.count), found)
    return found


@dataclass(frozen=True)
class _Size:
    """All that is measured with one number of problems; ``loads`` are by what was loaded."""

    context: Context
    sizes: Sizes
    found: SuiteResult
    pool: list[dict[str, Any]]
    count: int
    loads: dict[str, list[Loaded]] = field(default_factory=dict)

    def measure(self) -> None:
        rounds = self.sizes.rounds if self.count < 50_000 else 1
        paths = {"prepared": self._path("prepared.index")}
        for name in ("jsonl", "jsonl.gz", "parquet"):
            path = paths[name] = write(self._path(name), self.pool, self.count, stored=True)
            if name == "jsonl":
                prepare_dataset(path, paths["prepared"])
            self._on_disk(name, path)
            if rounds == 1:  # large: one file on disk at a time
                self._load({name: path})
                path.unlink()
        self._on_disk("prepared", paths["prepared"])
        if self.count in self.sizes.bare:
            bare = self._path("bare.jsonl")
            paths["jsonl, forms to make"] = write(bare, self.pool, self.count, stored=False)
        here = {name: path for name, path in paths.items() if path.exists()}
        for _ in range(rounds):
            self._load(here)
        self._touch(paths["prepared"])
        if self.count in self.sizes.served:
            self._serve(paths["prepared"])
        for path in here.values():
            path.unlink()

    def report(self) -> None:
        """Add what the loads have shown."""
        digests = {one.digest for some in self.loads.values() for one in some}
        if len(digests) != 1:
            raise WrongAnswerError(f"{self.count} problems have {len(digests)} digests")
        best = {name: min(some, key=lambda one: one.seconds) for name, some in self.loads.items()}
        ready, bytes_each = self.found.series
        for name, one in best.items():
            self._figures(
                name,
                ("ready to score", one.seconds, "s"),
                ("ready to score, CPU time", one.cpu_seconds, "s"),
                ("more own memory", one.own / MB, "MB"),
                ("more resident when ready", one.grown / MB, "MB"),
                ("more resident at the peak", one.grown_at_peak / MB, "MB"),
                ("more resident, every record read", one.grown_read / self.count, "B a problem"),
            )
            ready.lines.setdefault(name, []).append((self.count, one.seconds))
            each = max(1, one.grown_read) / self.count
            bytes_each.lines.setdefault(name, []).append((self.count, each))
        if self.count == PAPER:
            others = "; ".join(f"{name} {one.seconds:.2f} s" for name, one in best.items())
            one = best["jsonl"]
            self.found.check(
                "ready_5577_s",
                one.seconds,
                f"JSONL with equal forms stored, {one.cpu_seconds:.2f} s of CPU time; {others}",
            )
            self.found.check(
                "ready_5577_mb",
                one.grown / MB,
                "more resident than before the load; the whole process has "
                f"{one.after.rss / MB:.0f} MB, and {one.peak / MB:.0f} MB at the peak",
            )

    def _path(self, name: str) -> Path:
        return self.context.scratch / f"problems-{self.count}.{name}"

    def _on_disk(self, name: str, path: Path) -> None:
        self._figures(name, ("on disk", path.stat().st_size / self.count, "B a problem"))

    def _load(self, paths: dict[str, Path]) -> None:
        for name, path in paths.items():
            self.loads.setdefault(name, []).append(fresh(load, path))

    def _touch(self, path: Path) -> None:
        touched = fresh(touch, path, self.count, self.context.seed)
        self._figures(
            "prepared",
            ("first touch, median", touched.first_p50, "µs"),
            ("first touch, 99th percentile", touched.first_p99, "µs"),
            ("later touch, median", touched.later_p50, "µs"),
            ("later touch, 99th percentile", touched.later_p99, "µs"),
            ("a compiled matcher", touched.matcher_bytes / 1e3, "kB"),
        )

    def _serve(self, path: Path) -> None:
        """Start a server, score rollouts of random problems, and add what it holds."""
        rng = random.Random(f"served {self.context.seed}")
        start = time.perf_counter()
        with serving(path, self.context.scratch, workers=SERVER_WORKERS) as (address, pid):
            seconds = time.perf_counter() - start
            listening = resident(*family(pid))
            for _ in range(_CLIENTS):
                numbers = [rng.randrange(self.count) for _ in range(_ROLLOUTS)]
                rollouts = [
                    Rollout(problem_id(number), _reaching(content(self.pool, number, self.count)))
                    for number in numbers
                ]
                with RewardClient(address) as client:
                    batch = client.score(rollouts, timeout_s=600)
                expected = [[position % 2 == 0 for position in range(7)]] * len(numbers)
                require("the server", [score.matched for score in batch], expected)
            processes = family(pid)
            used = resident(*processes)
            workers = resident(*processes[1 : 1 + SERVER_WORKERS])
        self._figures(
            f"server, {SERVER_WORKERS} workers",
            ("start to listening", seconds, "s"),
            ("all processes, listening (sum of PSS)", listening.pss / MB, "MB"),
            ("all processes, used (sum of PSS)", used.pss / MB, "MB"),
            ("workers, used: own memory", workers.anonymous / MB, "MB"),
            ("workers, used: sum of RSS", workers.rss / MB, "MB"),
            ("workers, used: sum of PSS", workers.pss / MB, "MB"),
        )

    def _figures(self, source: str, *figures: tuple[str, float, str]) -> None:
        of: Parameters = {"problems": self.count, "from": source}
        for name, value, unit in figures:
            self.found.add(name, value, unit, of)


def _reaching(problem: dict[str, Any]) -> str:
    """Return a text that says every second node of a problem, and its answer as one says it.

    Without an answer the check would start processes, whose memory is not that of the dataset.
    """
    said = [node["expressions"][0] for node in problem["nodes"][::2]]
    return f"{'; '.join(said)}. The answer is \\boxed{{{problem['ground_truth']}}}."


def _check_largest(smallest: _Size, largest: _Size, found: SuiteResult) -> None:
    """Check what each further problem takes, at a peak or with every page touched.

    What does not depend on the number of problems (the modules of a format, the heap's
    reserve) is taken off as that of the smallest dataset.
    """
    count, further = largest.count, largest.count - smallest.count
    most = 0.0
    for name in smallest.loads.keys() & largest.loads.keys():
        small, large = (
            max(max(one.grown_at_peak, one.grown_read) for one in size.loads[name])
            for size in (smallest, largest)
        )
        most = max(most, (large - small) / further)
    note = (
        f"of each further problem up to {count:,}, the most of any format, at the peak "
        "of loading or with every record read; mapped from a prepared file, "
        f"{largest.loads['prepared'][0].own / count:.1f} bytes of it are the process's own"
    )
    if count == MILLION:
        found.check("million_resident_bytes", most, note)
    else:
        note = f"{most:,.0f} bytes {note}; the target is about {MILLION:,}, with --full"
        found.check("million_resident_bytes", None, note)
