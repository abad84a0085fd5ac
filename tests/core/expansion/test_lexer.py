"""How the text of an expression splits into tokens."""

from __future__ import annotations

import pytest

from consensuspr.core.expressions.parser import TokenKind, tokenize


def kinds(text: str) -> list[tuple[str, str]]:
    """Return kind and text of every token before END."""
    tokens = tokenize(text)
    assert tokens[-1].kind is TokenKind.END
    return [(token.kind.name, token.text) for token in tokens[:-1]]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", "12"),
        (".5", "0.5"),
        ("2.50", "2.50"),
        ("1,200", "1200"),
        ("1{,}200", "1200"),
        ("12,345,678.5", "12345678.5"),
        ("$1,200", "1200"),
        ("\\$48", "48"),
        ("30^\\circ", "30"),
        ("30°", "30"),
    ],
)
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
        ("x_{12}'", [("NAME", "x_{12}'")]),
        ("a₁", [("NAME", "a₁")]),
        ("\\theta", [("NAME", "\\theta")]),
        ("x²", [("NAME", "x"), ("SUPERSCRIPT", "²")]),
        ("\\text{ total cost}", [("WORD", "total cost")]),
        ("\\mathbf{x}", [("NAME", "x")]),
        ("roll-ups", [("WORD", "roll-ups")]),
        ("sin", [("FUNCTION", "sin")]),
        ("½", [("VULGAR", "½")]),
        ("\\left( 3 \\right)", [("OPEN", "("), ("NUMBER", "3"), ("CLOSE", ")")]),
        ("3 \\pmod{7}", [("NUMBER", "3"), ("MODULO", "\\pmod{7}")]),
        ("3 (mod 7)", [("NUMBER", "3"), ("MODULO", "(mod 7)")]),
        ("\\implies", [("OTHER", "\\implies")]),
        ("\\log_2", [("OTHER", "\\log_2")]),
        ("→", [("OTHER", "→")]),
    ],
)
def test_names_words_and_commands(text: str, expected: list[tuple[str, str]]) -> None:
    assert kinds(text) == expected


def test_places_and_spacing_point_into_the_text() -> None:
    text = "12 cups*\\frac{3}{4}"
    tokens = tokenize(text)
    assert [text[token.start : token.end] for token in tokens[:4]] == ["12", "cups", "*", "\\frac"]
    assert [token.spaced for token in tokens[:3]] == [False, True, False]
