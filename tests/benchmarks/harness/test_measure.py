"""The order of contenders, the number of calls, and what memory a call takes."""

from __future__ import annotations

import gc

import pytest

from benchmarks.harness.measure import Timing, interleaved, peak_memory


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
    assert {name: timing.all for name, timing in timings.items()} == {
        "a": (1.0,) * 4,
        "b": (2.0,) * 4,
        "c": (3.0,) * 4,
    }


def test_a_short_function_is_repeated_and_timed_a_call() -> None:
    clock = Clock()
    timings = interleaved({"a": lambda: clock.work("a", 1e-4)}, 2, clock, shortest_s=0.01)
    assert timings["a"].best == pytest.approx(1e-4)
    assert len(clock.calls) > 2 * 100


def test_best_and_median_of_the_rounds() -> None:
    timing = Timing((3.0, 1.0, 2.0, 10.0))
    assert (timing.best, timing.median) == (1.0, 2.5)


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


def test_what_a_call_gives_back_counts_in_its_peak_alone() -> None:
    held: list[bytearray] = []

    def call() -> None:
        spent = bytearray(b"x" * 60_000_000)
        held.append(bytearray(b"x" * 20_000_000))
        del spent

    memory = peak_memory(call)
    assert memory.peak - memory.before >= 75_000_000
    assert 15_000_000 < memory.after - memory.before < 60_000_000
