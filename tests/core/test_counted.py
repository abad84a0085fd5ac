"""The guard counts everything that reaches a node, in any part of a text."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from operator import add, mul, sub, truediv

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.quality.wrappers import LINES, TEXTS, Rewrite
from tests.core.conftest import Engine, alike

OPERATIONS = {"+": add, "-": sub, "*": mul, "/": truediv}


def equation(sign: str, left: int, right: int) -> str:
    """Return a true equation of whole numbers."""
    first = {"/": left * right, "-": left + right}.get(sign, left)
    return f"{first}{sign}{right}={Fraction(OPERATIONS[sign](Fraction(first), right))}"


EQUATIONS = st.builds(
    equation, st.sampled_from([*OPERATIONS]), st.integers(2, 999), st.integers(2, 99)
)


def some_of(rewrites: Mapping[str, Rewrite]) -> st.SearchStrategy[list[str]]:
    """Return wrappers of which the first is the innermost."""
    return st.lists(st.sampled_from([*rewrites]), max_size=2)


def rewritten(text: str, rewrites: Mapping[str, Rewrite], names: Sequence[str]) -> str:
    """Return a text inside wrappers."""
    for name in names:
        text = rewrites[name](text)
    return text


@alike(2)
@given(st.lists(EQUATIONS, min_size=1, max_size=12, unique=True), some_of(LINES), some_of(TEXTS))
@example(["24*7=168"], ["print('@')"], [])
@example(["24*7=168"], ["digits glued by {}"], [])
@example(["24*7=168", "24+7=31"], ["| @ |"], ["```python\nx = [\n@\n]\n```"])
def test_whatever_reaches_a_node_is_counted(
    engine: Engine, equations: list[str], lines: list[str], texts: list[str]
) -> None:
    text = "\n".join(rewritten(written, LINES, lines) for written in equations)
    text = rewritten(text, TEXTS, texts)
    matcher = engine.Matcher([[written] for written in equations])
    found = engine.match_batch([matcher], [text])
    reached = list(itertools.compress(equations, found.matched(0)))
    assert len({written.rpartition("=")[2] for written in reached}) <= found.num_values[0], text
    assert len({*re.findall(r"\d+", " ".join(reached))}) <= found.num_numbers[0], text


@pytest.mark.parametrize(
    "expression", ["(5,12,130)", "1,2,100", "n=1,2,100", "a_1,100", "1,250+380=1630", "x^2=1,000"]
)
def test_an_expression_reaches_its_node_as_it_stands(engine: Engine, expression: str) -> None:
    assert engine.Matcher([[expression]]).match(expression) == [True]


def test_counting_keeps_the_hits(engine: Engine) -> None:
    text = r"a, 12\!34, x=5 and y=12\!34"
    matcher = engine.Matcher([["x=5", "a, 1234, x=5"], ["y=1234"]])
    assert [text[start:end] for start, end in matcher.spans(text)] == ["x=5", r"y=12\!34"]


def test_without_the_guard_patterns_need_no_counts(engine: Engine) -> None:
    text = "3*4=12 for x"  # the reader takes 12 for a part of 12 x
    matcher = engine.Matcher([["3*4=12"]])
    counted, plain = (
        engine.match_batch([matcher], [text], counts=counts).matched(0).tolist()
        for counts in (True, False)
    )
    assert (counted, plain) == ([False], [True])
