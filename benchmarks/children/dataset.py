"""One measurement of a dataset, for a process of its own.

A process that has loaded one dataset is no place to measure the next: what Python keeps for
itself would count as nothing the second time.  This module imports little, so that the memory
before a load is that of scoring itself.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Resident, forget_peak, peak, resident
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.dataset_index import Entry

# Problems that are touched; the cache of matchers holds them all.
TOUCHED = 2000


def problem_id(number: int) -> str:
    """Return the id of a problem, number counted from 0."""
    return f"generated-{number:07d}"


@dataclass(frozen=True)
class Loaded:
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

    @property
    def own(self) -> int:
        """Bytes more that are the process's own; 0 where it has less, having given some back."""
        return max(0, self.after.anonymous - self.before.anonymous)

    @property
    def grown(self) -> int:
        """Bytes more that are resident when it is loaded, likewise."""
        return max(0, self.after.rss - self.before.rss)

    @property
    def grown_at_peak(self) -> int:
        """Bytes more that were resident at most while it was loaded."""
        return self.peak - self.before.rss

    @property
    def grown_read(self) -> int:
        """Bytes more that are resident once every record was read."""
        return self.read.rss - self.before.rss


@dataclass(frozen=True)
class Touched:
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
    """Load a dataset, then read all of it."""
    forget_peak()
    before = resident()
    start, start_cpu = time.perf_counter(), time.process_time()
    index = DatasetIndex.load(path)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
    after, most = resident(), peak()
    for position in range(len(index)):
        index.image.record(position)
    return Loaded(
        seconds, cpu_seconds, before, after, resident(), max(most, after.rss), index.digest
    )


def touch(path: Path, count: int, seed: int) -> Touched:
    """Ask for the matchers of some of the ``count`` problems, and for the same again."""
    index = DatasetIndex.load(path)
    chosen = random.Random(f"touch {seed}").sample(range(count), min(count, TOUCHED))

    def touch_one(number: int) -> None:
        _ = _entry(index, number).matcher

    first = _latencies(chosen, touch_one)
    later = _latencies(chosen, touch_one)
    stats = index.cache.stats()
    if (stats.misses, stats.hits) != (len(chosen), len(chosen)):
        raise RuntimeError(f"{stats.misses} matchers were compiled for {len(chosen)} problems")
    for number in chosen[:200]:
        # A text of every second node of a problem reaches just these.
        entry = _entry(index, number)
        found = entry.matcher.match("; ".join(node.expressions[0] for node in entry.nodes[::2]))
        if found != [position % 2 == 0 for position in range(entry.num_nodes)]:
            raise RuntimeError(f"{problem_id(number)} is not matched by its own nodes: {found}")
    return Touched(
        first_p50=statistics.median(first),
        first_p99=statistics.quantiles(first, n=100)[98],
        later_p50=statistics.median(later),
        later_p99=statistics.quantiles(later, n=100)[98],
        matcher_bytes=stats.nbytes / stats.entries,
    )


def _entry(index: DatasetIndex, number: int) -> Entry:
    entry = index.entry(problem_id(number))
    if entry is None:
        raise RuntimeError(f"the dataset has no problem {problem_id(number)}")
    return entry


def _latencies(numbers: list[int], function: Callable[[int], None]) -> list[float]:
    """Return the microseconds of a call with each number."""
    clock = time.perf_counter
    found = []
    for number in numbers:
        start = clock()
        function(number)
        found.append((clock() - start) * 1e6)
    return found
