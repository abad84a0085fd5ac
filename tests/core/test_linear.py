"""Hostile text costs no more than any other: time linear in its length, memory bounded.

Time is judged against ordinary text of the same length, measured in the same moment: the
bound is wide, and what is quadratic exceeds it by far.
"""

from __future__ import annotations

import gc
import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# What is repeated; most of it never closes what it opens.
UNITS = [
    "\\frac", "\\frac{", "\\frac{1}{", "\\frac{\\frac{1}{2}}{", "(", "((", "[", "{", "|", "| ",
    "$", "$ ", "\\(", "\\[", "1", "1,", "1,111,", "1{,}", "0.", ".", "...", "1. ", "½", "²",
    "\u0301", "a\u0301", "é", "日", "\x00", "\u200b", " ", "\n", " \n", "*", "**", "* ", "\\",
    "\\\\", "\\a", "is equal to ", "5 is equal to ", "divided by 5 ", "5 cups ", "5 cups * ",
    "5/cups", "5 km/h ", "5 (cups) ", "5 (cups", "5 cups divided by 2 ", "x ", "5 x ", "5 x $",
    "5 x (", "(mod ", "mod ", "\\pmod{", "\\text{", "\\sqrt{", "\\sqrt[", "^{", "_{", "x^{",
    "\\begin{array}{", "\\hspace{", "\\binom{", "\\left(", "(a)", "(5)(", ")", "}", "-", "- ",
    "--", "a-b", "5-ab", "=", "= ", "=>", "<", "!", "a'", '"', "`", "#", "_", "_1", "^1",
    "a", "ab ", "a b ", "plus 5 ", "5 times ", "5 a b", "\\mathbf{5 cups", "5!", "5! ",
    "5g=", "5g+5g=5g ", "=5 m", "1g+", "5 m * ", "5!=", "s'm ", "5 cups (2 ab) ",
    "n!x", "|a|x", "(ab)a+b", "1!", "1*", "1*1!=", "n!*1!=", "2 \\frac{1}{", "2 \\frac{x}",
    "0.\\overline{1", "0.\\bar", "^2 (3", "^2 (3) ", "\n\n\\[", "\n\n $$", "\n\n       ",
    "\\boxed{", "\\boxed{1}", "\\fbox {",
    "#### 1", "####", "Answer: ", "A:\n", "答案是", "answers are ",
]  # fmt: skip
# Ordinary text of the same length is the measure.
PLAIN = "Each box holds 12 pens, so $12 \\times 4 = 48$ pens cost \\frac{48}{3} = 16 dollars.\n"
# Far above what the dearest unit takes; anything quadratic takes hundreds of times as long.
LARGEST_RATIO = 40.0


