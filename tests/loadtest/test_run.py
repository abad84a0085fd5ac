"""One process's run: nothing hides from the clock, and nothing is lost."""

from __future__ import annotations

import asyncio
import time

import pytest

from consensuspr.loadtest.load import IN_FLIGHT_BYTES, Load, Settings
from consensuspr.loadtest.processes import Run
from consensuspr.loadtest.senders import OK, Outcome, Reply
from consensuspr.loadtest.stats import (
    FIRST_SAMPLES,
    MAX_SAMPLES,
    Recorder,
    Sampler,
    Setup,
    Start,
    Tally,
)
from consensuspr.scoring.types import Score, Status

RIGHT = Score(Status.OK, reward=1.0)


def answered(positions: tuple[int, ...] = (0,)) -> Outcome:
    return Outcome(OK, reply=Reply(positions, 10, {"OK": len(positions)}, "d", lambda _: RIGHT))


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

    async def send(self, number: int, timeout_s: float) -> Outcome:
        self.numbers.append(number)
        self._running += 1
        self.peak = max(self.peak, self._running)
        try:
            if self.stall_s and time.monotonic() >= self.stall_at:
                stall_s, self.stall_s = self.stall_s, 0.0
                if stall_s > timeout_s:
                    await asyncio.sleep(timeout_s)
                    return Outcome("DEADLINE_EXCEEDED", "too slow")
                await asyncio.sleep(stall_s)
            else:
                await asyncio.sleep(0)
            return answered()
        finally:
            self._running -= 1


def order(settings: Settings, start: float, requests: int | None = None) -> Start:
    return Start(start, settings.load(), settings.concurrency, 0, requests)


async def run_to_end(
    settings: Settings, sender: OneAtATime, start: float, requests: int | None = None
) -> Tally:
    recorder = Recorder(start, Sampler(0, 0))
    setup = Setup(settings, (), 0, 1, 1)
    await Run(setup, order(settings, start, requests), sender, recorder).carry_out()
    return recorder.take()


async def test_requests_that_had_to_wait_count_from_when_they_were_due() -> None:
    settings = Settings("h:1", rate=100, duration_s=1, warmup_s=0)
    start = time.monotonic() + 0.05
    sender = OneAtATime(stall_at=start + 0.25, stall_s=0.5)
    tally = await run_to_end(settings, sender, start)
    # Only one was ever in flight; a tester that measures from the send would see one slow one.
    assert sender.peak == 1
    assert tally.sent == tally.answered == 100
    assert tally.held >= 40
    p50, p75, p95 = tally.latency.percentiles((50, 75, 95))
    assert p75 >= 0.2
    assert p95 >= 0.4
    assert p50 < p75
    assert tally.latency.max_s >= 0.45
    assert tally.timeline.between(0.25, 0.5).latency.percentile(1) >= 0.2  # type: ignore[operator]


async def test_requests_whose_time_passes_while_they_wait_are_not_forgotten() -> None:
    settings = Settings("h:1", rate=100, duration_s=0.75, warmup_s=0, timeout_s=0.3)
    start = time.monotonic() + 0.05
    sender = OneAtATime(stall_at=start + 0.2, stall_s=1.0)
    tally = await run_to_end(settings, sender, start)
    assert tally.sent == tally.answered + tally.failed == 75
    assert tally.codes["DEADLINE_EXCEEDED"] >= 1
    assert tally.latency.count == 75
    assert tally.latency.max_s >= 0.3


async def test_the_warm_up_is_counted_nowhere() -> None:
    settings = Settings("h:1", rate=200, duration_s=0.25, warmup_s=0.25)
    sender = OneAtATime()
    tally = await run_to_end(settings, sender, time.monotonic() + 0.3)
    assert len(sender.numbers) == 100
    assert tally.sent == tally.answered == tally.latency.count == 50


@pytest.mark.parametrize(("rate", "requests"), [(200.0, 30), (None, 30)])
async def test_ends_after_so_many_requests(rate: float | None, requests: int) -> None:
    settings = Settings("h:1", rate=rate, concurrency=4, duration_s=20, warmup_s=0.1)
    tally = await run_to_end(settings, OneAtATime(), time.monotonic() + 0.15, requests)
    assert tally.sent == tally.answered == requests


async def test_a_closed_loop_does_not_storm_a_server_that_refuses() -> None:
    class Refuses(OneAtATime):
        async def send(self, number: int, timeout_s: float) -> Outcome:
            self.numbers.append(number)
            return Outcome("RESOURCE_EXHAUSTED", "full", shed=True, retry_after_s=0.2)

    sender = Refuses()
    settings = Settings("h:1", concurrency=2, duration_s=0.5, warmup_s=0)
    tally = await run_to_end(settings, sender, time.monotonic() + 0.05)
    assert 2 <= len(sender.numbers) <= 6
    assert tally.shed == len(sender.numbers) and tally.failed == 0
    assert tally.latency.count == 0


@pytest.mark.parametrize("rate", [50.0, None])
async def test_a_stop_gives_up_what_is_in_flight(rate: float | None) -> None:
    settings = Settings("h:1", rate=rate, concurrency=1, duration_s=60, warmup_s=0)
    start = time.monotonic()
    sender = OneAtATime(stall_at=start + 0.2, stall_s=50)
    recorder = Recorder(start, Sampler(0, 0))
    run = Run(Setup(settings, (), 0, 1, 1), order(settings, start), sender, recorder)
    running = asyncio.create_task(run.carry_out())
    await asyncio.sleep(0.6)
    run.stop()
    async with asyncio.timeout(10):
        await running
    tally = recorder.take()
    assert tally.answered >= 1
    assert tally.abandoned >= 1


async def test_a_defect_of_the_sender_is_not_swallowed() -> None:
    class Broken(OneAtATime):
        async def send(self, number: int, timeout_s: float) -> Outcome:
            raise ZeroDivisionError

    for rate in (50.0, None):
        settings = Settings("h:1", rate=rate, duration_s=30, warmup_s=0)
        with pytest.raises(ZeroDivisionError):
            await run_to_end(settings, Broken(), time.monotonic())


async def test_processes_share_one_schedule() -> None:
    load = Load(((40.0, 40.0),), 0.5)
    settings = Settings("h:1", rate=40, duration_s=0.5, warmup_s=0, processes=3)
    start = time.monotonic() + 0.05
    sent = []
    for number in range(3):
        recorder = Recorder(start, Sampler(0, 0))
        setup = Setup(settings, (), number, 3, 1)
        sender = OneAtATime()
        await Run(setup, Start(start, load, 1, 0, None), sender, recorder).carry_out()
        sent.append(recorder.take().sent)
    assert sent == [7, 7, 6]


@pytest.mark.parametrize(
    ("share", "replies", "least", "most"),
    [
        (0.0, 5000, 0, 0),
        (0.001, 10, FIRST_SAMPLES, 2 * FIRST_SAMPLES),
        (0.5, 1000, 1300, MAX_SAMPLES),
        (1.0, 5000, MAX_SAMPLES, MAX_SAMPLES),
    ],
)
def test_a_share_of_the_scores_is_kept(share: float, replies: int, least: int, most: int) -> None:
    sampler = Sampler(share, seed=1)
    for number in range(replies):
        sampler.offer(answered((number, number, number)))
    assert least <= len(sampler.samples) <= most
    if share == 1.0:  # of the whole run, not of its beginning
        assert sum(sample.position >= replies / 2 for sample in sampler.samples) > MAX_SAMPLES / 4
