"""The corpus: which equations other problems state, in bounded memory."""

from __future__ import annotations

import pytest

from consensusbench.extraction import corpus
from consensusbench.extraction.corpus import MAX_CHARS, Corpus, equation_of, order_of

TEXTS = [(f"p{number % 40}", f"so x + {number % 7}y = {number % 3}z") for number in range(200)]


def facts(made: Corpus) -> tuple[list[int], list[int], int]:
    return made.keys.tolist(), made.problems.tolist(), made.num_problems


def test_the_order_of_texts_does_not_matter_and_repetitions_count_once() -> None:
    assert facts(Corpus.of(TEXTS[::-1] + TEXTS)) == facts(Corpus.of(TEXTS))
    fact = equation_of("2y + x = z")
    assert fact is not None
    owners = {name for name, text in TEXTS if text == "so x + 2y = 1z"}
    assert Corpus.of(TEXTS).num_others(fact.keys[0], "p-new") == len(owners)
    assert Corpus.of(TEXTS).num_others(fact.keys[0], min(owners)) == len(owners) - 1
    assert facts(Corpus.of([])) == ([], [], 0)


def test_of_many_problems_the_same_ones_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    every = Corpus.of(TEXTS)
    monkeypatch.setattr(corpus, "MAX_PROBLEMS", 10)
    for texts in (TEXTS, TEXTS[::-1]):
        few = Corpus.of(texts)
        assert few.num_problems == 10
        assert {*few.problems.tolist()} == {*sorted({*every.problems.tolist()})[:10]}


def test_of_a_long_text_the_end_is_read() -> None:
    early, late = "so a^2 + 3b = 71c, ", "and d^2 + 5f = 73g"
    read = facts(Corpus.of([("p", early + "word " * (MAX_CHARS // 5) + late)]))
    assert read == facts(Corpus.of([("p", late)]))
    assert read[1] == [order_of("p")] * len(read[0]) != []
