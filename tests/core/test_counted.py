"""Whatever reaches a node is counted by the guard, whatever part of a text it stands in."""

from __future__ import annotations

from fractions import Fraction
from operator import add, mul, sub, truediv
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.quality.wrappers import LINES, TEXTS
from tests.core.conftest import Engine

OPERATIONS = {"+": add, "-": sub, "*": mul, "/": truediv}


@st.composite
def equations(draw: Any) -> tuple[str, Fraction, frozenset[Fraction]]:
    """Draw a true equation with its value and its numbers."""
    sign = draw(st.sampled_from("+-*/"))
    left, right = Fraction(draw(st.integers(2, 999))), Fraction(draw(st.integers(2, 99)))
    if sign == "/":
        left *= right
    if sign == "-":
        left += right
    value = OPERATIONS[sign](left, right)
    return f"{left}{sign}{right}={value}", value, frozenset((left, right, value))


LISTS = st.lists(equations(), min_size=1, max_size=12, unique=True)
LINE_NAMES, TEXT_NAMES = (st.lists(st.sampled_from([*of]), max_size=2) for of in (LINES, TEXTS))


@settings(derandomize=True, database=None, max_examples=400)
@given(LISTS, LINE_NAMES, TEXT_NAMES)
@example([("24*7=168", Fraction(168), frozenset({Fraction(24)}))], ["print('@')"], [])
def test_whatever_reaches_a_node_is_counted(
    engine: Engine,
    listed: list[tuple[str, Fraction, frozenset[Fraction]]],
    lines: list[str],
    texts: list[str],
) -> None:
    text = "\n".join(rewritten(equation, LINES, lines) for equation, _, _ in listed)
    text = rewritten(text, TEXTS, texts)
    found = engine.match_batch([engine.Matcher([[one[0]] for one in listed])], [text])
    reached = [one for one, hit in zip(listed, found.matched(0), strict=True) if hit]
    assert len({value for _, value, _ in reached}) <= found.num_values[0], text
    assert len(frozenset().union(*(numbers for *_, numbers in reached))) <= found.num_numbers[0]


def rewritten(text: str, rewrites: Any, names: list[str]) -> str:
    """Return a text inside wrappers, the first one the innermost."""
    for name in names:
        text = rewrites[name](text)
    return text
