"""Send requests at a rate or one after another, and record how each ended.

Open loop: request ``i`` is due at ``i / rate`` seconds, whatever the server does, and its latency
counts from then.  A request that memory does not allow to be in flight waits, and its latency goes
on counting.  Closed loop: a request is due when the one before it ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from consensuspr.client import Access, AsyncRewardClient, RetryPolicy, Rollout, Score
from consensuspr.errors import DeadlineExceeded, Overloaded, RewardServiceError

# Most bytes of all requests in flight: gRPC holds a copy of each.
IN_FLIGHT_BYTES = 256 << 20
IN_FLIGHT_REQUESTS = 4096
# The first answers of a fresh server take seconds.
FIRST_REPLY_S = 30.0
# Between two requests of a closed loop if the first was not answered.
PAUSE_S = 0.1
# Share of the replies whose scores are kept to be checked; the first reply always is.
CHECKED_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Target:
    """The server under load, and the dataset that scores."""

    address: str
    dataset_name: str | None
    digest: str
    access: Access = field(default_factory=Access)


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent.

    Attributes:
        batch: rollouts of a request; 1: single samples, which the client gathers into requests as
            it does in verl's reward loop.
        rate: requests a second in an open loop; None: a closed loop.
        concurrency: requests at a time in a closed loop.
        duration_s: seconds after which no more requests are due.
        timeout_s: of a request, from when it is due.
        connections: to the server.
        processes: that share rate, concurrency and connections.
    """

    batch: int
    rate: float | None
    concurrency: int
    duration_s: float
    timeout_s: float
    connections: int
    processes: int = 1

    def share(self, number: int) -> Load:
        """Return the load of one of the processes."""

        def part(total: int) -> int:
            return max(1, len(range(number, total, self.processes)))

        return Load(
            self.batch,
            self.rate and self.rate / self.processes,
            part(self.concurrency),
            self.duration_s,
            self.timeout_s,
            part(self.connections),
        )


@dataclass(slots=True)
class SendCounts:
    """How requests ended.

    Attributes:
        latencies_s: of requests that were answered or ran out of time.
        late_s: how late each request left.
        rollouts: scored ones.
        in_time: rollouts whose score came before the duration was over.
        num_bytes: of their responses.
        errors: requests that were not answered, by exception.
        examples: the first message of each exception.
        statuses: rollouts by status.
        samples: scores to check, by position of the rollout.
        busy: share of a core that the process took; of several processes the highest.
    """

    latencies_s: array[float] = field(default_factory=lambda: array("d"))
    late_s: array[float] = field(default_factory=lambda: array("d"))
    answered: int = 0
    rollouts: int = 0
    in_time: int = 0
    num_bytes: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    statuses: Counter[str] = field(default_factory=Counter)
    samples: dict[int, Score] = field(default_factory=dict)
    busy: float = 0.0

    @property
    def sent(self) -> int:
        """All requests."""
        return self.answered + self.errors.total()

    @property
    def rejected(self) -> int:
        """Requests that the server rejected because of overload."""
        return self.errors[Overloaded.__name__]

    def add(self, other: SendCounts) -> None:
        """Add what another process counted."""
        self.latencies_s += other.latencies_s
        self.late_s += other.late_s
        self.answered += other.answered
        self.rollouts += other.rollouts
        self.in_time += other.in_time
        self.num_bytes += other.num_bytes
        self.errors += other.errors
        self.examples = other.examples | self.examples
        self.statuses += other.statuses
        self.samples |= other.samples
        self.busy = max(self.busy, other.busy)


def send(target: Target, load: Load, rollouts: Sequence[Rollout], start_at: float) -> SendCounts:
    """Send one process's share of a load and return how it ended.

    Args:
        start_at: the earliest start, by the system's monotonic clock, the same for all processes.
    """
    return asyncio.run(_Sender(target, load, rollouts).run(start_at))


