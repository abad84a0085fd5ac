"""The core: normalise, scan, both and spans, against Python's ways and against memcpy.

What each part costs by length of text, by number of nodes, by kind of text and by threads, and
what the peers cost on the same bytes.  The peers are what one would write: a normaliser of regular
expressions, and then ``pyahocorasick``, ``ahocorasick_rs`` or ``in``; and our own pure-Python
twin, which keeps every rule of the normal form.  One thread is measured in CPU time, threads in
wall time.

Not covered: answers, many problems, the service.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import ahocorasick
import numpy as np

from benchmarks import texts
from benchmarks.harness.results import Parameters, SuiteResult
from benchmarks.measure import (
    REPOSITORY,
    Context,
    WrongAnswerError,
    fastest,
    require,
)
from consensuspr.core import BatchResult, Matcher, derive_forms, match_batch, normalize
from consensuspr.core.pure import matcher as pure

LONG = ("olympiad_gptoss120b_very_long", "math_r1distill_long", "aime24_qwen3_32b")
SHORT = "gsm8k_gpt4o_mini_and_older"
SHORTEST = "gsm8k_gpt3"
GOLD = "gsm8k_test_calc_nodes"
_WITHOUT_NUMBERS = "qz+zq=zz-qq"
# Sets of real rollouts with nodes of their own problems; the targets are about the first two.
BUILT = {
    "r1": "math_r1distill_long",
    "math": "math100_qwen25math",
    "aime": "aime24_gpt4o_claude35",
    "aime, long thoughts": "aime24_qwen3_32b",
    "very long": "olympiad_gptoss120b_very_long",
}
CHECKED = ("gsm8k", "r1")
SAMPLE = REPOSITORY / "examples" / "sample"
# Nodes of a problem of the paper's shape, and rollouts of one prompt in a training batch.
NODES = 7
GROUP = 8
# No sooner than that many bytes does another planted line follow, where texts are cut later.
_LINE_EVERY = 4_000
Nodes = list[list[str]]
NOTES = [
    "Texts are long real rollouts joined and cut at paragraph borders into texts of the size "
    "named, or generated ones of that shape where there is no folder of real ones. Groups of 8 "
    "texts share a problem, as rollouts of one prompt do; each problem has 7 nodes.",
    "Each text has some of its problem's equations written into it, and every contender must "
    "find those and no others before it is timed. One node of each problem is in no text and has "
    "no number: a scan may stop when all nodes are found, and pass over what lacks the numbers of "
    "those that are missing, and so has to read every byte. Real rollouts are matched as they are.",
    "The scan alone is not a public function. It is given by difference: `match_batch` less "
    "`normalize` of the same bytes, which also makes a `str` of each normal form, so that the "
    "scan comes out too cheap, and where normalising is most of the work nothing may be left.",
    "The core gets `bytes`, the peers `str` decoded beforehand. The peers normalise with eight "
    "substitutions and look at one neighbouring character: far less than the normal form does.",
    "Hostile text: patterns that are pieces of each other are 64 nodes `1`, `11`, `111`, …, each "
    "found and refused at each place of a long row of ones. What such nodes can cost is why "
    "inline nodes are limited in number and length.",
    "memcpy copies a buffer far larger than the caches of a core, in the same rounds.",
]
Rows = list[list[bool]]
Key = TypeVar("Key", int, str)
# A usual plain-Python normaliser: one substitution after the other.
_RULES: Sequence[tuple[re.Pattern[str], str]] = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\left|\\right|\\displaystyle|\\boxed|\$|\\[()\[\],;!]", ""),
        (r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}", r"(\1)/(\2)"),
        (r"\\times|\\cdot|×|·", "*"),
        (r"\*\*|`", ""),
        (r"(\d),(?=\d{3}(?!\d))", r"\1"),
        (r"[−–]", "-"),
        (r"(\d\.\d*?)0+(?!\d)", r"\1"),
        (r"\s+", ""),
    )
]
BOTH = "normalise + match"


@dataclass(frozen=True)
class Sizes:
    """Amounts: bytes of text for each measurement, bytes of a text, nodes of a matcher.

    ``corpus_bytes`` must hold four texts of the longest length.
    """

    corpus_bytes: int
    peer_bytes: int
    twin_bytes: int
    thread_bytes: int
    memcpy_bytes: int
    hostile_bytes: int
    lengths: tuple[int, ...]
    nodes: tuple[int, ...]


# memcpy's buffer and its target together are larger than the largest third-level caches in use.
QUICK = Sizes(
    corpus_bytes=4_400_000,
    peer_bytes=1_500_000,
    twin_bytes=150_000,
    thread_bytes=20_000_000,
    memcpy_bytes=1 << 28,
    hostile_bytes=200_000,
    lengths=(200, 1_000, 10_000, 100_000, 1_000_000),
    nodes=(1, 5, 50, 500, 5_000),
)
FULL = Sizes(
    corpus_bytes=8_400_000,
    peer_bytes=8_400_000,
    twin_bytes=400_000,
    thread_bytes=40_000_000,
    memcpy_bytes=1 << 28,
    hostile_bytes=1_000_000,
    lengths=(200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 1_000_000),
    nodes=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000),
)


@dataclass(frozen=True)
class Workload:
    """Texts in groups of ``group``, each group with the nodes of its problem.

    ``expected`` holds for each text one flag a node: whether the text reaches it.
    """

    texts: list[bytes]
    problems: list[Nodes]
    group: int
    expected: list[list[bool]]

    @property
    def size(self) -> int:
        """Bytes of all texts."""
        return sum(map(len, self.texts))

    @cached_property
    def matchers(self) -> list[Matcher]:
        """A matcher for each text; texts of one group share theirs."""
        made = [Matcher(nodes) for nodes in self.problems]
        return [made[index // self.group] for index in range(len(self.texts))]

    def first(self, size: int) -> Workload:
        """Return the first texts, at least ``size`` bytes of them, or all."""
        count = total = 0
        while count < len(self.texts) and total < size:
            total += len(self.texts[count])
            count += 1
        problems = self.problems[: -(-count // self.group)]
        return Workload(self.texts[:count], problems, self.group, self.expected[:count])

    def repeated(self, size: int) -> Workload:
        """Return whole groups of these texts over and over, about ``size`` bytes of them.

        Each repeat is a problem of its own, with a matcher of its own.
        """
        whole = len(self.texts) // self.group
        count = whole * self.group
        times = max(1, round(size / sum(map(len, self.texts[:count]))))
        return Workload(
            self.texts[:count] * times,
            self.problems[:whole] * times,
            self.group,
            self.expected[:count] * times,
        )


class Corpus:
    """The text that everything is cut from: real long rollouts, or generated ones."""

    def __init__(self, data: Path | None, seed: int, size: int) -> None:
        """Take ``size`` bytes of text, to be cut into pieces; ``seed`` plants equations."""
        self.seed = seed
        self.data = data
        if data is None:
            whole = texts.rollouts(-(-size // 20_000), 20_000, seed)
            self.description = "Texts of this run are generated: no real ones were there."
        else:
            whole = texts.real_rollouts(data, *LONG)
            self.description = (
                "Texts of this run are real: long solutions of olympiad, MATH and AIME problems by "
                "three reasoning models."
            )
        self.whole: list[str] = []
        total = 0
        for text in whole:
            if total >= size:
                break
            self.whole.append(text)
            total += len(text.encode())

    def cut(self, size: int) -> list[str]:
        """Return texts of about ``size`` bytes with nothing written into them."""
        return texts.cut(self.whole, size)

    def planted(self, size: int) -> Workload:
        """Return texts of about ``size`` bytes in groups, each with its problem's nodes."""
        return plant(self.cut(size), self.seed)

    @cached_property
    def lined(self) -> tuple[list[str], Nodes, list[str]]:
        """The same text with lines of few equations in it, to be cut into any size.

        However it is cut, all pieces together hold the same bytes.  Returns the texts, the
        nodes (the last in no text) and the lines, one a node.
        """
        rng = random.Random(f"lined {self.seed}")
        nodes, lines = equations(rng, NODES)
        parts: list[str] = []
        for part in texts.cut(self.whole, _LINE_EVERY):
            parts += [part.rstrip("\n"), "\n\n", rng.choice(lines[:-1]), "\n\n"]
        return ["".join(parts)], nodes, lines

    def lengths(self, size: int) -> Workload:
        """Return ``lined`` cut into texts of about ``size`` bytes."""
        whole, nodes, lines = self.lined
        pieces = texts.cut(whole, size)
        return Workload(
            texts=[piece.encode() for piece in pieces],
            problems=[nodes],
            group=len(pieces),
            expected=[[line in piece for line in lines] for piece in pieces],
        )


