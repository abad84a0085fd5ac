"""The calls of a client of a server, as coroutines: requests, retries, replies.

They use gRPC's synchronous channels, which work from any thread and any event loop, so that the
synchronous and the asynchronous client share them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import random
import threading
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from google.protobuf.message import DecodeError, Message
from grpc import StatusCode

from consensuspr.client.interface import (
    Deadline,
    ExplainedT,
    InfoT,
    OwnOptions,
    Progress,
    ScoredBatch,
    ScoredT,
    ScoringClient,
    convert_rollout,
)
from consensuspr.client.retries import RetryPolicy, RpcFailure
from consensuspr.client.servers import Balancer, split_addresses
from consensuspr.client.transport import (
    LOOK_S,
    Access,
    Connector,
    Metadata,
    keep_freed_memory,
)
from consensuspr.errors import (
    DatasetMismatch,
    IncompatibleServer,
    InputError,
    RewardServiceError,
    ServerFault,
    Unavailable,
)
from consensuspr.scoring.types import Identity, Rollout, Score, ScoreOptions, Status
from consensuspr.v1 import PROTOCOL_VERSION, SERVICE_NAME
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire.codec import (
    PIECE_BYTES,
    PIECE_ROLLOUTS,
    EncodedRollout,
    cut,
    decode_explain_response,
    decode_score_response,
    encode_explain_request,
    encode_rollout_field,
    encode_score_request,
)
from consensuspr.wire.server_info import ServerInfo, decode_server_info

if TYPE_CHECKING:
    from consensuspr.scoring.types import Explanation

# More than the fields of a request beside its rollouts can take.
_ENVELOPE_BYTES = 64 * 1024

# A call is scored anew so often if the server's dataset changed during it.
MAX_CHANGES = 2

_METHODS = ("Score", "Explain", "ServerInfo")

T = TypeVar("T")
# The bytes of a request, and a function that is called once with its reply.
Request: TypeAlias = tuple[bytes, Callable[[bytes], None]]


@contextlib.asynccontextmanager
async def first_failure() -> AsyncIterator[asyncio.TaskGroup]:
    """Yield a group of tasks; its first failure cancels the others and is raised as itself."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None


def encode_checked(position: int, rollout: Rollout) -> EncodedRollout:
    """Return the rollout at a position of its batch as a field of a request.

    Raises:
        InputError: a field has a wrong type.
    """
    return convert_rollout(position, rollout, encode_rollout_field)


class _ServerChanged(ServerFault):
    """Replies to one call have different identities."""


