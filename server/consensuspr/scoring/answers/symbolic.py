"""The slow comparison: math-verify's grammar and grader, without what evaluates text.

Runs in answer processes only (:mod:`.worker`), which have hard limits; math-verify's own timeouts
(SIGALRM) are off.  Of math-verify's two readers only the LaTeX one is used, an ANTLR grammar that
builds SymPy objects; the plain-text one calls ``parse_expr``, hence ``eval``, and is never reached
(:func:`harden` makes sure).
"""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

import latex2sympy2_extended.latex2sympy2 as latex2sympy2  # type: ignore[import-untyped]
import math_verify.grader as math_verify_grader  # type: ignore[import-untyped]
import math_verify.parser as math_verify_parser  # type: ignore[import-untyped]
import sympy.parsing.sympy_parser as sympy_parser  # type: ignore[import-untyped]
from latex2sympy2_extended.math_normalization import (  # type: ignore[import-untyped]
    NormalizationConfig,
    normalize_latex,
)
from math_verify import LatexExtractionConfig, parse, verify
from sympy import (
    Add,
    Basic,
    Float,
    Function,
    Integer,
    MatrixBase,
    Mul,
    Pow,
    S,
    preorder_traversal,
)

from consensuspr.scoring.answers.normalize import canonical

# Where math-verify hands work to SymPy and takes any exception for "not equal".
_MEMORY_HUNGRY = {
    math_verify_parser: ("parse_latex_cached",),
    math_verify_grader: ("simplify", "solve", "safe_sympy_doit"),
}
_NORMALIZATION = NormalizationConfig(
    basic_latex=True, units=True, malformed_operators=True, nits=True, boxed="none"
)
_DELIMITED = re.compile(r"\$|\\\(|\\\[|\\boxed|\\fbox")
_SET = re.compile(r"[][]|\\(?:cup|infty|in)(?![A-Za-z])|[∪∞∈]")
_DIFFERENTIAL = re.compile(r"\\i*int(?![A-Za-z])|\\frac\{?d")
_WORD_OR_D = re.compile(r"\\[A-Za-z]+|[A-Za-z]{3,}|d")
_INTEGER_LITERAL = re.compile(r"\d{1,4000}")
_DECIMAL_LITERAL = re.compile(r"(?:\d{1,4000}\.?\d{0,4000}|\.\d{1,4000})(?:[eE][+-]?\d{1,4})?")

_LAZY_MODULES = (
    "sympy.physics.units",
    "sympy.integrals.manualintegrate",
    "sympy.integrals.meijerint",
    "sympy.solvers.inequalities",
    "sympy.solvers.solveset",
    "sympy.concrete.gosper",
    "sympy.series.limits",
    "sympy.simplify.fu",
    "sympy.functions.special.hyper",
)

# Parsed once before the first fork, so that the grammar's tables are warm in every worker.
_WARM_UP = (
    r"\frac{1}{2}", r"3\sqrt{13}", r"(-\infty, 2) \cup [3, 5)", r"\{1, 2\}", "x = 5",
    r"1 \pm \sqrt{19}", "x^2 + 2x + 1", r"\begin{pmatrix} 1 & 0 \\ 0 & 1 \end{pmatrix}",
    r"2 \sin b \cos a", r"x \geq 5", r"y = -\frac{1}{2} x + \frac{3}{4}", r"\frac{9}{4}\pi",
    "28\\%", r"\text{odd}", "(3, 4, 5)", "f(x) = 1", r"\binom{5}{2}", "5!", r"\log_2 3",
    "e^{i\\pi}", "2^{10}",
)  # fmt: skip


class EvaluationForbidden(RuntimeError):
    """Something tried to evaluate text; the text is treated as unreadable."""


class OutOfMemory(BaseException):
    """A MemoryError in a form that math-verify's ``except Exception`` does not swallow."""


def harden() -> None:
    """Take evaluation of text away from this process, and let no MemoryError be swallowed.

    SymPy's ``sympify`` calls ``parse_expr``, of which a reader of number literals is left.
    """
    for module, names in _MEMORY_HUNGRY.items():
        for name in names:
            setattr(module, name, _escalating(getattr(module, name)))
    sympy_parser.eval_expr = _refuse
    sympy_parser.parse_expr = _number_literal
    math_verify_parser.parse_expr = _refuse
    latex2sympy2.parse_expr = _refuse


