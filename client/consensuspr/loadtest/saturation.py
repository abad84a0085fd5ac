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

from consensuspr.errors import InputError
from consensuspr.loadtest.load import Load
from consensuspr.loadtest.processes import Progress, RunResult
from consensuspr.loadtest.stats import FIRST_BIN_S, MAX_BINS, Bin, Sample, Tally

STABLE_WINDOWS = 3
MAX_WINDOWS = 8
DEFAULT_WINDOW_S = 2.0
STABLE_WITHIN = 0.10
# Of the offered rate; the windows' edges cut through a request or two.
ANSWERED_SHARE = 0.95
# The search ends where the highest rate sustained and the lowest not sustained are this near.
PRECISION = 0.10
MAX_STEPS = 24
# A step that breaks a limit is made once more where its own requests left so late.
LATE_S = 0.005
# Replies of a window's requests that may still be on their way when it is looked at.
GRACE_S = 0.5

MIN_WINDOW_S = 2 * FIRST_BIN_S
# All windows of a step are to be seen in the narrowest bins.
MAX_WINDOW_S = int((MAX_BINS * FIRST_BIN_S - GRACE_S - 1) / MAX_WINDOWS)

RunLoad = Callable[[Load, Callable[[Progress], bool]], RunResult]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a rate must keep to be sustained, and how long it is looked at.

    Attributes:
        max_p99_s: of the 99th percentile of latency; None: no limit.
        max_error_rate: of failed and of refused requests together, in [0, 1].
        window_s: length of a window, a multiple of a quarter of a second.
        max_undecided: share of the compared scores that the server may leave undecided where the
            in-process scorer decides; of a whole load test, not of a rate.

    Raises:
        InputError: a value is out of its range.
    """

    max_p99_s: float | None
    max_error_rate: float
    window_s: float = DEFAULT_WINDOW_S
    max_undecided: float = 0.05

    def __post_init__(self) -> None:
        if self.max_p99_s is not None and self.max_p99_s <= 0:
            raise InputError(
                f"--max-p99 must be above 0 milliseconds, got {self.max_p99_s * 1e3:g}"
            )
        for option, share in (
            ("max-error-rate", self.max_error_rate),
            ("max-undecided", self.max_undecided),
        ):
            if not 0 <= share <= 1:
                raise InputError(f"--{option} must be a share in [0, 1], got {share:g}")
        in_range = MIN_WINDOW_S <= self.window_s <= MAX_WINDOW_S
        if not in_range or self.window_s % FIRST_BIN_S:
            raise InputError(
                f"--window must be a multiple of {FIRST_BIN_S:g} in"
                f" [{MIN_WINDOW_S:g}, {MAX_WINDOW_S}] seconds, got {self.window_s:g}"
            )

    @property
    def lowest_rate(self) -> float:
        """Requests a second below which a window has no request to judge by."""
        return 1 / self.window_s


@dataclass(frozen=True, slots=True)
class Step:
    """One rate that was offered, and what came of it.

    Attributes:
        rate: offered, requests a second.
        answered_rate: requests answered a second.
        rollout_rate: rollouts scored a second.
        p50_s: median latency; None where too few were answered to tell.
        p99_s: 99th percentile; the same.
        error_rate: share of requests that failed or were refused.
        late_s: by which 1 % of its requests left late, or more; of the load generator's making.
        stable: whether the windows agreed.
        sustained: whether the rate keeps the limits; None: undecided, because a limit was broken
            while the load generator itself was late.
        why: the first limit that is broken.
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

    @property
    def verdict(self) -> str:
        """Whether the rate was sustained, in words for a table."""
        if self.sustained is None:
            return f"undecided: {self.why}, but the load generator was late itself"
        told = "yes" if self.sustained else f"no: {self.why}"
        return told if self.stable else f"{told} (unstable)"


@dataclass(slots=True)
class Search:
    """A search, finished or ended early.

    Attributes:
        steps: in the order in which they were made.
        samples: scores to compare, of all steps.
        tally: of all steps.
        cpu_shares: as in the step that kept the load processes busiest.
        interrupted: it was ended by Ctrl-C.
        elapsed_s: measured time of all steps.
    """

    steps: list[Step] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    cpu_shares: list[float] = field(default_factory=list)
    interrupted: bool = False
    elapsed_s: float = 0.0

    @property
    def last_tries(self) -> list[Step]:
        """The last step of each rate, rates ascending."""
        by_rate = {step.rate: step for step in self.steps}
        return [by_rate[rate] for rate in sorted(by_rate)]

    @property
    def best(self) -> Step | None:
        """The step with the highest sustained rate."""
        sustained = [step for step in self.steps if step.sustained]
        return max(sustained, key=lambda step: step.rate, default=None)


