"""Latencies in bounded memory, with percentiles of a stated relative error.

Log-linear buckets, as in HDR histograms: each power of two is cut into
:data:`STEPS_PER_OCTAVE` equal steps, and a value is taken for the middle of its step.  So a
percentile is off by at most :data:`RELATIVE_ERROR` of itself, whatever its size, and adding
two histograms loses nothing more.  Only steps that were hit are kept: at most
:data:`MAX_BUCKETS`, and a few hundred in practice.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from consensuspr.loadtest.load import Load, Settings
from consensuspr.loadtest.senders import DEADLINE, OK, Outcome
from consensuspr.scoring.types import Rollout, Score

STEPS_PER_OCTAVE: Final = 128
# Half a step of the lower end of an octave.
RELATIVE_ERROR: Final = 1 / (2 * STEPS_PER_OCTAVE)

# Outside, values are taken for these; no request of a load test is near either.
MIN_S: Final = 1e-6
MAX_S: Final = 1e5
MAX_BUCKETS: Final = (math.frexp(MAX_S)[1] - math.frexp(MIN_S)[1] + 1) * STEPS_PER_OCTAVE


class Histogram:
    """How many values fell into which step, and the exact smallest, largest and sum.

    Attributes:
        count: values recorded.
        total_s: their sum in seconds.
        min_s: the smallest, infinite where there is none.
        max_s: the largest, 0 where there is none.
    """

    __slots__ = ("_buckets", "count", "max_s", "min_s", "total_s")

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = 0
        self.total_s = 0.0
        self.min_s = math.inf
        self.max_s = 0.0

    @property
    def num_buckets(self) -> int:
        """Steps that hold a value."""
        return len(self._buckets)

    @property
    def mean_s(self) -> float | None:
        """The exact mean; None where there is no value."""
        return self.total_s / self.count if self.count else None

    def record(self, seconds: float) -> None:
        """Add a value; what is outside [:data:`MIN_S`, :data:`MAX_S`] counts as the bound."""
        seconds = min(max(seconds, MIN_S), MAX_S)
        mantissa, exponent = math.frexp(seconds)  # in [0.5, 1)
        step = int((mantissa - 0.5) * 2 * STEPS_PER_OCTAVE)
        self._buckets[exponent * STEPS_PER_OCTAVE + step] += 1
        self.count += 1
        self.total_s += seconds
        self.min_s = min(self.min_s, seconds)
        self.max_s = max(self.max_s, seconds)

    def add(self, other: Histogram) -> None:
        """Take over the values of another histogram."""
        self._buckets.update(other._buckets)
        self.count += other.count
        self.total_s += other.total_s
        self.min_s = min(self.min_s, other.min_s)
        self.max_s = max(self.max_s, other.max_s)

    def percentiles(self, ranks: tuple[float, ...]) -> list[float]:
        """Return the value below or at which each share of the values lies.

        The nearest rank: the smallest value such that at least ``rank`` percent are not above
        it, within :data:`RELATIVE_ERROR`.

        Args:
            ranks: in percent, each in (0, 100], ascending.

        Returns:
            Seconds, one for each rank; none where there is no value.
        """
        if not self.count:
            return []
        found: list[float] = []
        seen = 0
        buckets = iter(sorted(self._buckets.items()))
        bucket = 0
        for rank in ranks:
            # Rounded first: 99.9 % of 1,000 is 999 values, whatever the product's last bit.
            wanted = max(1, math.ceil(round(rank * self.count / 100, 6)))
            while seen < wanted:
                bucket, hits = next(buckets)
                seen += hits
            found.append(min(max(_middle(bucket), self.min_s), self.max_s))
        return found

    def resolved(self, ranks: tuple[float, ...]) -> list[float | None]:
        """Return percentiles for a reader: None where there are too few values to tell one.

        The p99.9 of five values would be their maximum under another name; a percentile needs
        a value beyond it, at least ``1 / (1 - rank / 100)`` values in all.

        Args:
            ranks: as in :meth:`percentiles`; 100 is never told.

        Returns:
            Seconds, one for each rank.
        """
        found: list[float | None] = [*self.percentiles(ranks)] or [None] * len(ranks)
        # Rounded, as above: 100 - 99.9 is not exactly 0.1.
        enough = (round(self.count * (100 - rank), 6) >= 100 for rank in ranks)
        return [v if told else None for v, told in zip(found, enough, strict=True)]

    def percentile(self, rank: float) -> float | None:
        """Return one percentile in seconds; None where there is no value."""
        return next(iter(self.percentiles((rank,))), None)


def _middle(bucket: int) -> float:
    exponent, step = divmod(bucket, STEPS_PER_OCTAVE)
    return math.ldexp(0.5 + (step + 0.5) / (2 * STEPS_PER_OCTAVE), exponent)


# MERGED What became of the requests of a run: counts, latencies, and both over time.
#
# A load process keeps a tally, hands it over twice a second and begins a new one; adding
# tallies up gives that of the run.  Memory is bounded: histograms are, and the bins of the
# timeline get twice as wide whenever there would be more than :data:`MAX_BINS`.

FIRST_BIN_S = 0.25
MAX_BINS = 512


@dataclass(slots=True)
class Bin:
    """One stretch of time: requests that were due in it, and what came back in it.

    Attributes:
        latency: of the requests due in it, seconds from when they were due.
        due: requests due in it.
        answered: replies that came in it.
        rollouts: scored rollouts that came in it.
        num_bytes: bytes of their responses.
        shed: requests refused for load in it.
        failed: requests that failed in it.
    """

    latency: Histogram = field(default_factory=Histogram)
    due: int = 0
    answered: int = 0
    rollouts: int = 0
    num_bytes: int = 0
    shed: int = 0
    failed: int = 0

    def add(self, other: Bin) -> None:
        """Take over another bin's numbers."""
        self.latency.add(other.latency)
        self.due += other.due
        self.answered += other.answered
        self.rollouts += other.rollouts
        self.num_bytes += other.num_bytes
        self.shed += other.shed
        self.failed += other.failed


