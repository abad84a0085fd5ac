"""Many concurrent calls with one rollout each, in few requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from consensuspr.client.interface import Deadline, ScoredBatch
from consensuspr.errors import Unavailable
from consensuspr.scoring.types import Identity, Score, ScoreOptions
from consensuspr.wire.codec import PIECE_BYTES, PIECE_ROLLOUTS

T = TypeVar("T")

ScoreBatch: TypeAlias = Callable[[Sequence[T], ScoreOptions, Deadline], Awaitable[ScoredBatch]]


@dataclass(slots=True, eq=False)
class _Waiter(Generic[T]):
    item: T
    deadline: Deadline
    score: asyncio.Future[tuple[Score, Identity]]


class _Queue(Generic[T]):
    """Callers with the same options, and the number of requests in flight for them."""

    def __init__(self) -> None:
        self.waiting: deque[_Waiter[T]] = deque()
        self.in_flight = 0
        self.flush_planned = False


class Batcher(Generic[T]):
    """Turns many concurrent calls with one rollout each into few requests.

    Whenever a request may go out, it carries all rollouts that are waiting.  So no rollout
    waits under light load, and batches grow under heavy load.  Belongs to one event loop.

    Args:
        score_batch: scores the items of one request.
        size: bytes of an item.
        max_in_flight: requests at a time, for each set of options.
    """

    def __init__(
        self, score_batch: ScoreBatch[T], size: Callable[[T], int], max_in_flight: int
    ) -> None:
        self._score_batch = score_batch
        self._size = size
        self._max_in_flight = max_in_flight
        self._queues: dict[ScoreOptions, _Queue[T]] = {}
        self._sending: dict[asyncio.Task[None], list[_Waiter[T]]] = {}

    async def submit(
        self, item: T, options: ScoreOptions, deadline: Deadline
    ) -> tuple[Score, Identity]:
        """Return the score of an item, sent together with others that wait, and its identity.

        Raises:
            RewardServiceError: its request failed, or the deadline passed.
        """
        loop = asyncio.get_running_loop()
        waiter = _Waiter(item, deadline, loop.create_future())
        queue = self._queues.setdefault(options, _Queue())
        queue.waiting.append(waiter)
        if not queue.flush_planned:
            # At the end of this turn of the loop, so that its other tasks come along.
            queue.flush_planned = True
            loop.call_soon(self._flush, options, queue)
        try:
            async with asyncio.timeout(deadline.remaining_s()):
                return await waiter.score
        except TimeoutError:
            raise deadline.error("score_one") from None
        finally:
            if not waiter.score.done() or waiter.score.cancelled():
                waiter.score.cancel()
                for task, batch in self._sending.items():
                    if all(waiter.score.done() for waiter in batch):
                        task.cancel()  # all its callers are gone

    def close(self) -> None:
        """Fail all waiting calls, and abandon the requests in flight."""
        for queue in self._queues.values():
            _fail(queue.waiting, Unavailable("the client was closed"))
            queue.waiting.clear()
        for task in self._sending:
            task.cancel()

    def _flush(self, options: ScoreOptions, queue: _Queue[T]) -> None:
        queue.flush_planned = False
        while queue.in_flight < self._max_in_flight and (batch := self._take(queue.waiting)):
            queue.in_flight += 1
            task = asyncio.get_running_loop().create_task(self._send(batch, options))
            self._sending[task] = batch
            task.add_done_callback(partial(self._ended, options, queue))
        if not queue.in_flight and not queue.waiting and self._queues.get(options) is queue:
            del self._queues[options]  # options change with every epoch

    def _ended(self, options: ScoreOptions, queue: _Queue[T], task: asyncio.Task[None]) -> None:
        # Not in the task: one that is cancelled before it begins runs nothing of itself.
        _fail(self._sending.pop(task), Unavailable("the client was closed"))
        queue.in_flight -= 1
        self._flush(options, queue)

    async def _send(self, batch: list[_Waiter[T]], options: ScoreOptions) -> None:
        last = max((waiter.deadline for waiter in batch), key=lambda deadline: deadline.at)
        try:
            scores = await self._score_batch([waiter.item for waiter in batch], options, last)
        except Exception as error:
            _fail(batch, error)
        else:
            for waiter, score in zip(batch, scores, strict=True):
                if not waiter.score.done():
                    waiter.score.set_result((score, scores.identity))

    def _take(self, waiting: deque[_Waiter[T]]) -> list[_Waiter[T]]:
        """Take from the queue the items of one request."""
        batch: list[_Waiter[T]] = []
        num_bytes = 0
        while waiting and len(batch) < PIECE_ROLLOUTS:
            waiter = waiting[0]
            if not waiter.score.done():
                num_bytes += self._size(waiter.item)
                if batch and num_bytes > PIECE_BYTES:
                    break
                batch.append(waiter)
            waiting.popleft()
        return batch


def _fail(waiters: Sequence[_Waiter[T]] | deque[_Waiter[T]], error: Exception) -> None:
    for waiter in waiters:
        if not waiter.score.done():
            waiter.score.set_exception(error)
