"""Many concurrent calls with one rollout each, in few requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TypeAlias

from consensuspr.client.calls import Deadline, encode_checked
from consensuspr.client.interface import ScoredBatch
from consensuspr.errors import Unavailable
from consensuspr.scoring.types import Identity, Rollout, Score, ScoreOptions
from consensuspr.wire.codec import PIECE_BYTES, PIECE_ROLLOUTS, EncodedRollout

# Scores rollouts that have been encoded already, for requests to be joined from.
ScoreEncoded: TypeAlias = Callable[
    [Sequence[Rollout], Sequence[EncodedRollout], ScoreOptions, Deadline],
    Awaitable[ScoredBatch],
]


@dataclass(slots=True, eq=False)
class _Waiter:
    """One caller: its rollout, also as it is sent, how long it waits, where its score goes."""

    rollout: Rollout
    encoded: EncodedRollout
    deadline: Deadline
    score: asyncio.Future[tuple[Score, Identity]]
    request: _Request | None = None


@dataclass(slots=True, eq=False)
class _Request:
    """A request that is out, and for whom."""

    task: asyncio.Task[None]
    batch: list[_Waiter]

    def cancel_when_nobody_waits(self) -> None:
        """Abandon it where the last of its callers has left."""
        if not self.task.done() and all(waiter.score.done() for waiter in self.batch):
            self.task.cancel()


class _Queue:
    """Callers that want the same options, and how many requests are out for them."""

    def __init__(self) -> None:
        self.waiting: deque[_Waiter] = deque()
        self.in_flight = 0
        self.flush_planned = False


class Batcher:
    """Turns many concurrent calls with one rollout each into few requests.

    Trainers that stream hand over one sample as soon as it is finished; one RPC a sample
    would spend more on the RPC than on the score.  So callers queue up, and whenever a
    request may go out it takes along all that are waiting.  Under light load nobody waits for
    company; under heavy load batches grow by themselves.  No timer, nothing to tune.

    Several requests may be out at a time, so that one answer that spends its whole budget
    does not hold up everybody else (``max_in_flight``, for each set of options).  Belongs to one
    event loop; not thread-safe.
    """

    def __init__(self, score_batch: ScoreEncoded, max_in_flight: int) -> None:
        self._score_batch = score_batch
        self._max_in_flight = max_in_flight
        # Of the first call: Python 3.11 makes a system call each time that it is asked for it.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queues: dict[ScoreOptions, _Queue] = {}
        self._latest: tuple[ScoreOptions, _Queue] | None = None
        self._requests: set[_Request] = set()
        # One timer for all that wait, set for the earliest of their deadlines or sooner: a timer
        # each, made and cancelled once a sample, would be a tenth of all that a sample costs here.
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # that deadline; uvloop's timers, which Ray has, do not tell theirs

    async def submit(
        self, rollout: Rollout, options: ScoreOptions, deadline: Deadline
    ) -> tuple[Score, Identity]:
        """Return the score of a rollout, sent together with others that wait, and its identity.

        Raises:
            InputError: a field has a wrong type; found here, before it can spoil a batch.
            RewardServiceError: the request that carried it failed, or the deadline passed.
        """
        loop = self._loop = self._loop or asyncio.get_running_loop()
        encoded = encode_checked(0, rollout)
        waiter = _Waiter(rollout, encoded, deadline, loop.create_future())
        queue = self._queue_of(options)
        queue.waiting.append(waiter)
        if not queue.flush_planned:
            # At the end of this turn of the loop: tasks that run in it too come along.
            queue.flush_planned = True
            loop.call_soon(self._flush, options, queue)
        self._wake_by(deadline, loop)
        try:
            return await waiter.score
        finally:
            if waiter.request is not None:
                waiter.request.cancel_when_nobody_waits()
                # The two hold each other, and all texts of a batch with them.
                waiter.request = None

    def close(self) -> None:
        """Fail whoever waits; a request that is out is abandoned."""
        for queue in self._queues.values():
            while queue.waiting:
                waiter = queue.waiting.popleft()
                if not waiter.score.done():
                    waiter.score.set_exception(Unavailable("the client was closed"))
        for request in self._requests:
            request.task.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def _queue_of(self, options: ScoreOptions) -> _Queue:
        # By identity first: to hash options takes longer than all else that is done to queue up.
        if self._latest is None or self._latest[0] is not options:
            self._latest = options, self._queues.setdefault(options, _Queue())
        return self._latest[1]

    def _wake_by(self, deadline: Deadline, loop: asyncio.AbstractEventLoop) -> None:
        """Set the timer so that it ends no later than a deadline."""
        if self._timer is not None:
            if self._due <= deadline.at:
                return
            self._timer.cancel()
        self._due = deadline.at
        self._timer = loop.call_later(max(0.0, deadline.remaining_s()), self._give_up, loop)

    def _give_up(self, loop: asyncio.AbstractEventLoop) -> None:
        """Fail whose deadline has passed; look again at the earliest of the others'."""
        self._timer = None
        queued = (queue.waiting for queue in self._queues.values())
        sent = (request.batch for request in self._requests)
        left: list[Deadline] = []
        for waiter in chain.from_iterable(chain(queued, sent)):
            if waiter.score.done():
                continue
            if waiter.deadline.remaining_s() > 0:
                left.append(waiter.deadline)
            else:
                waiter.score.set_exception(waiter.deadline.error("score_one"))
        if left:
            self._wake_by(min(left, key=_when), loop)

    def _flush(self, options: ScoreOptions, queue: _Queue) -> None:
        queue.flush_planned = False
        while queue.in_flight < self._max_in_flight and (batch := _take(queue.waiting)):
            queue.in_flight += 1
            task = asyncio.get_running_loop().create_task(self._send(batch, options, queue))
            request = _Request(task, batch)
            self._requests.add(request)
            task.add_done_callback(partial(self._ended, request))
            for waiter in batch:
                waiter.request = request
        if not queue.in_flight and not queue.waiting and self._queues.get(options) is queue:
            # Options change with every epoch; a queue that is empty need not be kept.
            del self._queues[options]
            self._latest = None

    def _ended(self, request: _Request, _task: asyncio.Task[None]) -> None:
        self._requests.discard(request)

    async def _send(self, batch: list[_Waiter], options: ScoreOptions, queue: _Queue) -> None:
        last = max((waiter.deadline for waiter in batch), key=_when)
        try:
            scores = await self._score_batch(
                [w.rollout for w in batch], [w.encoded for w in batch], options, last
            )
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
            identity = scores.identity
            for waiter, score in zip(batch, scores, strict=True):
                if not waiter.score.done():
                    waiter.score.set_result((score, identity))
        finally:
            queue.in_flight -= 1
            self._flush(options, queue)


def _when(deadline: Deadline) -> float:
    return deadline.at


def _take(waiting: deque[_Waiter]) -> list[_Waiter]:
    """Take from the queue what one request carries, without those that left."""
    batch: list[_Waiter] = []
    num_bytes = 0
    while waiting and len(batch) < PIECE_ROLLOUTS:
        waiter = waiting[0]
        if not waiter.score.done():
            num_bytes += waiter.encoded.num_bytes
            if batch and num_bytes > PIECE_BYTES:
                break
            batch.append(waiter)
        waiting.popleft()
    return batch