class ScorePlan:
    """The requests of one scoring call, and its scores; replies may come in any order.

    A rollout that no request can carry is scored OVERSIZE without being sent.  An empty batch is
    one request too: it brings the identity, and an unknown dataset is an error for any batch.
    """

    def __init__(
        self,
        rollouts: Sequence[Rollout | EncodedRollout],
        options: ScoreOptions,
        limits: ServerInfo,
        progress: Progress | None = None,
    ) -> None:
        self._rollouts = rollouts
        self._options = options
        self._limits = limits
        self._progress = progress
        self._scores: dict[int, Score] = {}
        self._identity: Identity | None = None

    def requests(self) -> Iterator[Request]:
        """Yield the requests in order, each built when it is drawn."""
        pieces = cut(
            self._fields(),
            lambda item: item[1].num_bytes,
            min(PIECE_BYTES, self._limits.max_message_bytes - _ENVELOPE_BYTES),
            min(PIECE_ROLLOUTS, self._limits.max_rollouts),
        )
        for piece in pieces:
            positions = [position for position, _ in piece]
            request = encode_score_request((field for _, field in piece), self._options)
            yield request, partial(self._take, positions)

    def result(self) -> ScoredBatch:
        """Return the batch once every reply was taken."""
        assert self._identity is not None, "a call sends at least one request"
        return ScoredBatch(
            [self._scores[position] for position in range(len(self._rollouts))], self._identity
        )

    def _fields(self) -> Iterator[tuple[int, EncodedRollout]]:
        """Yield the rollouts that a request can carry, with their positions; score the others."""
        limit, most = self._limits.max_response_bytes, self._limits.max_message_bytes
        for position, rollout in enumerate(self._rollouts):
            field = (
                rollout
                if isinstance(rollout, EncodedRollout)
                else encode_checked(position, rollout)
            )
            if len(field.response) > limit:
                # The scorer's words.
                fault = f"the response has {len(field.response)} bytes; the limit is {limit}"
            elif field.num_bytes > most - _ENVELOPE_BYTES:
                size = field.num_bytes
                fault = f"the rollout has {size} bytes; a request holds at most {most}"
            else:
                yield position, field
                continue
            self._scores[position] = Score(Status.OVERSIZE, message=fault)

    def _take(self, positions: Sequence[int], reply: bytes) -> None:
        try:
            scores, identity = decode_score_response(reply)
            number = len(scores)
        except DecodeError:
            raise ServerFault(
                f"the {len(reply)} bytes of the server's reply are not a reply"
            ) from None
        except InputError as error:
            number = len(pb.ScoreResponse.FromString(reply).statuses)
            if number == len(positions):
                raise _unreadable(error) from None
        if number != len(positions):
            raise ServerFault(
                f"the server replied with {number} scores to {len(positions)} rollouts"
            )
        if self._identity is None:
            expected = self._options.expect_digest
            if expected not in (None, identity.dataset_digest):  # an older server
                raise DatasetMismatch.of(identity.dataset, identity.dataset_digest, expected)
            self._identity = identity
        elif identity != self._identity:
            raise _ServerChanged(
                "the server changed during the call: some rollouts were scored under"
                f" {self._identity}, others under {identity}"
            )
        self._scores.update(zip(positions, scores, strict=True))
        if self._progress is not None:
            self._progress(len(self._scores), len(self._rollouts))


def _unreadable(error: InputError) -> IncompatibleServer:
    return IncompatibleServer(f"the server's reply cannot be read: {error}")


