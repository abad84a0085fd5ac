"""What holds for every text that is read for statements: the engines agree, and truth is truth.

Texts are glued from pieces of prose, LaTeX and code that mean something to the reader, and from
equations that are written in many ways.
"""

from __future__ import annotations

from fractions import Fraction
from operator import add, mul, sub, truediv
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.core.pure.statements import expression_keys, read_statements
from consensuspr.core.pure.statements.code import split_code
from consensuspr.core.statements import TrueStatement, operands_hash
from tests.core.conftest import alike

PIECES = [
    # numbers and names
    "1", "2", "12", "3.5", "1,250", "0", "00", ".5", "5.", "x", "n", "x_1", "x_{2}", "5cm", "3rd",
    "3x", "5ab", "999999999999999999", "12345678901234567890", "15:10", "1.2.3", "½", "7 1/2",
    "ａ", "１２", "é", "共", "Ⅻ", "Ω", "π", "\ud800", "\x00",
    # words
    "apples", "is", "is about", "is equal to", "equals", "makes", "plus", "minus", "times", "of",
    "half", "half of 26", "a third of 12", "twice", "twice 13", "and", "per", "about", "total",
    "divided by", "multiplied by", "percent", "20% of 45", "km/h", "8-hour", "(1959 penny)",
    # signs
    " ", "  ", "\n", "\n\n", "\r\n", "\t", "=", "= ", "≈", "==", "!=", "<", "<=", "<<", ">>",
    "->",
    "+", "-", "--", "*", "**", "***", "/", "//", "^", "×", "−", "²", "√", "%", "°C", "!", "?", ":",
    ";", ",", ".", "...", "…", "|", "&", "~", "$", "_", "`", "#", "@", "'", '"', "(", ")", "[",
    "]",
    # LaTeX
    "{", "}", "{,}", "\\", "\\\\", "\\%", "\\frac", "\\frac{1}{2}", "\\frac12", "\\frac{",
    "\\text{",
    "\\times", "\\cdot", "\\boxed{", "^\\circ", "\\circ", "\\left(", "\\right)", "\\sqrt{",
    "\\begin{align*}", "\\end{align}", "\\ne", "\\approx",
    # lists and tables
    "1. ", "- ", "* ", "(2) ", "• ", "| ",
    # code
    "```", "```python\n", "~~~", "def f(a):\n", "    ", "return ", "print(", "x = ", "x += ",
    "a, b = 3, 4\n", "for i in x:\n", "if a:\n", "else:\n", '"""', "import a\n", "lambda", "int(",
    "round(7, 2)", "Rational(3, 8)", ", 2)", "(z := 5)", "[x for x in y]", "x = 16\n",
    "y = x * 2\n",
    "total = (1 +\n 2)\n", "f'{x}'", "while x:\n    x += 1\n",
    # statements
    "12 = 3*4", "5 apples + 3 apples = 8 apples", "180 / 12 eggs = 15", "26 plus 17 makes 43",
    "(2+3)*4 = 20", "5(3+2) = 25", "50/7 ≈ 7.14", "2^3 = 8", "-3 + 5 = 2", "3x = 48\n", "x = 16",
    "Total = 7+5\n", "Total = 12\n", "\\frac{45}{5} = 9",
]  # fmt: skip
TEXTS = st.lists(
    st.tuples(st.sampled_from(PIECES), st.sampled_from(["", "", "", " ", " ", "\n"])), max_size=40
).map(lambda pairs: "".join(piece + blank for piece, blank in pairs))

# Rows of words before a number, of which the compiled reader passes over what says nothing to it.
WORDS = [
    "half", "third", "Of", "of", "twice", "percent", "recent", "is", "equals", "a", "x", "b", "m",
    "total", "number", "cost:", ":", "cats'", "don't", "'quoted", "b`c", "$a$", "`", "<",
    "\\text{", "}", "(", "cats(", "&", "l'été", "é", "~a", "x_1", "and", "multiplied", "by", "to",
    "about",
]  # fmt: skip
ROWS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(WORDS), max_size=16).map(" ".join),
        st.sampled_from([" ", "", "\n"]),
        st.sampled_from(["3 * 5 = 15", "26 is 13", "+ 2 = 5", "(3 + 4) = 7", "b1(", "2\n", "5, "]),
    ),
    max_size=4,
).map(lambda rows: " ".join(map("".join, rows)))


def _rows(
    text: str | bytes,
) -> tuple[list[tuple[int, int, int, int, int, bool, bool, bool]], int, int]:
    """Return the statements of the pure engine in the form of the compiled one."""
    found = read_statements(text)
    rows = [(*one.key.value, operands_hash(one.key.operands), *one[1:]) for one in found.statements]
    return rows, found.num_values, len(found.numbers)


@alike(2)
@given(TEXTS | ROWS)
def test_the_readers_agree(engines: Any, text: str) -> None:
    from consensuspr.core.native.statements import read_statements as compiled

    assert compiled(text) == _rows(text)


FILLED = "word " * 20


@pytest.mark.parametrize(
    "text",
    [
        # A stop among the words leaves no brace open.
        "\\text{a < " + FILLED + "5} * 3 = 15",
        "\\text{cats' " + FILLED + "5} * 3 = 15",
        "\\text{" + FILLED + "cats' " + FILLED + "\n5} * 3 = 15",
        # Letters that follow an unknown one are unknown.
        "b`c " + "d e " * 30 + "5 = 5 * 1",
        "we have b`c percent d 5 = 2 + 3",
        # What is said of the word before, and of words further back.
        FILLED + "cost `+ 5 = 2 + 3",
        FILLED + "cats(3 + 4) = 7",
        FILLED + "half of the large 26 = 13",
        ") s t a x o l o half of the sum 36 equals 18",
        # A colon counts in the length of a stretch.
        FILLED + ": " + "1+1=2=" * 60 + "2",
    ],
)
def test_the_readers_agree_after_many_words(engines: Any, text: str) -> None:
    from consensuspr.core.native.statements import read_statements as compiled

    assert compiled(text) == _rows(text)


