"""Where a hit is shown: code points of the original text, half-open, the first hit of a node."""

from __future__ import annotations

from typing import Any

import pytest

from consensuspr.core.patterns import Channel

# expression, text with the hit between ⟦ and ⟧
SPANS = [
    ("x=5", "So $⟦x = 5⟧$."),
    ("x=5", "⟦x = 5⟧"),
    ("x=5", "**⟦x** = **5⟧**"),
    ("x=5", "\\boxed{⟦x = 5⟧}"),
    ("x=5", "⟦(x) = (5)⟧ now"),
    ("x=5", "a\r\n⟦x = 5⟧\r\n"),
    ("x=5", "⟦x\u200b = 5⟧\u200b now"),
    ("x=5", "⟦x is equal to 5⟧ now"),
    ("x=5", "⟦ｘ＝５⟧．"),
    ("x=5", "first ⟦x = 5⟧, again x = 5"),
    ("x=5", "x = 50, x = 5.5, 2x = 5, ⟦x = 5⟧"),
    ("3/4", "is ⟦\\frac{3}{4}⟧ of"),
    ("3/4", "is ⟦\\frac34⟧ of"),
    ("1/2", "⟦½⟧ of"),
    ("2 1/2", "it is ⟦2½⟧ now"),
    ("(a+b)/2=7", "⟦\\frac{a+b}{2} = 7⟧."),
    ("1200", "about ⟦1{,}200⟧ people"),
    ("x=3.14", "⟦x = 3.140⟧ yes"),
    ("5*2=10", "so ⟦5 cups * $2 = $10⟧, yes"),
    ("12/4=3", "⟦12 divided by 4 equals 3⟧ now"),
    ("x^2=4", "so ⟦x² = 4⟧."),
    ("x^2=4", "so ⟦x^{2} = 4⟧."),
    ("a_{10}=3", "let ⟦a_{10} = 3⟧"),
    ("\\sqrt{2}", "is ⟦√2⟧ now"),
    ("2*3=6", "⟦(2)(3) = 6⟧ now"),
    ("\\binom{5}{2}=10", "so ⟦C(5, 2) = 10⟧."),
    ("x=-3/4", "⟦x=\\frac{-3}{4}⟧."),
    ("n is even", "hence $⟦n$ is Even⟧."),
    # what stands before the hit: astral characters, combining marks, bytes of several widths
    ("x=5", "😀😀 ⟦x = 5⟧"),
    ("x=5", "e\u0301 e\u0301: ⟦x = 5⟧!"),
    ("x=5", "日本⟦x=5⟧です"),
    ("𝑥=5", "𝐴 ∪ 𝐵, ⟦𝑥 = 5⟧"),
    ("x=5", "\x00\x00⟦x = 5⟧"),
    ("x=5", "\ud800 ⟦x = 5⟧"),
    ("x=5", "a\u0300\u0301\u0302; ⟦x = 5⟧"),
]


@pytest.mark.parametrize(("expression", "marked"), SPANS)
def test_span(engine: Any, expression: str, marked: str) -> None:
    text = marked.replace("⟦", "").replace("⟧", "")
    expected = (marked.index("⟦"), marked.index("⟧") - 1)
    matcher = engine.Matcher([[expression]], statements=False)
    assert matcher.spans(text) == [expected]
    assert matcher.hits(text) == [(*expected, expression, Channel.PATTERN)]


def test_spans_of_bytes_count_characters(engine: Any) -> None:
    matcher = engine.Matcher([["x=5"]])
    assert matcher.spans("日本 x = 5".encode()) == [(3, 8)]
    # A byte that is no character counts as one.
    assert matcher.spans(b"\xff\xff x = 5") == [(3, 8)]


def test_a_hit_names_the_expression_that_was_found(engine: Any) -> None:
    matcher = engine.Matcher([["x=5", "5=x"], ["y = 2", "2=y"]])
    assert matcher.hits("2 = y and 5 = x") == [
        (10, 15, "5=x", Channel.PATTERN),
        (0, 5, "2=y", Channel.PATTERN),
    ]


def test_the_hit_that_ends_first_counts_and_the_longest_of_those(engine: Any) -> None:
    matcher = engine.Matcher([["x=5", "4+x=5", "y=7"]])
    assert matcher.hits("say 4+x=5, y=7") == [(4, 9, "4+x=5", Channel.PATTERN)]
    assert matcher.hits("y=7, x=5") == [(0, 3, "y=7", Channel.PATTERN)]


def test_what_was_not_found_has_no_span(engine: Any) -> None:
    matcher = engine.Matcher([["x=5"], ["y=5"], []])
    assert matcher.spans("x = 5") == [(0, 5), None, None]
    assert matcher.hits("") == [None, None, None]
