"""The highest rate that a server sustains: double until it does not, then halve the gap.

Each step offers one rate in an open loop, in windows of equal length, until three windows in a
row agree on throughput and median latency within 10 % (as Triton's perf_analyzer does); their
numbers are the step's.  Where three in a row break a limit, they need not agree.  A step whose
windows do neither is judged by its last three, and says so.  A rate is sustained where nearly
all of it is answered, within the limits on latency, errors and refusals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from consensuspr.loadtest.load import Load
from consensuspr.loadtest.processes import RunProgress, RunResult
from consensuspr.loadtest.settings import GRACE_S, MAX_WINDOWS, LoadSettings
from consensuspr.loadtest.stats import ENDS, LoadTally, TimeBin, ms

STABLE_WINDOWS = 3
STABLE_WITHIN = 0.10
# Of the offered rate; the windows' edges cut through a request or two.
ANSWERED_SHARE = 0.95
# The search ends where the highest rate sustained and the lowest not sustained are this near.
PRECISION = 0.10
MAX_STEPS = 24
# A step that breaks a limit is made once more where its own requests left so late.
LATE_S = 0.005

RunLoad = Callable[[Load, Callable[[RunProgress], bool]], RunResult]


@dataclass(frozen=True, slots=True)
class RateStep:
    """One rate that was offered, in requests a second, and what came of it.

    Attributes:
        p50_s: median latency; None where too few were answered to tell, as in ``p99_s``.
        error_rate: share of requests that failed or were refused.
        late_s: by which 1 % of its requests left late, or more; of the load generator's making.
        stable: whether the windows agreed.
        sustained: whether the rate keeps the limits; None: undecided, because a limit was broken
            while the load generator itself was late.
        why: the first limit that is broken.
        sent: requests of the whole step, of which so many ended in which way; what stands above
            is of its last windows.
    """

    rate: float
    answered_rate: float
    rollout_rate: float
    p50_s: float | None
    p99_s: float | None
    error_rate: float
    late_s: float
    stable: bool
    sustained: bool | None
    why: str = ""
    sent: int = 0
    answered: int = 0
    shed: int = 0
    timed_out: int = 0
    failed: int = 0
    abandoned: int = 0

    @property
    def verdict(self) -> str:
        """Whether the rate was sustained, in words for a table."""
        if self.sustained is None:
            return f"undecided: {self.why}, but the load generator was late itself"
        told = "yes" if self.sustained else f"no: {self.why}"
        return told if self.stable else f"{told} (unstable)"

    def cells(self) -> dict[str, str]:
        """Return the step as a row of a table, by heading."""
        return {
            "Offered/s": f"{self.rate:,.1f}",
            "Answered/s": f"{self.answered_rate:,.1f}",
            "Rollouts/s": f"{self.rollout_rate:,.0f}",
            "p50 ms": ms(self.p50_s),
            "p99 ms": ms(self.p99_s),
            "Late ms": ms(self.late_s),
            "Lost": f"{self.error_rate:.2%}",
            "Sustained": self.verdict,
        }

    def counts(self) -> dict[str, str]:
        """Return what became of the step's requests as a row of a table, by heading."""
        ends = {heading.capitalize(): f"{getattr(self, name):,}" for name, heading in ENDS.items()}
        return {"Offered/s": f"{self.rate:,.1f}", "Sent": f"{self.sent:,}", **ends}


@dataclass(slots=True)
class Search:
    """A search, finished or ended early: its steps in order, and the result of all together.

    The result's ``cpu_shares`` are those of the step that kept the load processes busiest.
    """

    steps: list[RateStep] = field(default_factory=list)
    result: RunResult = field(default_factory=RunResult)

    @property
    def last_tries(self) -> list[RateStep]:
        """The last step of each rate, rates ascending."""
        by_rate = {step.rate: step for step in self.steps}
        return [by_rate[rate] for rate in sorted(by_rate)]

    @property
    def best(self) -> RateStep | None:
        """The step with the highest sustained rate."""
        sustained = [step for step in self.steps if step.sustained]
        return max(sustained, key=lambda step: step.rate, default=None)


