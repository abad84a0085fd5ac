"""The core against what a Python reward function does, on the same bytes.

The peers are what one would write: a normaliser of regular expressions, and then
``pyahocorasick``, ``ahocorasick_rs`` or ``in``.  The last is our own pure-Python twin, which
keeps every rule of the normal form.
"""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ahocorasick

from benchmarks.harness.measure import Context, interleaved, require
from benchmarks.harness.results import Check, Figure, SuiteResult
from benchmarks.suites.core.sizes import Sizes
from benchmarks.suites.core.workloads import Corpus, Nodes, Workload
from consensuspr.core import BatchResult, match_batch
from consensuspr.core.pure import matcher as pure

Rows = list[list[bool]]
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


@dataclass(frozen=True)
class Contender:
    """One way to match a workload: ``run`` is what is timed, ``rows`` reads its answer."""

    run: Callable[[], object]
    rows: Callable[[], Rows]
    size: int


def measure(context: Context, sizes: Sizes, corpus: Corpus, found: SuiteResult) -> None:
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
    for name, contender in contenders.items():
        require(name, contender.rows(), work.expected[: len(contender.rows())])
    timings = interleaved(
        {name: contender.run for name, contender in contenders.items()},
        context.rounds,
        time.process_time,
    )
    cost = {name: timings[name].best / contenders[name].size for name in contenders}
    ours = cost.pop("consensuspr core")
    found.figures.append(_rate("consensuspr core", ours))
    for name, theirs in cost.items():
        found.figures.append(_rate(name, theirs))
    for name, theirs in cost.items():
        found.figures.append(
            Figure(
                name=f"core against {name}",
                value=theirs / ours,
                unit="x",
                parameters={"text bytes": 10_000, "nodes": len(work.problems[0])},
                note=_part_of(contenders[name], work),
            )
        )
    found.checks.append(
        Check(
            target="core_vs_re_pyahocorasick",
            value=cost["re + pyahocorasick"] / ours,
            note=f"core {1e-6 / ours:,.0f} MB/s, peer "
            f"{1e-6 / cost['re + pyahocorasick']:,.1f} MB/s, on the same bytes in turn",
        )
    )


def _part_of(contender: Contender, work: Workload) -> str:
    """Say where a contender got fewer bytes than the others."""
    if contender.size == work.size:
        return ""
    return f"a byte each; measured on the first {contender.size / work.size:.0%} of the bytes"


def core(work: Workload, threads: int = 1) -> Contender:
    """The core of this installation."""
    matchers = work.matchers

    def run() -> BatchResult:
        return match_batch(matchers, work.texts, threads=threads)

    return Contender(run, lambda: flags(run()), work.size)


def flags(result: BatchResult) -> Rows:
    """Return the flags of each text of a batch."""
    return [result.matched(index).tolist() for index in range(len(result))]


def twin(work: Workload) -> Contender:
    """The pure-Python twin of the core."""
    made = [pure.Matcher(nodes) for nodes in work.problems]
    matchers = [made[index // work.group] for index in range(len(work.texts))]

    def run() -> BatchResult:
        return pure.match_batch(matchers, work.texts, threads=1)

    return Contender(run, lambda: flags(run()), work.size)


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

    return Contender(run, run, work.size)


def _patterns(nodes: Nodes) -> list[tuple[int, str]]:
    return [(index, normalise(form)) for index, forms in enumerate(nodes) for form in forms]


def _stands_alone(form: str, start: int, end: int) -> bool:
    return not form[max(start - 1, 0) : start].isdigit() and not form[end : end + 1].isdigit()


def _rate(name: str, cost: float) -> Figure:
    return Figure(
        name="normalise + match", value=1e-6 / cost, unit="MB/s", parameters={"contender": name}
    )
