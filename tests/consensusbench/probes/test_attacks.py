"""The texts of the attacks: what they hold, and that they stay within their budget."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.extraction.statements import Truth, truth_of
from consensusbench.quality.probes import (
    MAX_NUMBERS,
    Attack,
    fixed_attacks,
    nouns_in,
    number_salad,
    numbers_in,
    quantities,
)


def test_enumerations_run_to_300_where_there_is_room() -> None:
    texts = fixed_attacks(budget=10_000)
    assert texts[Attack.ENUMERATION].splitlines() == [f"={value}" for value in range(301)]
    assert texts[Attack.LIST].split(", ") == [str(value) for value in range(301)]
    assert texts[Attack.ASSIGNMENTS].splitlines()[-1] == "x=300"


def test_an_enumeration_ends_at_its_budget() -> None:
    assert fixed_attacks(budget=8)[Attack.ENUMERATION] == "=0\n=1\n=2"
    assert fixed_attacks(budget=1)[Attack.ENUMERATION] == ""


def test_products_come_smallest_first() -> None:
    lines = fixed_attacks(budget=60)[Attack.PRODUCTS].splitlines()
    assert lines[:6] == ["1*1=1", "1*2=2", "2*2=4", "1*3=3", "2*3=6", "3*3=9"]


@pytest.mark.parametrize(
    ("problem", "numbers"),
    [
        ("Ann has 3 boxes of 1,200 pens at $0.50.", [3, 1200, Fraction(1, 2)]),
        ("Half of the 20, twice as many, a dozen.", [Fraction(1, 2), 20, 2, 12]),
        ("A .5 share of 3.25", [Fraction(1, 2), Fraction(13, 4)]),
        ("7 and seven and 7", [7]),
        ("0 apples", []),
        ("", []),
    ],
)
def test_numbers_are_found_in_figures_and_words(problem: str, numbers: list[Fraction]) -> None:
    assert numbers_in(problem) == numbers


def test_a_table_of_numbers_is_cut_short() -> None:
    assert len(numbers_in(" ".join(map(str, range(1, 1000))))) == MAX_NUMBERS


def test_a_salad_combines_the_numbers_and_then_the_results() -> None:
    lines = number_salad("Tom bakes 48 buns and eats 2.", budget=2000).splitlines()
    assert {"48*2=96", "48+2=50", "48-2=46", "48/2=24", "48+48=96"} <= set(lines)
    # 24 is a result of the first level: the second works on with it.
    assert lines.index("24*48=1152") > lines.index("48/2=24")


def test_a_salad_without_numbers_is_empty() -> None:
    assert number_salad("Prove that it is so.", budget=100) == ""


@given(st.text(max_size=80), st.integers(0, 600))
def test_a_salad_keeps_to_its_budget_and_to_the_truth(problem: str, budget: int) -> None:
    salad = number_salad(problem, budget)
    assert len(salad) <= budget
    assert {truth_of(line) for line in salad.splitlines()} <= {Truth.TRUE}


@pytest.mark.parametrize(
    ("problem", "nouns"),
    [
        ("Tom walks 4 miles in 2 hours and 5 miles more.", ["miles", "hours"]),
        ("A 12-inch pipe costs $3", ["inch", "dollars"]),
        ("1 aaa 2 bbb 3 ccc 4 ddd 5 eee", ["aaa", "bbb", "ccc", "ddd"]),
        ("Prove that it is so.", []),
    ],
)
def test_nouns_stand_behind_numbers(problem: str, nouns: list[str]) -> None:
    assert nouns_in(problem) == nouns


def test_quantities_are_counted_within_the_budget() -> None:
    assert quantities("4 miles in 2 hours", budget=32) == "1 miles, 1 hours, 2 miles"
    assert quantities("no numbers", budget=32) == ""
