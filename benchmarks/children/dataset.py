"""One measurement of a dataset: ``python -m benchmarks.children.dataset load PATH`` or ``touch …``.

A process that has loaded one dataset is no place to measure the next: what Python keeps for
itself would count as nothing the second time.  This one imports little, so that the memory before
a load is that of scoring itself.  Its result is JSON on standard output.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict

from benchmarks.harness.measure import forget_peak, peak, resident
from consensuspr.scoring import DatasetIndex

# Problems that are touched; the cache of matchers holds them all.
TOUCHED = 2000


def problem_id(number: int) -> str:
    """Return the id of a problem, number counted from 0."""
    return f"generated-{number:07d}"


def load(path: str) -> dict[str, object]:
    """Load a dataset, then read all of it."""
    forget_peak()
    before = resident()
    start, start_cpu = time.perf_counter(), time.process_time()
    index = DatasetIndex.load(path)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
    after, most = resident(), peak()
    for position in range(len(index)):
        index.image.record(position)
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "before": asdict(before),
        "after": asdict(after),
        "read": asdict(resident()),
        "peak": max(most, after.rss),
        "digest": index.digest,
    }


def touch(path: str, count: int, seed: int) -> dict[str, object]:
    """Ask for the matchers of some problems, and for the same again."""
    index = DatasetIndex.load(path)
    chosen = random.Random(f"touch {seed}").sample(range(count), min(count, TOUCHED))

    def touch_one(number: int) -> None:
        entry = index.entry(problem_id(number))
        if entry is None:
            raise RuntimeError(f"{path} has no problem {problem_id(number)}")
        _ = entry.matcher

    first = _latencies(chosen, touch_one)
    later = _latencies(chosen, touch_one)
    stats = index.cache.stats()
    if (stats.misses, stats.hits) != (len(chosen), len(chosen)):
        raise RuntimeError(f"{stats.misses} matchers were compiled for {len(chosen)} problems")
    for number in chosen[:200]:
        _require_a_match(index, problem_id(number))
    return {
        "first_p50": statistics.median(first),
        "first_p99": statistics.quantiles(first, n=100)[98],
        "later_p50": statistics.median(later),
        "later_p99": statistics.quantiles(later, n=100)[98],
        "matcher_bytes": stats.nbytes / stats.entries,
    }


def _require_a_match(index: DatasetIndex, name: str) -> None:
    """Demand that a text of every second node of a problem reaches just these."""
    entry = index.entry(name)
    if entry is None:
        raise RuntimeError(f"there is no problem {name}")
    said = "; ".join(node.expressions[0] for node in entry.nodes[::2])
    found = entry.matcher.match(said)
    if found != [position % 2 == 0 for position in range(entry.num_nodes)]:
        raise RuntimeError(f"{name} is not matched by its own nodes: {found}")


def _latencies(numbers: list[int], function: Callable[[int], None]) -> list[float]:
    clock = time.perf_counter
    found = []
    for number in numbers:
        start = clock()
        function(number)
        found.append((clock() - start) * 1e6)
    return found


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["load", path]:
            print(json.dumps(load(path)))
        case ["touch", path, count, seed]:
            print(json.dumps(touch(path, int(count), int(seed))))
        case _:
            sys.exit("expected: load PATH, or touch PATH COUNT SEED")
