"""What each part holds in memory: imports, matchers, a batch under way, a server.

Not covered: datasets by number of problems, which are the suite ``problems``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import texts
from benchmarks.harness.results import Parameters, SuiteResult
from benchmarks.measure import Context, Resident, peak_memory, require, resident
from benchmarks.processes import family, fresh, serving
from benchmarks.texts import Batch
from consensuspr.client import LocalClient, RewardClient
from consensuspr.core import BatchResult, Matcher, match_batch
from consensuspr.scoring import Score

_MB = 1e6
# What a program writes to have a part, each alone in a new process.
IMPORTS = {
    "the interpreter alone": "pass",
    "import numpy": "import numpy",
    "the core": "from consensuspr.core import Matcher",
    "scoring in process": "from consensuspr.scoring import Scorer",
    "the client of a server": "from consensuspr.client import RewardClient",
    "the client without a server": "from consensuspr.client import LocalClient",
}
_RESIDENT = """
import os
with open("/proc/self/statm") as file:
    print(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
"""
_NOTES = [
    "Resident bytes as the kernel counts them. A server's are those of all its processes, pages "
    "that several share divided among them (PSS), so that nothing counts twice.",
    "A batch's bytes are the peak of the process during the call less what it held before, the "
    "texts among it; what the call returns is counted. Each is measured in a process of its own. "
    "The first batch of a scorer compiles the matchers of its problems, which stay; the next one "
    "uses again what the first has given back.",
    "A matcher's `nbytes` is its automaton and patterns; resident is what many of them take in "
    "all, Python's objects for the expressions included.",
]


@dataclass(frozen=True)
class MatcherCost:
    """Of one matcher of many alike: its patterns, and bytes by its own word and by the kernel's."""

    patterns: int
    nbytes: float
    resident: float


@dataclass(frozen=True)
class Sizes:
    """Amounts: rollouts of a batch and the bytes of each; nodes of a matcher; workers."""

    batch: int
    text_bytes: int
    nodes: tuple[int, ...]
    matcher_nodes: int
    workers: tuple[int, ...]


QUICK = Sizes(
    batch=2_048, text_bytes=10_000, nodes=(1, 7, 50, 500), matcher_nodes=5_000, workers=(1, 2)
)
FULL = Sizes(
    batch=2_048,
    text_bytes=10_000,
    nodes=(1, 2, 5, 7, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000),
    matcher_nodes=20_000,
    workers=(1, 2, 4),
)


def run(context: Context) -> SuiteResult:
    """Measure memory; quick or full sizes by ``context.full``."""
    return measure(context, FULL if context.full else QUICK)


def measure(context: Context, sizes: Sizes) -> SuiteResult:
    """Measure memory with the sizes given."""
    found = SuiteResult(suite="memory", title="Memory", notes=list(_NOTES))
    context.say("imports")
    _imports(found)
    context.say("matchers by nodes")
    _matchers(context, sizes, found)
    batch = texts.batch(sizes.batch, sizes.text_bytes, context.seed, context.scratch)
    context.say("a batch in process")
    _batch(batch, found)
    for workers in sizes.workers:
        context.say(f"a server with {workers} workers")
        _server(context, batch, workers, found)
    return found


def _imports(found: SuiteResult) -> None:
    for name, statement in IMPORTS.items():
        done = subprocess.run(
            [sys.executable, "-c", statement + _RESIDENT],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found.add("resident after start", int(done.stdout) / _MB, "MB", {"process": name})


def _matchers(context: Context, sizes: Sizes, found: SuiteResult) -> None:
    lines: dict[str, list[tuple[float, float]]] = {"nbytes": [], "resident": []}
    for nodes in sizes.nodes:
        # As many as have the same nodes in all, so that a page more or less is nothing.
        count = max(1, sizes.matcher_nodes // nodes)
        forms = [texts.expressions(row) for row in texts.problems(count, context.seed, nodes)]
        cost = fresh(_build_matchers, forms)
        parameters = {"nodes": nodes, "patterns": cost.patterns, "matchers": count}
        for name, value in (("nbytes", cost.nbytes), ("resident", cost.resident)):
            lines[name].append((nodes, value / 1e3))
            found.add(f"{name} of a matcher", value / 1e3, "kB", parameters)
    name = "Memory of a matcher by number of nodes"
    found.plot(name, "nodes", "kB", lines)


def _build_matchers(forms: list[list[list[str]]]) -> MatcherCost:
    made: list[Matcher] = []
    memory = peak_memory(lambda: made.extend(Matcher(nodes) for nodes in forms))
    return MatcherCost(
        patterns=made[0].num_patterns,
        nbytes=sum(matcher.nbytes for matcher in made) / len(made),
        resident=(memory.after - memory.before) / len(made),
    )


def _batch(batch: Batch, found: SuiteResult) -> None:
    first, later = fresh(_score, batch)
    of: Parameters = {
        "texts": len(batch.rows),
        "MB of text": round(batch.num_bytes / _MB, 1),
    }
    for call, peak in (
        ("match_batch, 1 threads", fresh(_match, batch, 1)),
        ("match_batch, 2 threads", fresh(_match, batch, 2)),
        ("LocalClient.score, the first", first),
        ("LocalClient.score, the next", later),
    ):
        found.add("peak of a batch beyond its texts", peak / _MB, "MB", {"call": call, **of})


def _match(batch: Batch, threads: int) -> int:
    """Return the bytes that the first batch of a process needs, matchers made before."""
    by_id = {row["problem_id"]: Matcher(texts.expressions(row)) for row in batch.problems}
    matchers = [by_id[row["problem_id"]] for row in batch.rows]
    raw = [row["response"].encode() for row in batch.rows]
    results: list[BatchResult] = []
    memory = peak_memory(lambda: results.append(match_batch(matchers, raw, threads=threads)))
    flags = [results[0].matched(index).tolist() for index in range(len(raw))]
    require("match_batch", flags, batch.expected)
    return memory.peak - memory.before


def _score(batch: Batch) -> tuple[int, int]:
    """Return the bytes that a process's first batch needs, its matchers included, and the next."""
    rollouts = batch.rollouts
    scores: list[Sequence[Score]] = []
    with LocalClient(batch.dataset) as client:
        first = peak_memory(lambda: scores.append(client.score(rollouts)))
        require("LocalClient", [score.matched for score in scores.pop()], batch.expected)
        later = peak_memory(lambda: client.score(rollouts))
    return first.peak - first.before, later.peak - later.before


def _server(context: Context, batch: Batch, workers: int, found: SuiteResult) -> None:
    rollouts = batch.rollouts
    memory: dict[str, Resident] = {}
    with serving(batch.dataset, context.scratch, workers=workers) as (address, pid):
        processes = len(family(pid))
        memory["idle"] = resident(*family(pid))
        with RewardClient(address, timeout_s=120) as client:
            scores = client.score(rollouts)
            require("the server", [score.matched for score in scores], batch.expected)
            memory["after a batch"] = resident(*family(pid))
            for _ in range(4):
                client.score(rollouts)
            memory["after five batches"] = resident(*family(pid))
    for when, held in memory.items():
        of: Parameters = {"workers": workers, "processes": processes, "when": when}
        found.add("server, all processes", held.pss / _MB, "MB", of)
