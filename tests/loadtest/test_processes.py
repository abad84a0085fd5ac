"""One process's run: nothing hides from the clock, and nothing is lost."""

from __future__ import annotations

import asyncio
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from consensuspr.loadtest.load import IN_FLIGHT_BYTES, Load
from consensuspr.loadtest.processes import ProcessRun, ProcessSetup, Start, _noted_interrupt
from consensuspr.loadtest.settings import LoadSettings
from consensuspr.loadtest.stats import (
    OK,
    LoadReply,
    LoadTally,
    Recorder,
    RequestOutcome,
    ScoreSampler,
)
from consensuspr.scoring.types import Score, Status

RIGHT = Score(Status.OK, reward=1.0)


def answered(positions: tuple[int, ...] = (0,)) -> RequestOutcome:
    return RequestOutcome(
        OK, reply=LoadReply(positions, 10, {"OK": len(positions)}, "d", lambda _: RIGHT)
    )


class OneAtATime:
    """A sender that answers at once, except in a pause; memory allows one request in flight.

    Attributes:
        request_bytes: so large that a second request does not fit.
        stall_s: how long the pause is that begins with the first request after ``stall_at``.
    """

    request_bytes = float(IN_FLIGHT_BYTES)

    def __init__(self, stall_at: float = 0.0, stall_s: float = 0.0) -> None:
        self.stall_at = stall_at
        self.stall_s = stall_s
        self.numbers: list[int] = []
        self.peak = 0
        self._running = 0

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def send(self, number: int, timeout: float) -> RequestOutcome:
        self.numbers.append(number)
        self._running += 1
        self.peak = max(self.peak, self._running)
        try:
            if self.stall_s and time.monotonic() >= self.stall_at:
                stall_s, self.stall_s = self.stall_s, 0.0
                if stall_s > timeout:
                    await asyncio.sleep(timeout)
                    return RequestOutcome("DEADLINE_EXCEEDED", "too slow")
                await asyncio.sleep(stall_s)
            else:
                await asyncio.sleep(0)
            return answered()
        finally:
            self._running -= 1


def order(settings: LoadSettings, start: float, requests: int | None = None) -> Start:
    return Start(start, Load.of(settings), settings.concurrency, 0, requests)


def settings_of(rate: float | None, concurrency: int = 8, **given: Any) -> LoadSettings:
    """Return an open loop, or a closed one where there is no rate."""
    return LoadSettings(
        **given, **({"concurrency": concurrency} if rate is None else {"rate": rate})
    )


def setup_of(settings: LoadSettings, number: int = 0, processes: int = 1) -> ProcessSetup:
    target: Any = None  # the senders here need none
    return ProcessSetup(target, settings, (), number, processes, 1)


async def run_to_end(
    settings: LoadSettings, sender: OneAtATime, start: float, requests: int | None = None
) -> LoadTally:
    recorder = Recorder(start, ScoreSampler(0, 0))
    await ProcessRun(
        setup_of(settings), order(settings, start, requests), sender, recorder
    ).carry_out()
    return recorder.take()


async def test_requests_that_had_to_wait_count_from_when_they_were_due() -> None:
    settings = LoadSettings(rate=100, duration=1, warmup=0)
    start = time.monotonic() + 0.05
    sender = OneAtATime(stall_at=start + 0.25, stall_s=0.5)
    tally = await run_to_end(settings, sender, start)
    # Only one was ever in flight; a tester that measures from the send would see one slow one.
    assert sender.peak == 1
    assert tally.sent == tally.answered == 100
    assert tally.held >= 40
    p50, p75, p95 = (each or 0.0 for each in tally.latency.percentiles((50, 75, 95)))
    assert p75 >= 0.2
    assert p95 >= 0.4
    assert p50 < p75
    assert tally.latency.max_s >= 0.45
    assert tally.timeline.between(0.25, 0.5).latency.percentile(1) >= 0.2  # type: ignore[operator]


async def test_requests_whose_time_passes_while_they_wait_are_not_forgotten() -> None:
    settings = LoadSettings(rate=100, duration=0.75, warmup=0, timeout=0.3)
    start = time.monotonic() + 0.05
    sender = OneAtATime(stall_at=start + 0.2, stall_s=1.0)
    tally = await run_to_end(settings, sender, start)
    assert tally.sent == tally.answered + tally.timed_out == 75
    assert tally.codes["DEADLINE_EXCEEDED"] >= 1
    assert tally.latency.count == 75
    assert tally.latency.max_s >= 0.3


async def test_the_warm_up_is_counted_nowhere() -> None:
    settings = LoadSettings(rate=200, duration=0.25, warmup=0.25)
    sender = OneAtATime()
    tally = await run_to_end(settings, sender, time.monotonic() + 0.3)
    assert len(sender.numbers) == 100
    assert tally.sent == tally.answered == tally.latency.count == 50


