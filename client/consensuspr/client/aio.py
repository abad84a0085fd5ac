"""The asynchronous client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Self, TypeVar

from consensuspr.client.batching import Batcher
from consensuspr.client.calls import Calls, ServerClient, encode_checked
from consensuspr.client.interface import (
    DEFAULT_REWARD,
    Deadline,
    Explained,
    OwnOptions,
    ScoredBatch,
)
from consensuspr.client.retries import RetryPolicy
from consensuspr.client.transport import Access
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


class AsyncRewardClient(
    ServerClient[
        Coroutine[Any, Any, ScoredBatch],
        Coroutine[Any, Any, Explained],
        Coroutine[Any, Any, ServerInfo],
    ]
):
    """Scores rollouts by reward servers, without blocking the event loop.

    Use a client in one event loop.  Arguments and errors are those of :class:`RewardClient`, and:

    Args:
        on_identity: called with the identity of each batch of :meth:`score_one` before its scores
            are returned.
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
        self._calls = Calls(address, timeout_s, max_in_flight, retry, own, access)
        self._on_identity = on_identity
        self._loop: asyncio.AbstractEventLoop | None = None
        self._batcher: Batcher[EncodedRollout] = Batcher(
            self._score_encoded, lambda encoded: encoded.num_bytes, max_in_flight
        )

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

        Arguments and errors are those of :meth:`score`.
        """
        options = ScoreOptions.checked(
            reward, epoch, dataset, answer_rule, on_undecided, include_spans
        )
        score, _ = await self.score_one_with(rollout, options, timeout_s=timeout_s)
        return score

    async def score_one_with(
        self, rollout: Rollout, options: ScoreOptions, *, timeout_s: float | None = None
    ) -> tuple[Score, Identity]:
        """Do :meth:`score_one` with checked options; return the identity too."""
        self._check_loop()
        self._calls.open()  # a closed client raises before anything waits
        deadline, own = self._calls.deadline(timeout_s), self._calls.own.of(options)
        return await self._batcher.submit(encode_checked(0, rollout), own, deadline)

    async def close(self) -> None:
        """Close the channels; calls in progress end with an error.  May be called twice."""
        self._batcher.close()
        self._calls.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _score_encoded(
        self, encoded: Sequence[EncodedRollout], options: ScoreOptions, deadline: Deadline
    ) -> ScoredBatch:
        scored = await self._calls.score(encoded, options, deadline)
        if self._on_identity is not None:
            self._on_identity(scored.identity)
        return scored

    def _run(self, call: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        return call

    def _check_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise RuntimeError("the client was used in another event loop; make one in each")
        self._loop = loop