def equations(rng: random.Random, count: int) -> tuple[Nodes, list[str]]:
    """Return ``count`` nodes and a line that reaches each.

    The last node has no number, so that while it is missing no text is passed over for its numbers.
    """
    nodes: Nodes = []
    lines: list[str] = []
    for a in rng.sample(range(1_001, 10_000), count - 1):
        b = rng.randrange(1_001, 10_000)
        expression = f"{a}*{b}={a * b}"
        nodes.append([expression, *derive_forms(expression)])
        lines.append(f"Now {a} * {b} = {a * b}.")
    nodes.append([_WITHOUT_NUMBERS])
    lines.append(f"Now {_WITHOUT_NUMBERS}.")
    return nodes, lines


def plant(pieces: Sequence[str], seed: int, count: int = NODES, group: int = GROUP) -> Workload:
    """Write about half of its problem's equations into each text, the last into none."""
    rng = random.Random(f"plant {seed}")
    problems: list[Nodes] = []
    planted: list[bytes] = []
    expected: list[list[bool]] = []
    lines: list[str] = []
    for index, piece in enumerate(pieces):
        if index % group == 0:
            nodes, lines = equations(rng, count)
            problems.append(nodes)
        # Of thousands of nodes a text holds a few too, or it would be a list of equations.
        share = min(0.5, 4 / count)
        chosen = [number < count - 1 and rng.random() < share for number in range(count)]
        planted.append(_insert(rng, piece, lines, chosen).encode())
        expected.append(chosen)
    return Workload(planted, problems, group, expected)