def _escalating(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except MemoryError:
            raise OutOfMemory from None

    return call


def _refuse(*_: object, **__: object) -> Any:
    raise EvaluationForbidden("text is never evaluated")


def _number_literal(text: str, *_: object, **__: object) -> Any:
    if _INTEGER_LITERAL.fullmatch(text):
        return Integer(int(text))
    if _DECIMAL_LITERAL.fullmatch(text):
        return Float(text)
    raise EvaluationForbidden("text is never evaluated")


def warm_up() -> None:
    """Load the grammar's tables and SymPy's lazy modules; to be called before forbidding.

    Some of SymPy's modules evaluate constants of their own when they are first imported.
    """
    for module in _LAZY_MODULES:
        importlib.import_module(module)
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    for text in _WARM_UP:
        equal(text, text + "+0", "")


def equal(gold: str, answer: str, context: str) -> bool:
    """Return whether math-verify finds the answer, or what it finds in the context, equal.

    The context is the clipped end of the response where the extraction was uncertain, else empty.
    """
    golds, is_set = _readings(gold), _SET.search(gold) is not None
    if _verify(golds, _readings(answer), is_set):
        return True
    if context and _verify(golds, _delimited(context), is_set):
        return True
    # The canonical spelling mends what the grammar stumbles over, such as 3,\!200.
    plain_gold, plain_answer = _without_d(canonical(gold), canonical(answer))
    if plain_gold == gold and plain_answer == answer:
        return False
    return _verify(_bare(plain_gold), _bare(plain_answer), is_set)


def _without_d(gold: str, answer: str) -> tuple[str, str]:
    """Write a letter that neither text has for the variable d, which the grammar may misread.

    It takes the d of cd for a differential.  Texts with an integral or d/dx stay.
    """
    free = next((letter for letter in "wkqvuz" if letter not in gold + answer), "d")
    if _DIFFERENTIAL.search(gold) or _DIFFERENTIAL.search(answer):
        return gold, answer

    def renamed(found: re.Match[str]) -> str:
        return free if found[0] == "d" else found[0]

    return _WORD_OR_D.sub(renamed, gold), _WORD_OR_D.sub(renamed, answer)


def _verify(golds: list[Any], answers: list[Any], is_set: bool) -> bool:
    golds, answers = (list(filter(_is_definite, readings)) for readings in (golds, answers))
    if not golds or not answers:
        return False
    # x <= 7 answers (-oo, 7]; but (1, 2) may be a point, which 1 < x < 2 is not.
    return bool(verify(golds, answers, timeout_seconds=None, allow_set_relation_comp=is_set))


def _is_definite(reading: Any) -> bool:
    """Return whether a reading has a value that can be compared.

    What is calculated with infinity has none: SymPy's difference to any number can come out as
    nothing.  Infinity itself, as an end of an interval or a bound, is fine.
    """
    if not isinstance(reading, Basic | MatrixBase):
        return True
    if reading.has(S.NaN, S.ComplexInfinity):
        return False
    return not any(
        isinstance(part, Add | Mul | Pow | Function)
        and part != S.NegativeInfinity
        and part.args != (S.NegativeOne, S.Infinity)
        and any(argument.has(S.Infinity, S.NegativeInfinity) for argument in part.args)
        for part in preorder_traversal(reading)
    )


def _readings(text: str) -> list[Any]:
    if _DELIMITED.search(text):
        found = _delimited(text)
        if found:
            return found
    return _bare(text)


def _delimited(text: str) -> list[Any]:
    return list(parse(text, [LatexExtractionConfig()], parsing_timeout=None))


@lru_cache(maxsize=256)
def _bare(text: str) -> list[Any]:
    """Read a whole text as one formula, in the way math-verify reads a box."""
    normal = normalize_latex(text.replace("$", ""), _NORMALIZATION)
    if not normal:
        return []
    try:
        return [math_verify_parser.parse_latex_cached(normal), normal]
    except Exception:
        return [normal]
