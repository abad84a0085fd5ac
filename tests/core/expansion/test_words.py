"""Which words among the tokens are units, and which are signs."""

from __future__ import annotations

import pytest

from consensuspr.core.expressions.parser import is_sentence_word, read_words, tokenize


@pytest.mark.parametrize(
    ("text", "read", "dropped"),
    [
        ("5 cups + 3 cups = 8 cups", "5 + 3 = 8", True),
        ("2 fluid ounces * 3", "2 * 3", True),
        ("60 miles/hour * 2 hours", "60 * 2", True),
        ("12 \\text{ eggs}*3", "12 * 3", True),
        ("5kg + 3kg", "5 + 3", True),
        ("25% discount * 80", "25 % * 80", True),
        ("12\\text{ eggs}*3", "12 * 3", True),
        ("2ab + 3", "2 ab + 3", False),
        ("2\\text{length} + 3", "2 length + 3", False),
        ("2 AB + 3", "2 AB + 3", False),
        ("5 cups and 3", "5 cups and 3", False),
        ("5 of the cups + 3", "5 of the cups + 3", False),
        ("2 very large red fluid ounces + 3", "2 very large red fluid ounces + 3", False),
        ("2 sin(3)", "2 sin ( 3 )", False),
        ("3 x 4", "3 * 4", False),
        ("3 cups x 4", "3 * 4", True),
        ("(3+1) X 4", "( 3 + 1 ) * 4", False),
        ("3x = 4", "3 x = 4", False),
        ("x 4", "x 4", False),
        ("25% of 80", "25 % * 80", False),
        ("1/2 of 12", "1 / 2 * 12", False),
        ("½ of 12", "½ * 12", False),
        ("3 of 12", "3 of 12", False),
    ],
)
def test_reading(text: str, read: str, dropped: bool) -> None:
    tokens, units = read_words(tokenize(text))
    assert " ".join(token.text for token in tokens[:-1]) == read
    assert units is dropped


@pytest.mark.parametrize(("word", "is_one"), [("Then", True), ("or", True), ("cups", False)])
def test_words_of_sentences(word: str, is_one: bool) -> None:
    assert is_sentence_word(word) is is_one
