"""Hostile text costs the statement reader time in proportion to its length, and bounded memory."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from tests.linear import assert_linear


def _repeated(unit: str, head: str = "", tail: str = "") -> Callable[[int], str]:
    return lambda size: head + unit * (size // len(unit) + 1) + tail


def _lines(line: str, head: str = "```python\n") -> Callable[[int], str]:
    """Lines that each have a number of their own."""
    return lambda size: head + "\n".join(line.format(at) for at in range(size // len(line)))


# What is repeated; most of it never ends what it begins.
UNITS = [
    "=", "= ", "=\n", "&=", "≈", "1+", "((", "(1+", "1=1=1", "x=x=", "=1+", "1 = 2 ", "1+1=2 ",
    "1+1=2\n", "9*8=72\n\n", "is 1 ", "1+1 is ", "1 apples ", "1 of ", "half of ", "of 20% ",
    "= about ", "1 (a ", "1 (a) ", "- ", "--", "1. ", "1!", "1<", "5 1/2 ", "2^", "9**9**", "1/0=",
    "½", "²", "...", "1:", "|", "\\frac", "\\frac{", "\\frac{1}{", "\\frac{\\frac{1}{2}}{", "{",
    "\\text{", "\\\\", "\\begin{", "x_{", "^{\\circ", "&", "&\n", "\n", "\r\n", "* ", "**1",
    "1 *2* ",
    "```\n", "```python\n", "```python\nx = 1\n", "~~~\n", "'''\n", 'x = """\n', "x = '\n",
    "x = (\n",
    "x = 1\n", "import a\n", "x = x\\\n", "def f(x):\n", "print(", "x, ", "x = 1;", "a b ", "1_",
    "for x in ", "def a", "1 and ", "7" * 60 + " ", "7" * 60 + "=", ".7",
    "5 a b", "a°", "\\text{a}", "a _ ", "a^\\circ ",
]  # fmt: skip
# What stands before a repeated unit, and what behind it: one of them makes all the rest count.
FRAMED = [
    ("", "!", "="), ("", "<", "="), ("", "--", "="), ("", "1+", "1=2"), ("", "(", "1=2"),
    ("", "a ", "= 1+1"), ("", "1 a ", "is 1"), ("", " ", "= 1"), ("", "\\frac{", "1=1+1"),
    ("1+1=", "-", ""), ("1+1=", "(", ""), ("1+1=", " ", ""), ("1+1=", "1 ", ""),
    ("1+1=2 ", "a ", ""), ("3 ", "a$", ""), ("3 ", "a\t", ""), ("x = ", "1+", ""),
    ("```python\nx = (", "1+", ""),
    ("```python\nx = ", "x(", ""), ("```python\n", "x = ", ""), ("```python\n", "1, ", ""),
    ("```python\nx = ", "[", ""), ("import a\n", 'x = """\n', ""), ("import a\nx = '", "\\", ""),
    ("import a\n", "    ", ""), ("for x", " in ", ""), ("def a", "a", ""), ("x", ", x", ""),
    ("for", " ", ""), ("x", " ", ""), ("print(", "(", ""),
]  # fmt: skip
TEXTS: dict[str, Callable[[int], str]] = {
    **{unit: _repeated(unit) for unit in UNITS},
    **{
        f"{head} {unit} {tail}": _repeated(unit, head=head, tail=tail)
        for head, unit, tail in FRAMED
    },
    "assignments": _lines("name{0} = {0} * 2\n"),
    "assignments in prose": _lines("name{0} = {0} * 2", ""),
    "augmented": _lines("x += {}", "```python\nx = 1\n"),
    "distinct equations": _lines("{0} + {0} = 2, ", ""),
    "a long name": lambda size: "```python\n" + "n" * size + " = 5\ny = " + "n" * size + " * 3",
    "a long name in prose": lambda size: "n" * size + " = 5 * 3",
    "a long number": lambda size: "7" * size + " + 1 = 8",
    "a long number in code": lambda size: "```python\nx = " + "7" * size + " + 1",
    "a long string": lambda size: "```python\nx = '" + "7*8=56 " * (size // 7),
}


def test_time_is_linear(engine: Any, full: bool) -> None:
    matcher = engine.Matcher([["9*8=72", "1+1=2"], ["7*60=420"]])
    # Eight times this is what is read: a megabyte, or what a newcomer's time allows.
    sizes = {"native": (14, 17), "python": (8, 11)}[engine.name]
    every = 1 if full or engine.name == "native" else 3

    def read(text: str) -> None:
        engine.match_batch([matcher], [text], 1)

    for text_of in list(TEXTS.values())[::every]:
        assert_linear(read, text_of, 1 << sizes[full])


@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="an allocator is preloaded")
def test_memory_is_bounded(engine: Any, full: bool) -> None:
    matcher = engine.Matcher([["9*8=72", "1+1=2"], ["7*60=420"]])
    # The normal form, its offsets and a distinct value of each statement are within this, too.
    size, limit = (1 << 20, 48 << 20) if engine.name == "native" else (1 << 10, 4 << 20)
    for name, text_of in list(TEXTS.items())[:: 1 if full else 8]:
        text = text_of(size)
        tracemalloc.start()
        try:
            engine.match_batch([matcher], [text], 1)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < limit, f"{name}: {peak} bytes"


@pytest.mark.parametrize(
    "text",
    [
        "9**9**9 = 1", "9^9^9^9 = 9^9^9^9", "1/0 = 1/0", "0^-1 = 0",
        "```python\nx = 9**9**9**9\n```",
        "```python\nx = 1 / 0\ny = x\n```", "```python\nx = 7 // 0\n```", "0/0 = 0",
        "```python\n__import__('os').abort()\n```", "```python\nraise SystemExit(7 * 8)\n```",
        "9223372036854775807 + 1 = 9223372036854775808", "1/9223372036854775807 * 1/3 = 0",
    ],
)  # fmt: skip
def test_what_cannot_be_computed_states_nothing(engine: Any, text: str) -> None:
    batch = engine.match_batch([engine.Matcher([["2+2=4"]])], [text])
    assert batch.num_values.tolist() == [0]


@pytest.mark.parametrize(("operands", "stated"), [(30, True), (31, False)])
def test_a_side_is_of_sixty_items(engine: Any, operands: int, stated: bool) -> None:
    text = "+".join(["2"] * operands) + f"={2 * operands}"
    matcher = engine.Matcher([["2+2+2=6"]])
    assert engine.match_batch([matcher], [text]).channels(0).tolist() == [2 * stated]


@pytest.mark.parametrize(("depth", "stated"), [(24, True), (25, False)])
def test_brackets_are_twenty_four_deep(engine: Any, depth: int, stated: bool) -> None:
    matcher = engine.Matcher([["2+3=5"]])
    text = "(" * depth + "2+3" + ")" * depth + "= 5"
    assert engine.match_batch([matcher], [text]).channels(0).tolist() == [2 * stated]


def test_a_program_has_a_thousand_names(engine: Any) -> None:
    matcher = engine.Matcher([["1023*3=3069"], ["1024*3=3072"]], code="computed")
    lines = [f"n{number} = {number}" for number in range(1025)]
    uses = ["x = n1023 * 3", "x = n1024 * 3"]
    text = "\n".join(["```python", *lines, *uses])
    assert engine.match_batch([matcher], [text]).channels(0).tolist() == [3, 0]
