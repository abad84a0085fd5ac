"""When requests are due: how the rate moves, and how arrivals are spread around it.

An arrival process is a constant one whose clock is bent: with ``L(t)`` the requests expected
until ``t``, arrival ``i`` comes at the ``t`` where ``L(t)`` is ``i`` (constant), or where it is
the sum of ``i`` draws from the unit exponential (Poisson).  So a load is its ``L`` and the
inverse, both in closed form, and a schedule is the same whoever carries it out.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from consensuspr.client.pipeline import RetryPolicy
from consensuspr.data import Problem, read_problems, read_rollouts
from consensuspr.errors import InputError
from consensuspr.scoring import Rollout, rollout_from_row
from consensuspr.scoring.dataset_index import is_image
from consensuspr.scoring.types import ScoreOptions
from consensuspr.wire.server_info import ServerInfo


class Arrivals(StrEnum):
    """How the times of requests are spread."""

    CONSTANT = "constant"
    POISSON = "poisson"


class LoadShape(StrEnum):
    """How the rate moves during a run."""

    CONSTANT = "constant"
    STEP = "step"
    RAMP = "ramp"


@dataclass(frozen=True, slots=True)
class Load:
    """A rate over time: pieces of equal length, each with its rate at its start and end.

    Before the first piece lies the warm-up, at the rate with which the load begins.

    Attributes:
        rates: of each piece in requests a second, at its start and its end; above 0.
        duration_s: of all pieces together, above 0.
        warmup_s: before them.
    """

    rates: tuple[tuple[float, float], ...]
    duration_s: float
    warmup_s: float = 0.0

    @classmethod
    def of(
        cls,
        shape: LoadShape,
        rate: float,
        rate_end: float | None,
        steps: int,
        duration_s: float,
        warmup_s: float,
    ) -> Load:
        """Return the load of a shape.

        Args:
            shape: ``constant`` has one rate, ``step`` goes up or down in equal steps of equal
                length, ``ramp`` evenly.
            rate: at the start, requests a second.
            rate_end: at the end; not with ``constant``.
            steps: rates of ``step``, the first and the last included.
            duration_s: of the measured part.
            warmup_s: before it, at the first rate.

        Raises:
            InputError: a value is out of its range, or does not go with the shape.
        """
        for name, value in (("rate", rate), ("rate-end", rate_end)):
            if value is not None and not 0 < value < math.inf:
                raise InputError(f"--{name} must be above 0 requests a second, got {value:g}")
        if shape is LoadShape.CONSTANT:
            if rate_end is not None:
                raise InputError("--rate-end goes with --load step or ramp, the load is constant")
            return cls(((rate, rate),), duration_s, warmup_s)
        if rate_end is None:
            raise InputError(f"--load {shape} goes from --rate to --rate-end, which is not given")
        if shape is LoadShape.RAMP:
            return cls(((rate, rate_end),), duration_s, warmup_s)
        if steps < 2:
            raise InputError(f"--steps must be at least 2, got {steps}")
        levels = [rate + (rate_end - rate) * step / (steps - 1) for step in range(steps)]
        return cls(tuple((level, level) for level in levels), duration_s, warmup_s)

    @property
    def warmup_requests(self) -> float:
        """Requests that the warm-up is expected to hold."""
        return self.rates[0][0] * self.warmup_s

    def rate(self, at_s: float) -> float:
        """Return the rate at a time counted from the end of the warm-up."""
        if at_s < 0:
            return self.rates[0][0]
        piece_s = self._piece_s
        number = min(int(at_s / piece_s), len(self.rates) - 1)
        start, end = self.rates[number]
        return start + (end - start) * min(1.0, at_s / piece_s - number)

    def expected(self, until_s: float) -> float:
        """Return ``L``: the requests expected from the start until a time, the warm-up's too.

        Args:
            until_s: from the end of the warm-up, in [-warmup_s, duration_s].
        """
        if until_s <= 0:
            return self.rates[0][0] * (until_s + self.warmup_s)
        count = self.warmup_requests
        left_s = until_s
        for start, end in self.rates:
            inside_s = min(left_s, self._piece_s)
            slope = (end - start) / self._piece_s
            count += start * inside_s + slope * inside_s**2 / 2
            left_s -= inside_s
        return count

    def when(self, count: float) -> float | None:
        """Return the inverse of :meth:`expected`; None where it is past the end."""
        if count <= self.warmup_requests:
            return count / self.rates[0][0] - self.warmup_s
        left = count - self.warmup_requests
        piece_s = self._piece_s
        for number, (start, end) in enumerate(self.rates):
            inside = (start + end) / 2 * piece_s
            if left <= inside:
                slope = (end - start) / piece_s
                # The root of slope/2 t² + start t - left that does not cancel near slope 0.
                root = math.sqrt(max(0.0, start**2 + 2 * slope * left))
                return number * piece_s + 2 * left / (start + root)
            left -= inside
        return None

    @property
    def _piece_s(self) -> float:
        return self.duration_s / len(self.rates)


def due_times(load: Load, arrivals: Arrivals, seed: int) -> Iterator[float]:
    """Yield when requests are due, ascending, in seconds from the end of the warm-up.

    Args:
        load: what rate is wanted when.
        arrivals: evenly, or as a Poisson process.
        seed: of the Poisson process.
    """
    draw = random.Random(seed)
    counts: Iterator[float]
    if arrivals is Arrivals.POISSON:
        counts = itertools.accumulate(draw.expovariate(1.0) for _ in itertools.count())
    else:
        counts = map(float, itertools.count())
    for count in counts:
        due_s = load.when(count)
        # The end is not part of the run: 10 a second for 2 s are 20 requests, not 21.
        if due_s is None or due_s >= load.duration_s:
            return
        yield due_s


# MERGED What a load test is told, checked.

MAX_PROCESSES = 64
MAX_CONNECTIONS = 1024
MAX_CONCURRENCY = 65_536
MAX_DURATION_S = 24 * 3600.0
DEFAULT_DURATION_S = 10.0
# Where only a number of requests is given: so that a server that answers none ends it too.
REQUESTS_DURATION_S = 3600.0

# Reward workers of verl by default, each with a connection of its own.
DEFAULT_CONNECTIONS = 8
DEFAULT_CONCURRENCY = 8
DEFAULT_BATCH = 64
DEFAULT_STEPS = 5

# What all requests in flight may take together: gRPC holds a copy of each.
IN_FLIGHT_BYTES = 256 << 20
IN_FLIGHT_REQUESTS = 4096


class Profile(StrEnum):
    """What a request is."""

    BATCH = "batch"
    VERL = "verl"


@dataclass(frozen=True, slots=True)
class Settings:
    """How a server is loaded.

    Attributes:
        address: ``HOST:PORT``; nothing is sent anywhere else.
        profile: whole batches, each a request; or single samples through the client that
            verl's reward loop uses, which sends those that wait together.
        batch: rollouts in a request of ``batch``.
        rate: requests a second at the start; None: a closed loop.
        arrivals: how the times of requests are spread.
        shape: how the rate moves.
        rate_end: at the end, where it moves.
        steps: rates of a stepped load.
        concurrency: requests at a time of a closed loop.
        duration_s: of the measured part at most.
        requests: measured requests at most; None: no limit.
        warmup_s: before the measured part.
        processes: that send.
        connections: of all processes together.
        timeout_s: of a request, from when it is due, retries included.
        retries: of a request; None: as many as its timeout allows.
        check: share of the replies that are compared with the in-process scorer, in [0, 1].
        seed: of arrivals, texts and the sample.
        options: how the server is to score.

    Raises:
        InputError: a value is out of its range, or two do not go together.
    """

    address: str
    profile: Profile = Profile.BATCH
    batch: int = DEFAULT_BATCH
    rate: float | None = None
    arrivals: Arrivals = Arrivals.CONSTANT
    shape: LoadShape = LoadShape.CONSTANT
    rate_end: float | None = None
    steps: int = DEFAULT_STEPS
    concurrency: int = DEFAULT_CONCURRENCY
    duration_s: float = DEFAULT_DURATION_S
    requests: int | None = None
    warmup_s: float = 1.0
    processes: int = 1
    connections: int = DEFAULT_CONNECTIONS
    timeout_s: float = 30.0
    retries: int | None = 0
    check: float = 0.01
    seed: int = 0
    options: ScoreOptions = field(default_factory=ScoreOptions)

    def __post_init__(self) -> None:
        for option, count, limit in (
            ("batch", self.batch, None),
            ("concurrency", self.concurrency, MAX_CONCURRENCY),
            ("requests", self.requests, None),
            ("processes", self.processes, MAX_PROCESSES),
            ("connections", self.connections, MAX_CONNECTIONS),
        ):
            if count is not None and (count < 1 or (limit is not None and count > limit)):
                allowed = "at least 1" if limit is None else f"in [1, {limit}]"
                raise InputError(f"--{option} must be {allowed}, got {count}")
        for option, seconds, least in (
            ("duration", self.duration_s, 0.1),
            ("warmup", self.warmup_s, 0.0),
            ("timeout", self.timeout_s, 0.001),
        ):
            if not least <= seconds <= MAX_DURATION_S:
                raise InputError(
                    f"--{option} must be in [{least:g}, {MAX_DURATION_S:g}] seconds,"
                    f" got {seconds:g}"
                )
        if not 0 <= self.check <= 1:
            raise InputError(f"--check must be a share in [0, 1], got {self.check:g}")
        if self.retries is not None and self.retries < 0:
            raise InputError(f"--retries must be at least 0, got {self.retries}")
        if self.rate is None and self.shape is not LoadShape.CONSTANT:
            raise InputError(f"--load {self.shape} needs --rate; a closed loop has no rate")
        if self.rate is None and self.rate_end is not None:
            raise InputError(
                "--rate-end goes with --rate and --load step or ramp, which are not given"
            )
        self.load()

    def load(self) -> Load | None:
        """Return the rate over time; None for a closed loop."""
        if self.rate is None:
            return None
        return Load.of(
            self.shape, self.rate, self.rate_end, self.steps, self.duration_s, self.warmup_s
        )

    @property
    def policy(self) -> RetryPolicy:
        """When a failed attempt is repeated."""
        return RetryPolicy(max_attempts=None if self.retries is None else self.retries + 1)

    @property
    def rollouts_per_request(self) -> int:
        """Rollouts in what is timed."""
        return self.batch if self.profile is Profile.BATCH else 1

    def check_against(self, server: ServerInfo, request_bytes: int) -> None:
        """Refuse what one request of that server cannot carry.

        Args:
            server: its limits.
            request_bytes: of the responses of the largest request.

        Raises:
            InputError: the batch is larger than the server takes.
        """
        if self.profile is Profile.BATCH and self.batch > server.max_rollouts:
            raise InputError(
                f"--batch must be at most {server.max_rollouts}, which is what the server takes"
                f" in one request, got {self.batch}"
            )
        if self.profile is Profile.BATCH and request_bytes > server.max_message_bytes:
            raise InputError(
                f"--batch {self.batch} makes a request of {request_bytes:,} bytes; the server takes"
                f" at most {server.max_message_bytes:,}"
            )


def default_processes() -> int:
    """Return how many processes send where nobody says it: half the cores, at most 4.

    The other half is for the server, which is often on the same machine.
    """
    return max(1, min(4, (os.cpu_count() or 1) // 2))


def in_flight_limit(request_bytes: float, processes: int) -> int:
    """Return how many requests one process may have in flight.

    Args:
        request_bytes: mean size of a request.
        processes: that share the machine's memory.
    """
    by_bytes = math.floor(IN_FLIGHT_BYTES / max(1.0, request_bytes))
    return max(1, min(IN_FLIGHT_REQUESTS, by_bytes) // processes)


# MERGED Calls at given times, more exactly than an event loop's timers.
#
# An event loop wakes up to a millisecond late, which would be part of every latency.  A thread
# that only sleeps is late by a tenth of that, and hands over to the loop.

# Handed over at a time where several are due: fewer wake-ups of the loop at high rates.
_TOGETHER_S = 0.0002


class Pacer:
    """Calls back in the event loop whenever something is due.

    Args:
        dues: times of the monotonic clock, ascending; drawn from in the thread.
        begin: called in the loop with each time, never before it.
        ended: called in the loop once, after the last one, also when stopped.
    """

    def __init__(
        self,
        dues: Iterable[float],
        begin: Callable[[float], None],
        ended: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._dues = dues
        self._begin = begin
        self._ended = ended
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pacer", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Call no more; what is handed over already still comes."""
        self._stop.set()

    def _run(self) -> None:
        try:
            self._hand_over_all()
        finally:
            self._loop.call_soon_threadsafe(self._ended)

    def _hand_over_all(self) -> None:
        handed: list[float] = []
        for due in self._dues:
            if handed and due - handed[0] > _TOGETHER_S:
                self._hand_over(handed)
                handed = []
            wait_s = due - time.monotonic()
            if wait_s > 0:
                self._stop.wait(wait_s)
            if self._stop.is_set():
                break
            handed.append(due)
        self._hand_over(handed)

    def _hand_over(self, dues: list[float]) -> None:
        self._loop.call_soon_threadsafe(self._begin_all, dues)

    def _begin_all(self, dues: list[float]) -> None:
        for due in dues:
            self._begin(due)


