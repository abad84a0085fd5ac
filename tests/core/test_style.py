"""How a statement is typeset does not change it: every composition of styles, one normal form.

An equation is read part by part, and each part is written in a style that Hypothesis chooses, and
so are the blanks between the parts, the wrapping of the whole and the prose around it.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.conftest import alike

# ``/`` is a fraction, ``÷`` a sign between numbers; letters with a number have it below them.
EQUATIONS = """
12*4=48 1200*3=3600 12+3=15 20-8=12 84÷7=12 2.5*4=10 0.5+0.25=0.75 2*3*5=30 1000000-1=999999 x=5
x=-5 2x=6 2x+3y=12 abc=30 x^2=49 x^2-5x+6=0 2^10=1024 x^-1=0.2 x^2+y^2=25 (x+1)(x-1)=8 (a+b)^2=9
2(x+1)=6 n(n+1)=42 ((a+b)c-1)^2=4 3/4 1/2+1/3=5/6 (a+b)/2=7 (x+1)/(x-1)=3 n(n+1)/2=210 x/y=2/3
√2 √50=5√2 √(x+1)=3 √((a+b)/2)=c a1=3 x1+x2=5 a10=2a9 A=9π A=πr^2 α+β=90 Δ=b^2-4ac θ≤30 x≥1000
x≠0 π≈3.14 1/x^2=4 2/√3=a |x|=5 |a|+|b|=3 |x-3|=5 P=5/36
""".split()
_TOKEN = re.compile(r"[a-zA-Z]\d+|\d+(?:\.\d+)?|\^-?\d+|.")
_SIGN_TOKENS = tuple("+-*÷=≤≥≠≈")

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


class _Part(NamedTuple):
    """A part as it is written, and as where a fraction or a root stands for its brackets."""

    text: str
    inside: str
    is_number: bool = False


class _Writer:
    """Reads an equation and writes it in styles that it draws; the first is the plainest."""

    def __init__(self, draw: st.DrawFn, equation: str) -> None:
        self._draw = draw
        self._tokens = _TOKEN.findall(equation)
        self._bare = False  # a word before a number is a sign; before \\mathbf{4} it is a word

    def choose(self, *styles: str) -> str:
        return self._draw(st.sampled_from(styles))

    def around(self, inside: str, *styles: tuple[str, str]) -> str:
        left, right = self._draw(st.sampled_from(styles))
        return left + inside + right

    def blank(self) -> str:
        return self.choose(*_BLANKS)

    def sequence(self, end: str = "") -> str:
        written = ""
        while self._tokens and self._tokens[0] != end:
            if written and not self._bare:
                written += self.blank()
            written += self.sign() if self._tokens[0] in _SIGN_TOKENS else self.term().text
        del self._tokens[:1]
        return written

    def sign(self) -> str:
        kind = self._tokens.pop(0).replace("÷", "/")
        number, after = [*self._tokens, "", ""][:2]
        alone = number[:1].isdigit() and after in ("", *_SIGN_TOKENS, *")|")
        words = _WORDS_BEFORE_NUMBERS.get(kind, []) if alone else []
        chosen = self.choose(*_SIGNS[kind], *_WORDS.get(kind, []), *words)
        self._bare = chosen in words
        return chosen

    def term(self) -> _Part:
        """One factor, a product of several, or a fraction of two such terms."""
        part = self.factor()
        while self._tokens and self._tokens[0] not in (*_SIGN_TOKENS, *"/)|"):
            # Side by side; a blank before a bracket would make it a remark (rule 1).
            joints = [""] * 4 if self._tokens[0] == "(" else ["", "", "\\,"]
            if part.is_number and self._tokens[0] != "(":
                joints.append(" ")  # between letters it would make words of them
            joint = self.choose("*", " * ", "·", "×", "\\cdot ", "\\times ", " \\cdot ", *joints)
            text = part.text + joint + self.factor().text
            part = _Part(text, text)
        if self._tokens[:1] != ["/"]:
            return part
        self._tokens.pop(0)
        command = self.choose("\\frac", "\\dfrac", "\\tfrac", "\\cfrac", "/")
        below = self.term()
        text = f"{command}{{{part.inside}}}{{{below.inside}}}"
        if command == "/":
            bar = self.blank() + self.choose(*_SIGNS["/"]) + self.blank()
            text = part.text + bar + below.text
        return _Part(text, text)

    def factor(self) -> _Part:
        token = self._tokens.pop(0)
        if token == "(":
            inside = self.sequence(")")
            brackets = ("(", ")"), ("\\left(", "\\right)"), ("\\bigl(", "\\bigr)")
            text = self.around(inside, *brackets)
            return self.raised(text) if self.is_raised() else _Part(text, inside)
        if token == "|":
            bars = ("|", "|"), ("\\lvert ", "\\rvert "), ("\\left|", "\\right|")
            text = self.around(self.sequence("|"), *bars)
        elif token == "√":
            text = self.root()
        elif len(token) > 1 and token[0].isalpha():
            text = token[0] + self.index(token[1:])
        elif self.is_raised():
            text = token
        else:
            text = self.number(token) if token[0].isdigit() else self.letter(token)
        return self.raised(text) if self.is_raised() else _Part(text, text, token[0].isdigit())

    def is_raised(self) -> bool:
        return bool(self._tokens) and self._tokens[0][0] == "^"

    def raised(self, base: str) -> _Part:
        exponent = self._tokens.pop(0)[1:]
        styles = [f"^{{{exponent}}}", f"^{{ {exponent} }}", exponent.translate(_POWERS)]
        styles.append(f"^{exponent}")
        if exponent.isdigit():
            styles += [f"**{exponent}", f" ^ {exponent}"]
        text = base + self.choose(*styles)
        return _Part(text, text)

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
        return self.choose(*styles)

    def letter(self, name: str) -> str:
        if name in _GREEK:
            command = f"\\{_GREEK[name]}"
            return self.choose(name, f"{command} ", f"{{{name}}}", f"{{{command}}}")
        wide = chr(ord(name) + 0xFEE0)
        return self.choose(name, f"{{{name}}}", f"\\mathbf{{{name}}}", f"\\mathit{{{name}}}", wide)

    def index(self, below: str) -> str:
        styles = [f"_{{{below}}}", below.translate(_INDICES), below]
        return self.choose(*styles, *([f"_{below}"] if len(below) == 1 else []))

    def root(self) -> str:
        if not self._tokens[0][0].isdigit():
            inside = self.factor().inside
            signs = [f"\\sqrt{{{inside}}}", f"√({inside})", f"sqrt({inside})"]
            return self.choose(*signs, f"√{{{inside}}}")
        digits = self._tokens.pop(0)
        signs = [f"\\sqrt{{{digits}}}", f"√{digits}", f"√({digits})", f"sqrt({digits})"]
        return self.choose(*signs, f"\\sqrt {digits}", f"√{{{digits}}}")


@st.composite
def styled(draw: st.DrawFn, equation: str) -> str:
    """The equation in any styles."""
    writer = _Writer(draw, equation)
    return writer.choose(*_WRAPPINGS).format(writer.sequence())


@pytest.mark.parametrize("plain", EQUATIONS)
def test_style_changes_nothing(engine: Any, plain: str) -> None:
    normal = engine.normalize(plain)
    matcher = engine.Matcher([[plain]])
    assert engine.normalize(normal) == normal

    # More than 50 find a thin space between two letters and a third, ab\,c, which is read as a
    # blank between words.
    @alike(0.1)
    @given(styled(plain), st.sampled_from(_PROSE))
    def check(text: str, prose: str) -> None:
        assert engine.normalize(text) == normal
        assert matcher.match(prose.format(text)) == [True], engine.normalize(prose.format(text))

    check()


def test_different_statements_have_different_forms(engine: Any) -> None:
    forms = {engine.normalize(plain) for plain in EQUATIONS}
    assert len(forms) == len(EQUATIONS)
