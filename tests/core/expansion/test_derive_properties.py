"""What holds for every expression: no exception, bounded time, truth kept, no form twice."""

from __future__ import annotations

import ast
import operator
import re
import time
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consensuspr.core import derive_forms, normalize
from consensuspr.core.expressions import derive
from consensuspr.core.expressions import derive as forms
from consensuspr.core.expressions.derive import MAX_FORMS

_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}

# Half of it looks like mathematics, so that more than the first token is reached.
_PIECES = st.sampled_from(
    "1 2 0.5 25% 1,200 x ab + - * / ^ ( ) { } | = < >= ! % . , ½ ² \\frac{1}{2} \\frac \\sqrt "
    "\\pi \\text{cups} \\text{ \\pmod{7} \\left( \\right) cups per of and $ \\$ \\( \\) _1 ' é 中 "
    "∑ \0".split(" ")
)
TEXTS = st.one_of(st.text(max_size=80), st.lists(_PIECES, max_size=40).map("".join))


def exact(text: str) -> Fraction:
    """Return the exact value of arithmetic text, by Python's own grammar."""
    percent = re.sub(r"([\d.]+)%", r"(\1/100)", text)
    return _value(ast.parse(percent, mode="eval").body, percent)


def _value(node: ast.expr, source: str) -> Fraction:
    match node:
        case ast.Constant():
            return Fraction(ast.get_source_segment(source, node) or "")
        case ast.BinOp():
            return _OPERATORS[type(node.op)](_value(node.left, source), _value(node.right, source))
        case ast.UnaryOp(op=ast.USub()):
            return -_value(node.operand, source)
    raise AssertionError(f"{source!r} is not arithmetic")


def holds(equation: str) -> bool:
    """Tell whether an equation of arithmetic is true."""
    left, right = equation.split("=")
    return exact(left) == exact(right)


_INTEGERS = st.integers(1, 400).map(str)
_LEAVES = st.one_of(
    _INTEGERS,
    _INTEGERS,
    st.sampled_from(["0.5", "0.25", ".2", "1.5", "12.75", "25%", "37.5%", "1/2", "3/4", "20/100"]),
)


def _extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    parts = st.lists(inner, min_size=2, max_size=4)
    flat = st.tuples(parts, st.sampled_from(["+", "-", "*", "/"])).map(lambda t: t[1].join(t[0]))
    mixed = st.tuples(inner, inner, inner).map(lambda t: f"{t[0]}*{t[1]}-{t[2]}")
    return st.one_of(flat, flat.map(lambda text: f"({text})"), mixed)


SIDES = st.recursive(_LEAVES, _extend, max_leaves=6)


def _as_text(value: Fraction) -> str:
    return str(value) if value >= 0 else f"-{-value}"


@st.composite
def equations(draw: st.DrawFn) -> str:
    """An equation with an operation, true half of the time."""
    left = draw(SIDES)
    try:
        value = exact(left)
    except ZeroDivisionError:
        value = Fraction(1)
    return f"{left}={_as_text(value + draw(st.sampled_from([0, 0, 1])))}"


def _truth(equation: str) -> bool | None:
    try:
        return holds(equation)
    except ZeroDivisionError:
        return None


@settings(max_examples=400, deadline=None)
@given(equations())
def test_a_form_is_true_exactly_where_the_equation_is(equation: str) -> None:
    truth = _truth(equation)
    assert [form for form in derive_forms(equation) if _truth(form) != truth] == []


@settings(max_examples=400, deadline=None)
@given(TEXTS)
def test_any_text_yields_distinct_bounded_forms(text: str) -> None:
    derived = derive_forms(text)
    normal = [normalize(form) for form in derived]
    assert len(derived) <= MAX_FORMS
    assert len(set(normal)) == len(normal)
    assert normalize(text) not in normal
    assert derive_forms(text) == derived


_NAMES = st.lists(st.sampled_from("abcdpqtyz"), min_size=2, max_size=3, unique=True)


@given(_NAMES, st.sampled_from(["+", "*", "-"]), st.sampled_from(["=", "<", ">=", "≠"]))
def test_forms_of_forms_are_the_same_set(names: list[str], sign: str, relation: str) -> None:
    expression = f"{sign.join(names)}{relation}7"
    with pytest.MonkeyPatch.context() as patch:
        # Orders, brackets and sides form a family, from which the limit takes the remote.
        patch.setattr(derive, "MAX_COST", 100)
        patch.setattr(forms, "MAX_COST", 100)
        family = {normalize(form) for form in [expression, *derive_forms(expression)]}
        for form in derive_forms(expression):
            assert {normalize(other) for other in [form, *derive_forms(form)]} == family


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("0.25*240=60", "240*25%=60"),
        ("1/4*240=60", "0.25*240=60"),
        ("x=1/2", "x=0.5"),
        ("x=5/2", "x=2.5"),
        ("(20+30)*4=200", "4*(30+20)=200"),
        ("a-b-c=d", "a-(c+b)=d"),
        ("60*2/5=24", "2/5*60=24"),
    ],
)
def test_each_of_two_forms_is_derived_from_the_other(first: str, second: str) -> None:
    for one, other in ((first, second), (second, first)):
        assert normalize(other) in {normalize(form) for form in derive_forms(one)}


HOSTILE = {
    "brackets": "(" * 500,
    "braces": "{" * 500,
    "fractions": "\\frac{" * 80,
    "bare fractions": "\\frac" * 100,
    "roots": "√" * 500,
    "signs": "-" * 500,
    "relations": "1=" * 250,
    "powers": "2^" * 200 + "2",
    "towers": "((9^{64})^{64})^{64}=1",
    "texts": "\\text{" * 80,
    "words": "5 a b c " * 60,
    "primes": "a'" * 250,
    "thousands": "1,111" * 100,
    "products": "0.1*" * 31 + "1=2",
    "nested": "(((0.5*0.25)+(0.5*x))*((0.5*0.25)+(0.5*y)))+(((a*b)+(0.5*c))*((d/4)+(e/8)))=1",
    "long": "x=1" * 1_000_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_expressions_take_bounded_time(name: str) -> None:
    start = time.perf_counter()
    derive_forms(HOSTILE[name])
    # The slowest takes 20 ms with the compiled core and some 60 ms without.
    assert time.perf_counter() - start < 2.0
