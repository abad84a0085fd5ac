"""Wrong contenders are refused, and named."""

from __future__ import annotations

import pytest

from benchmarks.harness.measure import WrongAnswerError, require

KNOWN = [[True, False], [False, False]]


def test_right_answers_pass() -> None:
    require("a", KNOWN, KNOWN)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([[True, False]], "a answered for 1 texts, and there are 2"),
        ([[True, True], [False, False]], r"a found nodes \[0, 1\] in text 0, which reaches \[0\]"),
        ([[True, False], [True, False]], r"a found nodes \[0\] in text 1, which reaches \[\] of 2"),
        ([[True, False], [False]], r"text 1"),
    ],
)
def test_wrong_answers_are_refused(found: list[list[bool]], message: str) -> None:
    with pytest.raises(WrongAnswerError, match=message):
        require("a", found, KNOWN)