def find_saturation(
    run: RunLoad,
    start_rate: float,
    warmup_s: float,
    limits: Limits,
    say: Callable[[Step], None] = lambda step: None,
) -> Search:
    """Search for the highest sustained rate.

    Args:
        run: offers a load until it is over or the watch says so.
        start_rate: offered first, requests a second; at least the limits' lowest rate.
        warmup_s: before each step.
        limits: that a sustained rate keeps, and the length of a window.
        say: told of each step.
    """
    search = Search()
    window_s = limits.window_s
    low, high = 0.0, 0.0  # the highest rate sustained, the lowest not sustained; 0: none yet
    rate = start_rate
    tried_again: set[float] = set()
    while len(search.steps) < MAX_STEPS and rate >= limits.lowest_rate:
        load = Load(((rate, rate),), MAX_WINDOWS * window_s + GRACE_S, warmup_s)
        windows = _Windows(limits)
        result = run(load, windows.watch)
        search.samples += result.samples
        search.elapsed_s += result.elapsed_s
        search.tally.add(result.tally)
        if max(result.cpu_shares, default=0.0) >= max(search.cpu_shares, default=0.0):
            search.cpu_shares = result.cpu_shares
        if result.interrupted:
            search.interrupted = True
            break
        step = _judged(rate, windows, limits, result.tally)
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
    """Cuts a run into windows as it goes, and ends it when they agree."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._window_s = limits.window_s
        self.last: list[Bin] = []
        self.stable = False
        self._over = False

    def watch(self, progress: Progress) -> bool:
        """Return whether the run may end: it is decided, or had all its windows."""
        if self._over:
            return True
        finished = min(MAX_WINDOWS, int((progress.elapsed_s - GRACE_S) / self._window_s))
        if finished < 1:
            return False
        timeline = progress.tally.timeline
        first = max(0, finished - STABLE_WINDOWS)
        self.last = [
            timeline.between(number * self._window_s, (number + 1) * self._window_s)
            for number in range(first, finished)
        ]
        enough = len(self.last) == STABLE_WINDOWS
        self.stable = enough and _agree(self.last)
        broken = enough and all(_broken(window, self._limits) for window in self.last)
        self._over = self.stable or broken or finished == MAX_WINDOWS
        return self._over


def _agree(windows: list[Bin]) -> bool:
    """Tell whether windows are within 10 % of their mean, in throughput and median latency."""
    medians = [window.latency.percentile(50) or 0.0 for window in windows]
    for values in ([float(window.answered) for window in windows], medians):
        mean = sum(values) / len(values)
        if not mean or any(abs(value - mean) > STABLE_WITHIN * mean for value in values):
            return False
    return True


def _broken(window: Bin, limits: Limits) -> str:
    """Return the first limit that a stretch of time breaks; empty where it keeps them all."""
    lost = window.failed + window.shed
    p99_s = window.latency.percentile(99)
    if lost > limits.max_error_rate * (window.answered + lost):
        return f"{lost / (window.answered + lost):.1%} failed or were refused"
    if window.answered < ANSWERED_SHARE * window.due:
        return f"{window.answered:,} were answered where {window.due:,} were due"
    if p99_s is None:
        return "nothing was answered"
    if limits.max_p99_s is not None and p99_s > limits.max_p99_s:
        count = window.latency.count
        what = "p99 is" if window.latency.resolved((99,))[0] else f"the slowest of {count} took"
        return f"{what} {p99_s * 1e3:,.1f} ms"
    return ""


def _judged(rate: float, windows: _Windows, limits: Limits, tally: Tally) -> Step:
    together = Bin()
    for window in windows.last:
        together.add(window)
    seconds = max(1, len(windows.last)) * limits.window_s
    lost = together.failed + together.shed
    why = _broken(together, limits)
    late_s = tally.lag.percentile(99) or 0.0
    p50_s, p99_s = together.latency.resolved((50, 99))
    return Step(
        rate,
        together.answered / seconds,
        together.rollouts / seconds,
        p50_s,
        p99_s,
        lost / (together.answered + lost) if together.answered + lost else 0.0,
        late_s,
        windows.stable,
        sustained=None if why and late_s > LATE_S else not why,
        why=why,
    )
