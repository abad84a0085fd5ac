"""What became of the requests of a run: counts, latencies, both over time, a sample of scores.

A load process keeps a :class:`LoadTally`, hands it over some times a second and begins a new one;
adding tallies up gives that of the run.  Memory is bounded: a histogram is an array of fixed
length, the bins of a timeline get twice as wide whenever there would be more than
:data:`MAX_BINS`, and of the scores at most :data:`MAX_SAMPLES` are kept.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from consensuspr.loadtest.settings import FIRST_BIN_S, MAX_BINS
from consensuspr.scoring.types import Score

# A percentile is off by at most this share of itself.
RELATIVE_ERROR: Final = 1 / 256
# Outside, latencies are taken for these; no request of a load test is near either.
MIN_S: Final = 1e-6
MAX_S: Final = 1e5
# Steps of equal ratio, each taken for its geometric middle.
_LOG_STEP: Final = 2 * math.log1p(RELATIVE_ERROR)
NUM_STEPS: Final = math.floor(math.log(MAX_S / MIN_S) / _LOG_STEP) + 1

# Scores of a process that are kept, however small the share: a short run is checked too.
FIRST_SAMPLES = 16
# ... and however long the run: a sample of the whole run, not of its beginning.
MAX_SAMPLES = 2000

# How a request ended that was answered, that ran out of time, and whose reply cannot be one of
# a reward server; the last is not among gRPC's codes.
OK = "OK"
DEADLINE = "DEADLINE_EXCEEDED"
BAD_REPLY = "BAD_REPLY"


# What became of a request that was sent, and what a reader calls it: it is in one of these, or
# still in flight.
ENDS: Final = {
    "answered": "answered",
    "shed": "shed",
    "timed_out": "out of time",
    "failed": "failed",
    "abandoned": "cut off",
}


class Histogram:
    """How many latencies fell into which step, and the exact smallest, largest and sum.

    A histogram of fixed steps, because percentiles of the values themselves would need them all
    and could not be added up over processes.

    Attributes:
        steps: ``(NUM_STEPS,)`` values in each step.
        count: values recorded.
        total_s: their sum in seconds.
        min_s: the smallest, infinite where there is none.
        max_s: the largest, 0 where there is none.
    """

    __slots__ = ("count", "max_s", "min_s", "steps", "total_s")

    def __init__(self) -> None:
        self.steps: NDArray[np.uint32] = np.zeros(NUM_STEPS, np.uint32)
        self.count = 0
        self.total_s = 0.0
        self.min_s = math.inf
        self.max_s = 0.0

    @property
    def mean_s(self) -> float | None:
        """The exact mean; None where there is no value."""
        return self.total_s / self.count if self.count else None

    def record(self, seconds: float) -> None:
        """Add a value; what is outside [:data:`MIN_S`, :data:`MAX_S`] counts as the bound."""
        seconds = min(max(seconds, MIN_S), MAX_S)
        self.steps[int(math.log(seconds / MIN_S) / _LOG_STEP)] += 1
        self.count += 1
        self.total_s += seconds
        self.min_s = min(self.min_s, seconds)
        self.max_s = max(self.max_s, seconds)

    def add(self, other: Histogram) -> None:
        """Take over the values of another histogram."""
        self.steps += other.steps
        self.count += other.count
        self.total_s += other.total_s
        self.min_s = min(self.min_s, other.min_s)
        self.max_s = max(self.max_s, other.max_s)

    def percentiles(self, ranks: Sequence[float]) -> list[float | None]:
        """Return the seconds below or at which each share of the values lies.

        The nearest rank: the smallest value such that at least ``rank`` percent, in (0, 100], are
        not above it, within :data:`RELATIVE_ERROR`; None where there is no value.
        """
        if not self.count:
            return [None] * len(ranks)
        # Rounded first: 99.9 % of 1,000 is 999 values, whatever the product's last bit.
        wanted = [max(1, math.ceil(round(rank * self.count / 100, 6))) for rank in ranks]
        found = np.searchsorted(np.cumsum(self.steps, dtype=np.int64), wanted)
        middles = MIN_S * np.exp(_LOG_STEP * (found + 0.5))
        return [float(middle) for middle in np.clip(middles, self.min_s, self.max_s)]

    def resolved(self, ranks: Sequence[float]) -> list[float | None]:
        """Return percentiles for a reader: None where there are too few values to tell one.

        The p99.9 of five values would be their maximum under another name; a percentile needs
        a value beyond it, at least ``1 / (1 - rank / 100)`` values in all; 100 is never told.
        """
        # Rounded, as above: 100 - 99.9 is not exactly 0.1.
        enough = (round(self.count * (100 - rank), 6) >= 100 for rank in ranks)
        found = self.percentiles(ranks)
        return [v if told else None for v, told in zip(found, enough, strict=True)]

    def percentile(self, rank: float) -> float | None:
        """Return one percentile in seconds; None where there is no value."""
        return self.percentiles((rank,))[0]


def ms(seconds: float | None) -> str:
    """Return a time in milliseconds for a table, a dash where there is none."""
    return "–" if seconds is None else f"{seconds * 1e3:,.2f}"


def _add_up(mine: Any, other: Any) -> None:
    """Add all fields of a dataclass to those of another of its type."""
    for name in (each.name for each in fields(mine)):
        value, more = getattr(mine, name), getattr(other, name)
        if isinstance(value, int):
            setattr(mine, name, value + more)
        elif isinstance(value, Counter):
            value.update(more)
        elif isinstance(value, dict):
            setattr(mine, name, more | value)
        else:
            value.add(more)


@dataclass(slots=True)
class TimeBin:
    """One stretch of time: requests that were due in it, and what came back in it.

    ``latency`` is of the requests due in it, seconds from when they were due, and so is
    ``abandoned``; ``num_bytes`` are those of the scored responses.
    """

    latency: Histogram = field(default_factory=Histogram)
    due: int = 0
    answered: int = 0
    rollouts: int = 0
    num_bytes: int = 0
    shed: int = 0
    timed_out: int = 0
    failed: int = 0
    abandoned: int = 0

    def add(self, other: TimeBin) -> None:
        """Take over another bin's numbers."""
        _add_up(self, other)

    @property
    def lost(self) -> int:
        """Requests that failed, ran out of time or were refused."""
        return self.failed + self.timed_out + self.shed


