"""How an expression splits into tokens, which words are units, and how a formula is read."""

from __future__ import annotations

import pytest

from consensuspr.core.expressions import Call, Power, Product, Sum, Symbol, Unreadable
from consensuspr.core.expressions.parser import (
    TokenKind,
    is_sentence_word,
    parse_formula,
    parse_side,
    read_words,
    tokenize,
)


def kinds(text: str) -> list[tuple[str, str]]:
    """Return kind and text of every token before END."""
    tokens = tokenize(text)
    assert tokens[-1].kind is TokenKind.END
    return [(token.kind.name, token.text) for token in tokens[:-1]]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", "12"), (".5", "0.5"), ("2.50", "2.50"), ("1,200", "1200"), ("1{,}200", "1200"),
        ("12,345,678.5", "12345678.5"), ("$1,200", "1200"), ("\\$48", "48"), ("30^\\circ", "30"),
        ("30°", "30"),
    ],
)  # fmt: skip
def test_numbers_lose_what_only_sets_them(text: str, number: str) -> None:
    assert kinds(text) == [("NUMBER", number)]


@pytest.mark.parametrize("text", ["1,2", "1,20", "1,2000", "1, 200"])
def test_lists_are_no_numbers(text: str) -> None:
    assert ("OTHER", ",") in kinds(text)


@pytest.mark.parametrize(
    ("kind", "canonical", "spellings"),
    [
        ("MULTIPLY", "*", ["*", "×", "·", "⋅", "∗", "\\cdot", "\\times", "\\ast", "times"]),
        ("DIVIDE", "/", ["/", "÷", "\\div", "divided by"]),
        ("ADD", "+", ["+", "plus"]),
        ("SUBTRACT", "-", ["-", "−", "–", "minus"]),
        ("POWER", "^", ["^", "**"]),
        ("PERCENT", "%", ["%", "\\%", "percent"]),
        ("RELATION", "=", ["=", "==", "equals", "is equal to"]),
        ("RELATION", "<=", ["<=", "≤", "⩽", "\\le", "\\leq", "\\leqslant"]),
        ("RELATION", ">=", [">=", "≥", "⩾", "\\ge", "\\geq", "\\geqslant"]),
        ("RELATION", "≠", ["!=", "≠", "\\ne", "\\neq"]),
        ("FRACTION", "\\frac", ["\\frac", "\\dfrac", "\\tfrac", "\\cfrac"]),
        ("ROOT", "\\sqrt", ["\\sqrt", "√", "sqrt"]),
    ],
)
def test_every_spelling_of_a_sign_is_one_token(
    kind: str, canonical: str, spellings: list[str]
) -> None:
    for spelling in spellings:
        assert kinds(spelling) == [(kind, canonical)], spelling


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x_{12}'", [("NAME", "x_{12}'")]), ("a₁", [("NAME", "a₁")]),
        ("\\theta", [("NAME", "\\theta")]), ("x²", [("NAME", "x"), ("SUPERSCRIPT", "²")]),
        ("\\text{ total cost}", [("WORD", "total cost")]), ("\\mathbf{x}", [("NAME", "x")]),
        ("roll-ups", [("WORD", "roll-ups")]), ("sin", [("FUNCTION", "sin")]),
        ("½", [("VULGAR", "½")]),
        ("\\left( 3 \\right)", [("OPEN", "("), ("NUMBER", "3"), ("CLOSE", ")")]),
        ("3 \\pmod{7}", [("NUMBER", "3"), ("MODULO", "\\pmod{7}")]),
        ("3 (mod 7)", [("NUMBER", "3"), ("MODULO", "(mod 7)")]),
        ("\\implies", [("OTHER", "\\implies")]), ("\\log_2", [("OTHER", "\\log_2")]),
        ("→", [("OTHER", "→")]),
    ],
)  # fmt: skip
def test_names_words_and_commands(text: str, expected: list[tuple[str, str]]) -> None:
    assert kinds(text) == expected


def test_places_and_spacing_point_into_the_text() -> None:
    text = "12 cups*\\frac{3}{4}"
    tokens = tokenize(text)
    assert [text[token.start : token.end] for token in tokens[:4]] == ["12", "cups", "*", "\\frac"]
    assert [token.spaced for token in tokens[:3]] == [False, True, False]