def _filled(unit: str, size: int) -> bytes:
    data = unit.encode()
    return (data * (size // len(data) + 1))[:size]


def _seconds(work: Callable[[bytes], object], data: bytes) -> float:
    start = time.perf_counter()
    work(data)
    return time.perf_counter() - start


def _slow(work: Callable[[bytes], object], texts: dict[str, bytes], size: int) -> list[str]:
    """Return the names of the texts that take far longer than ordinary text of ``size`` bytes."""
    plain = _filled(PLAIN, size)
    usual = min(_seconds(work, plain) for _ in range(3))
    # The machine may be busy with something else for a moment: what is slow stays slow.
    for _ in range(4):
        texts = {
            name: data
            for name, data in texts.items()
            if _seconds(work, data) > LARGEST_RATIO * usual
        }
    return list(texts)


@pytest.fixture(scope="module")
def size(engine: Any, full: bool) -> int:
    return 1 << 20 if engine.name == "native" else 1 << (14 if full else 12)


def test_hostile_text_is_matched_in_linear_time(engine: Any, size: int) -> None:
    # Patterns that begin everywhere in such text and are refused everywhere.
    matcher = engine.Matcher(
        [["1"], ["x=5", "(" * 20, "5*2=10"], ["a+b"], ["5!"], ["frac"], ["\\boxed{45}"]]
    )
    texts = {unit: _filled(unit, size) for unit in UNITS[:: 1 if engine.name == "native" else 3]}
    assert _slow(matcher.match, texts, size) == []


def test_hostile_text_is_shown_in_linear_time(engine: Any, size: int) -> None:
    matcher = engine.Matcher([["x=5"], ["1"], ["\\boxed{45}"]])
    texts = {unit: _filled(unit, size // 4) for unit in UNITS[::3]}
    assert _slow(matcher.hits, texts, size // 4) == []


# A unit, and what the text of k of them is as a pattern of nodes that are pieces of one another:
# refused on the right, on the left, by a factor before it; free, but found already.
NESTED: dict[str, Callable[[int], str]] = {
    "a": lambda k: "a" * k,
    "2x,": lambda k: "x" + ",2x" * k,
    "(a+b)x,": lambda k: "x" + ",(a+b)x" * k,
    "|x": lambda k: "x" + "|x" * k,
    ")x": lambda k: "x" + ")x" * k,
    "n!x,": lambda k: "x" + ",n!x" * k,
    "=1": lambda k: "=1" * k,
}


def test_patterns_inside_patterns_are_searched_in_linear_time(engine: Any, size: int) -> None:
    nodes = 1000 if engine.name == "native" else 100
    for unit, pattern in NESTED.items():
        # The same patterns again: those of one text are judged together.
        nested = [[pattern(k)] for k in range(1, nodes // len(unit))] * 2
        matcher = engine.Matcher([*nested, ["never=0"]])
        texts = {unit: _filled(unit, size // 4)}
        assert _slow(matcher.match, texts, size // 4) == []
        assert _slow(matcher.hits, texts, size // 4) == []


def test_a_hostile_beginning_does_not_slow_the_rest(engine: Any, size: int) -> None:
    texts = {
        f"{prefix[:8]} {unit}": prefix.encode() + _filled(unit, size // 4)
        for prefix in ("5 cups cups ", "(" * 40, "\\frac{" * 40, "{" * 40, "5 (", "|", "x_{")
        for unit in ("a) ", "1} ", "5 cups * ", "* 3 ")
    }
    assert _slow(engine.normalize, texts, size // 4) == []


def test_the_output_of_hostile_text_is_bounded(engine: Any, size: int) -> None:
    for unit in [*UNITS, "½½", "1½", "\\frac12", "\\binom12"]:
        data = (unit.encode() * (size // 4 // len(unit.encode()) + 1))[: size // 4]
        assert 2 * len(engine.normalize(data).encode()) <= 3 * len(data) + 16, unit


def test_groups_beyond_the_limit_are_emitted_as_they_stand(engine: Any) -> None:
    # 32 open groups are remembered; brackets around more than that stay as they are.
    for depth in (31, 32):
        assert engine.normalize("(" * depth + "5" + ")" * depth) == "5"
    assert engine.normalize("(" * 40 + "5" + ")" * 40) != "5"
    text = "\\frac{" * 5000 + "7"
    assert engine.normalize(text).endswith("7")


def test_a_rewrite_reaches_back_a_bounded_way(engine: Any) -> None:
    # 96 bytes: brackets around a longer token stay.
    assert engine.normalize("=(" + "7" * 90 + ")") == "=" + "7" * 90
    assert engine.normalize("=(" + "7" * 120 + ")") == "=(" + "7" * 120 + ")"


def test_matching_leaves_no_memory_behind(engine: Any) -> None:
    matcher = engine.Matcher([["x=5"], ["12*4=48"]])
    text = "x = 5 and \\frac{1}{2} then 12 × 4 = 48. " * (5 if engine.name == "native" else 1)
    matcher.hits(text)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(100):
            matcher.match(text)
            matcher.hits(text)
            engine.normalize(text)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 32 * 1024
    finally:
        tracemalloc.stop()


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists() or "LD_PRELOAD" in os.environ,
    reason="resident memory cannot be read here, or an allocator is preloaded that keeps it",
)
def test_matchers_free_their_memory(engines: Any) -> None:
    engine, _ = engines
    expressions = [f"{first}*{second}={first * second}" for first in range(40) for second in (7, 9)]
    for _ in range(3):
        assert engine.Matcher([expressions]).num_patterns == 80
    before = _resident_bytes()
    for _ in range(100):
        engine.Matcher([expressions])
    assert _resident_bytes() - before < 4 << 20


def test_a_matcher_is_small(engine: Any) -> None:
    # 40 patterns are what a problem has: its automaton is meant for a processor's cache.
    matcher = engine.Matcher([[f"{number}*12={number * 12}" for number in range(40)]])
    assert matcher.num_patterns == 40
    assert 1000 < matcher.nbytes < 100_000
