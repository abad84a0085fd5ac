"""The core against memcpy and a plain-Python peer: ``python -m benchmarks.core``.

One thread is measured in CPU time.  The core runs as a server runs it, with statements and guard.
The peer normalises with eight regular expressions and searches with ``pyahocorasick``: it does less
than the core, so its times flatter it.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import ahocorasick
import numpy as np

from benchmarks import texts
from benchmarks.measure import (
    REPOSITORY,
    Row,
    WrongAnswerError,
    data_folder,
    fastest,
    report,
    require,
)
from benchmarks.plain_reward import normalised
from consensuspr.core import BatchResult, Matcher, derive_forms, match_batch
from consensuspr.data import read_problems, read_rollouts

# A buffer larger than the third-level caches in use.
MEMCPY_BYTES = 1 << 28
# A peer that agrees with the core's patterns on fewer nodes does another job.
AGREEMENT = 0.75
SEED = 20
GSM8K, GOLD = "gsm8k_gpt4o_mini_and_older", "gsm8k_test_calc_nodes"
R1 = "math_r1distill_long"
AIME, READ = "aime24_qwen3_32b", "aime24_read_nodes"

Nodes = list[list[str]]


class Work(NamedTuple):
    """Texts, the nodes of each, and the flags that a right contender finds."""

    texts: list[bytes]
    nodes: list[Nodes]
    expected: list[list[bool]]

    @property
    def size(self) -> int:
        """Bytes of all texts."""
        return sum(map(len, self.texts))


def generated(problems: int, per_problem: int, size: int) -> Work:
    """Return generated rollouts of about ``size`` bytes; their nodes are known."""
    made = texts.problems(problems, SEED)
    rows = texts.rollouts_of(made, per_problem, size, SEED)
    return Work(
        [row["response"].encode() for row in rows],
        [forms for row in made for forms in [texts.expressions(row)] * per_problem],
        [row["expected"] for row in rows],
    )


def real(rows: Sequence[Mapping[str, Any]], nodes: Mapping[str, Nodes]) -> Work:
    """Return rollouts in groups of one problem, as many of each as most problems have.

    A pass over each whole text, which gives spans, says what a contender must find.
    """
    groups: dict[str, list[str]] = {}
    for row in rows:
        if nodes.get(row["problem_id"]):
            groups.setdefault(row["problem_id"], []).append(row["response"])
    each = statistics.mode(map(len, groups.values()))
    pairs = [
        (name, text) for name, some in groups.items() if len(some) >= each for text in some[:each]
    ]
    matchers = {name: Matcher(nodes[name]) for name, _ in pairs}
    return Work(
        [text.encode() for _, text in pairs],
        [nodes[name] for name, _ in pairs],
        [[span is not None for span in matchers[name].spans(text)] for name, text in pairs],
    )


def sets(folder: Path) -> Iterator[tuple[str, Work]]:
    """Yield the texts to compare on: generated, the sample, and real ones if there are any."""
    yield "generated, 700 bytes", generated(256, 8, 700)
    sample = REPOSITORY / "examples" / "sample"
    yield (
        "sample",
        real([*read_rollouts(sample / "rollouts.jsonl")], _nodes(sample / "dataset.jsonl")),
    )
    data = data_folder()
    if data is None:
        return
    gold = {
        row["problem_id"]: [
            [form, *derive_forms(form)]
            for form in (f"{node['expr']}={node['value']}" for node in row["nodes"])
        ]
        for row in texts.json_lines(data / "nodes" / f"{GOLD}.jsonl.gz")
    }
    yield "GSM8K, reference solutions", real([*texts.real_rows(data, GSM8K)], gold)
    built = folder / "r1.jsonl"
    subprocess.run(
        [
            Path(sys.executable).with_name("consensusbench"),
            *("build", data / "rollouts" / f"{R1}.jsonl.gz", "--output", built),
        ],
        env={**os.environ, "CONSENSUSBENCH_BUILD_SELECTION_MIN_ROLLOUTS": "1"},
        check=True,
        capture_output=True,
    )
    yield "R1, built nodes", real([*texts.real_rows(data, R1)], _nodes(built))
    read = {
        row["problem_id"]: [node["expressions"] for node in row["nodes"]]
        for row in texts.json_lines(data / "nodes" / f"{READ}.jsonl.gz")
    }
    yield "AIME, nodes that were read", real([*texts.real_rows(data, AIME)], read)


def _nodes(path: Path) -> dict[str, Nodes]:
    return {
        one.problem_id: [[*node.expressions, *(node.derived or ())] for node in one.nodes]
        for one in read_problems(path)
    }


def core(
    work: Work, threads: int = 1, whole: bool = True, equations: bool = True
) -> Callable[[], BatchResult]:
    """Return a call of the core; ``whole`` adds statements, equations and guard to patterns.

    Without ``equations`` the nodes' own are given, and what is given reaches no node.
    """
    made = {
        id(nodes): Matcher(
            nodes, given="" if equations else "\n\n".join(chain.from_iterable(nodes))
        )
        for nodes in {id(one): one for one in work.nodes}.values()
    }
    matchers = [made[id(nodes)] for nodes in work.nodes]
    return lambda: match_batch(matchers, work.texts, threads, statements=whole, counts=whole)


def flags(found: BatchResult) -> list[list[bool]]:
    """Return one row of flags for each text of a batch."""
    return [found.matched(at).tolist() for at in range(len(found))]


def peer(work: Work) -> Callable[[], list[list[bool]]]:
    """Return a call of regular expressions and ``pyahocorasick``, with a check of borders."""
    automata: dict[int, Any] = {}
    for nodes in work.nodes:
        if id(nodes) not in automata:
            automaton = automata[id(nodes)] = ahocorasick.Automaton()
            for index, forms in enumerate(nodes):
                for pattern in map(normalised, forms):
                    automaton.add_word(pattern, (index, len(pattern)))
            automaton.make_automaton()
    decoded = [text.decode() for text in work.texts]

    def search(nodes: Nodes, form: str) -> list[bool]:
        row = [False] * len(nodes)
        for last, (index, length) in automata[id(nodes)].iter(form):
            before = form[max(last - length, 0) : last + 1 - length]
            if not before.isdigit() and not form[last + 1 : last + 2].isdigit():
                row[index] = True
        return row

    return lambda: [
        search(nodes, normalised(text)) for nodes, text in zip(work.nodes, decoded, strict=True)
    ]


def against_peers(name: str, work: Work) -> Iterator[Row]:
    """Time the core in turn with the peer and memcpy."""
    ours, theirs = core(work), peer(work)
    require(f"core ({name})", flags(ours()), work.expected)
    pairs = zip(flags(core(work, whole=False)()), theirs(), strict=True)
    agree = float(np.mean([np.mean(np.equal(*rows)) for rows in pairs]))
    if agree < AGREEMENT:
        raise WrongAnswerError(f"the peer agrees on {agree:.0%} of the nodes of {name} alone")
    source, target = np.ones(MEMCPY_BYTES, np.uint8), np.zeros(MEMCPY_BYTES, np.uint8)
    ways: dict[str, Callable[[], object]] = {
        "core": ours,
        "without": core(work, equations=False),
        "peer": theirs,
        "memcpy": lambda: np.copyto(target, source),
    }
    best = fastest(ways, clock=time.process_time)
    speed, floor = work.size / best["core"], MEMCPY_BYTES / best["memcpy"]
    note = f"{name}; {work.size / 1e6:.1f} MB"
    yield Row("core", "normalize + match", f"{speed / 1e6:,.0f} MB/s", note)
    yield Row("core", "with equations over without", f"{best['without'] / best['core']:.2f}x", name)
    yield Row("core", "memcpy over the core", f"{floor / speed:.0f}x", name)
    note = f"{name}; the peer agrees with the core's patterns on {agree:.1%} of the nodes"
    yield Row(
        "core", "core over `re` + `pyahocorasick`", f"{best['peer'] / best['core']:.1f}x", note
    )


def run() -> Iterator[Row]:
    """Measure the core."""
    with tempfile.TemporaryDirectory() as folder:
        for name, work in sets(Path(folder)):
            yield from against_peers(name, work)
    if len(os.sched_getaffinity(0)) > 1:
        work = generated(64, 8, 10_000)
        best = fastest({"1": core(work), "2": core(work, threads=2)})
        yield Row("core", "two threads over one", f"{best['1'] / best['2']:.2f}x", "wall time")


if __name__ == "__main__":
    report(run())
