"""The two ways to send: whole requests built beforehand, or samples through verl's client.

Whole batches go out as bytes that were encoded before the clock started, so that a process
sends as much as the wire takes and what is timed is the server.  Samples go through
``AsyncRewardClient.score_one`` itself: what is timed there is what a reward loop waits for,
its micro-batching and its encoding included.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from consensuspr.client import AsyncRewardClient, RetryPolicy
from consensuspr.client.retries import ERRORS, RpcFailure
from consensuspr.client.servers import split_addresses
from consensuspr.client.transport import Connector
from consensuspr.errors import DeadlineExceeded, InputError, Overloaded, RewardServiceError
from consensuspr.loadtest.load import Target, response_bytes
from consensuspr.loadtest.settings import LoadSettings, Profile
from consensuspr.loadtest.stats import BAD_REPLY, DEADLINE, OK, LoadReply, RequestOutcome
from consensuspr.scoring.types import Identity, Rollout
from consensuspr.v1 import SERVICE_NAME
from consensuspr.wire.codec import (
    decode_score_response,
    encode_rollout_field,
    encode_score_request,
)

_SCORE = f"/{SERVICE_NAME}/Score"


class Sender(Protocol):
    """Sends request after request."""

    @property
    def request_bytes(self) -> float:
        """Mean size of a request."""

    async def open(self) -> None:
        """Connect, so that no request waits for it.

        Raises:
            RewardServiceError: nobody answers.
        """

    async def send(self, number: int, timeout_s: float) -> RequestOutcome:
        """Send a request and wait for its end; never raises for what the server does.

        ``number``, from 0, decides which rollouts are sent, and on which connection;
        ``timeout_s`` is above 0.
        """

    async def close(self) -> None:
        """Close the connections."""


def max_attempts(settings: LoadSettings) -> int | None:
    """Return how often a request is tried; None: as often as its timeout allows."""
    retries = settings.retries
    if retries is None:
        return 1 if settings.profile is Profile.BATCH else None
    return retries + 1


@dataclass(frozen=True, slots=True)
class _Body:
    """A request as it is sent, and what it holds."""

    encoded: bytes
    positions: tuple[int, ...]
    num_bytes: int


class BatchSender:
    """Sends batches as bytes built beforehand; one attempt is one RPC."""

    def __init__(
        self,
        target: Target,
        settings: LoadSettings,
        rollouts: Sequence[Rollout],
        connections: int,
    ) -> None:
        self._target, self._timeout_s = target, settings.timeout
        self._connector = Connector(target.access)
        self._policy = RetryPolicy(max_attempts=max_attempts(settings))
        self._bodies = _bodies(target, settings.batch, rollouts)
        # Of several servers each has its share of the connections, and at least one.
        servers = split_addresses(target.address)
        self._channels = [
            self._connector.open_aio(servers[place % len(servers)])
            for place in range(max(connections, len(servers)))
        ]
        self._calls: list[Callable[..., Any]] = [
            channel.unary_unary(_SCORE, request_serializer=None, response_deserializer=None)
            for channel in self._channels
        ]

    @property
    def request_bytes(self) -> float:
        return sum(len(body.encoded) for body in self._bodies) / len(self._bodies)

    async def open(self) -> None:
        async with AsyncRewardClient(
            self._target.address, self._timeout_s, access=self._target.access
        ) as client:
            await client.server_info()
        await asyncio.gather(*(channel.channel_ready() for channel in self._channels))

    async def send(self, number: int, timeout_s: float) -> RequestOutcome:
        body = self._bodies[number % len(self._bodies)]
        clock = asyncio.get_running_loop().time
        give_up_at = clock() + timeout_s
        failed: list[str] = []
        for attempt in itertools.count(1):
            # What one server cannot do, the next one may.
            call = self._calls[(number + attempt - 1) % len(self._calls)]
            try:
                reply = await call(
                    body.encoded,
                    timeout=give_up_at - clock(),
                    metadata=self._connector.metadata(self._target.options.run),
                )
            except grpc.aio.AioRpcError as error:
                failure = RpcFailure.of(error)
            else:
                return _outcome(body, reply, tuple(failed))
            failed.append(failure.code.name)
            delay_s = self._policy.delay_s(attempt, failure, random.uniform)
            if delay_s is None or clock() + delay_s >= give_up_at:
                return RequestOutcome(
                    failure.code.name,
                    failure.details or failure.code.name,
                    shed=failure.code is grpc.StatusCode.RESOURCE_EXHAUSTED
                    and failure.is_transient,
                    failed_attempts=tuple(failed),
                    retries=attempt - 1,
                    retry_after_s=failure.retry_after_s,
                )
            await asyncio.sleep(delay_s)
        raise AssertionError("attempts do not end")

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close(None)


def _bodies(target: Target, batch: int, rollouts: Sequence[Rollout]) -> list[_Body]:
    """Return requests in which every rollout of the pool occurs, each of the wanted size."""
    encoded = [encode_rollout_field(rollout) for rollout in rollouts]
    sizes = [response_bytes(rollout) for rollout in rollouts]
    bodies = []
    for start in range(0, len(rollouts), batch):
        # The last one is filled up from the beginning, as is a batch larger than the pool.
        positions = tuple((start + place) % len(rollouts) for place in range(batch))
        request = encode_score_request((encoded[p] for p in positions), target.options)
        num_bytes = sum(sizes[position] for position in positions)
        bodies.append(_Body(request, positions, num_bytes))
    return bodies


def _outcome(body: _Body, reply: bytes, failed: tuple[str, ...]) -> RequestOutcome:
    """Return the outcome of a reply that came."""

    def bad(reason: str) -> RequestOutcome:
        return RequestOutcome(
            BAD_REPLY, reason, failed_attempts=(*failed, BAD_REPLY), retries=len(failed)
        )

    try:
        scores, identity = decode_score_response(reply)
    except (DecodeError, InputError) as error:
        return bad(f"the reply cannot be read: {error}")
    if len(scores) != len(body.positions):
        return bad(f"{len(scores)} scores came back for {len(body.positions)} rollouts")
    return RequestOutcome(
        OK,
        failed_attempts=failed,
        retries=len(failed),
        reply=LoadReply(
            body.positions,
            body.num_bytes,
            {s.value: count for s, count in Counter(one.status for one in scores).items()},
            identity.dataset_digest,
            scores.__getitem__,
        ),
    )


@dataclass(frozen=True, slots=True)
class _WatchedRetries(RetryPolicy):
    """A retry policy that notes which attempts failed; a client says it to nobody else.

    Attributes:
        failed: code of each attempt that failed, and whether it is repeated, since they were
            last taken.
        code_of: the latest code behind each exception that a client raises.
    """

    failed: list[tuple[str, bool]] = field(default_factory=list)
    code_of: dict[type[RewardServiceError], str] = field(default_factory=dict)

    def delay_s(
        self,
        attempts: int,
        failure: RpcFailure,
        uniform: Callable[[float, float], float],
        elsewhere: bool = False,
    ) -> float | None:
        # Not super(): a slotted dataclass is another class than the one written here.
        delay_s = RetryPolicy.delay_s(self, attempts, failure, uniform, elsewhere)
        self.failed.append((failure.code.name, delay_s is not None))
        self.code_of[ERRORS[failure.code]] = failure.code.name
        return delay_s


class SampleSender:
    """Sends single samples through clients, as each reward worker of verl has one."""

    def __init__(
        self,
        target: Target,
        settings: LoadSettings,
        rollouts: Sequence[Rollout],
        connections: int,
    ) -> None:
        self._options = target.options
        self._rollouts = rollouts
        self._sizes = [response_bytes(rollout) for rollout in rollouts]
        self._policy = _WatchedRetries(max_attempts=max_attempts(settings))
        self._digests = [""] * connections
        self._clients = [
            AsyncRewardClient(
                target.address,
                settings.timeout,
                retry=self._policy,
                access=target.access,
                on_identity=partial(self._see, place),
            )
            for place in range(connections)
        ]

    @property
    def request_bytes(self) -> float:
        return sum(self._sizes) / len(self._sizes)

    async def open(self) -> None:
        await asyncio.gather(*(client.server_info() for client in self._clients))

    async def send(self, number: int, timeout_s: float) -> RequestOutcome:
        position = number % len(self._rollouts)
        place = number % len(self._clients)
        try:
            score, _ = await self._clients[place].score_one_with(
                self._rollouts[position], self._options, timeout_s=timeout_s
            )
        except RewardServiceError as error:
            return self._failed(error)
        failed, retries = self._take_attempts()
        return RequestOutcome(
            OK,
            failed_attempts=failed,
            retries=retries,
            reply=LoadReply(
                (position,),
                self._sizes[position],
                {score.status.value: 1},
                self._digests[place],
                lambda _: score,
            ),
        )

    async def close(self) -> None:
        for client in self._clients:
            await client.close()

    def _see(self, place: int, identity: Identity) -> None:
        self._digests[place] = identity.dataset_digest

    def _failed(self, error: RewardServiceError) -> RequestOutcome:
        failed, retries = self._take_attempts()
        code = self._policy.code_of.get(type(error), BAD_REPLY)
        if isinstance(error, DeadlineExceeded):
            code = DEADLINE
        return RequestOutcome(
            code,
            str(error),
            shed=isinstance(error, Overloaded) and error.retry_after_s is not None,
            failed_attempts=failed,
            retries=retries,
            retry_after_s=error.retry_after_s if isinstance(error, Overloaded) else None,
        )

    def _take_attempts(self) -> tuple[tuple[str, ...], int]:
        """Return the attempts noted since the last sample ended; a request carries several."""
        attempts = self._policy.failed[:]
        self._policy.failed.clear()
        return tuple(code for code, _ in attempts), sum(repeated for _, repeated in attempts)
