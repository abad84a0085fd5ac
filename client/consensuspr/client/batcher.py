"""Many concurrent calls with one rollout each, turned into few requests.

Trainers that stream hand over one sample as soon as it is finished; one RPC a sample
would spend more on the RPC than on the score.  So callers queue up, and whenever a
request may go out it takes along all that are waiting.  Under light load nobody waits for
company; under heavy load batches grow by themselves.  No timer, nothing to tune.

Several requests may be out at a time, so that one answer that spends its whole budget
does not hold up everybody else.  Belongs to one event loop; not thread-safe.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from consensuspr.client.planning import encode_checked
from consensuspr.client.retry import Deadline
from consensuspr.errors import Unavailable
from consensuspr.scoring.types import Rollout, Score
from consensuspr.wire.options import ScoreOptions
from consensuspr.wire.pieces import PIECE_BYTES, PIECE_ROLLOUTS

ScoreBatch = Callable[[Sequence[Rollout], ScoreOptions, Deadline], Awaitable[Sequence[Score]]]


@dataclass(slots=True, eq=False)
class _Waiter:
    """One caller: its rollout, how long it waits, and where its score goes."""

    rollout: Rollout
    num_bytes: int
    deadline: Deadline
    score: asyncio.Future[Score]


class _Queue:
    """Callers that want the same options, and how many requests are out for them."""

    def __init__(self) -> None:
        self.waiting: deque[_Waiter] = deque()
        self.in_flight = 0
        self.flush_planned = False


class Batcher:
    """Turns concurrent single calls into batches.

    Args:
        score_batch: scores a batch; raises for the batch as a whole.
        max_in_flight: requests at a time, for each set of options.
    """

    def __init__(self, score_batch: ScoreBatch, max_in_flight: int) -> None:
        self._score_batch = score_batch
        self._max_in_flight = max_in_flight
        self._queues: dict[ScoreOptions, _Queue] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, rollout: Rollout, options: ScoreOptions, deadline: Deadline) -> Score:
        """Return the score of a rollout, sent together with others that wait.

        Raises:
            InputError: a field has a wrong type; found here, before it can spoil a batch.
            RewardServiceError: the request that carried it failed, or the deadline passed.
        """
        loop = asyncio.get_running_loop()
        num_bytes = encode_checked(0, rollout).ByteSize()
        waiter = _Waiter(rollout, num_bytes, deadline, loop.create_future())
        queue = self._queues.setdefault(options, _Queue())
        queue.waiting.append(waiter)
        if not queue.flush_planned:
            # At the end of this turn of the loop: tasks that run in it too come along.
            queue.flush_planned = True
            loop.call_soon(self._flush, options, queue)
        try:
            async with asyncio.timeout(deadline.remaining_s()):
                return await waiter.score
        except TimeoutError:
            raise deadline.error("score_one") from None

    def close(self) -> None:
        """Fail whoever waits; a request that is out is abandoned."""
        for queue in self._queues.values():
            while queue.waiting:
                waiter = queue.waiting.popleft()
                if not waiter.score.done():
                    waiter.score.set_exception(Unavailable("the client was closed"))
        for task in self._tasks:
            task.cancel()

    def _flush(self, options: ScoreOptions, queue: _Queue) -> None:
        queue.flush_planned = False
        while queue.in_flight < self._max_in_flight and (batch := _take(queue.waiting)):
            queue.in_flight += 1
            task = asyncio.get_running_loop().create_task(self._send(batch, options, queue))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            _cancel_when_nobody_waits(task, batch)
        if not queue.in_flight and not queue.waiting:
            # Options change with every epoch; a queue that is empty need not be kept.
            self._queues.pop(options, None)

    async def _send(self, batch: list[_Waiter], options: ScoreOptions, queue: _Queue) -> None:
        last = max((waiter.deadline for waiter in batch), key=lambda deadline: deadline.at)
        try:
            scores = await self._score_batch([w.rollout for w in batch], options, last)
        except BaseException as error:
            failure = (
                Unavailable("the client was closed, or nobody waited any more")
                if isinstance(error, asyncio.CancelledError)
                else error
            )
            for waiter in batch:
                if not waiter.score.done():
                    waiter.score.set_exception(failure)
            if not isinstance(error, Exception):
                raise
        else:
            for waiter, score in zip(batch, scores, strict=True):
                if not waiter.score.done():
                    waiter.score.set_result(score)
        finally:
            queue.in_flight -= 1
            self._flush(options, queue)


def _take(waiting: deque[_Waiter]) -> list[_Waiter]:
    """Take from the queue what one request carries, without those that left."""
    batch: list[_Waiter] = []
    num_bytes = 0
    while waiting and len(batch) < PIECE_ROLLOUTS:
        waiter = waiting[0]
        if not waiter.score.done():
            num_bytes += waiter.num_bytes
            if batch and num_bytes > PIECE_BYTES:
                break
            batch.append(waiter)
        waiting.popleft()
    return batch


def _cancel_when_nobody_waits(task: asyncio.Task[None], batch: list[_Waiter]) -> None:
    remaining = len(batch)

    def left(_: asyncio.Future[Score]) -> None:
        nonlocal remaining
        remaining -= 1
        if not remaining:
            task.cancel()

    for waiter in batch:
        waiter.score.add_done_callback(left)
