"""What a single rollout concludes."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.extraction.rules import ConclusionKind, RulesSettings, read_conclusions
from consensusbench.extraction.types import CorrectRollout

COMPUTED, ASSIGNED, FORMULA = ConclusionKind


def conclude(response: str) -> list[tuple[ConclusionKind, Fraction | None, str]]:
    found = read_conclusions(CorrectRollout("r", "m", response), RulesSettings())
    return [(one.kind, one.value, one.wording) for one in found]


@pytest.mark.parametrize(
    ("response", "conclusions"),
    [
        ("So 3 * 10 = 30.", [(COMPUTED, 30, "3 * 10 = 30")]),
        (r"\[ 3 \times 10 = 30 \]", [(COMPUTED, 30, r"3 \times 10 = 30")]),
        ("30 = 3 * 10", [(COMPUTED, 30, "30 = 3 * 10")]),
        ("Thus x = 7.", [(ASSIGNED, 7, "x = 7")]),
        ("P(A) = 1/4", [(ASSIGNED, Fraction(1, 4), "P(A) = 1/4")]),
        ("2x + 6 = 20", [(FORMULA, None, "2x + 6 = 20")]),
        ("a + b = c", [(FORMULA, None, "a + b = c")]),
        ("n < 12", [(FORMULA, None, "n < 12")]),
        (r"\binom{8}{2} = 28", [(COMPUTED, 28, r"\binom{8}{2} = 28")]),
        # Rounded is true, and gives what is written.
        ("10 / 3 = 3.33", [(COMPUTED, Fraction("3.33"), "10 / 3 = 3.33")]),
        # A slip in a correct rollout is no conclusion.
        ("2 + 2 = 5", []),
        # What is said is a number, not something that would come to one.
        ("total = 12 + 6", []),
        ("total = 18", [(ASSIGNED, 18, "total = 18")]),
        # Everybody names quantities differently.
        ("income = price * count", []),
        ("5 = 5", []),
        ("3.33 = 10/3", [(COMPUTED, Fraction("3.33"), "3.33 = 10/3")]),
        ("30 + 40 = 35 * 2", []),
        # A piece of something larger is not what the rollout says.
        ("12 + 3 * 10 = 42", [(COMPUTED, 42, "12 + 3 * 10 = 42")]),
        ("5 cups * $2 = $10", [(COMPUTED, 10, "5 cups * $2 = $10")]),
        ("no formula at all", []),
        ("", []),
    ],
)
def test_conclusions(
    response: str, conclusions: list[tuple[ConclusionKind, Fraction | int | None, str]]
) -> None:
    assert conclude(response) == conclusions


def test_a_chain_is_one_place() -> None:
    response = "10*3 + 8*5 = 30 + 40 = 70, later 7 * 10 = 70"
    found = read_conclusions(CorrectRollout("r", "m", response), RulesSettings())
    assert {one.wording: one.chain for one in found if one.value == 70} == {
        "30 + 40 = 70": 0,
        "7 * 10 = 70": 1,
    }


def test_statements_that_differ_in_order_have_one_structure() -> None:
    response = "3 * 10 = 30. Again: 30 = 10 * 3."
    first, second = read_conclusions(CorrectRollout("r", "m", response), RulesSettings())
    assert first.structure == second.structure


def test_what_is_looked_at_is_bounded() -> None:
    response = "\n".join(f"{number} + 1 = {number + 1}" for number in range(1, 200))
    settings = RulesSettings(max_statements=10)
    found = read_conclusions(CorrectRollout("r", "m", response), settings)
    assert len(found) == 10
    long = "1" + "+1" * 300 + "=301"
    assert read_conclusions(CorrectRollout("r", "m", long), settings) == []


@given(st.text(max_size=300))
def test_any_response_is_read(response: str) -> None:
    for one in read_conclusions(CorrectRollout("r", "m", response), RulesSettings()):
        assert 0 <= one.position <= 1
