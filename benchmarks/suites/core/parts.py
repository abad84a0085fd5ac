"""What the parts of the core cost on texts of 10 KB, against memcpy."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from benchmarks.harness.measure import Context, interleaved, require
from benchmarks.harness.results import Check, Figure, SuiteResult
from benchmarks.suites.core.peers import core, flags
from benchmarks.suites.core.sizes import Sizes
from benchmarks.suites.core.workloads import Corpus, Workload
from consensuspr.core import match_batch, normalize

BOTH = "normalise + match, bytes"


def measure(context: Context, sizes: Sizes, corpus: Corpus, found: SuiteResult) -> None:
    """Time normalise, both, one text at a time, and spans, in turn with memcpy."""
    work = corpus.planted(10_000)
    decoded = [text.decode() for text in work.texts]
    pairs = list(zip(work.matchers, work.texts, strict=True))
    require(BOTH, core(work).rows(), work.expected)
    require("match", [matcher.match(text) for matcher, text in pairs], work.expected)
    require("str", flags(match_batch(work.matchers, decoded, threads=1)), work.expected)
    _require_spans(work, decoded)
    size = work.size
    ways: dict[str, Callable[[], object]] = {
        "normalise": lambda: [normalize(text) for text in work.texts],
        BOTH: core(work).run,
        "normalise + match, str": lambda: match_batch(work.matchers, decoded, threads=1),
        "normalise + match, one call a text": lambda: [
            matcher.match(text) for matcher, text in pairs
        ],
        "spans": lambda: [matcher.spans(text) for matcher, text in pairs],
    }
    source = np.ones(sizes.memcpy_bytes, dtype=np.uint8)
    target = np.zeros(sizes.memcpy_bytes, dtype=np.uint8)
    # Fast ones, all of them: more rounds than elsewhere are cheap here.
    timings = interleaved(
        ways | {"memcpy": lambda: np.copyto(target, source)}, 3 * context.rounds, time.process_time
    )
    floor = sizes.memcpy_bytes / timings.pop("memcpy").best
    cost = {name: timing.best / size for name, timing in timings.items()}
    for name, seconds in cost.items():
        found.figures.append(_figure(name, 1e-6 / seconds, "MB/s"))
    scan = 1e9 * (cost[BOTH] - cost["normalise"])
    note = "" if scan > 0 else "no more than what normalise alone spends on its calls"
    found.figures.append(_figure("scan, by difference", scan, "ns a byte", note))
    found.figures.append(_figure("memcpy", floor / 1e6, "MB/s"))
    for name in ("normalise", BOTH, "spans"):
        found.figures.append(_figure(f"memcpy's bandwidth over {name}", floor * cost[name], "x"))
    found.checks.append(
        Check(
            target="core_vs_memcpy",
            value=floor * cost[BOTH],
            note=f"core {1e-6 / cost[BOTH]:,.0f} MB/s, memcpy {floor / 1e6:,.0f} MB/s",
        )
    )


def _figure(name: str, value: float, unit: str, note: str = "") -> Figure:
    return Figure(name=name, value=value, unit=unit, parameters={"text bytes": 10_000}, note=note)


def _require_spans(work: Workload, decoded: list[str]) -> None:
    """Demand that spans name just the nodes that are known, and places within the text."""
    spans = [matcher.spans(text) for matcher, text in zip(work.matchers, decoded, strict=True)]
    require("spans", [[span is not None for span in row] for row in spans], work.expected)
