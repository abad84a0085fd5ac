"""How expressions are read as statements; what is moved as a whole, what is not read at all."""

from __future__ import annotations

from fractions import Fraction

import pytest

from consensuspr.core.expressions.evaluate import Symbol, evaluate
from consensuspr.core.expressions.sides import MAX_LENGTH, parse_statement


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2+3*4", 14), ("(2+3)*4", 20), ("2-3-4", -5), ("2-(3-4)", 3), ("24/4/2", 3),
        ("24/(4/2)", 12), ("-3*4", -12), ("3*(-4)", -12), ("3*-4", -12), ("-2^2", -4),
        ("2^{10}", 1024), ("2^-2", Fraction(1, 4)), ("3²", 9), ("5!", 120), ("25%", Fraction(1, 4)),
        ("25\\% of 80", 20), ("1/2 of 12", 6), ("½*8", 4), ("2\\frac12", Fraction(5, 2)),
        ("2½", Fraction(5, 2)), ("\\frac12", Fraction(1, 2)), ("\\frac{72}5", Fraction(72, 5)),
        ("\\frac{1+2}{3*2}", Fraction(1, 2)), ("3(4+5)", 27), ("(2)(3)", 6), ("2[3+4]", 14),
        ("12 x 4", 48), ("5 cups * $2", 10), ("60 miles/hour \\times 2 \\text{ hours}", 120),
        ("3 plus 4 times 2", 11), ("1,200*3", 3600),
    ],
)  # fmt: skip
def test_values(text: str, value: int | Fraction) -> None:
    statement = parse_statement(text)
    assert statement is not None
    assert evaluate(statement.sides[0]) == value


@pytest.mark.parametrize(
    ("text", "sides"),
    [
        ("Total cost = 12", ["Total cost", "12"]),
        ("number of cups = 12", ["number of cups", "12"]),
        ("Week 1 total = 12", ["Week 1 total", "12"]), ("\\log_2 8=12", ["\\log_2 8", "12"]),
        ("A=(1,2)", ["A", "(1,2)"]), ("1/2x=12", ["1/2x", "12"]),
        ("6/2(1+2)=12", ["6/2(1+2)", "12"]), ("\\sum_{k=1}^{4} k=12", ["\\sum_{k=1}^{4} k", "12"]),
        ("1/0=12", ["1/0", "12"]), ("1/(3-3)=12", ["1/(3-3)", "12"]),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_moved_as_a_whole(text: str, sides: list[str]) -> None:
    statement = parse_statement(text)
    assert statement is not None
    first = statement.sides[0]
    assert isinstance(first, Symbol)
    assert first.text == sides[0]
    last = statement.sides[1]
    assert last.text == sides[1] if isinstance(last, Symbol) else evaluate(last) == 12


@pytest.mark.parametrize(
    "text",
    [
        "", "   ", "n is divisible by 7", "the triangle is isosceles", "if x=5 then y=3",
        "x=3 or x=5", "x=3 \\text{ or } x=5", "x=5, y=7", "x=5; y=7", "x=5. y=7", "$x=5$ $y=2$",
        "\\(x=5\\) \\(y=2\\)", "x=5 \\quad y=2", "x=5 \\\\ y=2", "x=5\ny=2", "x=5 \\implies y=2",
        "x=5 → y=2", "x=", "=5", "x==", "(x=5", "x)=(5", "x=(5]", "x" * (MAX_LENGTH + 1),
        "x=" + "1=" * 20 + "1",
    ],
)  # fmt: skip
def test_prose_and_more_than_one_statement_are_not_read(text: str) -> None:
    assert parse_statement(text) is None


@pytest.mark.parametrize(
    ("text", "relations", "tail"),
    [
        ("0<x\\le 5", ["<", "<="], ""),
        ("a\\equiv 3 \\pmod{7}", ["≡"], " \\pmod{7}"),
        ("x!=3", ["≠"], ""),
        ("5! = 120", ["="], ""),
        ("f(x=1)=3", ["="], ""),
    ],
)
def test_relations(text: str, relations: list[str], tail: str) -> None:
    statement = parse_statement(text)
    assert statement is not None
    assert (statement.relations, statement.tail) == (relations, tail)


@pytest.mark.parametrize(
    ("text", "digits"), [("3*4=12", 4), ("0.50*8=4", 4), ("1,200=x", 4), ("5 cups=x", 1)]
)
def test_significant_digits_are_counted(text: str, digits: int) -> None:
    statement = parse_statement(text)
    assert statement is not None
    assert statement.num_digits == digits


@pytest.mark.parametrize(
    "text",
    [
        "(" * 200 + "1" + ")" * 200, "1+" * 100 + "1", "1" * 30, "\\frac{" * 60 + "1",
        "2^" * 100 + "2", "-" * 200 + "1",
    ],
)  # fmt: skip
def test_beyond_the_limits_nothing_is_read(text: str) -> None:
    assert parse_statement(text) is None
