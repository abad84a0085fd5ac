"""What became of the requests of a run: counts, latencies, and both over time.

A load process keeps a tally, hands it over twice a second and begins a new one; adding
tallies up gives that of the run.  Memory is bounded: histograms are, and the bins of the
timeline get twice as wide whenever there would be more than :data:`MAX_BINS`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from consensuspr.loadtest.histogram import Histogram

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
