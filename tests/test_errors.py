"""The exception tree: an error keeps its fields on the way to another process."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator

import pytest

from consensuspr import errors
from consensuspr.client.training import TooManyUnscorable, UnscorableSample
from consensuspr.errors import (
    MAX_KNOWN,
    ConsensusPRError,
    DataError,
    DatasetMismatch,
    Overloaded,
    did_you_mean,
)
from consensuspr.scoring.types import Score, Status

MADE = {
    DataError: DataError("rows.jsonl", 3, "is no JSON"),
    Overloaded: Overloaded("too busy", 2.5),
    DatasetMismatch: DatasetMismatch("other data", "sha256:0"),
    UnscorableSample: UnscorableSample(Score(Status.NO_NODES), "problem 'a' ended with NO_NODES"),
    TooManyUnscorable: TooManyUnscorable("12 of 20 samples"),
}


def _errors() -> Iterator[ConsensusPRError]:
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, ConsensusPRError):
            yield MADE.get(kind) or kind("a sentence")
    yield MADE[UnscorableSample]
    yield MADE[TooManyUnscorable]


@pytest.mark.parametrize("error", list(_errors()), ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling(error: ConsensusPRError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize(
    ("others", "hint"), [(MAX_KNOWN - 1, "; did you mean 'wrong'?"), (MAX_KNOWN, ""), (10**9, "")]
)
def test_a_near_word_is_sought_among_few(others: int, hint: str) -> None:
    known = itertools.chain(["wrong"], map(str, range(others)))
    assert did_you_mean("wrnog", known) == hint
