"""Statements found in responses: where they begin and end, and which links they have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.extraction.rules import Chain, Link, links_of, prose_of, read_chains


@pytest.mark.parametrize(
    ("response", "chains"),
    [
        ("She has 3 * 4 = 12 apples.", ["3*4=12"]),
        (r"so $3 \times 4 = 12$ and $12 - 2 = 10$.", ["3*4=12", "12-2=10"]),
        (r"\[ 2x + 6 = 20 \implies x = 7 \]", ["2x+6=20", "x=7"]),
        ("10*3 + 8*5 = 30 + 40 = 70", ["10*3+8*5=30+40=70"]),
        ("x = 2, y = 3; z = 4", ["x=2", "y=3", "z=4"]),
        ("P(X=5) = 0.3", ["P(X=5)=0.3"]),  # a relation inside brackets is no statement
        ("the points (1,2) and f(1,2)=3", ["f(1,2)=3"]),
        ("(so x=5)", ["x=5"]),  # brackets around prose have no partner in the run
        ("x=5) then y=6", ["x=5", "y=6"]),
        ("total cost = 5 * 3 = 15", ["cost=5*3=15"]),
        ("252*2 = 252*2 = 504", ["252*2=504"]),  # a side repeated is one side
        ("= 60 - 20", []),  # no left side
        ("3 + 4 =", []),
        ("1/2 = 4/(D km)", []),
        ("x = -3", ["x=-3"]),
        ("x \\ne 3 and y = 4", ["y=4"]),
        ("5 apples and 7 pears", []),
        ("7^2 \\equiv 1 \\pmod{8}", ["7^2≡1 mod 8"]),
        ("3 \\frac{1}{2} * 2 = 7", ["3 1/2*2=7"]),
        ("```python\nx = 41\n```\nso x = 42", ["x=42"]),
        ("<answer>\n601\n</answer>", []),
        ("", []),
    ],
)
def test_chains(response: str, chains: list[str]) -> None:
    assert [written(chain) for chain in read_chains(response)] == chains


def written(chain: Chain) -> str:
    text = chain.sides[0]
    for relation, side in zip(chain.relations, chain.sides[1:], strict=True):
        text += relation + side
    return text


def test_a_chain_links_its_neighbours() -> None:
    chain = Chain(("10*3+8*5", "30+40", "70"), "==")
    assert list(links_of(chain)) == [
        Link("10*3+8*5", "=", "30+40"),
        Link("30+40", "=", "70"),
    ]


@pytest.mark.parametrize(
    ("response", "prose"),
    [
        ("a ```x=1``` b", "a \n b"),
        ("a ```x=1", "a \n"),  # cut off inside code
        ("a ```x=1 `y`", "a \n"),
        ("a <think>b</think>", "a \nb\n"),
        ("1 < 2 and 3 > 2", "1 < 2 and 3 > 2"),
    ],
)
def test_code_and_tags_are_no_prose(response: str, prose: str) -> None:
    assert prose_of(response) == prose


@given(st.text(alphabet="ab1=+-*/()[]{},.;:<>≤ \n`$\\", max_size=200))
def test_any_text_has_chains_of_sound_sides(response: str) -> None:
    for chain in read_chains(response):
        assert len(chain.relations) == len(chain.sides) - 1 >= 1
        assert all(chain.sides)
