"""What becomes of latency past saturation: an open loop at 80 % and at twice the capacity."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from benchmarks.harness.measure import Context
from benchmarks.harness.results import Check, Figure
from benchmarks.suites.service.processes import on_one_core, reward_server
from benchmarks.suites.service.work import REWARD, Work, WrongAnswer
from consensuspr.client import RewardClient
from consensuspr.loadtest.load import Pool, Target
from consensuspr.loadtest.result import LoadTest, perform
from consensuspr.loadtest.settings import LoadSettings
from consensuspr.scoring.types import ScoreOptions

BATCH = 16
# Enough to keep one worker busy, few enough that none is refused.
CONCURRENCY = 8
LOW, HIGH = 0.8, 2.0
# The capacity was found if no more than this times it is served past it.
FITS = 1.2
# Pairs of runs, and the most that are made to get them.
RUNS, MOST_RUNS = 3, 8
# Refused at 80 % of the capacity: then it was not that, for want of a core.
DISTURBED = 0.01


@dataclass(frozen=True)
class Overload:
    """What was found: requests a second, 99th percentiles in seconds, shares of the requests.

    ``ratios`` are those of the percentiles, one for each pair of runs, ascending.
    """

    capacity: float
    low_p99_s: float
    high_p99_s: float
    served: float
    shed: float
    ratios: tuple[float, ...]

    def figures(self) -> list[Figure]:
        """Return the rows of the table."""
        of: dict[str, str | int | float] = {"rollouts in a request": BATCH}
        return [
            Figure(name="capacity", value=self.capacity, unit="requests/s", parameters=of),
            Figure(name="p99 at 80 %", value=self.low_p99_s * 1e3, unit="ms", parameters=of),
            Figure(name="p99 at 200 %", value=self.high_p99_s * 1e3, unit="ms", parameters=of),
            Figure(name="served at 200 %", value=self.served, unit="requests/s", parameters=of),
            Figure(name="refused at 200 %", value=100 * self.shed, unit="%", parameters=of),
        ]

    def check(self) -> Check:
        """Return the ratio that the target is about."""
        return Check(
            target="overload_p99",
            value=self.high_p99_s / self.low_p99_s,
            note=f"median of {', '.join(f'{ratio:.1f}' for ratio in self.ratios)};"
            f" {100 * self.shed:.0f} % refused, nothing lost, what was served is right",
        )


def measure(context: Context, work: Work) -> Overload | None:
    """Load a server of one worker beyond what it can do.

    None where other programs took so much of the server's core that it refused requests at 80 %
    of what it had done before, each time.

    Raises WrongAnswer where a reply is lost or is not what in-process scoring gives.
    """
    seconds = 15.0 if context.full else 4.0
    with contextlib.ExitStack() as stack:
        with on_one_core():  # the server; what loads it has the others
            address = stack.enter_context(
                reward_server(work.dataset, context.scratch, workers=1, threads=1)
            )
        closed = LoadSettings(
            batch=BATCH,
            concurrency=CONCURRENCY,
            duration=seconds,
            warmup=2.0,
            check=0.02,
            seed=context.seed,
            max_error_rate=1.0,
        )
        opened = closed.model_dump(exclude={"concurrency"}, exclude_unset=True)

        def run(rate: float | None = None) -> LoadTest:
            settings = closed if rate is None else LoadSettings(**opened, rate=rate)
            return _run(address, settings, work)

        # On a shared machine a core is not always ours: the most that was served is the
        # capacity, and both loads are compared next to each other, the median of the pairs counts.
        capacity = max(_served(run()) for _ in range(RUNS))
        context.say(f"capacity: {capacity:.0f} requests of {BATCH} rollouts a second")
        pairs: list[tuple[LoadTest, LoadTest]] = []
        for _ in range(MOST_RUNS):
            high = run(HIGH * capacity)
            if _served(high) > FITS * capacity:
                # It can do more than a closed loop asked of it: that was no overload.
                capacity = _served(high)
                context.say(f"capacity: rather {capacity:.0f}")
                pairs = []
                continue
            low = run(LOW * capacity)
            if low.tally.shed_rate > DISTURBED:
                context.say(f"{100 * low.tally.shed_rate:.0f} % were refused at 80 %: once more")
                continue
            pairs.append((low, high))
            context.say(
                f"99th percentile: {_p99(low) * 1e3:.0f} ms at 80 %,"
                f" {_p99(high) * 1e3:.0f} ms at 200 %"
            )
            if len(pairs) == RUNS:
                break
        if not pairs:
            return None
        pairs.sort(key=lambda pair: _p99(pair[1]) / _p99(pair[0]))
        low, high = pairs[len(pairs) // 2]
        ratios = tuple(_p99(high) / _p99(low) for low, high in pairs)
    return Overload(
        capacity,
        _p99(low),
        _p99(high),
        _served(high),
        high.tally.shed_rate,
        ratios,
    )


def _run(address: str, settings: LoadSettings, work: Work) -> LoadTest:
    """Load the server once, and check that what it accepted came back, and right."""
    pool = Pool(tuple(work.rollouts), "generated")
    with RewardClient(address) as client:
        server = client.server_info()
    target = Target(address, server, str(work.dataset), ScoreOptions(reward=REWARD))
    result = perform(target, settings, pool)
    tally = result.tally
    if tally.failed or tally.abandoned or set(tally.statuses) - {"OK"}:
        raise WrongAnswer(
            f"requests were lost: {dict(tally.codes)}, {tally.abandoned} abandoned,"
            f" {dict(tally.statuses)}, {tally.examples}"
        )
    checked = result.checked
    if checked is None or checked.wrong or not checked.compared:
        raise WrongAnswer(f"replies under load are wrong, or none was compared: {checked}")
    return result


def _served(result: LoadTest) -> float:
    return result.tally.answered / result.result.elapsed_s


def _p99(result: LoadTest) -> float:
    seconds = result.tally.latency.percentile(99.0)
    if seconds is None:
        raise WrongAnswer("nothing was answered")
    return seconds
