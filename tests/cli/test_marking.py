"""What is marked is what was hit, however hits overlap and whatever the model wrote."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.cli.explain import (
    CONTEXT_CHARS,
    WHOLE_CHARS,
    Mark,
    Marker,
    choose_marker,
    mark_response,
    node_style,
)

BRACKETS = Marker(brackets=("⟦", "⟧"))


@pytest.mark.parametrize(
    ("response", "marks", "shown"),
    [
        ("no hit", [], "no hit"),
        ("so 5*2=10.", [Mark(3, 9, 1)], "so ⟦₁5*2=10₁⟧."),
        ("a b", [Mark(0, 1, 1), Mark(2, 3, 2)], "⟦₁a₁⟧ ⟦₂b₂⟧"),
        ("ab", [Mark(0, 1, 1), Mark(1, 2, 12)], "⟦₁a₁⟧⟦₁₂b₁₂⟧"),
        ("5*2=10", [Mark(0, 6, 1), Mark(4, 6, 2)], "⟦₁5*2=⟦₂10₂⟧₁⟧"),
        ("5*2=10", [Mark(0, 6, 2), Mark(0, 6, 1)], "⟦₁⟦₂5*2=10₂⟧₁⟧"),
        ("abcdef", [Mark(0, 4, 1), Mark(2, 6, 2)], "⟦₁ab⟦₂cd₁⟧ef₂⟧"),
        ("\x1b[2J 7", [Mark(5, 6, 3)], "\\x1b[2J ⟦₃7₃⟧"),
        ("½ is 0.5", [Mark(0, 1, 1)], "⟦₁½₁⟧ is 0.5"),
        ("[bold]x[/bold]", [], "[bold]x[/bold]"),  # no markup of rich's is obeyed
    ],
)
def test_marks_without_colour(response: str, marks: list[Mark], shown: str) -> None:
    assert mark_response(response, marks, BRACKETS).plain == shown


def test_marks_with_colour_carry_the_style_and_the_number() -> None:
    text = mark_response("so 5*2=10.", [Mark(3, 9, 2)], choose_marker(color=True, encoding="utf-8"))
    assert text.plain == "so 5*2=10₂."
    styles = {text.plain[span.start : span.end]: span.style for span in text.spans}
    assert styles["5*2=10"] == node_style(2)


def test_an_ascii_terminal_gets_ascii_marks() -> None:
    marker = choose_marker(color=False, encoding="ANSI_X3.4-1968")
    assert mark_response("x 7", [Mark(2, 3, 1)], marker).plain == "x [[_17_1]]"


def test_neighbouring_nodes_differ_in_style() -> None:
    assert len({node_style(number) for number in range(1, 13)}) == 12


def test_a_long_response_shows_the_neighbourhood_of_hits() -> None:
    response = "a" * 10_000 + "HIT" + "b" * 10_000
    shown = mark_response(response, [Mark(10_000, 10_003, 1)], BRACKETS).plain
    assert "a" * CONTEXT_CHARS + "⟦₁HIT₁⟧" + "b" * CONTEXT_CHARS in shown
    assert f"⋯ {10_000 - 2 * CONTEXT_CHARS:,} characters not shown ⋯" in shown
    assert len(shown) < 1500


def test_full_shows_all_of_a_long_response() -> None:
    response = "a" * (WHOLE_CHARS + 1)
    assert mark_response(response, [], BRACKETS, full=True).plain == response


@given(st.data())
def test_marks_change_nothing_but_add_themselves(data: st.DataObject) -> None:
    response = data.draw(st.text(alphabet="abc \n", min_size=1, max_size=60))
    cuts = st.tuples(st.integers(0, len(response)), st.integers(0, len(response)))
    pairs = data.draw(st.lists(cuts.filter(lambda c: c[0] != c[1]), max_size=8))
    marks = [Mark(min(p), max(p), number) for number, p in enumerate(pairs, 1)]
    shown = mark_response(response, marks, BRACKETS).plain
    assert re.sub("[⟦⟧₀-₉]", "", shown) == response
    for mark in marks:  # what stands between a node's two marks is its hit
        label = str(mark.number).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
        inside = shown.split(f"⟦{label}", 1)[1].rsplit(f"{label}⟧", 1)[0]
        assert re.sub("[⟦⟧₀-₉]", "", inside) == response[mark.start : mark.end]