@pytest.mark.parametrize(("rate", "requests"), [(200.0, 30), (None, 30)])
async def test_ends_after_so_many_requests(rate: float | None, requests: int) -> None:
    settings = settings_of(rate, concurrency=4, duration=20, warmup=0.1)
    tally = await run_to_end(settings, OneAtATime(), time.monotonic() + 0.15, requests)
    assert tally.sent == tally.answered == requests


async def test_a_closed_loop_does_not_storm_a_server_that_refuses() -> None:
    class Refuses(OneAtATime):
        async def send(self, number: int, timeout: float) -> RequestOutcome:
            self.numbers.append(number)
            return RequestOutcome("RESOURCE_EXHAUSTED", "full", shed=True, retry_after_s=0.2)

    sender = Refuses()
    settings = LoadSettings(concurrency=2, duration=0.5, warmup=0)
    tally = await run_to_end(settings, sender, time.monotonic() + 0.05)
    assert 2 <= len(sender.numbers) <= 6
    assert tally.shed == len(sender.numbers) and tally.failed == 0
    assert tally.latency.count == 0


@pytest.mark.parametrize("rate", [50.0, None])
async def test_a_stop_gives_up_what_is_in_flight(rate: float | None) -> None:
    settings = settings_of(rate, concurrency=1, duration=60, warmup=0)
    start = time.monotonic()
    sender = OneAtATime(stall_at=start + 0.2, stall_s=50)
    recorder = Recorder(start, ScoreSampler(0, 0))
    run = ProcessRun(setup_of(settings), order(settings, start), sender, recorder)
    running = asyncio.create_task(run.carry_out())
    await asyncio.sleep(0.6)
    run.stop()
    async with asyncio.timeout(10):
        await running
    tally = recorder.take()
    assert tally.answered >= 1
    assert tally.abandoned >= 1
    assert sum(tally.ends.values()) == tally.sent


@pytest.mark.parametrize("waits", [False, True])
async def test_what_a_stop_finds_unsent_is_not_forgotten(waits: bool) -> None:
    """Requests that were handed over a moment ago, and those that wait for room in flight."""

    class NeverEnds(OneAtATime):
        async def send(self, number: int, timeout: float) -> RequestOutcome:
            await asyncio.Event().wait()
            raise AssertionError

    settings = settings_of(100, duration=60, warmup=0)
    start = time.monotonic() - 1.0
    sender = NeverEnds()
    recorder = Recorder(start, ScoreSampler(0, 0))
    run = ProcessRun(setup_of(settings), order(settings, start), sender, recorder)
    running = asyncio.create_task(run.carry_out())
    if waits:
        run._limit = 3
        while not run._waiting:
            await asyncio.sleep(0.01)
    else:
        run._limit = 100
        run._begin([start + 0.1, start + 0.2])  # their tasks have not begun
    run.stop()
    async with asyncio.timeout(10):
        await running
    tally = recorder.take()
    assert tally.abandoned >= 2
    assert sum(tally.ends.values()) == tally.sent
    assert sum(its.abandoned for _, its in tally.timeline.bins()) == tally.abandoned
    assert sum(its.due for _, its in tally.timeline.bins()) == tally.sent


async def test_a_defect_of_the_sender_is_not_swallowed() -> None:
    class Broken(OneAtATime):
        async def send(self, number: int, timeout: float) -> RequestOutcome:
            raise ZeroDivisionError

    for rate in (50.0, None):
        settings = settings_of(rate, duration=30, warmup=0)
        with pytest.raises(ZeroDivisionError):
            await run_to_end(settings, Broken(), time.monotonic())


async def test_processes_share_one_schedule() -> None:
    load = Load(((40.0, 40.0),), 0.5)
    settings = LoadSettings(rate=40, duration=0.5, warmup=0, processes=3)
    start = time.monotonic() + 0.05
    sent = []
    for number in range(3):
        recorder = Recorder(start, ScoreSampler(0, 0))
        sender = OneAtATime()
        await ProcessRun(
            setup_of(settings, number, 3), Start(start, load, 1, 0, None), sender, recorder
        ).carry_out()
        sent.append(recorder.take().sent)
    assert sent == [7, 7, 6]


def test_a_first_ctrl_c_is_noted_and_a_second_one_raised() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), _noted_interrupt() as noted:
        signal.raise_signal(signal.SIGINT)
        assert noted.is_set()
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_thread_that_gets_no_signals_notes_none() -> None:
    with ThreadPoolExecutor(1) as threads:
        assert not threads.submit(lambda: _noted_interrupt().__enter__().is_set()).result()