class _Sender:
    def __init__(self, target: Target, load: Load, rollouts: Sequence[Rollout]) -> None:
        self._target, self._load, self._rollouts = target, load, rollouts
        self._sizes = [len(_as_bytes(rollout.response)) for rollout in rollouts]
        self._tally = SendCounts()
        self._draw = random.Random(0)
        self._end = 0.0

    async def run(self, start_at: float) -> SendCounts:
        load, target = self._load, self._target
        async with contextlib.AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(
                    AsyncRewardClient(
                        target.address,
                        load.timeout_s,
                        retry=RetryPolicy(max_attempts=1),
                        expect_digest=target.digest,
                        access=target.access,
                    )
                )
                for _ in range(load.connections)
            ]
            connecting = (self._connect(client, place) for place, client in enumerate(clients))
            await asyncio.gather(*connecting)
            start = max(start_at, time.monotonic())
            self._end = start + load.duration_s
            await asyncio.sleep(start - time.monotonic())
            cpu_s = time.process_time()
            if load.rate is None:
                numbers = itertools.count()
                loops = (self._closed_loop(clients, numbers) for _ in range(load.concurrency))
                await asyncio.gather(*loops)
            else:
                await self._open_loop(clients, load.rate, start)
            elapsed_s = max(time.monotonic() - start, 1e-9)
            self._tally.busy = (time.process_time() - cpu_s) / elapsed_s
        return self._tally

    async def _connect(self, client: AsyncRewardClient, number: int) -> None:
        """Score a batch, so that no measured request waits for a connection or a cold server."""
        batch = [self._rollouts[position] for position in self._positions(number)]
        # A failure is counted when the measured requests meet it.
        with contextlib.suppress(RewardServiceError):
            await client.score(batch, dataset=self._target.dataset_name, timeout_s=FIRST_REPLY_S)

    async def _closed_loop(
        self, clients: Sequence[AsyncRewardClient], numbers: Iterator[int]
    ) -> None:
        while (due := time.monotonic()) < self._end:
            number = next(numbers)
            if not await self._request(clients[number % len(clients)], number, due):
                # A server that is down would be called as fast as this process can.
                await asyncio.sleep(PAUSE_S)

    async def _open_loop(
        self, clients: Sequence[AsyncRewardClient], rate: float, start: float
    ) -> None:
        request_bytes = max(1, sum(self._sizes) * self._load.batch // len(self._sizes))
        allowed = max(1, min(IN_FLIGHT_REQUESTS, IN_FLIGHT_BYTES // request_bytes))
        free = asyncio.Semaphore(allowed)
        async with asyncio.TaskGroup() as tasks:

            async def request(number: int, due: float) -> None:
                try:
                    await self._request(clients[number % len(clients)], number, due)
                finally:
                    free.release()

            for number in itertools.count():
                due = start + number / rate
                if due >= self._end:
                    break
                await asyncio.sleep(due - time.monotonic())
                await free.acquire()
                tasks.create_task(request(number, due))

    async def _request(self, client: AsyncRewardClient, number: int, due: float) -> bool:
        """Send a request, count how it ended, and return whether it was answered."""
        tally, dataset = self._tally, self._target.dataset_name
        positions = self._positions(number)
        rollouts = [self._rollouts[position] for position in positions]
        began = time.monotonic()
        tally.late_s.append(began - due)
        left_s = self._load.timeout_s - (began - due)
        scores: Sequence[Score]
        try:
            if left_s <= 0:
                raise DeadlineExceeded("the request was still waiting to be sent")
            if self._load.batch == 1:
                scores = [await client.score_one(rollouts[0], dataset=dataset, timeout_s=left_s)]
            else:
                scores = await client.score(rollouts, dataset=dataset, timeout_s=left_s)
        except RewardServiceError as error:
            name = type(error).__name__
            tally.errors[name] += 1
            tally.examples.setdefault(name, str(error))
            if isinstance(error, DeadlineExceeded):
                # Leaving it out would flatter the server most when it is slowest.
                tally.latencies_s.append(time.monotonic() - due)
            return False
        ended = time.monotonic()
        tally.latencies_s.append(ended - due)
        tally.answered += 1
        tally.rollouts += len(scores)
        if ended <= self._end:
            tally.in_time += len(scores)
            tally.num_bytes += sum(self._sizes[position] for position in positions)
        tally.statuses.update(score.status.value for score in scores)
        if not tally.samples or self._draw.random() < CHECKED_SHARE:
            tally.samples.update(zip(positions, scores, strict=True))
        return True

    def _positions(self, number: int) -> list[int]:
        """Return which rollouts a request holds: all of them in turn, over and over."""
        first = number * self._load.batch
        return [place % len(self._rollouts) for place in range(first, first + self._load.batch)]


def _as_bytes(response: str | bytes) -> bytes:
    return response if isinstance(response, bytes) else response.encode(errors="replace")
