"""The asynchronous client.

The same courses and pipelines as in the synchronous one decide what happens; attempts are
tasks here.  A client belongs to the event loop in which it is first used, and does not survive
``fork``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Self, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from consensuspr.client.batching import Batcher
from consensuspr.client.calls import (
    Attempt,
    Calls,
    Course,
    Deadline,
    Pipeline,
    ServerClient,
    open_method,
)
from consensuspr.client.interface import (
    DEFAULT_REWARD,
    Explained,
    OwnOptions,
    ScoredBatch,
)
from consensuspr.client.retries import RetryPolicy, RpcFailure
from consensuspr.client.transport import Access, Connector, keep_freed_memory
from consensuspr.errors import RewardServiceError, Unavailable
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import (
    AnswerRule,
    Identity,
    OnUndecided,
    Rollout,
    Score,
    ScoreOptions,
)
from consensuspr.wire.codec import EncodedRollout
from consensuspr.wire.server_info import ServerInfo

T = TypeVar("T")
R = TypeVar("R", bound=Message)


class AsyncRewardClient(
    ServerClient[
        Coroutine[Any, Any, ScoredBatch],
        Coroutine[Any, Any, Explained],
        Coroutine[Any, Any, ServerInfo],
    ]
):
    """Scores rollouts by reward servers, without blocking the event loop.

    Arguments and errors are those of :class:`RewardClient`, and one more:

    Args:
        on_identity: told what each scored batch was computed under, before its scores are
            handed out; for callers of :meth:`score_one`, who get no batch.
    """

    def __init__(
        self,
        address: str,
        timeout_s: float = 30.0,
        *,
        max_in_flight: int = 8,
        retry: RetryPolicy | None = None,
        run: str | None = None,
        expect_digest: str | None = None,
        access: Access | None = None,
        on_identity: Callable[[Identity], None] | None = None,
    ) -> None:
        own = OwnOptions(run, expect_digest)
        self._connector = Connector(access)
        self._calls = Calls(
            address, timeout_s, retry or RetryPolicy(), max_in_flight, on_identity, own
        )
        self._channels: list[grpc.aio.Channel] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._batcher = Batcher(self._score_encoded, max_in_flight)

    async def score_one(
        self,
        rollout: Rollout,
        reward: RewardSpec = DEFAULT_REWARD,
        epoch: int = 0,
        dataset: str | None = None,
        *,
        answer_rule: AnswerRule | str | None = None,
        on_undecided: OnUndecided | str = OnUndecided.COUNT_WRONG,
        include_spans: bool = False,
        timeout_s: float | None = None,
    ) -> Score:
        """Score one rollout; calls that run at the same time share requests.

        For callers that have single samples, many of them at a time.  Arguments and errors
        are those of :meth:`score`.
        """
        options = ScoreOptions.checked(
            reward, epoch, dataset, answer_rule, on_undecided, include_spans
        )
        score, _ = await self.score_one_with(rollout, options, timeout_s=timeout_s)
        return score

    def score_one_with(
        self, rollout: Rollout, options: ScoreOptions, *, timeout_s: float | None = None
    ) -> Coroutine[Any, Any, tuple[Score, Identity]]:
        """Do :meth:`score_one` with options that were checked when they were made.

        Returns:
            The score, and the identity that it was computed under.
        """
        self._open_channels()  # a closed client or another loop is found before anything waits
        own = self._calls.own.of(options)
        return self._batcher.submit(rollout, own, self._calls.deadline(timeout_s))

    async def close(self) -> None:
        """Close the channels; calls in progress end with an error.  May be called twice."""
        self._closed = True
        self._batcher.close()
        for channel in self._channels:
            await channel.close(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _score_encoded(
        self,
        rollouts: Sequence[Rollout],
        encoded: Sequence[EncodedRollout],
        options: ScoreOptions,
        deadline: Deadline,
    ) -> ScoredBatch:
        course = self._calls.score(rollouts, options, deadline, encoded=encoded)
        return await self._carry_out(course)

    def _open_channels(self) -> list[grpc.aio.Channel]:
        loop = asyncio.get_running_loop()
        if self._closed:
            raise RuntimeError("the client is closed")
        if self._loop not in (None, loop):
            raise RuntimeError("the client was used in another event loop; make one in each")
        if not self._channels:
            keep_freed_memory()
            self._channels = [
                self._connector.open_aio(address) for address in self._calls.balancer.addresses
            ]
            self._loop = loop
        return self._channels

    async def _carry_out(self, course: Course[T]) -> T:
        try:
            rpc = next(course)
            while True:
                try:
                    await self._run(*rpc)
                except RewardServiceError as error:
                    rpc = course.throw(error)
                else:
                    rpc = next(course)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _run(self, method: str, pipeline: Pipeline[R]) -> None:
        """Carry out an RPC: start what is due, pass on what ended, until all is done."""
        if self._connector.renewed():
            # Calls that use those before keep them until they end.
            self._channels = []
        channels = self._open_channels()
        calls = [open_method(channel, method) for channel in channels]
        in_flight: dict[asyncio.Task[R], Attempt[R]] = {}
        try:
            while True:
                for attempt in pipeline.due():
                    call = calls[attempt.server]
                    sent = asyncio.create_task(self._send(call, attempt, pipeline.run))
                    in_flight[sent] = attempt
                if pipeline.done:
                    return
                if not in_flight:
                    await asyncio.sleep(pipeline.wait_s())
                    continue
                ended, _ = await asyncio.wait(
                    in_flight, timeout=pipeline.wait_s(), return_when=asyncio.FIRST_COMPLETED
                )
                for task in ended:
                    attempt = in_flight.pop(task)
                    failure = _failure(task)
                    if failure is None:
                        pipeline.succeeded(attempt, task.result())
                        continue
                    if failure.hangs_up:
                        address = self._calls.balancer.addresses[attempt.server]
                        failure = failure.explained(
                            await asyncio.to_thread(self._connector.told_by_handshake, address)
                        )
                    pipeline.failed(attempt, failure)
        finally:
            for task in in_flight:
                task.cancel()

    async def _send(self, call: Any, attempt: Attempt[R], run: str | None) -> R:
        reply: R = await call(
            attempt.pending.request,
            timeout=attempt.timeout_s,
            metadata=self._connector.metadata(run),
        )
        return reply


def _failure(task: asyncio.Task[Any]) -> RpcFailure | None:
    """Return how an attempt failed, None where it was answered."""
    if task.cancelled():  # not by us: closing the channel cancels what runs on it
        raise Unavailable("the client was closed during the call")
    error = task.exception()
    if error is None:
        return None
    if isinstance(error, grpc.aio.AioRpcError):
        return RpcFailure.of(error)
    raise error
