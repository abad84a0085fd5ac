"""The normal form says what the text says: a term keeps its value in every notation.

Random terms are written in random notation and normalised; the normal form is then read by
the usual precedence, side by side being a product like any other, and has to have the value
that the term has.  What is found in a normal form is therefore what was stated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.arithmetic import exact
from tests.core.conftest import alike

LETTERS = {"k": Fraction(7), "q": Fraction(11), "w": Fraction(13, 3)}


# --- reading a normal form -----------------------------------------------------------------


def value_of(form: str) -> Fraction:
    """Return the value of a normal form of a term: digits, letters, ``+-*/^``, brackets."""
    mixed = re.sub(r"(\d+)[ \n](\d+)/(\d+)", r"(\1+\2/\3)", form)
    explicit = re.sub(r"(?<=[\da-z)])(?=[a-z(])|(?<=\))(?=\d)", "*", mixed)
    return exact(explicit.replace("^", "**"), LETTERS)


# --- writing terms -------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """A term as text: its value, and what a bracket has to guard."""

    text: str
    value: Fraction
    kind: str  # "number", "letter", "bracket", "fraction" (\\frac), "power", "product" or "sum"


_BLANKS = st.sampled_from(["", "", " ", "\\,", "\u2009"])
_NUMBERS = st.one_of(
    st.integers(0, 40).map(lambda value: Written(str(value), Fraction(value), "number")),
    st.integers(1000, 99999).map(lambda value: Written(f"{value:,}", Fraction(value), "number")),
    st.sampled_from([".5", "0.50", "2.0", "1.25", "3.10"]).map(
        lambda text: Written(text, Fraction(text), "number")
    ),
)
_LETTERS = st.sampled_from(sorted(LETTERS)).map(lambda name: Written(name, LETTERS[name], "letter"))
_ATOMS = ("number", "letter", "bracket")
_BRACKETS = st.sampled_from([("(", ")"), ("(", ")"), ("\\left(", "\\right)"), ("( ", " )")])


@st.composite
def _bracketed(draw: st.DrawFn, inner: st.SearchStrategy[Written]) -> Written:
    part = draw(inner)
    left, right = draw(_BRACKETS)
    return Written(left + part.text + right, part.value, "bracket")


def _guarded(part: Written, *kinds: str) -> str:
    """Return the text of ``part``, in brackets unless its kind is among ``kinds``."""
    return part.text if part.kind in kinds else f"({part.text})"


@st.composite
def _sum(draw: st.DrawFn, inner: st.SearchStrategy[Written]) -> Written:
    left, right = draw(inner), draw(inner)
    minus = draw(st.booleans())
    sign = draw(st.sampled_from(["-", "−", "–"])) if minus else "+"
    value = left.value - right.value if minus else left.value + right.value
    known = (*_ATOMS, "fraction", "power", "product")
    first = _guarded(left, *known, "sum")
    return Written(
        first + draw(_BLANKS) + sign + draw(_BLANKS) + _guarded(right, *known), value, "sum"
    )


@st.composite
def _product(draw: st.DrawFn, inner: st.SearchStrategy[Written]) -> Written:
    left, right = draw(inner), draw(inner)
    known = (*_ATOMS, "fraction", "power")
    first, second = _guarded(left, *known, "product"), _guarded(right, *known)
    signs = ["*", " * ", "×", " × ", "\\cdot ", " \\times ", "·"]
    side_by_side = left.kind in _ATOMS and second[:1] in "(\\kqw" and right.kind != "fraction"
    sign = draw(st.sampled_from([*signs, "", "", ""] if side_by_side else signs))
    return Written(first + sign + second, left.value * right.value, "product")


@st.composite
def _quotient(draw: st.DrawFn, inner: st.SearchStrategy[Written]) -> Written:
    above, below = draw(inner), draw(inner)
    assume(below.value != 0)
    value = above.value / below.value
    if draw(st.booleans()):
        command = draw(st.sampled_from(["\\frac", "\\dfrac", "\\tfrac"]))
        return Written(f"{command}{{{above.text}}}{{{below.text}}}", value, "fraction")
    bar = draw(st.sampled_from(["/", " / ", "÷", " \\div "]))
    first, second = _guarded(above, *_ATOMS), _guarded(below, *_ATOMS)
    return Written(first + bar + second, value, "product")


@st.composite
def _power(draw: st.DrawFn, inner: st.SearchStrategy[Written]) -> Written:
    base = draw(inner)
    exponent, text = draw(
        st.sampled_from([(2, "^2"), (2, "^{2}"), (2, "²"), (3, "**3"), (3, "^{ 3 }")])
    )
    return Written(_guarded(base, *_ATOMS) + text, base.value**exponent, "power")


@st.composite
def _negative(draw: st.DrawFn, inner: st.SearchStrategy[Written]) -> Written:
    part = draw(inner)
    minus = draw(st.sampled_from(["-", "−"]))
    inside = minus + _guarded(part, *_ATOMS, "fraction")
    return Written(f"({inside})", -part.value, "bracket")


_MIXED = st.builds(
    lambda whole, above, below, command: Written(
        f"{whole}\\{command}{{{above}}}{{{below}}}", whole + Fraction(above, below), "fraction"
    ),
    st.integers(1, 9),
    st.integers(1, 5),
    st.integers(6, 9),
    st.sampled_from(["frac", "dfrac"]),
)


def _extend(inner: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    return st.one_of(
        _bracketed(inner),
        _sum(inner),
        _product(inner),
        _quotient(inner),
        _power(inner),
        _negative(inner),
    )


TERMS = st.recursive(st.one_of(_NUMBERS, _NUMBERS, _LETTERS, _MIXED), _extend, max_leaves=7)


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("2+3*4", Fraction(14)), ("2(3+4)", Fraction(14)), ("(1+2)(3+4)", Fraction(21)),
        ("2 1/2*4", Fraction(10)), ("6/2*3", Fraction(9)), ("-2^2", Fraction(-4)),
        ("3*-2", Fraction(-6)), ("0.5+1/4", Fraction(3, 4)), ("2kq", Fraction(154)),
        ("k(q+1)", Fraction(84)), ("1/2k", Fraction(7, 2)),
    ],
)  # fmt: skip
def test_the_reader_knows_precedence(form: str, value: Fraction) -> None:
    assert value_of(form) == value


@alike()
@given(TERMS)
def test_a_term_keeps_its_value(engine: Any, written: Written) -> None:
    form = engine.normalize(written.text)
    assert value_of(form) == written.value, form
