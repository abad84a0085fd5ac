"""Answers before times: wrong contenders, the order of turns, memory, what the machine is."""

from __future__ import annotations

import gc
import math
import platform
import time
from pathlib import Path

import pytest

from benchmarks.harness import machine
from benchmarks.harness.machine import Moment
from benchmarks.measure import WrongAnswerError, fastest, interleaved, peak_memory, require
from benchmarks.processes import fresh
from consensuspr import core

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


def test_what_a_call_gives_back_counts_in_its_peak_alone() -> None:
    held: list[bytearray] = []

    def call() -> None:
        spent = bytearray(b"x" * 60_000_000)
        held.append(bytearray(b"x" * 20_000_000))
        del spent

    memory = peak_memory(call)
    assert memory.peak - memory.before >= 75_000_000
    assert 15_000_000 < memory.after - memory.before < 60_000_000


def test_a_call_in_a_fresh_process_gives_its_result_alone() -> None:
    assert fresh(divmod, 7, 2) == (3, 1)
    assert fresh(print, "what is printed is no result") is None
    with pytest.raises(RuntimeError, match=r"math\.sqrt ended with exit code 1"):
        fresh(math.sqrt, -1.0)


def test_machine_and_build_are_described(repository: Path) -> None:
    about = machine.describe()
    assert about.cores >= 1
    assert about.memory_bytes > 1 << 28
    assert about.python.endswith(platform.python_version())
    assert about.backend == core.BACKEND
    assert about.normal_form == core.NORMAL_FORM_VERSION
    assert {"numpy", "grpcio"} <= set(about.libraries)
    assert about.commit


def test_nothing_names_the_host_or_a_folder(repository: Path) -> None:
    text = machine.describe().model_dump_json()
    assert str(repository) not in text
    assert str(Path.home()) + "/" not in text


@pytest.mark.parametrize(
    ("busy", "own", "share"), [(10.0, 10.0, 0.0), (10.0, 5.0, 0.5), (3.0, 5.0, 0.0)]
)
def test_what_others_took_is_what_was_not_ours(
    monkeypatch: pytest.MonkeyPatch, busy: float, own: float, share: float
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    before = Moment(wall=100.0, busy=50.0, own=7.0, load=0.0)
    after = Moment(wall=105.0, busy=50.0 + busy, own=7.0 + own, load=1.0)
    assert after.others_since(before) == pytest.approx(share)


@pytest.mark.slow
def test_own_work_is_in_the_clocks() -> None:
    before = Moment.now()
    while time.process_time() < before.own + 0.05:
        sum(range(10_000))
    after = Moment.now()
    assert after.own >= before.own + 0.04
    assert after.busy >= before.busy
    assert 0 <= after.others_since(before) <= 1
