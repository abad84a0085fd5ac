"""One verifier for all tests that only ask it; those that break it make their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from consensuspr.scoring.answers import AnswerVerifier


@pytest.fixture(scope="session")
def verifier() -> Iterator[AnswerVerifier]:
    """A verifier with the default limits."""
    with AnswerVerifier() as made:
        yield made


@pytest.fixture(scope="session")
def impatient() -> Iterator[AnswerVerifier]:
    """A verifier that gives an answer a fifth of the usual time."""
    with AnswerVerifier(budget_s=0.4) as made:
        yield made
