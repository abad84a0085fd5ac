"""Answers before times: wrong contenders, and the order of turns."""

from __future__ import annotations

import gc

import pytest

from benchmarks.measure import WrongAnswerError, fastest, interleaved, require

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
    timings = interleaved(
        {
            "a": lambda: clock.work("a", 1.0),
            "b": lambda: clock.work("b", 2.0),
            "c": lambda: clock.work("c", 3.0),
        },
        rounds=4,
        clock=clock,
    )
    assert "".join(clock.calls[-12:]) == "abcbcacababc"
    assert timings == {"a": [1.0] * 4, "b": [2.0] * 4, "c": [3.0] * 4}


def test_a_short_function_is_repeated_and_timed_a_call() -> None:
    clock = Clock()
    timings = interleaved({"a": lambda: clock.work("a", 1e-4)}, 2, clock, shortest_s=0.01)
    assert timings["a"] == pytest.approx([1e-4, 1e-4])
    assert len(clock.calls) > 2 * 100


def test_the_best_round_counts() -> None:
    clock = Clock()
    seconds = iter([5.0, 5.0, 3.0, 1.0, 2.0])
    found = fastest({"a": lambda: clock.work("a", next(seconds))}, 3, clock)
    assert found == {"a": 1.0}


def test_no_garbage_is_collected_while_the_clock_runs() -> None:
    clock = Clock()
    enabled: list[bool] = []

    def look() -> None:
        enabled.append(gc.isenabled())
        clock.work("a", 1.0)

    interleaved({"a": look}, 3, clock)
    assert enabled[-3:] == [False] * 3
    assert gc.isenabled()


@pytest.mark.parametrize(("names", "rounds"), [(["a"], 0), ([], 3)])
def test_nothing_to_measure_is_refused(names: list[str], rounds: int) -> None:
    with pytest.raises(ValueError, match=f"got {rounds} and {len(names)}"):
        interleaved({name: lambda: None for name in names}, rounds)