def _insert(rng: random.Random, text: str, lines: Sequence[str], chosen: Sequence[bool]) -> str:
    """Put each chosen line after a line of the text, or at its end."""
    parts = text.split("\n")
    for line, is_chosen in zip(lines, chosen, strict=True):
        if is_chosen:
            parts.insert(rng.randrange(1, len(parts) + 1), f"\n{line}\n")
    return "\n".join(parts)


def run(context: Context) -> SuiteResult:
    """Measure the core; quick or full sizes by ``context.full``."""
    return measure(context, FULL if context.full else QUICK)


def measure(context: Context, sizes: Sizes) -> SuiteResult:
    """Measure the core with the sizes given."""
    corpus = Corpus(context.data, context.seed, sizes.corpus_bytes)
    found = SuiteResult(suite="core", title="The core", notes=[*NOTES, corpus.description])
    for what, part in (
        ("real problems", on_real_problems),
        ("normalise, scan, both, spans", against_memcpy),
        ("peers", against_peers),
        ("by length", by_length),
        ("by nodes", by_nodes),
        ("by kind of text", by_kind),
        ("hostile text", hostile),
        ("by threads", by_threads),
    ):
        context.say(what)
        part(context, sizes, corpus, found)
    return found


@dataclass(frozen=True)
class Contender:
    """One way to match ``work``: ``run`` is what is timed, ``rows`` reads its answer."""

    run: Callable[[], object]
    rows: Callable[[], Rows]
    work: Workload


def costs(
    contenders: Mapping[str, Contender],
    rounds: int,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, float]:
    """Return the seconds a byte of each contender, measured in turn after all were checked."""
    for name, contender in contenders.items():
        require(name, contender.rows(), contender.work.expected)
    best = fastest({name: one.run for name, one in contenders.items()}, rounds, clock)
    return {name: best[name] / one.work.size for name, one in contenders.items()}


