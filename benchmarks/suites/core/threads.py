"""What a second core adds: the same batch with one thread and with more, wall time."""

from __future__ import annotations

import os
import time

from benchmarks.harness.measure import Context, interleaved, require
from benchmarks.harness.results import Check, Figure, SuiteResult
from benchmarks.suites.core.peers import core
from benchmarks.suites.core.sizes import Sizes
from benchmarks.suites.core.workloads import Corpus


def measure(context: Context, sizes: Sizes, corpus: Corpus, found: SuiteResult) -> None:
    """Time a batch of a training step's size by number of threads."""
    work = corpus.planted(10_000).repeated(sizes.thread_bytes)
    cores = len(os.sched_getaffinity(0))
    contenders = {threads: core(work, threads) for threads in sorted({1, 2, cores})}
    for threads, contender in contenders.items():
        require(f"{threads} threads", contender.rows(), work.expected)
    timings = interleaved(
        {str(threads): contender.run for threads, contender in contenders.items()},
        3 * context.rounds,
    )
    for threads in contenders:
        found.figures.append(
            Figure(
                name="batch, wall time",
                value=work.size / timings[str(threads)].best / 1e6,
                unit="MB/s",
                parameters={"threads": threads, "batch MB": round(work.size / 1e6, 1)},
            )
        )
    if cores < 2:
        found.notes.append("This machine has one core: what a second adds was not measured.")
        return
    gain = timings["1"].best / timings["2"].best
    spent = interleaved(
        {str(threads): contenders[threads].run for threads in (1, 2)},
        context.rounds,
        time.process_time,
    )
    more = spent["2"].best / spent["1"].best
    found.figures += [
        Figure(name="two threads against one, wall time", value=gain, unit="x"),
        Figure(
            name="two threads against one, processor time",
            value=more,
            unit="x",
            note="1x: the second thread costs nothing; short of twice the speed, the second core "
            "was not free",
        ),
    ]
    found.checks.append(
        Check(
            target="second_core",
            value=gain,
            note=f"two threads spend {more:.2f} times the processor time of one",
        )
    )
