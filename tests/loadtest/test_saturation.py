"""The search finds the rate at which a server of known capacity gives in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from consensuspr.loadtest.load import Load
from consensuspr.loadtest.processes import RunProgress, RunResult
from consensuspr.loadtest.saturation import (
    MAX_STEPS,
    PRECISION,
    STABLE_WINDOWS,
    RateStep,
    Search,
    find_saturation,
)
from consensuspr.loadtest.settings import MAX_WINDOWS, LoadSettings
from consensuspr.loadtest.stats import LoadTally

WINDOW_S = 1.0
TICK_S = 0.25


@dataclass
class Model:
    """A server in numbers: answers up to its capacity, at a latency that the load decides.

    Attributes:
        capacity: requests a second; what is above waits, or is shed.
        sheds: whether what is above is refused.
        latency_s: of a request at a rate.
        late_first: the load generator is late in the first so many runs, which all look slow.
        swings: throughput doubles and vanishes from window to window.
        interrupt_at: Ctrl-C comes in this run, counted from 1; 0: in none.
    """

    capacity: float
    sheds: bool = False
    latency_s: Callable[[float], float] = lambda rate: 0.01
    late_first: int = 0
    swings: bool = False
    interrupt_at: int = 0
    rates: list[float] = field(default_factory=list)
    lengths: list[float] = field(default_factory=list)

    def run(self, load: Load, watch: Callable[[RunProgress], bool]) -> RunResult:
        rate = load.rates[0][0]
        self.rates.append(rate)
        late = len(self.rates) <= self.late_first
        latency_s = 1.0 if late else self.latency_s(rate)
        tally = LoadTally()
        tally.lag.record(0.5 if late else 0.0001)
        at_s, due, served = 0.0, 0.0, 0.0
        while at_s < load.duration_s:
            its = tally.timeline.at(at_s)
            share = 1.0
            if self.swings:
                share = 1.9 if int(at_s / WINDOW_S) % 2 else 0.1
            before = int(due), int(served)
            due += rate * TICK_S
            served += min(rate, self.capacity) * TICK_S * share
            its.due += int(due) - before[0]
            its.answered += int(served) - before[1]
            if self.sheds:
                its.shed += its.due - its.answered
            its.rollouts += its.answered
            for _ in range(max(1, its.answered)):
                its.latency.record(latency_s)
            at_s += TICK_S
            if self.interrupt_at == len(self.rates):
                return RunResult(tally, at_s, interrupted=True)
            if watch(RunProgress(at_s, tally, 0)):
                break
        self.lengths.append(at_s)
        return RunResult(tally, at_s, cpu_shares=[0.5])


def limits(**given: Any) -> LoadSettings:
    return LoadSettings(find_saturation=True, warmup=0, **({"window": WINDOW_S} | given))


def search(model: Model, start: float = 16, **given: Any) -> Search:
    return find_saturation(model.run, start, limits(**given))


@pytest.mark.parametrize("sheds", [False, True])
@pytest.mark.parametrize(("capacity", "start"), [(300, 16), (100, 16), (100, 1000), (37, 37)])
def test_finds_the_capacity(capacity: float, start: float, sheds: bool) -> None:
    model = Model(capacity, sheds=sheds)
    best = search(model, start=start).best
    assert best is not None
    # 95 % of a rate are enough, and the last gap is a tenth.
    assert capacity / (1 + PRECISION) <= best.rate <= capacity / 0.95 + 1
    assert model.rates[0] == start


def test_finds_the_rate_at_which_latency_passes_its_limit() -> None:
    model = Model(10_000, latency_s=lambda rate: 0.001 * rate)
    found = search(model, max_p99=100)
    assert found.best is not None
    assert 100 / (1 + PRECISION) <= found.best.rate <= 101
    assert found.best.p99_s is not None and found.best.p99_s <= 0.1
    assert "p99 is" in next(step.why for step in found.steps if not step.sustained)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (Model(0), "0 were answered where 48 were due"),
        (Model(10), "30 were answered where 48 were due"),
        (Model(8, sheds=True), "50.0% failed, ran out of time or were refused"),
    ],
)
def test_says_why_a_rate_is_not_sustained(model: Model, why: str) -> None:
    assert search(model).steps[0].why == why


def test_a_step_ends_when_its_windows_agree() -> None:
    model = Model(1000)
    step = search(model).steps[0]
    assert step.stable
    assert model.lengths[0] < (STABLE_WINDOWS + 1) * WINDOW_S + 2 * TICK_S


def test_a_step_that_breaks_its_limits_ends_soon_too() -> None:
    model = Model(10, swings=True)
    assert not search(model).steps[0].sustained
    assert model.lengths[0] >= MAX_WINDOWS * WINDOW_S
    model = Model(10, swings=False)
    assert not search(model).steps[0].sustained
    assert model.lengths[0] < (STABLE_WINDOWS + 1) * WINDOW_S + 2 * TICK_S


def test_a_step_whose_windows_never_agree_is_judged_and_says_so() -> None:
    model = Model(100, swings=True)
    step = search(model).steps[0]
    assert not step.stable
    assert model.lengths[0] >= MAX_WINDOWS * WINDOW_S


def test_a_step_that_the_load_generator_spoilt_is_made_once_more() -> None:
    model = Model(1000, late_first=1)
    found = search(model, max_p99=100)
    assert model.rates[:3] == [16, 16, 32]
    assert [step.sustained for step in found.steps[:3]] == [None, True, True]
    always = Model(1000, late_first=1000)
    found = search(always, max_p99=100)
    assert found.best is None
    assert always.rates[:4] == [16, 16, 8, 8]
    # Slow, perhaps, but whose fault it is nobody knows.
    assert {step.sustained for step in found.steps} == {None}
    assert found.steps[0].verdict == (
        "undecided: the slowest of 48 took 1,000.0 ms, but the load generator was late itself"
    )
    assert [step.rate for step in found.last_tries] == [1, 2, 4, 8, 16]
    assert [step.sustained for step in search(Model(1000, late_first=1)).last_tries[:2]] == [
        True,
        True,
    ]


@pytest.mark.parametrize("window_s", [0.5, 0.75, 1.0, 1.75, 4.75, 15.0])
def test_a_search_may_start_at_the_lowest_rate(window_s: float) -> None:
    found = search(Model(0), start=1 / window_s, window=window_s)
    assert [step.rate for step in found.steps] == [1 / window_s]


def test_a_server_that_answers_nothing_ends_the_search() -> None:
    found = search(Model(0.0))
    assert found.best is None
    assert 0 < len(found.steps) < MAX_STEPS


def test_a_server_without_limit_ends_the_search() -> None:
    rates: list[float] = []

    def run(load: Load, watch: Callable[[RunProgress], bool]) -> RunResult:
        rates.append(load.rates[0][0])
        tally = LoadTally()
        for tick in range(20):
            its = tally.timeline.at(tick * TICK_S)
            its.due = its.answered = 100
            its.latency.record(0.001)
        watch(RunProgress(4.5, tally, 0))
        return RunResult(tally)

    found = find_saturation(run, 1.0, limits())
    assert len(rates) == MAX_STEPS
    assert found.best is not None and found.best.rate == rates[-1]


def test_ctrl_c_ends_the_search_with_what_was_found() -> None:
    said: list[RateStep] = []
    model = Model(1000, interrupt_at=3)
    found = find_saturation(model.run, 16, limits(), said.append)
    assert found.result.interrupted
    assert found.best is not None and found.best.rate == 32
    assert said == found.steps and len(said) == 2
