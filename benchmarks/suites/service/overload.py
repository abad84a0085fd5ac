"""What becomes of latency past saturation: an open loop at 80 % and at twice the capacity."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass

from benchmarks.harness.context import Context
from benchmarks.harness.results import Check, Figure
from benchmarks.suites.service.processes import on_one_core, reward_server
from benchmarks.suites.service.work import REWARD, Work, WrongAnswer
from consensuspr.client import RewardClient
from consensuspr.loadtest.perform import perform
from consensuspr.loadtest.pool import Pool, response_bytes
from consensuspr.loadtest.result import LoadTest
from consensuspr.loadtest.saturation import Limits
from consensuspr.loadtest.settings import Settings
from consensuspr.wire.options import ScoreOptions

BATCH = 16
# Enough to keep one worker busy, few enough that none is refused.
CONCURRENCY = 12
LOW, HIGH = 0.8, 2.0
# The capacity was found if no more than this times it is served past it.
FITS = 1.2
MOST_CORRECTIONS = 3


@dataclass(frozen=True)
class Overload:
    """What was found: requests a second, 99th percentiles in seconds, shares of the requests."""

    capacity: float
    low_p99_s: float
    high_p99_s: float
    served: float
    shed: float
    cancelled: float

    def figures(self) -> list[Figure]:
        """Return the rows of the table."""
        of: dict[str, str | int | float] = {"rollouts in a request": BATCH}
        return [
            Figure(name="capacity", value=self.capacity, unit="requests/s", parameters=of),
            Figure(name="p99 at 80 %", value=self.low_p99_s * 1e3, unit="ms", parameters=of),
            Figure(name="p99 at 200 %", value=self.high_p99_s * 1e3, unit="ms", parameters=of),
            Figure(name="served at 200 %", value=self.served, unit="requests/s", parameters=of),
            Figure(name="refused at 200 %", value=100 * self.shed, unit="%", parameters=of),
            Figure(name="CANCELLED at 200 %", value=100 * self.cancelled, unit="%", parameters=of),
        ]

    def check(self) -> Check:
        """Return the ratio that the target is about."""
        return Check(
            target="overload_p99",
            value=self.high_p99_s / self.low_p99_s,
            note=f"{100 * self.shed:.0f} % refused, {100 * self.cancelled:.1f} % ended CANCELLED"
            " by gRPC; what was served is right",
        )


def measure(context: Context, work: Work) -> Overload:
    """Load a server of one worker beyond what it can do.

    Raises WrongAnswer where a reply is lost or is not what in-process scoring gives.
    """
    seconds = 15.0 if context.full else 6.0
    with contextlib.ExitStack() as stack:
        with on_one_core():  # the server; what loads it has the others
            address = stack.enter_context(
                reward_server(work.dataset, context.scratch, workers=1, threads=1)
            )
        closed = Settings(
            address,
            batch=BATCH,
            concurrency=CONCURRENCY,
            duration_s=seconds,
            warmup_s=2.0,
            check=0.02,
            seed=context.seed,
            options=ScoreOptions(reward=REWARD),
        )
        most = _run(closed, work)
        capacity = most.tally.answered / most.elapsed_s
        context.say(f"capacity: {capacity:.0f} requests of {BATCH} rollouts a second")
        high = _run(dataclasses.replace(closed, rate=HIGH * capacity), work)
        for _ in range(MOST_CORRECTIONS):
            served = high.tally.answered / high.elapsed_s
            if served < FITS * capacity:
                break
            # It can do more than a closed loop asked of it: that was no overload.
            capacity = served
            context.say(f"capacity: rather {capacity:.0f}")
            high = _run(dataclasses.replace(closed, rate=HIGH * capacity), work)
        low = _run(dataclasses.replace(closed, rate=LOW * capacity), work)
    if low.tally.shed > 0.01 * low.tally.ended:
        context.say(f"{low.tally.shed} of {low.tally.ended} requests were refused at 80 %")
    return Overload(
        capacity,
        _p99(low),
        _p99(high),
        high.tally.answered / high.elapsed_s,
        high.tally.shed_rate,
        high.tally.codes["CANCELLED"] / max(1, high.tally.ended),
    )


def _run(settings: Settings, work: Work) -> LoadTest:
    """Load the server once, and check that what it accepted came back, and right."""
    num_bytes = sum(map(response_bytes, work.rollouts))
    pool = Pool(tuple(work.rollouts), "generated", num_bytes)
    with RewardClient(settings.address) as client:
        server = client.server_info()
    result = perform(settings, pool, server, str(work.dataset), Limits(None, 1.0), search=False)
    tally = result.tally
    # gRPC ends a few of the refused ones so, which clients repeat like a refusal.
    failed = tally.failed - tally.codes["CANCELLED"]
    if failed or tally.abandoned or set(tally.statuses) - {"OK"}:
        raise WrongAnswer(
            f"requests were lost: {dict(tally.codes)}, {tally.abandoned} abandoned,"
            f" {dict(tally.statuses)}, {tally.examples}"
        )
    checked = result.checked
    if checked is None or checked.wrong or not checked.compared:
        raise WrongAnswer(f"replies under load are wrong, or none was compared: {checked}")
    return result


def _p99(result: LoadTest) -> float:
    seconds = result.tally.latency.percentile(99.0)
    if seconds is None:
        raise WrongAnswer("nothing was answered")
    return seconds