class Calls:
    """The calls of one client, its settings, and the limits of its server.  Thread-safe.

    Arguments are those of :class:`~consensuspr.client.sync.RewardClient`.
    """

    def __init__(
        self,
        address: str,
        timeout_s: float,
        max_in_flight: int,
        retry: RetryPolicy | None,
        own: OwnOptions,
        access: Access | None,
    ) -> None:
        self._address = address
        self._balancer = Balancer(split_addresses(address))
        self._timeout_s = timeout_s
        if max_in_flight < 1:
            raise InputError(f"max_in_flight must be at least 1, got {max_in_flight}")
        self._max_in_flight = max_in_flight * len(self._balancer.addresses)
        self._policy = retry or RetryPolicy()
        self.own = own
        self._connector = Connector(access)
        self._limits: ServerInfo | None = None
        self._lock = threading.Lock()
        # The channel of each server, and its methods by name.
        self._channels: list[tuple[Any, dict[str, Any]]] = []
        # Channels with certificates from before, and when the last call with them is over.
        self._replaced: list[tuple[float, Any]] = []
        self._last_end = 0.0
        self._pid = 0
        self.closed = False
        self.deadline(None)

    def deadline(self, timeout_s: float | None) -> Deadline:
        """Return the deadline of a call that begins now."""
        deadline = Deadline.after(self._timeout_s if timeout_s is None else timeout_s)
        with self._lock:
            self._last_end = max(self._last_end, deadline.at)
        return deadline

    async def score(
        self,
        rollouts: Sequence[Rollout | EncodedRollout],
        options: ScoreOptions,
        deadline: Deadline,
        progress: Progress | None = None,
    ) -> ScoredBatch:
        """Score a batch under one identity.

        If the server changed during the call, the batch is scored anew.
        """
        changes = 0
        while True:
            limits = self._limits
            if limits is None:
                limits = self._limits = await self.server_info(deadline)
            plan = ScorePlan(rollouts, options, limits, progress)
            try:
                await self._all("Score", plan.requests(), deadline, options.run)
            except RewardServiceError as error:
                self._limits = None  # a new server may have others
                if not isinstance(error, _ServerChanged) or changes == MAX_CHANGES:
                    raise
                changes += 1
            else:
                return plan.result()

    async def explain(
        self, rollout: Rollout, options: ScoreOptions, deadline: Deadline
    ) -> Explanation:
        """Score one rollout and return what was found where.

        Raises:
            IncompatibleServer: this protocol version does not know a value of the reply.
        """
        request = encode_explain_request(rollout, options)
        reply = await self._one("Explain", request, pb.ExplainResponse, deadline, options.run)
        try:
            return decode_explain_response(reply)
        except InputError as error:
            raise _unreadable(error) from None

    async def server_info(self, deadline: Deadline) -> ServerInfo:
        """Ask the server about itself.

        Raises:
            IncompatibleServer: it has another protocol version.
        """
        request = pb.ServerInfoRequest(protocol_version=PROTOCOL_VERSION)
        reply = await self._one("ServerInfo", request, pb.ServerInfoResponse, deadline)
        if reply.protocol_version != PROTOCOL_VERSION:
            raise IncompatibleServer(
                f"the server at {self._address} speaks protocol version"
                f" {reply.protocol_version}, this client speaks version {PROTOCOL_VERSION}"
            )
        return decode_server_info(reply)

    def close(self) -> None:
        """Close the channels; calls in progress end with Unavailable."""
        with self._lock:
            self.closed = True
            if self._pid == os.getpid():
                self._close_replaced(math.inf)
                for channel, _ in self._channels:
                    channel.close()

    def open(self) -> list[tuple[Any, dict[str, Any]]]:
        """Return the channels, opened on first use and when certificates change.

        Raises:
            RuntimeError: the client is closed, or was used in the parent of this process.
        """
        with self._lock:
            if self.closed:
                raise RuntimeError("the client is closed")
            if self._pid not in (0, os.getpid()):
                raise RuntimeError(
                    f"the client was used in process {self._pid} and cannot be used in its"
                    f" child {os.getpid()}; make a client in each process"
                )
            if not self._channels or self._connector.renewed():
                keep_freed_memory()
                self._pid = os.getpid()
                # Calls in progress hold the channels from before until they end.
                self._replaced += [(self._last_end, channel) for channel, _ in self._channels]
                self._channels = [
                    (channel, {name: _method(channel, name) for name in _METHODS})
                    for channel in map(self._connector.open, self._balancer.addresses)
                ]
            self._close_replaced(time.monotonic())
            return self._channels

    def _close_replaced(self, now: float) -> None:
        """Close the channels whose last call ended before a time; the lock is held."""
        while self._replaced and self._replaced[0][0] < now:
            self._replaced.pop(0)[1].close()

    async def _one(
        self,
        method: str,
        request: Message,
        reply: type[Message],
        deadline: Deadline,
        run: str | None = None,
    ) -> Any:
        self.open()
        received = await self._reply(method, request.SerializeToString(), deadline, run)
        try:
            return reply.FromString(received)
        except DecodeError:
            raise ServerFault(f"the {len(received)} bytes are not a reply to {method}") from None

    async def _all(
        self, method: str, requests: Iterator[Request], deadline: Deadline, run: str | None
    ) -> None:
        """Send the requests, a bounded number at a time."""
        self.open()
        free = self._max_in_flight - 1

        async def send(group: asyncio.TaskGroup) -> None:
            nonlocal free
            for request, take in requests:
                if free:
                    free -= 1
                    group.create_task(send(group))
                take(await self._reply(method, request, deadline, run))

        async with first_failure() as group:
            group.create_task(send(group))

    async def _reply(
        self, method: str, request: bytes, deadline: Deadline, run: str | None
    ) -> bytes:
        """Return the reply to a request, which is repeated as the policy says.

        Raises:
            RewardServiceError: it failed for good, or the deadline passed.
        """
        servers = self._balancer.addresses
        context = f"{method} at {self._address}"
        failure: RpcFailure | None = None

        def out_of_time() -> RewardServiceError:
            # The last failure tells more than the time.
            if failure is None:
                return deadline.error(context)
            return failure.exception(f"{context}, no time left of timeout_s={deadline.timeout_s:g}")

        for attempt in itertools.count(1):
            remaining_s = deadline.remaining_s()
            if remaining_s <= 0:
                raise out_of_time()
            if self.closed:
                break
            channels = self.open()
            server = self._balancer.pick()
            reply: bytes | RpcFailure | None = None
            try:
                reply = await _send(
                    channels[server][1][method],
                    request,
                    remaining_s,
                    self._connector.metadata(run),
                )
            finally:
                failed = reply if isinstance(reply, RpcFailure) else None
                answered = isinstance(reply, bytes)
                elsewhere = self._balancer.ended(server, failed, answered=answered)
            if failed is None:
                return reply  # type: ignore[return-value]
            if self.closed:
                break
            if failed.hangs_up:
                limit_s = max(0.0, min(LOOK_S, deadline.remaining_s()))
                misfit = self._connector.misfit
                why = await asyncio.to_thread(misfit, servers[server], limit_s)
                if why is not None:
                    failed = RpcFailure(StatusCode.UNAUTHENTICATED, why)
            if failed.code is StatusCode.DEADLINE_EXCEEDED and deadline.remaining_s() <= 0:
                raise out_of_time()
            failure = failed
            context = f"{method} at {self._address}"
            if attempt > 1:
                context += f", {attempt} attempts"
            if len(servers) > 1:
                context += f", the last at {servers[server]}"
            delay_s = self._policy.delay_s(attempt, failure, random.uniform, elsewhere)
            if delay_s is None:
                raise failure.exception(context)
            if delay_s >= deadline.remaining_s():
                raise out_of_time()
            await asyncio.sleep(delay_s)
        raise Unavailable(f"{context}: the client was closed during the call")