class Timeline:
    """Bins of equal width from the start of the measurement on.

    Attributes:
        width_s: of a bin; :data:`FIRST_BIN_S` times a power of two.
    """

    def __init__(self) -> None:
        self.width_s = FIRST_BIN_S
        self._bins: dict[int, TimeBin] = {}

    def at(self, seconds: float) -> TimeBin:
        """Return the bin of a time counted from the start; times before it are its first bin."""
        number = max(0, int(seconds / self.width_s))
        while number >= MAX_BINS:
            self._widen()
            number = int(seconds / self.width_s)
        return self._bins.setdefault(number, TimeBin())

    def add(self, other: Timeline) -> None:
        """Take over another timeline's numbers, in the wider bins of the two."""
        while self.width_s < other.width_s:
            self._widen()
        for number, its in other._bins.items():
            self.at((number + 0.5) * other.width_s).add(its)

    def at_most(self, bins: int) -> Timeline:
        """Return a copy whose bins are so wide that there are no more than so many."""
        copy = Timeline()
        copy.add(self)
        while copy._bins and max(copy._bins) >= bins:
            copy._widen()
        return copy

    def bins(self) -> list[tuple[float, TimeBin]]:
        """Return the start of each bin and the bin, gaps filled with empty ones."""
        empty = TimeBin()
        last = max(self._bins, default=-1)
        return [(n * self.width_s, self._bins.get(n, empty)) for n in range(last + 1)]

    def between(self, start_s: float, end_s: float) -> TimeBin:
        """Return what the bins of a stretch hold together; its ends are rounded to bins."""
        together = TimeBin()
        for number in range(round(start_s / self.width_s), round(end_s / self.width_s)):
            if number in self._bins:
                together.add(self._bins[number])
        return together

    def _widen(self) -> None:
        self.width_s *= 2
        old, self._bins = self._bins, {}
        for number, its in old.items():
            self._bins.setdefault(number // 2, TimeBin()).add(its)


@dataclass(slots=True)
class LoadTally:
    """The numbers of a run, or of a part of it.  The warm-up is in none of them.

    Attributes:
        latency: seconds from when a request was due until its reply, of all that were
            answered or ran out of time.
        lag: seconds by which requests were sent late although nothing held them back.
        num_bytes: bytes of the scored responses.
        sent: requests that left, or had to wait until others were answered; each is in one of
            the following five (:data:`ENDS`) when the run is over.
        answered: requests whose reply came.
        shed: requests that the server refused for load in the end.
        timed_out: requests whose time was over.
        failed: requests that failed otherwise.
        abandoned: requests that were given up when the run was stopped; nothing is known of them.
        retries: attempts beyond the first of a request.
        held: requests that waited because too many were in flight.
        codes: ends of requests by gRPC code, ``OK`` included.
        attempt_codes: failed attempts, repeated or not, by gRPC code.
        statuses: rollouts by status.
        examples: the first sentence met for each code other than ``OK``.
        digests: replies by digest of the dataset that they were scored with.
    """

    latency: Histogram = field(default_factory=Histogram)
    lag: Histogram = field(default_factory=Histogram)
    timeline: Timeline = field(default_factory=Timeline)
    sent: int = 0
    answered: int = 0
    rollouts: int = 0
    num_bytes: int = 0
    shed: int = 0
    timed_out: int = 0
    failed: int = 0
    abandoned: int = 0
    retries: int = 0
    held: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    attempt_codes: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    digests: Counter[str] = field(default_factory=Counter)

    def add(self, other: LoadTally) -> None:
        """Take over another tally's numbers."""
        _add_up(self, other)

    @property
    def ended(self) -> int:
        """Requests whose end is known."""
        return self.answered + self.shed + self.timed_out + self.failed

    @property
    def ends(self) -> dict[str, int]:
        """How many requests ended how, by the names of :data:`ENDS`; together all that were sent.

        Of a run that goes on, less those in flight.
        """
        return {name: getattr(self, name) for name in ENDS}

    @property
    def error_rate(self) -> float:
        """Share of what was not shed that failed: requests, or rollouts that ended INTERNAL.

        What ran out of time has failed too.
        """
        failed = self.failed + self.timed_out
        taken = self.answered + failed
        requests = failed / taken if taken else 0.0
        internal = self.statuses["INTERNAL"] / self.rollouts if self.rollouts else 0.0
        return min(1.0, requests + (1 - requests) * internal)

    @property
    def shed_rate(self) -> float:
        """Share of the requests that the server refused for load."""
        return self.shed / self.ended if self.ended else 0.0


@dataclass(frozen=True, slots=True)
class LoadReply:
    """The scores that came back.

    Attributes:
        positions: of the rollouts in the pool, in the order of the scores.
        num_bytes: of their responses.
        statuses: how many scores have which status.
        score: reads the score at a place of ``positions``.
    """

    positions: Sequence[int]
    num_bytes: int
    statuses: Mapping[str, int]
    digest: str
    score: Callable[[int], Score]


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """How one request ended.

    Attributes:
        code: gRPC code of its end, ``OK``, or :data:`BAD_REPLY`.
        message: one sentence where it is not OK.
        shed: the server refused it for load.
        failed_attempts: codes of the attempts that failed, in order.
        retry_after_s: the server's hint with a refusal.
    """

    code: str
    message: str = ""
    shed: bool = False
    failed_attempts: tuple[str, ...] = ()
    retries: int = 0
    retry_after_s: float | None = None
    reply: LoadReply | None = None


@dataclass(frozen=True, slots=True)
class ScoreSample:
    """A score that came back, and which rollout of the pool it is said to be of."""

    position: int
    score: Score


class ScoreSampler:
    """Keeps scores to compare later: a share of all, evenly over the run, bounded."""

    def __init__(self, share: float, seed: int) -> None:
        self._share = share
        self._draw = random.Random(seed)
        self._drawn = 0
        self.samples: list[ScoreSample] = []

    def offer(self, reply: LoadReply) -> None:
        """Perhaps keep some of the scores of a reply."""
        if not self._share:
            return
        for place, position in enumerate(reply.positions):
            if self._drawn >= FIRST_SAMPLES and self._draw.random() >= self._share:
                continue
            self._drawn += 1
            if len(self.samples) < MAX_SAMPLES:
                self.samples.append(ScoreSample(position, reply.score(place)))
                continue
            # Each score drawn so far is equally likely to stay.
            slot = self._draw.randrange(self._drawn)
            if slot < MAX_SAMPLES:
                self.samples[slot] = ScoreSample(position, reply.score(place))


class Recorder:
    """Counts requests; those that were due in the warm-up are not counted.

    ``start`` is the end of the warm-up, on the clock of all times given here; ``sampler`` is
    offered every reply that is counted.
    """

    def __init__(self, start: float, sampler: ScoreSampler) -> None:
        self._start = start
        self._sampler = sampler
        self._tally = LoadTally()

    def sent(self, due: float, *, held: bool = False) -> None:
        """Count a request out; ``held`` says that too many were in flight when it was due.

        Its end is told by :meth:`ended` or :meth:`abandoned`.
        """
        if due < self._start:
            return
        tally = self._tally
        tally.sent += 1
        tally.timeline.at(due - self._start).due += 1
        tally.held += held

    def left(self, due: float, now: float) -> None:
        """Say when a request left that nothing held back."""
        if due >= self._start:
            self._tally.lag.record(now - due)

    def abandoned(self, due: float) -> None:
        """Count a request whose end nobody waits for."""
        if due >= self._start:
            self._tally.abandoned += 1
            self._tally.timeline.at(due - self._start).abandoned += 1

    def ended(self, due: float, now: float, outcome: RequestOutcome) -> None:
        """Count a request in."""
        if due < self._start:
            return
        tally = self._tally
        tally.codes[outcome.code] += 1
        tally.attempt_codes.update(outcome.failed_attempts)
        tally.retries += outcome.retries
        reply = outcome.reply
        counted: tuple[LoadTally | TimeBin, ...] = (tally, tally.timeline.at(now - self._start))
        for counts in counted:
            if reply is not None:
                counts.answered += 1
                counts.rollouts += len(reply.positions)
                counts.num_bytes += reply.num_bytes
            elif outcome.shed:
                counts.shed += 1
            elif outcome.code == DEADLINE:
                counts.timed_out += 1
            else:
                counts.failed += 1
        if reply is not None:
            tally.statuses.update(reply.statuses)
            tally.digests[reply.digest] += 1
            self._sampler.offer(reply)
        else:
            tally.examples.setdefault(outcome.code, outcome.message)
        # One that ran out of time took at least as long as it waited; leaving it out would
        # flatter the server most when it is slowest.
        if outcome.code in (OK, DEADLINE):
            tally.latency.record(now - due)
            tally.timeline.at(due - self._start).latency.record(now - due)

    def take(self) -> LoadTally:
        """Return what was counted since the last time."""
        taken, self._tally = self._tally, LoadTally()
        return taken
