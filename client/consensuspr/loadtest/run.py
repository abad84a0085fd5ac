"""Run a load test: send from one or several processes, check scores, search for the limit."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from consensuspr.client import LocalClient, Rollout, Score, Status
from consensuspr.console import count_of
from consensuspr.data import read_rollouts
from consensuspr.errors import InputError
from consensuspr.loadtest.sender import Load, SendCounts, Target, send
from consensuspr.scoring import rollout_from_row
from consensuspr.scoring.types import Limits
from consensuspr.version import VERSION
from consensuspr.wire.server_info import ServerInfo

# Each process holds all rollouts that are sent.
POOL_BYTES = 64 << 20
POOL_ROLLOUTS = 20_000
MAX_CHECKED = 2000
# Long, because answers that need computer algebra wait for one process.
ANSWER_BUDGET_S = 10.0
RANKS = (50, 90, 95, 99, 99.9)

# The search ends when the highest sustained and the lowest failed rate are this near.
PRECISION = 0.10
MAX_STEPS = 24
FIRST_RATE = 10.0
# Fewest requests of a step.
MIN_REQUESTS = 2
SUSTAINED_SHARE = 0.9
# Between the order to start and the start, for all processes to have connected.
LEAD_S = 0.5

BUSY_SHARE = 0.9
LATE_S = 0.005
LATE_SHARE = 0.10

OF_NODES = ("ncr", "ncr_raw", "guard", "num_nodes", "num_matched", "matched", "channels", "tpn")
OF_ALL = ("status", "reward", "acc", *OF_NODES, "answer")

Measure = Callable[[Load], SendCounts]


def read_pool(path: str | os.PathLike[str]) -> list[Rollout]:
    """Return the first rollouts of a file, as many as a process should hold.

    Raises:
        DataError: the file or one of its rows is bad.
    """
    pool: list[Rollout] = []
    left = POOL_BYTES
    for row in itertools.islice(read_rollouts(path), POOL_ROLLOUTS):
        left -= len(row["response"])
        if pool and left < 0:
            break
        pool.append(rollout_from_row(row))
    return pool


@contextmanager
def senders(target: Target, rollouts: Sequence[Rollout], processes: int) -> Iterator[Measure]:
    """Yield a function that sends a load from so many processes and returns how it ended."""
    if processes == 1:
        yield lambda load: send(target, load, rollouts, time.monotonic())
        return
    # gRPC does not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, _keep, (target, rollouts)) as pool:
        list(pool.map(_wake, range(processes)))

        def measure(load: Load) -> SendCounts:
            start_at = time.monotonic() + LEAD_S
            offsets = [number / load.rate if load.rate else 0.0 for number in range(processes)]
            parts = [load.share(number) for number in range(processes)]
            total = SendCounts()
            for tally in pool.map(_send_kept, parts, [start_at + offset for offset in offsets]):
                total.add(tally)
            return total

        yield measure


_kept: tuple[Target, Sequence[Rollout]]


def _keep(target: Target, rollouts: Sequence[Rollout]) -> None:
    global _kept
    _kept = target, rollouts


def _wake(number: int) -> None:
    """Occupy a process while the others start, so that each gets one share."""
    time.sleep(0.1)


def _send_kept(load: Load, start_at: float) -> SendCounts:
    target, rollouts = _kept
    return send(target, load, rollouts, start_at)


@dataclass(frozen=True, slots=True)
class Check:
    """Comparison of sampled scores with the in-process scorer.

    Attributes:
        undecided: scores whose answer one side left undecided, so that only nodes were compared.
        first: the first difference, as a sentence.
    """

    compared: int = 0
    wrong: int = 0
    undecided: int = 0
    first: str = ""


def check_scores(
    samples: dict[int, Score],
    rollouts: Sequence[Rollout],
    dataset_path: str,
    info: ServerInfo,
) -> Check:
    """Compare scores with those of the in-process scorer, under the server's limits.

    Equal rollouts have equal scores, bit for bit. A busy machine may leave an answer undecided;
    of such a rollout only the nodes are compared. INTERNAL is counted as an error elsewhere.

    Raises:
        DataError: the dataset cannot be read.
    """
    positions = sorted(random.Random(0).sample(sorted(samples), min(len(samples), MAX_CHECKED)))
    limits = Limits(**{name: getattr(info, name) for name in Limits.__dataclass_fields__})
    with LocalClient(dataset_path, answer_budget_s=ANSWER_BUDGET_S, limits=limits) as local:
        expected = local.score([rollouts[position] for position in positions])
    compared = wrong = undecided = 0
    first = ""
    for position, right in zip(positions, expected, strict=True):
        served = samples[position]
        if Status.INTERNAL in (served.status, right.status):
            continue
        compared += 1
        open_answer = _undecided(served) or _undecided(right)
        undecided += open_answer
        for name in OF_NODES if open_answer else OF_ALL:
            if getattr(served, name) != getattr(right, name):
                wrong += 1
                first = first or (
                    f"rollout {position + 1}, problem {rollouts[position].problem_id!r}: the server"
                    f" returned {name}={getattr(served, name)!r}, the in-process scorer"
                    f" {getattr(right, name)!r}"
                )
                break
    return Check(compared, wrong, undecided, first)


def _undecided(score: Score) -> bool:
    return score.undecided_by_load or score.status is Status.ANSWER_UNDECIDED


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """Figures of one load; latencies in milliseconds, None without a request."""

    rate: float | None
    duration_s: float
    sent: int
    answered: int
    rejected: int
    failed: int
    error_rate: float
    rollouts_per_s: float
    requests_per_s: float
    mb_per_s: float
    latency_ms: dict[str, float | None]
    late_p99_ms: float
    busy: float

    @classmethod
    def of(cls, load: Load, tally: SendCounts) -> LoadFigures:
        """Return the figures of a load."""
        failed = tally.errors.total() - tally.rejected
        taken = tally.sent - tally.rejected
        latencies = np.array(tally.latencies_s) * 1e3
        names = [*(f"p{rank}" for rank in RANKS), "max"]
        values = np.percentile(latencies, (*RANKS, 100)) if len(latencies) else [None] * len(names)
        return cls(
            load.rate,
            load.duration_s,
            tally.sent,
            tally.answered,
            tally.rejected,
            failed,
            failed / taken if taken else 0.0,
            tally.in_time / load.duration_s,
            tally.in_time / load.batch / load.duration_s,
            tally.num_bytes / load.duration_s / 1e6,
            {n: None if v is None else float(v) for n, v in zip(names, values, strict=True)},
            float(np.percentile(np.array(tally.late_s), 99)) * 1e3 if tally.sent else 0.0,
            tally.busy,
        )

    def broken_limit(self, max_p99_ms: float | None, max_error_rate: float) -> str:
        """Return the first reason why the rate is not sustained; empty if it is."""
        assert self.rate is not None
        p99 = self.latency_ms["p99"]
        share = (self.rejected + self.failed) / self.sent if self.sent else 0.0
        if share > max_error_rate:
            return f"{share:.1%} failed or were rejected"
        if self.requests_per_s < SUSTAINED_SHARE * self.rate:
            return f"{self.requests_per_s:,.1f} requests/s were answered in time"
        if max_p99_ms is not None and p99 is not None and p99 > max_p99_ms:
            return f"p99 is {p99:,.1f} ms"
        return ""

    def client_limits(self) -> list[str]:
        """Return how the load generator, not the server, limited the figures."""
        found = []
        if self.busy > BUSY_SHARE:
            found.append(f"a sender took {self.busy:.0%} of a core; use more --processes")
        p99 = self.latency_ms["p99"] or 0.0
        if self.rate is not None and self.late_p99_ms > max(LATE_S * 1e3, LATE_SHARE * p99):
            found.append(
                f"1 % of the requests left {self.late_p99_ms:,.1f} ms late, which counts as latency"
            )
        return found


@dataclass(slots=True)
class LoadTest:
    """A finished load test.

    Attributes:
        steps: figures of each load; one unless a search was made.
        broken: of a search, why each step is not sustained; empty if it is.
        tally: of all steps together.
    """

    address: str
    load: Load
    steps: list[LoadFigures] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    tally: SendCounts = field(default_factory=SendCounts)
    check: Check = field(default_factory=Check)

    @property
    def sustained(self) -> LoadFigures | None:
        """The step with the highest sustained rate of a search."""
        kept = [step for step, why in zip(self.steps, self.broken, strict=False) if not why]
        return max(kept, key=lambda step: step.rate or 0.0, default=None)

    def faults(self, max_error_rate: float) -> list[str]:
        """Return why the test failed, one sentence each."""
        tally, check = self.tally, self.check
        found = []
        if check.wrong:
            found.append(
                f"{check.wrong:,} of {check.compared:,} compared scores are wrong; {check.first}"
            )
        internal = tally.statuses[Status.INTERNAL.value]
        if internal > max_error_rate * tally.rollouts:
            found.append(f"{count_of(internal, 'rollout')} ended INTERNAL")
        scored = ("OK", "ANSWER_UNDECIDED", "NO_NODES", "NO_GROUND_TRUTH", "INTERNAL")
        if tally.rollouts and not any(tally.statuses[status] for status in scored):
            ended = ", ".join(f"{n:,} {status}" for status, n in tally.statuses.most_common())
            found.append(f"none of {tally.rollouts:,} rollouts could be scored: {ended}")
        if not tally.answered:
            found.append(f"none of {tally.sent:,} requests was answered; {self._first_error()}")
        elif self.broken:
            if self.sustained is None:
                found.append(f"no rate was sustained; the lowest: {self._lowest()}")
        elif self.steps[0].error_rate > max_error_rate:
            found.append(
                f"{self.steps[0].error_rate:.2%} of the requests failed, more than"
                f" {max_error_rate:.2%} (--max-error-rate); {self._first_error()}"
            )
        return found

    def _first_error(self) -> str:
        return "; ".join(
            f"{name}: {self.tally.examples[name]}" for name, _ in self.tally.errors.most_common(1)
        )

    def _lowest(self) -> str:
        steps = zip(self.steps, self.broken, strict=True)
        step, why = min(steps, key=lambda pair: pair[0].rate or 0.0)
        return f"{step.rate:,.1f} requests/s, {why}"

    def to_json(self, faults: Iterable[str]) -> dict[str, Any]:
        """Return everything, ready for ``json.dumps``."""
        result = self.sustained if self.broken else self.steps[0]
        return {
            "faults": [*faults],
            "address": self.address,
            "load": asdict(self.load),
            "result": result and asdict(result),
            "client_limits": result.client_limits() if result else [],
            "steps": [
                asdict(step) | {"broken": why}
                for step, why in zip(self.steps, self.broken, strict=False)
            ],
            "errors": dict(self.tally.errors),
            "examples": self.tally.examples,
            "statuses": dict(self.tally.statuses),
            "checked": asdict(self.check),
            "version": VERSION,
        }

    def markdown(self) -> Iterator[str]:
        """Yield the lines of a table with a row for each step, and the notes below it."""
        names = [f"p{rank}" for rank in RANKS]
        heads = ["offered/s", "requests/s", "rollouts/s", "MB/s"]
        heads += [*(f"{name} ms" for name in (*names, "max")), "rejected", "failed"]
        if self.broken:
            heads.append("sustained")
        yield f"| {' | '.join(heads)} |"
        yield "|" + "---:|" * len(heads)
        for step, why in itertools.zip_longest(self.steps, self.broken):
            cells = ["closed loop" if step.rate is None else f"{step.rate:,.1f}"]
            cells += [f"{step.requests_per_s:,.1f}", f"{step.rollouts_per_s:,.0f}"]
            cells.append(f"{step.mb_per_s:,.1f}")
            values = step.latency_ms.values()
            cells += ["–" if value is None else f"{value:,.1f}" for value in values]
            cells += [f"{step.rejected:,}", f"{step.failed:,}"]
            if self.broken:
                cells.append(f"no: {why}" if why else "yes")
            yield f"| {' | '.join(cells)} |"
        yield ""
        tally, check = self.tally, self.check
        statuses = ", ".join(f"{n:,} {status}" for status, n in tally.statuses.most_common())
        yield f"{count_of(tally.rollouts, 'rollout')} scored: {statuses or 'none'}"
        for name, count in tally.errors.most_common():
            yield f"{count:,} × {name}, the first: {tally.examples[name]}"
        if check.compared:
            yield (
                f"{check.compared:,} scores compared with the in-process scorer,"
                f" {check.undecided:,} by their nodes only: {check.wrong:,} wrong"
            )
        if self.broken and self.sustained is not None:
            yield (
                f"highest sustained rate: {self.sustained.rate:,.1f} requests/s,"
                f" {self.sustained.rollouts_per_s:,.0f} rollouts/s"
            )
        last = self.steps[-1] if self.steps else None
        for limit in last.client_limits() if last else ():
            yield f"the load generator was the limit: {limit}"


def perform(
    target: Target,
    info: ServerInfo,
    dataset_path: str,
    load: Load,
    rollouts: Sequence[Rollout],
    *,
    search: bool = False,
    max_p99_ms: float | None = None,
    max_error_rate: float = 0.01,
    say: Callable[[str], None] = lambda sentence: None,
) -> LoadTest:
    """Load a server and return what was measured.

    Args:
        info: limits and datasets of the server.
        dataset_path: of the dataset to check scores with.
        search: search for the highest sustained rate, from the load's rate on.
        max_p99_ms: that a sustained rate may have.
        max_error_rate: share of errors and refusals that a sustained rate may have.
        say: called with the result of each step of a search.

    Raises:
        InputError: a batch is more than the server accepts, or the first step of a search is too
            short to judge by.
    """
    if load.batch > info.max_rollouts:
        raise InputError(f"--batch must be at most {info.max_rollouts}, got {load.batch}")
    first_rate = load.rate or FIRST_RATE
    if search and first_rate * load.duration_s < MIN_REQUESTS:
        raise InputError(
            f"--find-saturation needs at least {MIN_REQUESTS} requests in its first step, and"
            f" {load.duration_s:g} s (--duration) at {first_rate:g} requests/s (--rate) have"
            f" {first_rate * load.duration_s:g}"
        )
    test = LoadTest(target.address, load)
    with senders(target, rollouts, load.processes) as measure:

        def take(step: Load) -> LoadFigures:
            tally = measure(step)
            test.tally.add(tally)
            test.steps.append(LoadFigures.of(step, tally))
            return test.steps[-1]

        if search:
            _search(test, take, load, max_p99_ms, max_error_rate, say)
        else:
            take(load)
    if test.tally.samples:
        test.check = check_scores(test.tally.samples, rollouts, dataset_path, info)
    return test


def _search(
    test: LoadTest,
    take: Callable[[Load], LoadFigures],
    load: Load,
    max_p99_ms: float | None,
    max_error_rate: float,
    say: Callable[[str], None],
) -> None:
    """Double the rate until it is not sustained, then halve the gap."""
    low = high = 0.0
    rate = load.rate or FIRST_RATE
    while len(test.steps) < MAX_STEPS and rate * load.duration_s >= MIN_REQUESTS:
        step = take(replace(load, rate=rate))
        why = step.broken_limit(max_p99_ms, max_error_rate)
        test.broken.append(why)
        say(f"{rate:,.1f} requests/s: " + (f"not sustained, {why}" if why else "sustained"))
        if why:
            high = rate
        else:
            low = rate
        if high and low and high / low <= 1 + PRECISION:
            return
        rate = 2 * low if not high else high / 2 if not low else (low + high) / 2
