"""Which wordings are provably the same statement, and which only have the same value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.extraction.statements import (
    forms_beyond,
    group_same,
    normal_form,
    read_wording,
    say_the_same,
)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("15*12=180", "$15 \\times 12 = 180$", True),
        ("15*12=180", "180 = 12*15", True),
        ("15*12=180", "15 boxes * 12 pens = 180 pens", True),
        ("12*0.5=6", "12/2=6", True),
        ("x<5", "5>x", True),
        ("\\frac{1}{2}x=3", "x/2=3", True),
        # More terms than are permuted when forms are derived.
        ("a+b+c+d+e=10", "10=e+d+c+b+a", True),
        ("2+3+4+5+6+7=27", "7+6+5+4+3+2=27", True),
        ("n is even", "n is even.", True),
        # True and of one value, but other conclusions.
        ("2+2=4", "8/2=4", False),
        ("2+2=4", "2*2=4", False),
        ("2^3=8", "8^1=8", False),
        ("x=12", "y=12", False),
        ("15*12=180", "180", False),
        ("x<5", "x>5", False),
        ("a-b=3", "b-a=3", False),
        ("n is even", "n is odd", False),
        # A chain says more than its parts.
        ("A=bh/2=24", "A=24", False),
        ("", "", False),
    ],
)
def test_same(a: str, b: str, same: bool) -> None:
    first, second = read_wording(a), read_wording(b)
    assert say_the_same(first, second) is same
    assert say_the_same(second, first) is same
    assert (len(group_same([first, second])) == 1) is same


def test_a_chain_that_nobody_wrote_does_not_make_two_statements_one() -> None:
    wordings = [read_wording(text) for text in ("x=12", "y=12", "x=12=y")]
    assert group_same(wordings) == [[0], [1], [2]]


def test_classes_are_joined_by_what_equals_both() -> None:
    texts = ["a+b+c+d+e=1", "x=7", "1=e+d+c+b+a", "7=x", "e+d+c+b+a=1"]
    assert group_same([read_wording(text) for text in texts]) == [[0, 2, 4], [1, 3]]


def test_forms_beyond_hold_no_normal_form_twice() -> None:
    forms = forms_beyond(["15*12=180", "12*15=180"], ["180 = 12 \\times 15"])
    assert forms == ("180 = 12 \\times 15", "180=15*12")


@given(st.lists(st.sampled_from(["x=1", "1=x", "y=2", "2=y", "x = 1", "z", "", "3<4", "4>3"])))
def test_classes_are_those_of_say_the_same(texts: list[str]) -> None:
    wordings = [read_wording(text) for text in texts]
    classes = group_same(wordings)
    assert sorted(index for members in classes for index in members) == list(range(len(texts)))
    owner = {index: number for number, members in enumerate(classes) for index in members}
    for i, first in enumerate(wordings):
        for j, second in enumerate(wordings):
            if i != j:
                assert (owner[i] == owner[j]) is say_the_same(first, second)


@given(st.text(max_size=60))
def test_any_text_is_the_same_as_itself_if_anything_is_left_of_it(text: str) -> None:
    wording = read_wording(text)
    assert say_the_same(wording, wording) is bool(normal_form(text) or wording.structure)
