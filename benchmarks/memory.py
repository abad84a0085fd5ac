"""Memory of a server and of a large dataset: ``python -m benchmarks.memory``.

Bytes are those of all processes of a server, shared pages divided among them (PSS).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import texts
from benchmarks.measure import Row, report, require
from benchmarks.processes import family, serving
from consensuspr.client import RewardClient

PROBLEMS = 20_000
SEED = 20


def held(pid: int) -> float:
    """Return the megabytes that a process and its children hold."""
    total = 0
    for one in family(pid):
        lines = Path(f"/proc/{one}/smaps_rollup").read_text(encoding="ascii").splitlines()
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1e3


def run() -> Iterator[Row]:
    """Measure a server before and after a batch, and one with many problems."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        batch = texts.batch(2048, 10_000, SEED, folder)
        with serving(batch.dataset, folder, workers=1) as (address, pid):
            small = held(pid)
            with RewardClient(address, timeout_s=120) as client:
                scores = client.score(batch.rollouts)
            require("the server", [score.matched for score in scores], batch.expected)
            after = held(pid)
        yield Row("memory", "server, one worker, idle", f"{small:.0f} MB", "256 problems")
        yield Row("memory", "after a batch", f"{after:.0f} MB", "2,048 rollouts of 10 KB")
        rows = [
            {**row, "problem_id": f"{row['problem_id']}-{turn}"}
            for turn in range(PROBLEMS // len(batch.problems))
            for row in batch.problems
        ]
        large = texts.write_rows(folder / "large.jsonl", rows)
        begin = time.perf_counter()
        with serving(large, folder, workers=1) as (_, pid):
            seconds = time.perf_counter() - begin
            each = (held(pid) - small) * 1e6 / (len(rows) - len(batch.problems))
        note = f"{len(rows):,} problems, server started in {seconds:.1f} s"
        yield Row("memory", "a further problem of the dataset", f"{each:,.0f} bytes", note)


if __name__ == "__main__":
    report(run())
