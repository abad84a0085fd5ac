"""Answers before times: wrong contenders, and the order of turns."""

from __future__ import annotations

import pytest

from benchmarks.measure import SHORTEST_S, WrongAnswerError, fastest, require

KNOWN = [[True, False], [False, False]]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([[True, True], [False, False]], r"a found nodes \[0, 1\] in text 0, which reaches \[0\]"),
        ([[True, False], [True, False]], r"a found nodes \[0\] in text 1, which reaches \[\]"),
        ([[True, False], [False]], r"text 1"),
    ],
)
def test_wrong_answers_are_refused(found: list[list[bool]], message: str) -> None:
    require("a", KNOWN, KNOWN)
    with pytest.raises(WrongAnswerError, match=message):
        require("a", found, KNOWN)
    with pytest.raises(ValueError, match="zip"):
        require("a", KNOWN[:1], KNOWN)


class Clock:
    """A clock that the contenders themselves push on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[str] = []

    def work(self, name: str, seconds: float) -> None:
        self.calls.append(name)
        self.now += seconds

    def __call__(self) -> float:
        return self.now


def test_contenders_take_turns_in_changing_order() -> None:
    clock = Clock()
    work = {"a": 1.0, "b": 2.0, "c": 3.0}
    ways = {name: lambda n=name: clock.work(n, work[n]) for name in work}
    assert fastest(ways, 4, clock) == work
    assert "".join(clock.calls[-12:]) == "abcbcacababc"


def test_a_short_function_is_repeated_and_timed_a_call() -> None:
    clock = Clock()
    found = fastest({"a": lambda: clock.work("a", SHORTEST_S / 50)}, 2, clock)
    assert found["a"] == pytest.approx(SHORTEST_S / 50)
    assert len(clock.calls) >= 2 * 50


def test_the_best_round_counts() -> None:
    clock = Clock()
    seconds = iter([5.0, 5.0, 3.0, 1.0, 2.0])
    assert fastest({"a": lambda: clock.work("a", next(seconds))}, 3, clock) == {"a": 1.0}