@alike()
@given(TEXTS, st.integers(0), st.integers(0, 255))
def test_the_readers_agree_on_a_broken_byte(engines: Any, text: str, at: int, byte: int) -> None:
    from consensuspr.core.native.statements import read_statements as compiled

    data = bytearray(text.encode("utf-8", "surrogatepass") or b" ")
    data[at % len(data)] = byte
    assert compiled(bytes(data)) == _rows(bytes(data))


@alike()
@given(TEXTS, st.lists(st.lists(st.sampled_from(["12=3*4", "2^3=8", "16*2=32"]), max_size=2)))
def test_the_engines_agree_on_channels_hits_and_counts(
    engines: Any, text: str, nodes: list[list[str]]
) -> None:
    seen = []
    for engine in engines:
        matcher = engine.Matcher(nodes)
        batch = engine.match_batch([matcher], [text])
        hits = matcher.hits(text)
        channels = batch.channels(0).tolist()
        assert channels == [hit.channel if hit else 0 for hit in hits]
        assert matcher.match(text) == [bool(one) for one in channels]
        seen.append((hits, batch.num_values.tolist(), batch.num_numbers.tolist()))
    assert seen[0] == seen[1]


@alike()
@given(TEXTS)
def test_spans_lie_in_the_text(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    for one in read_statements(text).statements:
        assert 0 <= one.start < one.end <= len(data)
        # Both ends are those of characters, and there is a number in between, or a name of one.
        shown = data[one.start : one.end].decode("utf-8", "surrogatepass")
        assert one.code or any(map(str.isnumeric, shown))


@alike()
@given(TEXTS, TEXTS)
def test_a_paragraph_that_follows_changes_nothing(text: str, other: str) -> None:
    # A fence or a string that is open goes on, and so does a program.
    is_code = any(region.is_code for region in split_code(text))
    if is_code or any(mark in text for mark in ("```", "~~~", '"""')):
        return
    before = read_statements(text).statements
    after = read_statements(f"{text}\n\nThe cat sat. {other}").statements
    assert after[: len(before)] == before


# --- equations ---------------------------------------------------------------------------------


_APPLY = {"+": add, "-": sub, "*": mul, "/": truediv}


@st.composite
def equations(draw: st.DrawFn) -> tuple[str, Fraction, list[str]]:
    """Draw an expression with two or more operands, its value, and the operands."""
    operands = draw(st.lists(st.integers(2, 999).map(str), min_size=2, max_size=5))
    text, value = operands[0], Fraction(int(operands[0]))
    product = draw(st.booleans())
    for operand in operands[1:]:
        op = draw(st.sampled_from("*/" if product else "+-"))
        text += f" {op} {operand}"
        value = _APPLY[op](value, Fraction(int(operand)))
    return text, value, operands


def _whole(text: str) -> list[TrueStatement]:
    return [one for one in read_statements(text).statements if one.whole]


@alike()
@given(equations())
def test_a_true_equation_states_its_value_and_operands(
    equation: tuple[str, Fraction, list[str]],
) -> None:
    text, value, operands = equation
    if value.denominator != 1:
        return
    (one,) = _whole(f"{text} = {value}")
    assert one.key.value == (value.numerator, 1)
    assert one.key.operands == tuple(sorted((int(operand), 1) for operand in operands))


@alike()
@given(equations(), st.integers(-9, 9).filter(bool))
def test_a_false_equation_never_states(equation: tuple[str, Fraction, list[str]], off: int) -> None:
    text, value, _ = equation
    for wrong in (round(value) + 2 * off, f"{float(value) + off:.3f}"):
        assert read_statements(f"{text} = {wrong}").statements == []
        assert read_statements(f"{wrong} = {text}").statements == []
    assert read_statements(f"{text} == {value}").statements == []


@alike()
@given(st.lists(st.integers(2, 99), min_size=2, max_size=6), st.data())
@pytest.mark.parametrize("op", ["+", "*"])
def test_commuting_keeps_the_key(op: str, operands: list[int], data: st.DataObject) -> None:
    other = data.draw(st.permutations(operands))
    first, second = (f" {op} ".join(map(str, numbers)) for numbers in (operands, other))
    value = eval(first)
    (one,) = expression_keys(f"{first}={value}")
    assert [found.key for found in _whole(f"{value} = {second}")] == [one]


@alike()
@given(equations())
def test_code_and_prose_make_the_same_key(equation: tuple[str, Fraction, list[str]]) -> None:
    text, value, operands = equation
    names = [f"n{index}" for index in range(len(operands))]
    lines = [f"{name} = {operand}" for name, operand in zip(names, operands, strict=True)]
    ops = [part for part in text.split() if part in "+-*/"]
    body = names[0] + "".join(f" {op} {name}" for op, name in zip(ops, names[1:], strict=True))
    (one,) = _whole("\n".join(["```python", *lines, f"y = {body}"]))
    assert one.code
    assert one.key.value == value.as_integer_ratio()
    if value.denominator == 1:
        assert [found.key for found in _whole(f"{text} = {value}")] == [one.key]