@pytest.mark.parametrize(
    ("text", "read", "dropped"),
    [
        ("5 cups + 3 cups = 8 cups", "5 + 3 = 8", True), ("2 fluid ounces * 3", "2 * 3", True),
        ("60 miles/hour * 2 hours", "60 * 2", True), ("12 \\text{ eggs}*3", "12 * 3", True),
        ("5kg + 3kg", "5 + 3", True), ("25% discount * 80", "25 % * 80", True),
        ("12\\text{ eggs}*3", "12 * 3", True), ("2ab + 3", "2 ab + 3", False),
        ("2\\text{length} + 3", "2 length + 3", False), ("2 AB + 3", "2 AB + 3", False),
        ("5 cups and 3", "5 cups and 3", False), ("5 of the cups + 3", "5 of the cups + 3", False),
        ("2 very large red fluid ounces + 3", "2 very large red fluid ounces + 3", False),
        ("2 sin(3)", "2 sin ( 3 )", False), ("3 x 4", "3 * 4", False),
        ("3 cups x 4", "3 * 4", True), ("(3+1) X 4", "( 3 + 1 ) * 4", False),
        ("3x = 4", "3 x = 4", False), ("x 4", "x 4", False), ("25% of 80", "25 % * 80", False),
        ("1/2 of 12", "1 / 2 * 12", False), ("½ of 12", "½ * 12", False),
        ("\\frac{1}{2} of 12", "\\frac { 1 } { 2 } * 12", False),
        ("(1+1) of 12", "( 1 + 1 ) of 12", False), ("3 of 12", "3 of 12", False),
    ],
)  # fmt: skip
def test_words_are_units_or_signs(text: str, read: str, dropped: bool) -> None:
    tokens, units = read_words(tokenize(text))
    assert " ".join(token.text for token in tokens[:-1]) == read
    assert units is dropped


@pytest.mark.parametrize(("word", "is_one"), [("Then", True), ("or", True), ("cups", False)])
def test_words_of_sentences(word: str, is_one: bool) -> None:
    assert is_sentence_word(word) is is_one


# What answers and node expressions are both made of, and read alike.
SHARED = ["2+3*4", "(1+2)(3+4)", "x^2-4", "2x", "a*b/c", "\\binom{5}{2}", "5!"]


@pytest.mark.parametrize("text", SHARED)
def test_both_notations_have_one_tree(text: str) -> None:
    assert parse_formula(text).tree == parse_side(tokenize(text)[:-1])


def test_a_formula_stays_nested_and_a_side_is_flat() -> None:
    nested, flat = parse_formula("a-(b+c)").tree, parse_side(tokenize("a-(b+c)")[:-1])
    assert isinstance(nested, Sum) and isinstance(flat, Sum)
    assert [type(term) for _, term in nested.terms] == [Symbol, Sum]
    assert [(sign, type(term)) for sign, term in flat.terms] == [
        (1, Symbol), (-1, Symbol), (-1, Symbol),
    ]  # fmt: skip


def test_letters_of_a_formula_are_factors_and_those_of_a_side_a_word() -> None:
    assert parse_formula("xy").tree == Product([(False, Symbol("x")), (False, Symbol("y"))])
    assert parse_side(tokenize("xy")[:-1]) == Symbol("xy")


@pytest.mark.parametrize(
    ("text", "is_call"), [("\\frac{1}{2}", True), ("1\\frac{2}{3}", True), ("2^3^4", False)]
)
def test_a_formula_has_towers_and_mixed_numbers(text: str, is_call: bool) -> None:
    assert isinstance(parse_formula(text).tree, Call if is_call else Power)


@pytest.mark.parametrize(
    ("text", "ambiguous"),
    [
        ("x(x+1)", False), ("y(0)", True), ("a(b+c)", False), ("T(n-1)", True),
        ("\\pi(r+1)", False), ("\\pi(r)", True), ("dx", True), ("{d}y", True), ("\\Delta x", True),
        ("y^{(2)}", True), ("x^(2)", True), ("x^-{2}", True), ("x^+{2}", True), ("x^{2}", False),
        ("x^-2", False), ("x^2^3", True),
        ("\\sqrt x", True), ("\\sqrt{x}", False), ("2.5\\frac{1}{2}", True),
    ],
)  # fmt: skip
def test_what_may_mean_something_else_is_marked(text: str, ambiguous: bool) -> None:
    assert parse_formula(text).ambiguous is ambiguous


@pytest.mark.parametrize("text", ["", "1+", "(1", "1 2", "[1)", "1/2x", "é", "\\sin x", "1,2"])
def test_what_is_no_formula_is_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        parse_formula(text)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("\\sqrt[3]{x}", ("\\sqrt[3]{", "}")), ("\\sqrt 2", ("\\sqrt{", "}")),
        ("√x", ("\\sqrt{", "}")), ("sin(x)", ("sin(", ")")), ("f(2)", ("f(", ")")),
        ("|x|", ("|", "|")), ("(1+2)!", ("(", ")!")),
    ],
)  # fmt: skip
def test_roots_functions_and_bars_are_calls(text: str, pieces: tuple[str, str]) -> None:
    tree = parse_side(tokenize(text)[:-1])
    assert isinstance(tree, Call) and tree.pieces == pieces and len(tree.arguments) == 1