def find_saturation(
    run: RunLoad,
    start_rate: float,
    settings: LoadSettings,
    say: Callable[[RateStep], None] = lambda step: None,
) -> Search:
    """Search for the highest sustained rate.

    Args:
        run: offers a load until it is over or the watch says so.
        start_rate: offered first, requests a second; at least the settings' lowest rate.
        settings: limits that a sustained rate keeps, length of a window, warm-up of each step.
        say: told of each step.
    """
    search = Search()
    total = search.result
    low, high = 0.0, 0.0  # the highest rate sustained, the lowest not sustained; 0: none yet
    rate = start_rate
    tried_again: set[float] = set()
    while len(search.steps) < MAX_STEPS and rate >= settings.lowest_rate:
        windows = _Windows(settings)
        duration_s = MAX_WINDOWS * settings.window + GRACE_S
        result = run(Load(((rate, rate),), duration_s, settings.warmup), windows.watch)
        total.samples += result.samples
        total.elapsed_s += result.elapsed_s
        total.tally.add(result.tally)
        if max(result.cpu_shares, default=0.0) >= max(total.cpu_shares, default=0.0):
            total.cpu_shares = result.cpu_shares
        if result.interrupted:
            total.interrupted = True
            break
        step = windows.judge(rate, result.tally)
        search.steps.append(step)
        say(step)
        if step.sustained is None and rate not in tried_again:
            tried_again.add(rate)  # the generator's fault, perhaps
            continue
        if step.sustained:
            low = max(low, rate)
        else:  # also where it stays undecided: this generator can offer no more
            high = min(high, rate) if high else rate
        if high and low and high / low <= 1 + PRECISION:
            break
        if not high:
            rate = 2 * low
        elif not low:
            rate = high / 2
        else:
            rate = (low + high) / 2
    return search


class _Windows:
    """Cuts a run into windows as it goes, ends it when they agree, and judges its rate."""

    def __init__(self, settings: LoadSettings) -> None:
        self._settings = settings
        self._last: list[TimeBin] = []
        self._stable = False
        self._over = False

    def watch(self, progress: RunProgress) -> bool:
        """Return whether the run may end: it is decided, or had all its windows."""
        if self._over:
            return True
        window_s = self._settings.window
        finished = min(MAX_WINDOWS, int((progress.elapsed_s - GRACE_S) / window_s))
        if finished < 1:
            return False
        self._last = [
            progress.tally.timeline.between(number * window_s, (number + 1) * window_s)
            for number in range(max(0, finished - STABLE_WINDOWS), finished)
        ]
        enough = len(self._last) == STABLE_WINDOWS
        self._stable = enough and _agree(self._last)
        broken = enough and all(_broken(window, self._settings) for window in self._last)
        self._over = self._stable or broken or finished == MAX_WINDOWS
        return self._over

    def judge(self, rate: float, tally: LoadTally) -> RateStep:
        """Return what the last windows say of a rate."""
        together = TimeBin()
        for window in self._last:
            together.add(window)
        seconds = max(1, len(self._last)) * self._settings.window
        ended = together.answered + together.lost
        why = _broken(together, self._settings)
        late_s = tally.lag.percentile(99) or 0.0
        p50_s, p99_s = together.latency.resolved((50, 99))
        return RateStep(
            rate,
            together.answered / seconds,
            together.rollouts / seconds,
            p50_s,
            p99_s,
            together.lost / ended if ended else 0.0,
            late_s,
            self._stable,
            sustained=None if why and late_s > LATE_S else not why,
            why=why,
            sent=tally.sent,
            **tally.ends,
        )


def _agree(windows: list[TimeBin]) -> bool:
    """Tell whether windows are within 10 % of their mean, in throughput and median latency."""
    medians = [window.latency.percentile(50) or 0.0 for window in windows]
    for values in ([float(window.answered) for window in windows], medians):
        mean = sum(values) / len(values)
        if not mean or any(abs(value - mean) > STABLE_WITHIN * mean for value in values):
            return False
    return True


def _broken(window: TimeBin, settings: LoadSettings) -> str:
    """Return the first limit that a stretch of time breaks; empty where it keeps them all."""
    ended = window.answered + window.lost
    p99_s, limit_ms = window.latency.percentile(99), settings.max_p99
    if window.lost > settings.max_error_rate * ended:
        return f"{window.lost / ended:.1%} failed, ran out of time or were refused"
    if window.answered < ANSWERED_SHARE * window.due:
        return f"{window.answered:,} were answered where {window.due:,} were due"
    if p99_s is None:
        return "nothing was answered"
    if limit_ms is not None and p99_s * 1e3 > limit_ms:
        count = window.latency.count
        what = "p99 is" if window.latency.resolved((99,))[0] else f"the slowest of {count} took"
        return f"{what} {p99_s * 1e3:,.1f} ms"
    return ""
