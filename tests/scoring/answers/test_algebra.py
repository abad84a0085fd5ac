"""Exact expressions: equal if and only if SymPy finds nothing left of their difference."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import sympy  # type: ignore[import-untyped]
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from consensuspr.scoring.answers.compare import (
    MAX_EXPONENT,
    MAX_RADICAND,
    compare_expressions,
    read_expression,
)
from consensuspr.scoring.answers.normalize import canonical


@dataclass(frozen=True)
class Written:
    """An expression twice: as LaTeX and as SymPy's."""

    text: str
    value: sympy.Expr


def _leaves() -> st.SearchStrategy[Written]:
    numbers = st.integers(0, 12).map(lambda n: Written(str(n), sympy.Integer(n)))
    names = st.sampled_from(["x", "y", "n"]).map(lambda s: Written(s, sympy.Symbol(s)))
    roots = st.integers(2, 72).map(lambda n: Written(rf"\sqrt{{{n}}}", sympy.sqrt(n)))
    fractions = st.tuples(st.integers(1, 9), st.integers(1, 9)).map(
        lambda p: Written(rf"\frac{{{p[0]}}}{{{p[1]}}}", sympy.Rational(*p))
    )
    return st.one_of(numbers, names, roots, fractions, st.just(Written(r"\pi ", sympy.pi)))


def _larger(inner: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    pairs = st.tuples(inner, inner)
    return st.one_of(
        pairs.map(lambda p: Written(f"{p[0].text}+{p[1].text}", p[0].value + p[1].value)),
        pairs.map(lambda p: Written(f"{p[0].text}-({p[1].text})", p[0].value - p[1].value)),
        pairs.map(lambda p: Written(f"({p[0].text})({p[1].text})", p[0].value * p[1].value)),
        pairs.filter(lambda p: sympy.simplify(p[1].value) != 0).map(
            lambda p: Written(rf"\frac{{{p[0].text}}}{{{p[1].text}}}", p[0].value / p[1].value)
        ),
        st.tuples(inner, st.integers(1, 3)).map(
            lambda p: Written(f"({p[0].text})^{p[1]}", p[0].value ** p[1])
        ),
    )


EXPRESSIONS = st.recursive(_leaves(), _larger, max_leaves=5)


def _same(a: sympy.Expr, b: sympy.Expr) -> bool:
    return bool(sympy.expand(sympy.numer(sympy.together(a - b))) == 0)


@settings(max_examples=300, deadline=None)
@given(EXPRESSIONS, EXPRESSIONS)
def test_decides_as_sympy_does(one: Written, other: Written) -> None:
    a, b = read_expression(canonical(one.text)), read_expression(canonical(other.text))
    assume(a is not None and b is not None)
    assert a is not None and b is not None
    said = compare_expressions(a, b)
    assert said is None or said is _same(one.value, other.value)


@settings(max_examples=200, deadline=None)
@given(EXPRESSIONS)
def test_an_expression_equals_its_expansion_and_not_that_and_one(one: Written) -> None:
    a = read_expression(canonical(one.text))
    expanded = sympy.expand(one.value)
    assume(a is not None and not expanded.has(sympy.zoo, sympy.nan))
    b = read_expression(canonical(sympy.latex(expanded)))
    c = read_expression(canonical(sympy.latex(expanded) + "+1"))
    # SymPy writes nested roots for some; what is not read is not compared.
    assume(a is not None and b is not None and c is not None)
    assert a is not None and b is not None and c is not None
    assert compare_expressions(a, b) in (True, *([None] if b.inexact else []))
    assert compare_expressions(a, c) is not True


EQUAL = [
    ("2x", "x+x"),
    (r"\sqrt{12}", r"2\sqrt{3}"),
    (r"\sqrt{2}\sqrt{3}", r"\sqrt{6}"),
    (r"\sqrt{\frac{3}{4}}", r"\frac{\sqrt{3}}{2}"),
    (r"\frac{1}{2-\sqrt{3}}", r"2+\sqrt{3}"),
    ("(a+5)(b+2)", "ab+2a+5b+10"),
    ("x^{-1}", r"\frac{1}{x}"),
    (r"\theta_1+1", r"1+\theta_{1}"),
    (r"\sqrt{x+1}+\sqrt{x+1}", r"2\sqrt{x+1}"),
]
NOT_READ = [
    "", "x+", "(x", r"\sin x", "2^n", "x^{1/2}", "1/2x", r"1\frac{1}{2}", "52_8", "f(x)", "ln(x)",
    "no idea", "x|y", "1.2.3", "x^{99}", f"x^{MAX_EXPONENT + 1}", rf"\sqrt{{{MAX_RADICAND + 1}}}",
    r"\frac{1}{0}", r"\frac{x}{x-x}", "0^0", "(" * 99 + "x" + ")" * 99,
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_reads_the_same_written_differently(one: str, other: str) -> None:
    a, b = read_expression(canonical(one)), read_expression(canonical(other))
    assert a is not None and b is not None
    assert compare_expressions(a, b) is True


@pytest.mark.parametrize("text", NOT_READ)
def test_reads_nothing_else(text: str) -> None:
    assert read_expression(text) is None


@pytest.mark.parametrize("text", ["(a+b+c+d+k)^{20}", "(1+x)^{24}" * 9, "7^{24}" * 30 + "x"])
def test_stops_where_an_expression_grows(text: str) -> None:
    assert read_expression(text) is None