def against_peers(context: Context, sizes: Sizes, corpus: Corpus, found: SuiteResult) -> None:
    """Time every peer on texts of 10 KB; the twin, on fewer of them."""
    work = corpus.planted(10_000).first(sizes.peer_bytes)
    contenders = {
        "consensuspr core": core(work),
        "re + pyahocorasick": re_pyahocorasick(work),
        "re + in": re_in(work),
        "pure-Python twin": twin(work.first(sizes.twin_bytes)),
    }
    if importlib.util.find_spec("ahocorasick_rs"):
        contenders["re + ahocorasick_rs"] = re_ahocorasick_rs(work)
    else:
        found.notes.append("ahocorasick_rs is not installed and was not measured.")
    cost = costs(contenders, context.rounds)
    for name, seconds in cost.items():
        found.add(BOTH, 1e-6 / seconds, "MB/s", {"contender": name})
    ours = cost.pop("consensuspr core")
    of = {"text bytes": 10_000, "nodes": len(work.problems[0])}
    for name, theirs in cost.items():
        share = contenders[name].work.size / work.size
        note = "" if share == 1 else f"a byte each; measured on the first {share:.0%} of the bytes"
        found.add(f"core against {name}", theirs / ours, "x", of, note)


# A peer that agrees with the core's patterns on fewer nodes than that does another job.
_AGREEMENT = 0.75


def on_real_problems(context: Context, sizes: Sizes, corpus: Corpus, found: SuiteResult) -> None:
    """Time the core as a server runs it on real rollouts, in turn with a peer and memcpy.

    Each node is found or not as a pass over the whole text finds it, the one that gives spans.
    """
    source = np.ones(sizes.memcpy_bytes, dtype=np.uint8)
    target = np.zeros(sizes.memcpy_bytes, dtype=np.uint8)
    for name, (work, about) in real_problems(context).items():
        ours, theirs = core(work, whole=True), re_pyahocorasick(work)
        require(f"the core ({name})", ours.rows(), work.expected)
        # Of patterns alone: statements reach nodes in prose, which no peer looks for.
        found_by = zip(core(work).rows(), theirs.rows(), strict=True)
        agree = np.mean([np.mean(np.equal(*rows)) for rows in found_by])
        if agree < _AGREEMENT:
            raise WrongAnswerError(f"the peer agrees on {agree:.0%} of the nodes of {name} alone")
        best = fastest(
            {
                "core": ours.run,
                "peer": theirs.run,
                "memcpy": lambda: np.copyto(target, source),
            },
            context.rounds,
            time.process_time,
        )
        rate, slow = work.size / best["core"] / 1e6, work.size / best["peer"] / 1e6
        floor = sizes.memcpy_bytes / best["memcpy"] / 1e6
        of: Parameters = {"rollouts": name, "MB": round(work.size / 1e6, 2)}
        found.add(f"{BOTH}, statements and guard", rate, "MB/s", of)
        found.add("memcpy's bandwidth over the core's", floor / rate, "x", of)
        found.add("core against re + pyahocorasick", rate / slow, "x", of)
        if name not in CHECKED:
            continue
        found.check(
            f"core_vs_memcpy_{name}",
            floor / rate,
            f"{about}; core {rate:,.0f} MB/s, memcpy {floor:,.0f} MB/s",
        )
        found.check(
            f"core_vs_peer_{name}",
            rate / slow,
            f"{about}; statements and guard are ours alone; core {rate:,.0f} MB/s, peer"
            f" {slow:,.1f} MB/s, which agrees with our patterns on {agree:.1%} of the nodes",
        )


def real_problems(context: Context) -> dict[str, tuple[Workload, str]]:
    """Return real rollouts with the nodes of their problems, and what they are, by name.

    Nodes are those of human solutions for GSM8K, and built from the right rollouts for the rest.
    Where there is no folder of real rollouts, the bundled sample stands for GSM8K.
    """
    if context.data is None:
        rows = [json.loads(line) for line in _lines(SAMPLE / "rollouts.jsonl")]
        return {"gsm8k": (real_work(rows, _nodes_of(SAMPLE / "dataset.jsonl")), "bundled sample")}
    gold = {
        row["problem_id"]: [_forms(f"{node['expr']}={node['value']}") for node in row["nodes"]]
        for row in texts.json_lines(context.data / "nodes" / f"{GOLD}.jsonl.gz")
    }
    rows = list(texts.real_rows(context.data, SHORT))
    about = f"{SHORT}, nodes of the reference solutions"
    found = {"gsm8k": (real_work(rows, gold), about)}
    if context.full:
        rows = [row for row in texts.real_rows(context.data, SHORTEST) if _is_short(row)]
        found["below 500 bytes"] = real_work(rows, gold), f"{SHORTEST}, the same nodes"
    for name, file in BUILT.items():
        if name in CHECKED or context.full:
            nodes = _built(context.data / "rollouts" / f"{file}.jsonl.gz", context.scratch)
            work = real_work(list(texts.real_rows(context.data, file)), nodes)
            found[name] = work, f"{file}, nodes built from its right rollouts"
    return found