def _method(channel: Any, name: str) -> Any:
    """Return a method of a channel; requests and replies are bytes."""
    return channel.unary_unary(f"/{SERVICE_NAME}/{name}")


async def _send(
    method: Any, request: bytes, timeout_s: float, metadata: Metadata
) -> bytes | RpcFailure:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    future = method.future(request, timeout=timeout_s, metadata=metadata)

    def wake(_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
            loop.call_soon_threadsafe(ended.set)

    future.add_done_callback(wake)
    try:
        await ended.wait()
    finally:
        future.cancel()
    if future.code() is not StatusCode.OK:
        return RpcFailure.of(future)
    reply: bytes = future.result()
    return reply


class ServerClient(ScoringClient[ScoredT, ExplainedT, InfoT]):
    """A client of a server; a subclass runs the coroutines of its calls, or returns them."""

    _calls: Calls

    def score_with(
        self,
        rollouts: Sequence[Rollout],
        options: ScoreOptions,
        *,
        timeout_s: float | None = None,
        progress: Progress | None = None,
    ) -> ScoredT:
        calls = self._calls
        call = calls.score(rollouts, calls.own.of(options), calls.deadline(timeout_s), progress)
        scored: ScoredT = self._run(call)
        return scored

    def explain_with(
        self, rollout: Rollout, options: ScoreOptions, *, timeout_s: float | None = None
    ) -> ExplainedT:
        calls = self._calls
        call = calls.explain(rollout, calls.own.of(options), calls.deadline(timeout_s))
        explained: ExplainedT = self._run(call)
        return explained

    def server_info(self, timeout_s: float | None = None) -> InfoT:
        info: InfoT = self._run(self._calls.server_info(self._calls.deadline(timeout_s)))
        return info

    @abstractmethod
    def _run(self, call: Coroutine[Any, Any, T]) -> Any:
        """Run a call and return its result, or return the coroutine."""