# MERGED The rollouts that are sent, over and over: from a file, or made from the dataset.

# Each process holds all of them, once as values and once as requests.
POOL_BYTES = 64 << 20
POOL_ROLLOUTS = 20_000
GENERATED_ROLLOUTS = 1024

MIN_SIZE = 64
MAX_SIZE = 16 << 20

# Of verl's shape: prose with formulas between, so that the normal form has its usual work.
_SENTENCES = (
    "Let us first write down what is given and what is asked for. ",
    "We substitute this into the equation above and collect the terms. ",
    r"Note that \( a^2 - b^2 = (a - b)(a + b) \), which makes the product easier. ",
    "Wait, I should check that step again before I go on.\n\n",
    r"Since $n \geq 1$, the sum $\sum_{k=1}^{n} k = \frac{n(n+1)}{2}$ can be used here. ",
    "**Step.** Divide both sides by the common factor and simplify.\n",
    "So the two expressions agree, and nothing is lost by the rearrangement. ",
    r"In particular $x = \frac{3}{4} \cdot 120 = 90$ would be too large. ",
    "Now count the remaining cases one after the other.\n\n",
    r"\[ f(t) = t^3 - 6t^2 + 11t - 6 \] has its roots where each factor is zero. ",
)
_PADDING = "and so on, "