def real_work(rows: Sequence[Mapping[str, Any]], nodes: Mapping[str, Nodes]) -> Workload:
    """Return rollouts in groups of equal size, as many as most problems have, in file order."""
    by_problem: dict[str, list[str]] = {}
    for row in rows:
        if nodes.get(row["problem_id"]):
            by_problem.setdefault(row["problem_id"], []).append(row["response"])
    group = statistics.mode(map(len, by_problem.values()))
    chosen = {name: some[:group] for name, some in by_problem.items() if len(some) >= group}
    expected = [
        [span is not None for span in matcher.spans(response)]
        for name, some in chosen.items()
        for matcher in [Matcher(nodes[name])]
        for response in some
    ]
    responses = [response.encode() for some in chosen.values() for response in some]
    return Workload(responses, [nodes[name] for name in chosen], group, expected)


def _is_short(row: Mapping[str, Any]) -> bool:
    return len(row["response"].encode()) < 500


def _built(rollouts: Path, folder: Path) -> dict[str, Nodes]:
    """Return the nodes that ``consensusbench build`` makes of a file, one right rollout enough."""
    output = folder / f"{rollouts.stem}.nodes.jsonl"
    subprocess.run(
        [Path(sys.executable).with_name("consensusbench"), "build", rollouts, "--output", output],
        env={**os.environ, "CONSENSUSBENCH_BUILD_SELECTION_MIN_ROLLOUTS": "1"},
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return _nodes_of(output)


def _nodes_of(dataset: Path) -> dict[str, Nodes]:
    problems = map(json.loads, _lines(dataset))
    return {problem["problem_id"]: texts.expressions(problem) for problem in problems}


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _forms(expression: str) -> list[str]:
    return [expression, *derive_forms(expression)]


def core(work: Workload, threads: int = 1, whole: bool = False) -> Contender:
    """The core of this installation: ``whole`` as a server runs it, with statements and guard.

    Otherwise it does what its peers do, patterns alone.
    """
    matchers = work.matchers

    def run() -> BatchResult:
        return match_batch(matchers, work.texts, threads, statements=whole, counts=whole)

    return Contender(run, lambda: flags(run()), work)


def flags(result: BatchResult) -> Rows:
    """Return the flags of each text of a batch."""
    return [result.matched(index).tolist() for index in range(len(result))]


def twin(work: Workload) -> Contender:
    """The pure-Python twin of the core."""
    made = [pure.Matcher(nodes) for nodes in work.problems]
    matchers = [made[index // work.group] for index in range(len(work.texts))]

    def run() -> BatchResult:
        return pure.match_batch(matchers, work.texts, threads=1, statements=False, counts=False)

    return Contender(run, lambda: flags(run()), work)


def normalise(text: str) -> str:
    """Return what the peers search in."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text.lower()


def re_pyahocorasick(work: Workload) -> Contender:
    """Regular expressions and ``pyahocorasick``, with the simplest boundary check."""

    def build(nodes: Nodes) -> Callable[[str], list[bool]]:
        automaton = ahocorasick.Automaton()
        for index, pattern in _patterns(nodes):
            automaton.add_word(pattern, (index, len(pattern)))
        automaton.make_automaton()

        def search(form: str) -> list[bool]:
            row = [False] * len(nodes)
            for last, (index, length) in automaton.iter(form):
                if _stands_alone(form, last + 1 - length, last + 1):
                    row[index] = True
            return row

        return search

    return _plain(work, build)


def re_ahocorasick_rs(work: Workload) -> Contender:
    """Regular expressions and ``ahocorasick_rs``."""
    import ahocorasick_rs  # optional: the caller looked whether it is there

    def build(nodes: Nodes) -> Callable[[str], list[bool]]:
        owners, patterns = zip(*_patterns(nodes), strict=True)
        automaton = ahocorasick_rs.AhoCorasick(patterns)

        def search(form: str) -> list[bool]:
            row = [False] * len(nodes)
            for pattern, start, end in automaton.find_matches_as_indexes(form, overlapping=True):
                if _stands_alone(form, start, end):
                    row[owners[pattern]] = True
            return row

        return search

    return _plain(work, build)


def re_in(work: Workload) -> Contender:
    """Regular expressions and ``in``, pattern after pattern; no boundary check at all."""

    def build(nodes: Nodes) -> Callable[[str], list[bool]]:
        patterns: list[list[str]] = [[] for _ in nodes]
        for index, pattern in _patterns(nodes):
            patterns[index].append(pattern)

        def search(form: str) -> list[bool]:
            return [any(pattern in form for pattern in forms) for forms in patterns]

        return search

    return _plain(work, build)


def _plain(work: Workload, build: Callable[[Nodes], Callable[[str], list[bool]]]) -> Contender:
    searches = [build(nodes) for nodes in work.problems]
    decoded = [text.decode() for text in work.texts]

    def run() -> Rows:
        return [
            searches[index // work.group](normalise(text)) for index, text in enumerate(decoded)
        ]

    return Contender(run, run, work)


def _patterns(nodes: Nodes) -> list[tuple[int, str]]:
    return [(index, normalise(form)) for index, forms in enumerate(nodes) for form in forms]


def _stands_alone(form: str, start: int, end: int) -> bool:
    return not form[max(start - 1, 0) : start].isdigit() and not form[end : end + 1].isdigit()


def against_memcpy(context: Context, sizes: Sizes, corpus: Corpus, found: SuiteResult) -> None:
    """Time normalise, both, one text at a time, and spans, in turn with memcpy."""
    work = corpus.planted(10_000)
    decoded = [text.decode() for text in work.texts]
    pairs = list(zip(work.matchers, work.texts, strict=True))
    both = f"{BOTH}, bytes"
    require(both, core(work).rows(), work.expected)
    require("match", [matcher.match(text) for matcher, text in pairs], work.expected)
    plain = partial(match_batch, work.matchers, decoded, 1, statements=False, counts=False)
    require("str", flags(plain()), work.expected)
    spans = [matcher.spans(text) for matcher, text in zip(work.matchers, decoded, strict=True)]
    require("spans", [[span is not None for span in row] for row in spans], work.expected)
    size = work.size
    ways: dict[str, Callable[[], object]] = {
        "normalise": lambda: [normalize(text) for text in work.texts],
        both: core(work).run,
        f"{BOTH}, str": plain,
        f"{BOTH}, one call a text": lambda: [matcher.match(text) for matcher, text in pairs],
        "spans": lambda: [matcher.spans(text) for matcher, text in pairs],
    }
    source = np.ones(sizes.memcpy_bytes, dtype=np.uint8)
    target = np.zeros(sizes.memcpy_bytes, dtype=np.uint8)
    ways["memcpy"] = lambda: np.copyto(target, source)
    # Fast ones, all of them: more rounds than elsewhere are cheap here.
    best = fastest(ways, 3 * context.rounds, time.process_time)
    floor = sizes.memcpy_bytes / best.pop("memcpy")
    cost = {name: seconds / size for name, seconds in best.items()}
    of = {"text bytes": 10_000}
    for name, seconds in cost.items():
        found.add(name, 1e-6 / seconds, "MB/s", of)
    scan = 1e9 * (cost[both] - cost["normalise"])
    note = "" if scan > 0 else "no more than what normalise alone spends on its calls"
    found.add("scan, by difference", scan, "ns a byte", of, note)
    found.add("memcpy", floor / 1e6, "MB/s", of)
    for name in ("normalise", both, "spans"):
        found.add(f"memcpy's bandwidth over {name}", floor * cost[name], "x", of)


def by_length(context: Context, sizes: Sizes, corpus: Corpus, found: SuiteResult) -> None:
    """Cut the same bytes into texts of each length; the target asks for 1 KB to 1 MB."""
    works = {length: corpus.lengths(length) for length in sizes.lengths}
    cost = _core_costs(context, works)
    for length, seconds in cost.items():
        found.add(BOTH, 1e-6 / seconds, "MB/s", {"length in bytes": length})
    # The peer, once: what it costs a byte hardly depends on the length.
    peers = {length: work for length, work in works.items() if length <= 100_000}
    _plot(context, sizes, found, "length of the text", "bytes of a text", cost, peers)
    _spread(found, "cost_by_length", "1 KB to 1 MB", "bytes", cost, range(1_000, 1_000_001))


def by_nodes(context: Context, sizes: Sizes, corpus: Corpus, found: SuiteResult) -> None:
    """Look for more and more nodes in the same texts of 10 KB."""
    pieces = corpus.cut(10_000)
    works = {
        nodes: plant(pieces, corpus.seed, count=nodes, group=len(pieces)) for nodes in sizes.nodes
    }
    cost = _core_costs(context, works)
    for nodes, seconds in cost.items():
        matcher = works[nodes].matchers[0]
        of = {"nodes": nodes, "patterns": matcher.num_patterns}
        found.add(BOTH, 1e-6 / seconds, "MB/s", of)
        found.add("matcher", matcher.nbytes, "bytes", of)
    x_label = "nodes of a problem"
    _plot(context, sizes, found, "number of nodes", x_label, cost, works)
    _spread(found, "cost_by_nodes", "5 to 500 nodes", "nodes", cost, range(5, 501))


def by_kind(context: Context, sizes: Sizes, corpus: Corpus, found: SuiteResult) -> None:
    """Match texts of other kinds: short ones, long ones as they are, and generated ones."""
    count = max(1, sizes.peer_bytes // 10_000)
    works = {
        "10 KB texts": corpus.planted(10_000).first(sizes.peer_bytes),
        "long texts as they are": plant(corpus.whole, corpus.seed).first(sizes.peer_bytes),
    }
    if corpus.data is not None:
        short = texts.real_rollouts(corpus.data, SHORT)
        works["short solutions, GSM8K"] = plant(short, corpus.seed).first(sizes.peer_bytes)
        works["generated, 10 KB"] = plant(texts.rollouts(count, 10_000, corpus.seed), corpus.seed)
    for name, cost in _core_costs(context, works).items():
        of: Parameters = {"text": name, "texts": len(works[name].texts)}
        found.add(BOTH, 1e-6 / cost, "MB/s", of)


def hostile(context: Context, sizes: Sizes, corpus: Corpus, found: SuiteResult) -> None:
    """Match text that was made to be slow, as a server does it, against ordinary text."""
    size = sizes.hostile_bytes
    ordinary = corpus.planted(10_000).first(size)
    nodes = ordinary.problems[0]
    pieces_of_each_other = [["1" * length] for length in range(1, 65)]
    letters = [["a" * length] for length in range(1, 65)]
    made = {
        r"deep \frac nesting": (r"\frac{" * (size // 6), nodes),
        "digits alone": ("1234567890" * (size // 10), nodes),
        "open brackets alone": ("(" * size, nodes),
        "products of letters": ("a*b*" * (size // 4), nodes),
        "patterns that are pieces of each other": ("1" * size, pieces_of_each_other),
        "the same of letters": ("a" * size, letters),
        "equations without end": ("1=1=" * (size // 4), nodes),
        "fractions that are equal": (r"\frac{1}{3}=" * (size // 12), nodes),
        "powers without end": ("2^30*" * (size // 5), nodes),
        "the same, on their own": ("1 is 11, " * (size // 9), pieces_of_each_other),
    }
    works = {"ordinary text": ordinary}
    for name, (text, wanted) in made.items():
        # Of the pieces only those that stand alone in the text are reached.
        reached = ["1", "11"] if name == "the same, on their own" else []
        works[name] = Workload(
            [text.encode()], [wanted], 1, [[forms[0] in reached for forms in wanted]]
        )
    cost = _core_costs(context, works, whole=True)
    base = cost.pop("ordinary text")
    nested = max(
        cost[name] for name in ("patterns that are pieces of each other", "the same of letters")
    )
    found.check(
        "nested_patterns",
        nested / base,
        f"64 nodes `1`, `11`, … on ones alone, or of letters: {nested * 1e9:.1f} ns a byte;"
        f" ordinary text with 7 nodes {base * 1e9:.1f}; statements and guard on",
    )
    worst = max((name for name in cost if made[name][1] is nodes), key=cost.__getitem__)
    found.check("hostile_text", cost[worst] / base, f"the worst is {worst}, {size:,} bytes of it")
    for name, spent in cost.items():
        found.add(
            "cost per byte against ordinary text",
            spent / base,
            "x",
            {"hostile text": name, "text bytes": size},
        )


def _core_costs(
    context: Context, works: Mapping[Key, Workload], whole: bool = False
) -> dict[Key, float]:
    """Return the CPU seconds that the core takes for a byte of each workload."""
    cost = costs(
        {f"the core ({key})": core(work, whole=whole) for key, work in works.items()},
        2 * context.rounds,
    )
    return dict(zip(works, cost.values(), strict=True))


def _plot(
    context: Context,
    sizes: Sizes,
    found: SuiteResult,
    over: str,
    x_label: str,
    cost: Mapping[int, float],
    peers: Mapping[int, Workload],
) -> None:
    """Plot the core's rates, and those of a peer on the first bytes of its workloads."""
    name = "re + pyahocorasick"
    contenders = {
        f"{name} ({key})": re_pyahocorasick(work.first(sizes.twin_bytes))
        for key, work in peers.items()
    }
    slow = costs(contenders, min(3, context.rounds)).values()
    lines: dict[str, list[tuple[float, float]]] = {
        "consensuspr core": [(key, 1e-6 / seconds) for key, seconds in cost.items()],
        name: [(key, 1e-6 / seconds) for key, seconds in zip(peers, slow, strict=True)],
    }
    found.plot(f"Normalise + match by {over}", x_label, "MB/s", lines)


def _spread(
    found: SuiteResult, target: str, over: str, unit: str, cost: Mapping[int, float], among: range
) -> None:
    """Check the dearest byte against the cheapest one, of the workloads ``among``."""
    keys = [key for key in cost if key in among]
    if len(keys) < 2:
        return
    dearest, cheapest = max(keys, key=cost.__getitem__), min(keys, key=cost.__getitem__)
    ratio = cost[dearest] / cost[cheapest]
    found.add("dearest byte against cheapest", ratio, "x", {"over": over})
    found.check(target, ratio, f"dearest at {dearest} {unit}, cheapest at {cheapest} {unit}")


def by_threads(context: Context, sizes: Sizes, corpus: Corpus, found: SuiteResult) -> None:
    """Time a batch of a training step's size by number of threads."""
    work = corpus.planted(10_000).repeated(sizes.thread_bytes)
    cores = len(os.sched_getaffinity(0))
    contenders = {f"{threads} threads": core(work, threads) for threads in sorted({1, 2, cores})}
    wall = costs(contenders, 3 * context.rounds, time.perf_counter)
    for name, seconds in wall.items():
        of = {"threads": int(name.split()[0]), "batch MB": round(work.size / 1e6, 1)}
        found.add("batch, wall time", 1e-6 / seconds, "MB/s", of)
    if cores < 2:
        found.notes.append("This machine has one core: what a second adds was not measured.")
        return
    one, two = "1 threads", "2 threads"
    gain = wall[one] / wall[two]
    spent = costs({name: contenders[name] for name in (one, two)}, context.rounds)
    more = spent[two] / spent[one]
    found.add("two threads against one, wall time", gain, "x")
    found.add(
        "two threads against one, processor time",
        more,
        "x",
        note="1x: the second thread costs nothing; short of twice the speed, the second core "
        "was not free",
    )
    found.check(
        "second_core", gain, f"two threads spend {more:.2f} times the processor time of one"
    )
