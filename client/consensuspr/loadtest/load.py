"""What is sent to whom and when: the schedule, the target, the pool of rollouts.

An arrival process is a constant one whose clock is bent: with ``L(t)`` the requests expected
until ``t``, arrival ``i`` comes at the ``t`` where ``L(t)`` is ``i`` (constant), or where it is
the sum of ``i`` draws from the unit exponential (Poisson).  So a load is its ``L`` and the
inverse, both in closed form, and a schedule is the same whoever carries it out.
"""

from __future__ import annotations

import itertools
import math
import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self

from consensuspr.client.transport import Access
from consensuspr.console import count_of
from consensuspr.data import Problem, read_problems, read_rollouts
from consensuspr.errors import InputError
from consensuspr.loadtest.settings import Arrivals, LoadSettings, LoadShape, Profile
from consensuspr.scoring import Rollout, rollout_from_row
from consensuspr.scoring.dataset_index import is_index
from consensuspr.scoring.types import ScoreOptions
from consensuspr.wire.server_info import ServerInfo

# What all requests in flight may take together: gRPC holds a copy of each.
IN_FLIGHT_BYTES = 256 << 20
IN_FLIGHT_REQUESTS = 4096

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
class Target:
    """The server that is loaded; nothing is sent anywhere else.

    ``info`` is what it said about itself, ``dataset`` the path of the dataset with the content
    that is to score, ``options`` how, with the dataset's name there; ``access`` is the token and
    TLS of those who load it.
    """

    address: str
    info: ServerInfo
    dataset: str
    options: ScoreOptions
    access: Access = field(default_factory=Access)

    @property
    def digest(self) -> str:
        """Digest of the dataset that is to score."""
        name = self.options.dataset
        return next(held.digest for held in self.info.datasets if name in (None, held.name))

    def check_batch(self, settings: LoadSettings, request_bytes: int) -> None:
        """Refuse what one request of the server cannot carry.

        Raises:
            InputError: the batch, or its responses in bytes, are more than the server takes.
        """
        if settings.profile is not Profile.BATCH:
            return
        if settings.batch > self.info.max_rollouts:
            raise InputError(
                f"batch must be at most {self.info.max_rollouts}, which is what the server takes"
                f" in one request, got {settings.batch}"
            )
        if request_bytes > self.info.max_message_bytes:
            raise InputError(
                f"a batch of {settings.batch} makes a request of {request_bytes:,} bytes; the"
                f" server takes at most {self.info.max_message_bytes:,}"
            )


def in_flight_limit(request_bytes: float, processes: int) -> int:
    """Return how many requests of a mean size one of these processes may have in flight."""
    by_bytes = math.floor(IN_FLIGHT_BYTES / max(1.0, request_bytes))
    return max(1, min(IN_FLIGHT_REQUESTS, by_bytes) // processes)


@dataclass(frozen=True, slots=True)
class Load:
    """A rate over time: pieces of equal length, each with its rate at its start and end.

    Before the first piece lies the warm-up, at the rate with which the load begins.  ``rates``
    are in requests a second, above 0; ``duration_s`` is of all pieces together.
    """

    rates: tuple[tuple[float, float], ...]
    duration_s: float
    warmup_s: float = 0.0

    @classmethod
    def of(cls, settings: LoadSettings) -> Self | None:
        """Return the rate over time that settings ask for; None for a closed loop."""
        if settings.rate is None:
            return None
        start, end = settings.rate, settings.rate_end or settings.rate
        rates = [(start, end)]
        if settings.load is LoadShape.STEP:
            rises = [n / (settings.steps - 1) for n in range(settings.steps)]
            rates = [(start + (end - start) * rise,) * 2 for rise in rises]
        return cls(tuple(rates), settings.end_s, settings.warmup)

    @property
    def warmup_requests(self) -> float:
        """Requests that the warm-up is expected to hold."""
        return self.rates[0][0] * self.warmup_s

    def when(self, count: float) -> float | None:
        """Return until when so many requests are expected, the warm-up's too: the inverse of ``L``.

        None where that is past the end.
        """
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
    """Yield when requests are due, ascending, in seconds from the end of the warm-up."""
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


@dataclass(frozen=True, slots=True)
class Pool:
    """The rollouts that are sent, over and over: at least one; and where they are from."""

    rollouts: tuple[Rollout, ...]
    source: str

    @property
    def mean_bytes(self) -> float:
        """Mean size of a response."""
        return sum(map(response_bytes, self.rollouts)) / len(self.rollouts)

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
    return Pool(drawn, f"the first {len(drawn):,} rollouts of {name}")


def pool_from_dataset(path: str | os.PathLike[str], size: int, seed: int) -> Pool:
    """Return made-up rollouts to the problems of a dataset.

    Each reaches some of its problem's nodes, in one of their ways of writing, and most state
    the right answer.  Equal seeds give equal rollouts.

    Args:
        path: of the dataset.
        size: bytes of each response, in [:data:`MIN_SIZE`, :data:`MAX_SIZE`]; a response is
            longer only where its answer alone is.
        seed: of what is drawn.

    Raises:
        InputError: the size is out of its range, or the dataset is a prepared one, which holds
            no texts.
        DataError: the dataset is bad.
    """
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise InputError(f"--generate must be in [{MIN_SIZE}, {MAX_SIZE}] bytes, got {size}")
    if is_index(path):
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
    return Pool(drawn, f"{count_of(count, 'rollout')} of {size:,} bytes generated for {name}")


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
