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
    ("x=0.\\overline{2}", "so ⟦x = 0.\\overline{2}⟧."),
    ("6!*2!=1440", "so ⟦6!2! = 1440⟧."),
    ("the area is 48", "Thus ⟦the area is\n\n\\[48⟧\\]"),
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


# answer, text with it between ⟦ and ⟧
BOXED = [
    ("\\boxed{45}", "45, so ⟦\\boxed{45}⟧, \\boxed{45}"),
    ("$\\boxed{45}$.", "日本 ⟦\\fbox {\\text{45}}⟧."),
    ("\\boxed{\\frac12}", "so \\boxed{\\frac{1}{3}} or ⟦\\boxed{\\frac{1}{2}}⟧"),
    ("\\boxed{45}", "**Answers**: $⟦45⟧^\\circ$"),
    ("\\boxed{45}", "##### $⟦45⟧$ apples"),
    ("\\boxed{x+1}", "The answer is:\n ⟦x + 1⟧."),
    ("\\boxed{45}", "<answer>⟦45⟧</answer>"),
    ("\\boxed{45}", "45\n**A:** ⟦45⟧"),
    ("\\boxed{45}", "所以答案是：⟦45⟧。"),
    ("\\boxed{45}", "答案为 $⟦45⟧$"),
]


@pytest.mark.parametrize(("expression", "marked"), BOXED)
def test_span_of_a_boxed_answer(engine: Any, expression: str, marked: str) -> None:
    text = marked.replace("⟦", "").replace("⟧", "")
    expected = (marked.index("⟦"), marked.index("⟧") - 1)
    matcher = engine.Matcher([["never=0"], [expression]])
    assert matcher.hits(text) == [None, (*expected, expression, Channel.PATTERN)]
    assert matcher.match(text) == [False, True]


@pytest.mark.parametrize(
    "text",
    [
        "x = 45",
        "45 \\boxed{45+1}",
        "\\boxed{45",
        "\\boxed{" + "{" * 300 + "45}",
        "### 45",
        "answer 45",
        "the answers are not 45",
        "answer island: 45",
        "Answer: 45/2",
        "Answer: 45.5",
        "Answer: -45",
        "Q and A: 45",
        "Answer: " + "$" * 198 + "450",
        "答案 45",
    ],
)
def test_what_is_no_boxed_answer(engine: Any, text: str) -> None:
    assert engine.Matcher([["\\boxed{45}"]]).match(text) == [False]


def test_a_box_is_a_pattern_without_statements(engine: Any) -> None:
    matcher = engine.Matcher([["\\boxed{45}", "45 apples"], ["45", "\\boxed{45}"]])
    assert matcher.match("x = 45") == [False, True]
    assert matcher.match("so 45 apples") == [True, True]
    (channels,) = engine.match_batch([matcher], ["x = 45"], statements=False).rows()
    assert channels == bytes([Channel.PATTERN, Channel.PATTERN])
    assert matcher.spans("x = 45", statements=False) == [(4, 6), (4, 6)]


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
