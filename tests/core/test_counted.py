"""The guard counts everything that reaches a node, in any part of a text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from operator import add, mul, sub, truediv

from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.quality.wrappers import LINES, TEXTS, Rewrite
from tests.core.conftest import Engine

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


# The same examples in each run.
@settings(derandomize=True, database=None, max_examples=400)
@given(st.lists(EQUATIONS, min_size=1, max_size=12, unique=True), some_of(LINES), some_of(TEXTS))
@example(["24*7=168"], ["print('@')"], [])
@example(["24*7=168"], ["digits glued by {}"], [])
@example(["24*7=168", "24+7=31"], ["| @ |"], ["```python\nx = [\n@\n]\n```"])
def test_whatever_reaches_a_node_is_counted(
    engine: Engine, equations: list[str], lines: list[str], texts: list[str]
) -> None:
    text = "\n".join(rewritten(one, LINES, lines) for one in equations)
    text = rewritten(text, TEXTS, texts)
    found = engine.match_batch([engine.Matcher([[one] for one in equations])], [text])
    reached = [one for one, hit in zip(equations, found.matched(0), strict=True) if hit]
    assert len({one.rpartition("=")[2] for one in reached}) <= found.num_values[0], text
    assert len({*re.findall(r"\d+", " ".join(reached))}) <= found.num_numbers[0], text
