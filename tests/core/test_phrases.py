"""How many different phrases a text has, in both engines."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.core.pure import phrases as pure
from tests.core.conftest import alike

ENGINES = ["native", "python"]


@pytest.fixture(scope="module", params=ENGINES)
def count_phrases(request: pytest.FixtureRequest) -> Any:
    """Each engine in turn."""
    if request.param == "python":
        return pure.count_phrases
    return pytest.importorskip("consensuspr.core.native").count_phrases


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("", 0),
        ("one two", 0),
        ("one two three", 1),
        ("one two three four", 2),
        ("One TWO three. one two THREE", 3),  # and two that begin within the first
        ("3*4=12\n3*5=15\n" * 100, 0),
        ("\\textcolor{red}{3}*4=12\n" * 100, 2),
        ("w " * 1000, 1),
        ("so 3 apples * 4 = 12, so 5 apples * 6 = 30, so 7 apples", 2),
        ("三加四等于七", 4),  # every character is a word
        ("été", 1),
        (b"\x80\x80 one two three", 1),
        ("\ud800 one two", 1),
    ],
)
def test_phrases_of_a_text(count_phrases: Any, text: str, phrases: int) -> None:
    assert count_phrases(text, 10**9) == phrases


def test_counting_stops_at_the_limit(count_phrases: Any) -> None:
    text = " ".join(f"{chr(97 + at % 26)}{chr(97 + at // 26)}" for at in range(600))
    assert count_phrases(text, 10**9) == 598
    assert [count_phrases(text, limit) for limit in (0, 1, 300, 598)] == [0, 1, 300, 598]


WORDS = ["a", "B", "cat", "é", "日本", "\ud800", " ", "1", ",", "\n", "\x00", "ſ"]


@alike()
@given(st.lists(st.sampled_from(WORDS), max_size=40).map("".join) | st.binary(), st.integers(0, 20))
def test_the_engines_agree(text: str | bytes, limit: int) -> None:
    native = pytest.importorskip("consensuspr.core.native")
    assert native.count_phrases(text, limit) == pure.count_phrases(text, limit)
