"""How a statement is typeset does not change it: every composition of styles, one normal form.

An equation is a tree of parts; each part is written in a style that Hypothesis chooses, and so
are the blanks between the parts, the wrapping of the whole and the prose around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

# --- parts ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Number:
    digits: str


@dataclass(frozen=True)
class Letter:
    name: str


@dataclass(frozen=True)
class Index:
    """A letter with a number below it."""

    name: str
    below: str


@dataclass(frozen=True)
class Sign:
    """An operator or a relation between two parts; ``numbers``: it stands between numbers."""

    kind: str
    numbers: bool = False


@dataclass(frozen=True)
class Group:
    parts: tuple[Any, ...]


@dataclass(frozen=True)
class Fraction:
    above: tuple[Any, ...]
    below: tuple[Any, ...]


@dataclass(frozen=True)
class Power:
    base: Any
    exponent: str


@dataclass(frozen=True)
class Root:
    parts: tuple[Any, ...]


@dataclass(frozen=True)
class Absolute:
    """An absolute value, its bars tight around it."""

    parts: tuple[Any, ...]


@dataclass(frozen=True)
class Product:
    """Factors that may be written side by side; only the first can be a number."""

    factors: tuple[Any, ...]


def _n(digits: str) -> Number:
    return Number(digits)


a, b, c, n, r, x, y, A, P = (Letter(name) for name in "abcnrxyAP")
pi, theta, alpha, beta, Delta = (Letter(name) for name in "πθαβΔ")
PLUS, MINUS, EQUALS = Sign("+"), Sign("-"), Sign("=")
TIMES, OVER = Sign("*", numbers=True), Sign("/", numbers=True)
_PLUS, _MINUS = Sign("+", numbers=True), Sign("-", numbers=True)


def _of(*factors: Any) -> Product:
    return Product(factors)


EQUATIONS: dict[str, tuple[Any, ...]] = {
    "12*4=48": (_n("12"), TIMES, _n("4"), EQUALS, _n("48")),
    "1200*3=3600": (_n("1200"), TIMES, _n("3"), EQUALS, _n("3600")),
    "12+3=15": (_n("12"), _PLUS, _n("3"), EQUALS, _n("15")),
    "20-8=12": (_n("20"), _MINUS, _n("8"), EQUALS, _n("12")),
    "84/7=12": (_n("84"), OVER, _n("7"), EQUALS, _n("12")),
    "2.5*4=10": (_n("2.5"), TIMES, _n("4"), EQUALS, _n("10")),
    "0.5+0.25=0.75": (_n("0.5"), _PLUS, _n("0.25"), EQUALS, _n("0.75")),
    "2*3*5=30": (_n("2"), TIMES, _n("3"), TIMES, _n("5"), EQUALS, _n("30")),
    "1000000-1=999999": (_n("1000000"), _MINUS, _n("1"), EQUALS, _n("999999")),
    "x=5": (x, EQUALS, _n("5")),
    "x=-5": (x, EQUALS, Sign("-", numbers=True), _n("5")),
    "2x=6": (_of(_n("2"), x), EQUALS, _n("6")),
    "2x+3y=12": (_of(_n("2"), x), PLUS, _of(_n("3"), y), EQUALS, _n("12")),
    "abc=30": (_of(a, b, c), EQUALS, _n("30")),
    "x^2=49": (Power(x, "2"), EQUALS, _n("49")),
    "x^2-5x+6=0": (
        Power(x, "2"), MINUS, _of(_n("5"), x), PLUS, _n("6"), EQUALS, _n("0"),
    ),
    "2^10=1024": (Power(_n("2"), "10"), EQUALS, _n("1024")),
    "x^-1=0.2": (Power(x, "-1"), EQUALS, _n("0.2")),
    "x^2+y^2=25": (Power(x, "2"), PLUS, Power(y, "2"), EQUALS, _n("25")),
    "(x+1)(x-1)=8": (
        _of(Group((x, _PLUS, _n("1"))), Group((x, _MINUS, _n("1")))), EQUALS, _n("8"),
    ),
    "(a+b)^2=9": (Power(Group((a, PLUS, b)), "2"), EQUALS, _n("9")),
    "2(x+1)=6": (_of(_n("2"), Group((x, _PLUS, _n("1")))), EQUALS, _n("6")),
    "n(n+1)=42": (_of(n, Group((n, _PLUS, _n("1")))), EQUALS, _n("42")),
    "((a+b)c-1)^2=4": (
        Power(Group((_of(Group((a, PLUS, b)), c), _MINUS, _n("1"))), "2"), EQUALS, _n("4"),
    ),
    "3/4": (Fraction((_n("3"),), (_n("4"),)),),
    "1/2+1/3=5/6": (
        Fraction((_n("1"),), (_n("2"),)), PLUS, Fraction((_n("1"),), (_n("3"),)),
        EQUALS, Fraction((_n("5"),), (_n("6"),)),
    ),
    "(a+b)/2=7": (Fraction((a, PLUS, b), (_n("2"),)), EQUALS, _n("7")),
    "(x+1)/(x-1)=3": (
        Fraction((x, _PLUS, _n("1")), (x, _MINUS, _n("1"))), EQUALS, _n("3"),
    ),
    "n(n+1)/2=210": (
        Fraction((_of(n, Group((n, _PLUS, _n("1")))),), (_n("2"),)), EQUALS, _n("210"),
    ),
    "x/y=2/3": (Fraction((x,), (y,)), EQUALS, Fraction((_n("2"),), (_n("3"),))),
    "√2": (Root((_n("2"),)),),
    "√50=5√2": (Root((_n("50"),)), EQUALS, _of(_n("5"), Root((_n("2"),)))),
    "√(x+1)=3": (Root((x, _PLUS, _n("1"))), EQUALS, _n("3")),
    "√((a+b)/2)=c": (Root((Fraction((a, PLUS, b), (_n("2"),)),)), EQUALS, c),
    "a1=3": (Index("a", "1"), EQUALS, _n("3")),
    "x1+x2=5": (Index("x", "1"), PLUS, Index("x", "2"), EQUALS, _n("5")),
    "a10=2a9": (Index("a", "10"), EQUALS, _of(_n("2"), Index("a", "9"))),
    "A=9π": (A, EQUALS, _of(_n("9"), pi)),
    "A=πr^2": (A, EQUALS, _of(pi, Power(r, "2"))),
    "α+β=90": (alpha, PLUS, beta, EQUALS, _n("90")),
    "Δ=b^2-4ac": (Delta, EQUALS, Power(b, "2"), MINUS, _of(_n("4"), a, c)),
    "θ≤30": (theta, Sign("≤"), _n("30")),
    "x≥1000": (x, Sign("≥"), _n("1000")),
    "x≠0": (x, Sign("≠"), _n("0")),
    "π≈3.14": (pi, Sign("≈"), _n("3.14")),
    "1/x^2=4": (Fraction((_n("1"),), (Power(x, "2"),)), EQUALS, _n("4")),
    "2/√3=a": (Fraction((_n("2"),), (Root((_n("3"),)),)), EQUALS, a),
    "|x|=5": (Absolute((x,)), EQUALS, _n("5")),
    "|a|+|b|=3": (Absolute((a,)), PLUS, Absolute((b,)), EQUALS, _n("3")),
    "|x-3|=5": (Absolute((x, _MINUS, _n("3"))), EQUALS, _n("5")),
    "P=5/36": (P, EQUALS, Fraction((_n("5"),), (_n("36"),))),
}  # fmt: skip

# --- styles --------------------------------------------------------------------------------

_GREEK = {"π": "pi", "θ": "theta", "α": "alpha", "β": "beta", "Δ": "Delta"}
_SIGNS = {
    "+": ["+"],
    "-": ["-", "−", "–", "－"],
    "*": ["*", "×", "·", "⋅", "∗", "\\times ", "\\cdot ", "\\ast ", "{\\times}"],
    "/": ["/", "÷", "\\div "],
    "=": ["=", "&=", "＝", "{=}", "\n="],
    "≤": ["≤", "<=", "\\le ", "\\leq ", "\\leqslant "],
    "≥": ["≥", ">=", "\\ge ", "\\geq ", "\\geqslant "],
    "≠": ["≠", "!=", "\\ne ", "\\neq "],
    "≈": ["≈", "\\approx "],
}
_WORDS = {"=": [" equals ", " is equal to "]}
_WORDS_BEFORE_NUMBERS = {
    "+": [" plus "],
    "-": [" minus "],
    "*": [" times ", " x ", " X "],
    "/": [" divided by "],
}
_BLANKS = ["", "", "", " ", "  ", "\\,", "\\;", "\\!", "\u2009", "\u00a0", "\u200b", "~"]
_POWERS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_INDICES = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_FULL_WIDTH = str.maketrans("0123456789.", "０１２３４５６７８９．")
_WRAPPINGS = [
    "{}", "${}$", "$${}$$", "\\({}\\)", "\\[{}\\]", "\\[\n{}\n\\]", "**{}**", "`{}`", "_{}_",
    "\\boxed{{{}}}", "$\\boxed{{{}}}$", "\\mathbf{{{}}}", "\\displaystyle {}", "\\text{{{}}}",
    "\\begin{{align*}}{}\\end{{align*}}", "*{}*",
]  # fmt: skip
_PROSE = [
    "{}", "So {}.", "Hence, {}, and", "we find {} and so on", "Therefore:\n{}\nNext", "∴ {}",
    "y = 2 ⇒ {}", "<<{}>>", "({})", "Answer: {}!", "I know. {}; then", "{} ✓",
    "- {}", "* {}", "1. {}", "2) {}", "> {}", "## {}", "Then\n- **{}**\n- y = 1",
]  # fmt: skip


class _Writer:
    """Writes parts in styles that ``choose`` picks from lists; the first is the plainest."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._bare = False  # a word before a number is a sign; before \mathbf{4} it is a word

    def choose(self, styles: Sequence[str]) -> str:
        return self._draw(st.sampled_from(styles))

    def pair(self, styles: Sequence[tuple[str, str]]) -> tuple[str, str]:
        return self._draw(st.sampled_from(styles))

    def blank(self) -> str:
        return self.choose(_BLANKS)

    def sequence(self, parts: Sequence[Any]) -> str:
        written = [self.part(parts[0])]
        for part in parts[1:]:
            blank = "" if self._bare else self.blank()
            written += [blank, self.part(part)]
        return "".join(written)

    def part(self, part: Any) -> str:
        match part:
            case Number():
                return self.number(part.digits)
            case Letter():
                return self.letter(part.name)
            case Index():
                below = part.below
                styles = [f"_{{{below}}}", below.translate(_INDICES), below]
                return part.name + self.choose(styles if len(below) > 1 else [*styles, f"_{below}"])
            case Sign():
                return self.sign(part)
            case Group():
                return self.bracketed(part.parts)
            case Fraction():
                return self.fraction(part)
            case Power():
                return self.power(part)
            case Root():
                return self.root(part.parts)
            case Absolute():
                bars = [("|", "|"), ("\\lvert ", "\\rvert "), ("\\left|", "\\right|")]
                left, right = self.pair(bars)
                return left + self.sequence(part.parts) + right
        assert isinstance(part, Product)
        return self.product(part.factors)

    def number(self, digits: str) -> str:
        styles = [digits, digits.translate(_FULL_WIDTH)]
        if not self._bare:
            styles += [f"{{{digits}}}", f"\\mathbf{{{digits}}}"]
        self._bare = False
        if "." in digits:
            styles += [digits + "0", digits.removeprefix("0")]
        else:
            styles += [digits + ".0", digits + ".00"]
        if len(digits) > 3 and digits.isdigit():
            for comma in (",", "{,}", ",\\!", "\\,"):
                styles.append(f"{int(digits):,}".replace(",", comma))
        return self.choose(styles)

    def letter(self, name: str) -> str:
        if name in _GREEK:
            return self.choose([name, f"\\{_GREEK[name]} ", f"{{{name}}}", f"{{\\{_GREEK[name]}}}"])
        wide = chr(ord(name) + 0xFEE0)
        return self.choose(
            [name, f"{{{name}}}", f"\\mathbf{{{name}}}", f"\\mathit{{{name}}}", wide]
        )

    def sign(self, sign: Sign) -> str:
        words = _WORDS_BEFORE_NUMBERS.get(sign.kind, []) if sign.numbers else []
        chosen = self.choose(_SIGNS[sign.kind] + _WORDS.get(sign.kind, []) + words)
        self._bare = chosen in words
        return chosen

    def bracketed(self, parts: Sequence[Any]) -> str:
        left, right = self.pair([("(", ")"), ("\\left(", "\\right)"), ("\\bigl(", "\\bigr)")])
        return left + self.sequence(parts) + right

    def fraction(self, part: Fraction) -> str:
        command = self.choose(["\\frac", "\\dfrac", "\\tfrac", "\\cfrac", "/"])
        if command != "/":
            return f"{command}{{{self.sequence(part.above)}}}{{{self.sequence(part.below)}}}"
        above = self.side(part.above)
        return (
            above + self.blank() + self.choose(_SIGNS["/"]) + self.blank() + self.side(part.below)
        )

    def side(self, parts: Sequence[Any]) -> str:
        return self.part(parts[0]) if len(parts) == 1 else self.bracketed(parts)

    def power(self, part: Power) -> str:
        exponent = part.exponent
        styles = [f"^{{{exponent}}}", f"^{{ {exponent} }}", exponent.translate(_POWERS)]
        styles.append(f"^{exponent}")
        if exponent.isdigit():
            styles += [f"**{exponent}", f" ^ {exponent}"]
        base = part.base
        written = base.name if isinstance(base, Letter) else (
            base.digits if isinstance(base, Number) else self.part(base)
        )  # fmt: skip
        return written + self.choose(styles)

    def root(self, parts: Sequence[Any]) -> str:
        if len(parts) == 1 and isinstance(parts[0], Number):
            digits = parts[0].digits
            styles = [f"\\sqrt{{{digits}}}", f"√{digits}", f"√({digits})", f"sqrt({digits})"]
            return self.choose([*styles, f"\\sqrt {digits}", f"√{{{digits}}}"])
        inside = self.sequence(parts)
        styles = [f"\\sqrt{{{inside}}}", f"√({inside})", f"sqrt({inside})", f"√{{{inside}}}"]
        return self.choose(styles)

    def product(self, factors: Sequence[Any]) -> str:
        written = self.part(factors[0])
        for left, right in pairwise(factors):
            joints = ["*", " * ", "·", "×", "\\cdot ", "\\times ", " \\cdot "]
            # Side by side; a blank before a bracket would make it a remark (rule 1).
            joints += [""] * 4 if isinstance(right, Group) else ["", "", "\\,"]
            if isinstance(left, Number) and not isinstance(right, Group):
                joints.append(" ")  # between letters it would make words of them
            written += self.choose(joints) + self.part(right)
        return written


@st.composite
def styled(draw: st.DrawFn, parts: Sequence[Any]) -> str:
    """The parts in any styles."""
    writer = _Writer(draw)
    return writer.choose(_WRAPPINGS).format(writer.sequence(parts))


# --- tests ---------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", EQUATIONS)
def test_style_changes_nothing(engine: Any, plain: str) -> None:
    normal = engine.normalize(plain)
    matcher = engine.Matcher([[plain]])

    @settings(derandomize=True, database=None)
    @given(styled(EQUATIONS[plain]), st.sampled_from(_PROSE))
    def check(text: str, prose: str) -> None:
        assert engine.normalize(text) == normal
        assert matcher.match(prose.format(text)) == [True], engine.normalize(prose.format(text))

    check()


def test_different_statements_have_different_forms(engine: Any) -> None:
    forms = {engine.normalize(plain) for plain in EQUATIONS}
    assert len(forms) == len(EQUATIONS)