@dataclass(frozen=True, slots=True)
class Pool:
    """Rollouts to draw requests from.

    Attributes:
        rollouts: at least one.
        source: where they are from, in a few words.
        num_bytes: of all responses together.
    """

    rollouts: tuple[Rollout, ...]
    source: str
    num_bytes: int

    @property
    def mean_bytes(self) -> float:
        """Mean size of a response."""
        return self.num_bytes / len(self.rollouts)

    def largest_batch_bytes(self, batch: int) -> int:
        """Return the bytes of the largest batch of so many rollouts that follow each other."""
        sizes = [response_bytes(rollout) for rollout in self.rollouts]
        return max(
            sum(sizes[place % len(sizes)] for place in range(start, start + batch))
            for start in range(0, len(sizes), batch)
        )


def pool_from_file(path: str | os.PathLike[str]) -> Pool:
    """Return the first rollouts of a file, as many as a process can hold.

    Raises:
        DataError: the file or one of its rows is bad.
    """
    drawn = _bounded(rollout_from_row(row) for row in read_rollouts(path))
    name = os.path.basename(os.fspath(path))
    return _pool(drawn, f"the first {len(drawn):,} rollouts of {name}")


def pool_from_dataset(path: str | os.PathLike[str], size: int, seed: int) -> Pool:
    """Return made-up rollouts to the problems of a dataset.

    Each reaches some of its problem's nodes, in one of their ways of writing, and most state
    the right answer.

    Args:
        path: of the dataset.
        size: bytes of each response, in [:data:`MIN_SIZE`, :data:`MAX_SIZE`]; a response is
            longer only where its answer alone is.
        seed: equal seeds give equal rollouts.

    Raises:
        InputError: the size is out of its range, or the dataset is a prepared one, which holds
            no texts.
        DataError: the dataset is bad.
    """
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise InputError(f"--generate must be in [{MIN_SIZE}, {MAX_SIZE}] bytes, got {size}")
    if is_image(path):
        raise InputError(
            f"--generate makes responses from the texts of a dataset, and the prepared dataset"
            f" {os.fspath(path)!r} holds none; give the JSONL or Parquet file that it was made"
            " from, or --rollouts FILE"
        )
    draw = random.Random(seed)
    problems = list(read_problems(path))
    count = min(GENERATED_ROLLOUTS, max(1, POOL_BYTES // size))
    drawn = tuple(_generated(draw.choice(problems), size, draw) for _ in range(count))
    name = os.path.basename(os.fspath(path))
    return _pool(drawn, f"{count:,} rollouts of {size:,} bytes generated for {name}")


def _pool(rollouts: tuple[Rollout, ...], source: str) -> Pool:
    return Pool(rollouts, source, sum(map(response_bytes, rollouts)))


def response_bytes(rollout: Rollout) -> int:
    """Return the size of a rollout's response in UTF-8."""
    response = rollout.response
    return len(response if isinstance(response, bytes) else response.encode(errors="replace"))


def _bounded(rollouts: Iterable[Rollout]) -> tuple[Rollout, ...]:
    drawn: list[Rollout] = []
    left = POOL_BYTES
    for rollout in rollouts:
        left -= response_bytes(rollout)
        if drawn and (left < 0 or len(drawn) == POOL_ROLLOUTS):
            break
        drawn.append(rollout)
    return tuple(drawn)


def _generated(problem: Problem, size: int, draw: random.Random) -> Rollout:
    """Return one rollout: prose, node expressions in between, an answer at the end."""
    truth = problem.ground_truth
    answer = truth if truth is not None and draw.random() < 0.75 else str(draw.randrange(1000))
    end = f"\nTherefore the answer is \\boxed{{{answer}}}."
    parts: list[str] = []
    left = size - len(end.encode())
    hits = list(_expressions(problem, draw))
    while True:
        sentence = draw.choice(_SENTENCES)
        if hits and draw.random() < 0.5:
            sentence = f"Here ${hits.pop()}$ holds. "
        num_bytes = len(sentence.encode())
        if num_bytes > left:
            break
        parts.append(sentence)
        left -= num_bytes
    if left > 0:
        parts.append((_PADDING * (left // len(_PADDING) + 1))[:left])
    tokens = max(1, size // 4)
    return Rollout(
        problem.problem_id,
        "".join(parts) + end,
        num_tokens=tokens,
        data_source=problem.data_source or None,
    )


def _expressions(problem: Problem, draw: random.Random) -> Iterator[str]:
    """Yield one way of writing some of a problem's nodes."""
    for node in problem.nodes:
        if node.expressions and draw.random() < 0.6:
            yield draw.choice(node.expressions)