class Timeline:
    """Bins of equal width from the start of the measurement on.

    Attributes:
        width_s: of a bin; :data:`FIRST_BIN_S` times a power of two.
    """

    def __init__(self) -> None:
        self.width_s = FIRST_BIN_S
        self._bins: dict[int, Bin] = {}

    def at(self, seconds: float) -> Bin:
        """Return the bin of a time counted from the start; times before it are its first bin."""
        number = max(0, int(seconds / self.width_s))
        while number >= MAX_BINS:
            self._widen()
            number = int(seconds / self.width_s)
        return self._bins.setdefault(number, Bin())

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

    def bins(self) -> list[tuple[float, Bin]]:
        """Return the start of each bin and the bin, gaps filled with empty ones."""
        if not self._bins:
            return []
        empty = Bin()
        last = max(self._bins)
        return [(n * self.width_s, self._bins.get(n, empty)) for n in range(last + 1)]

    def between(self, start_s: float, end_s: float) -> Bin:
        """Return what the bins of a stretch hold together; its ends are rounded to bins."""
        first, last = round(start_s / self.width_s), round(end_s / self.width_s)
        together = Bin()
        for number in range(first, last):
            if number in self._bins:
                together.add(self._bins[number])
        return together

    def _widen(self) -> None:
        self.width_s *= 2
        old, self._bins = self._bins, {}
        for number, its in old.items():
            self._bins.setdefault(number // 2, Bin()).add(its)


@dataclass(slots=True)
class Tally:
    """The numbers of a run, or of a part of it.  The warm-up is in none of them.

    Attributes:
        latency: seconds from when a request was due until its reply, of all that were
            answered or ran out of time.
        lag: seconds by which requests were sent late although nothing held them back.
        timeline: the same over time.
        sent: requests that were sent.
        answered: requests that were answered.
        rollouts: scored rollouts.
        num_bytes: bytes of their responses.
        shed: requests that the server refused for load in the end.
        failed: requests that failed otherwise.
        retries: attempts beyond the first of a request.
        held: requests that waited because too many were in flight.
        abandoned: requests that were given up when the run was stopped; nothing is known of them.
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
    failed: int = 0
    retries: int = 0
    held: int = 0
    abandoned: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    attempt_codes: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    digests: Counter[str] = field(default_factory=Counter)

    @property
    def ended(self) -> int:
        """Requests whose end is known."""
        return self.answered + self.shed + self.failed

    @property
    def error_rate(self) -> float:
        """Share of what was not shed that failed: requests, or rollouts that ended INTERNAL."""
        taken = self.answered + self.failed
        requests = self.failed / taken if taken else 0.0
        internal = self.statuses["INTERNAL"] / self.rollouts if self.rollouts else 0.0
        return min(1.0, requests + (1 - requests) * internal)

    @property
    def shed_rate(self) -> float:
        """Share of the requests that the server refused for load."""
        return self.shed / self.ended if self.ended else 0.0

    def add(self, other: Tally) -> None:
        """Take over another tally's numbers."""
        self.latency.add(other.latency)
        self.lag.add(other.lag)
        self.timeline.add(other.timeline)
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("codes", "attempt_codes", "statuses", "digests"):
            getattr(self, name).update(getattr(other, name))
        self.examples = other.examples | self.examples


_COUNTS = (
    "sent",
    "answered",
    "rollouts",
    "num_bytes",
    "shed",
    "failed",
    "retries",
    "held",
    "abandoned",
)


# MERGED What the processes of a load test say to each other.


@dataclass(frozen=True, slots=True)
class Setup:
    """What a load process is made with.

    Attributes:
        settings: of the load test.
        rollouts: to send.
        number: of the process, from 0.
        processes: of the load test.
        connections: of this process, at least 1.
    """

    settings: Settings
    rollouts: tuple[Rollout, ...]
    number: int
    processes: int
    connections: int


@dataclass(frozen=True, slots=True)
class Start:
    """Carry out a run.

    Attributes:
        at: the end of the warm-up on the system's monotonic clock, the same for all processes.
        load: open loop; None: a closed one.
        concurrency: of this process in a closed loop.
        first: number of this process's first request of a closed loop.
        requests: measured requests: of all processes in an open loop, of this one in a closed
            loop; None: no limit.
    """

    at: float
    load: Load | None
    concurrency: int
    first: int
    requests: int | None


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run now: send nothing more, and give up what is in flight."""


@dataclass(frozen=True, slots=True)
class Quit:
    """Leave."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The process is connected and waits for a run."""


@dataclass(frozen=True, slots=True)
class Part:
    """What became of requests since the last part.

    Attributes:
        tally: of them.
        in_flight: requests that were sent and not answered, now.
    """

    tally: Tally
    in_flight: int


@dataclass(frozen=True, slots=True)
class Sample:
    """A score that came back, and which rollout of the pool it is said to be of."""

    position: int
    score: Score


@dataclass(frozen=True, slots=True)
class Done:
    """A run is over.

    Attributes:
        cpu_s: processor time that the process took.
        wall_s: how long the run was, warm-up included.
        samples: scores to compare.
    """

    cpu_s: float
    wall_s: float
    samples: tuple[Sample, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Failed:
    """The process cannot go on."""

    error: Exception


Order = Start | Stop | Quit
Report = Ready | Part | Done | Failed


# MERGED One process's books of a run: outcomes into tallies, and a sample of the scores.

# Of a process, however small the share: a short run is checked too.
FIRST_SAMPLES = 16
# Of a process, however long the run: a sample of the whole run, not of its beginning.
MAX_SAMPLES = 2000


class Sampler:
    """Keeps scores to compare later: a share of all, evenly over the run, bounded.

    Args:
        share: of the scores, in [0, 1]; 0 keeps none.
        seed: decides which.
    """

    def __init__(self, share: float, seed: int) -> None:
        self._share = share
        self._draw = random.Random(seed)
        self._drawn = 0
        self.samples: list[Sample] = []

    def offer(self, outcome: Outcome) -> None:
        """Perhaps keep some of the scores of a reply."""
        reply = outcome.reply
        if reply is None or not self._share:
            return
        for place, position in enumerate(reply.positions):
            if self._drawn >= FIRST_SAMPLES and self._draw.random() >= self._share:
                continue
            self._drawn += 1
            if len(self.samples) < MAX_SAMPLES:
                self.samples.append(Sample(position, reply.score(place)))
            else:  # each score drawn so far is equally likely to stay
                slot = self._draw.randrange(self._drawn)
                if slot < MAX_SAMPLES:
                    self.samples[slot] = Sample(position, reply.score(place))


class Recorder:
    """Counts requests; those that were due in the warm-up are not counted.

    Args:
        start: end of the warm-up, on the clock of all times given here.
        sampler: is offered every reply that is counted.
    """

    def __init__(self, start: float, sampler: Sampler) -> None:
        self._start = start
        self._sampler = sampler
        self._tally = Tally()

    def sent(self, due: float, now: float, *, held: bool) -> None:
        """Count a request out.

        Args:
            due: when it was to be sent.
            now: when it was.
            held: whether too many were in flight at the time.
        """
        if due < self._start:
            return
        tally = self._tally
        tally.sent += 1
        tally.timeline.at(due - self._start).due += 1
        if held:
            tally.held += 1
        else:
            tally.lag.record(now - due)

    def abandoned(self, due: float) -> None:
        """Count a request whose end nobody waits for."""
        if due >= self._start:
            self._tally.abandoned += 1

    def ended(self, due: float, now: float, outcome: Outcome) -> None:
        """Count a request in."""
        if due < self._start:
            return
        tally = self._tally
        tally.codes[outcome.code] += 1
        tally.attempt_codes.update(outcome.failed_attempts)
        tally.retries += outcome.retries
        back = tally.timeline.at(now - self._start)
        reply = outcome.reply
        if reply is not None:
            tally.answered += 1
            tally.rollouts += len(reply.positions)
            tally.num_bytes += reply.num_bytes
            tally.statuses.update(reply.statuses)
            tally.digests[reply.digest] += 1
            back.answered += 1
            back.rollouts += len(reply.positions)
            back.num_bytes += reply.num_bytes
            self._sampler.offer(outcome)
        else:
            tally.examples.setdefault(outcome.code, outcome.message)
            if outcome.shed:
                tally.shed += 1
                back.shed += 1
            else:
                tally.failed += 1
                back.failed += 1
        # One that ran out of time took at least as long as it waited; leaving it out would
        # flatter the server most when it is slowest.
        if outcome.code in (OK, DEADLINE):
            tally.latency.record(now - due)
            tally.timeline.at(due - self._start).latency.record(now - due)

    def take(self) -> Tally:
        """Return what was counted since the last time."""
        taken, self._tally = self._tally, Tally()
        return taken
