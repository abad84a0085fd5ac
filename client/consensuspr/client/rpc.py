"""The clients of a server: requests, retries, replies; synchronous and asynchronous.

Both make the same coroutines over gRPC's synchronous channels, which work from any thread and any
event loop.  ``AsyncRewardClient`` returns them; ``RewardClient`` runs each in a new event loop, in
the calling thread, so that one client serves any number of threads.

Neither client survives ``fork``, because gRPC's threads are not in the child: make one there.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import threading
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any, Self, TypeAlias, TypeVar

from google.protobuf.message import DecodeError, Message
from grpc import StatusCode

from consensuspr.client.batching import Batcher
from consensuspr.client.interface import (
    DEFAULT_REWARD,
    BlockingClient,
    Deadline,
    Explained,
    ExplainedT,
    InfoT,
    Progress,
    ScoredBatch,
    ScoredT,
    ScoringClient,
    convert_rollout,
)
from consensuspr.client.retries import RetryPolicy, RpcFailure
from consensuspr.client.servers import Balancer, split_addresses
from consensuspr.client.transport import Access, Connector
from consensuspr.errors import (
    DatasetMismatch,
    IncompatibleServer,
    InputError,
    RewardServiceError,
    ServerFault,
    Unavailable,
)
from consensuspr.scoring.rewards import RewardName, RewardSpec
from consensuspr.scoring.types import (
    AnswerRule,
    Identity,
    OnUndecided,
    Rollout,
    Score,
    ScoreOptions,
    Status,
)
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

# More than the fields of a request beside its rollouts can take.
_ENVELOPE_BYTES = 64 * 1024

# A call is scored again at most so often if the server's dataset changes during it.
MAX_CHANGES = 2

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
                else convert_rollout(position, rollout, encode_rollout_field)
            )
            size = len(field.response)
            fault = f"the response has {size} bytes; the limit is {limit}"  # the scorer's words
            if size <= limit:
                size = field.num_bytes
                fault = f"the rollout has {size} bytes; a request holds at most {most}"
                if size <= most - _ENVELOPE_BYTES:
                    yield position, field
                    continue
            self._scores[position] = Score(Status.OVERSIZE, message=fault)

    def _take(self, positions: Sequence[int], reply: bytes) -> None:
        try:
            scores, identity = decode_score_response(reply)
        except DecodeError:
            raise ServerFault(f"{len(reply)} bytes of the server are not a reply") from None
        except InputError as error:
            raise _unreadable(error) from None
        if len(scores) != len(positions):
            raise ServerFault(
                f"the server replied with {len(scores)} scores to {len(positions)} rollouts"
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


class ServerClient(ScoringClient[ScoredT, ExplainedT, InfoT]):
    """A client of one server, or of several of the same datasets.  Thread-safe.

    A subclass runs the coroutines of its calls, or returns them.

    Args:
        address: ``HOST:PORT`` of the server, several of them with commas, or a name that resolves
            to all of them (``dns:///rewards:50051``).
        timeout_s: default timeout per call, including retries.
        max_in_flight: requests of one call at a time to each of the addresses.
        retry: when failed attempts are repeated.
        run: name of the training run, for its share of the server and for metrics.
        expect_digest: of the dataset; if the server has another, calls raise
            :class:`~consensuspr.errors.DatasetMismatch`.
        access: token and TLS; None: from the environment.

    Raises:
        InputError: a setting is out of range, or a file of the environment cannot be used.
            Nothing is connected before the first call.
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
    ) -> None:
        if max_in_flight < 1:
            raise InputError(f"max_in_flight must be at least 1, got {max_in_flight}")
        self._defaults = ScoreOptions(run=run, expect_digest=expect_digest)
        self._address = address
        self._balancer = Balancer(split_addresses(address))
        self._timeout_s = timeout_s
        self._requests_per_server = max_in_flight
        self._policy = retry or RetryPolicy()
        self._connector = Connector(access)
        self._limits: ServerInfo | None = None
        self._lock = threading.Lock()
        # The channel of each server.
        self._channels: list[Any] = []
        self._pid = 0
        self._closed = False
        self._deadline(None)

    def score_with(
        self,
        rollouts: Sequence[Rollout],
        options: ScoreOptions,
        *,
        timeout_s: float | None = None,
        progress: Progress | None = None,
    ) -> ScoredT:
        deadline = self._deadline(timeout_s)
        call = self._score(rollouts, self._completed(options), deadline, progress)
        scored: ScoredT = self._run(call)
        return scored

    def explain_with(
        self, rollout: Rollout, options: ScoreOptions, *, timeout_s: float | None = None
    ) -> ExplainedT:
        call = self._explain(rollout, self._completed(options), self._deadline(timeout_s))
        explained: ExplainedT = self._run(call)
        return explained

    def server_info(self, timeout_s: float | None = None) -> InfoT:
        info: InfoT = self._run(self._server_info(self._deadline(timeout_s)))
        return info

    @abstractmethod
    def _run(self, call: Coroutine[Any, Any, T]) -> Any:
        """Run a call and return its result, or return the coroutine."""

    def _deadline(self, timeout_s: float | None) -> Deadline:
        """Return the deadline of a call that begins now."""
        return Deadline.after(self._timeout_s if timeout_s is None else timeout_s)

    async def _score(
        self,
        rollouts: Sequence[Rollout | EncodedRollout],
        options: ScoreOptions,
        deadline: Deadline,
        progress: Progress | None = None,
    ) -> ScoredBatch:
        """Score a batch under one identity, again if the server changed during the call."""
        for changes in itertools.count():
            limits = self._limits
            if limits is None:
                limits = self._limits = await self._server_info(deadline)
            plan = ScorePlan(rollouts, options, limits, progress)
            try:
                await self._send_all("Score", plan.requests(), deadline, options.run)
            except RewardServiceError as error:
                self._limits = None  # a new server may have others
                if not isinstance(error, _ServerChanged) or changes == MAX_CHANGES:
                    raise
            else:
                return plan.result()
        raise AssertionError("counting does not end")

    async def _explain(
        self, rollout: Rollout, options: ScoreOptions, deadline: Deadline
    ) -> Explained:
        request = encode_explain_request(rollout, options)
        reply = await self._call("Explain", request, pb.ExplainResponse, deadline, options.run)
        try:
            explanation = decode_explain_response(reply)
        except InputError as error:
            raise _unreadable(error) from None
        explanation.response = rollout.response
        return explanation

    async def _server_info(self, deadline: Deadline) -> ServerInfo:
        request = pb.ServerInfoRequest(protocol_version=PROTOCOL_VERSION)
        reply = await self._call("ServerInfo", request, pb.ServerInfoResponse, deadline)
        if reply.protocol_version != PROTOCOL_VERSION:
            raise IncompatibleServer(
                f"the server at {self._address} speaks protocol version"
                f" {reply.protocol_version}, this client speaks version {PROTOCOL_VERSION}"
            )
        return decode_server_info(reply)

    def _close(self) -> None:
        """Close the channels; calls in progress end with Unavailable."""
        with self._lock:
            self._closed = True
            if self._pid == os.getpid():
                for channel in self._channels:
                    channel.close()

    def _open(self) -> list[Any]:
        """Return the channels, opened on first use and when certificates change.

        Raises:
            RuntimeError: the client is closed, or was used in the parent of this process.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("the client is closed")
            if self._pid not in (0, os.getpid()):
                raise RuntimeError(
                    f"the client was used in process {self._pid} and cannot be used in its"
                    f" child {os.getpid()}; make a client in each process"
                )
            if not self._channels or self._connector.renewed():
                self._pid = os.getpid()
                # Calls in progress hold the channels with the old certificates until they end.
                self._channels = [*map(self._connector.open, self._balancer.addresses)]
            return self._channels

    async def _call(
        self,
        method: str,
        request: Message,
        reply: type[Message],
        deadline: Deadline,
        run: str | None = None,
    ) -> Any:
        self._open()
        received = await self._reply(method, request.SerializeToString(), deadline, run)
        try:
            return reply.FromString(received)
        except DecodeError:
            raise ServerFault(f"the {len(received)} bytes are not a reply to {method}") from None

    async def _send_all(
        self, method: str, requests: Iterator[Request], deadline: Deadline, run: str | None
    ) -> None:
        """Send the requests, a bounded number at a time."""
        self._open()
        free = self._requests_per_server * len(self._balancer.addresses) - 1

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
        failure, note = None, ""

        def out_of_time() -> RewardServiceError:
            # The last failure says more than the time.
            if failure is None:
                return deadline.error(context)
            left = f", no time left of timeout_s={deadline.timeout_s:g}"
            return failure.exception(context, note + left)

        for attempt in itertools.count(1):
            remaining_s = deadline.remaining_s()
            if remaining_s <= 0:
                raise out_of_time()
            if self._closed:
                break
            server = self._balancer.pick()
            reply: bytes | RpcFailure | None = None
            try:
                channel = self._open()[server]
                metadata = self._connector.metadata(run)
                reply = await _send(channel, method, request, remaining_s, metadata)
            except (RuntimeError, ValueError):  # another thread has closed the channels
                if not self._closed:
                    raise
                break
            finally:
                elsewhere = self._balancer.ended(server, reply)
            if isinstance(reply, bytes):
                return reply
            failed = reply
            if self._closed:
                break
            if failed.code is StatusCode.DEADLINE_EXCEEDED and deadline.remaining_s() <= 0:
                raise out_of_time()
            failure = failed
            note = f", {attempt} attempts" if attempt > 1 else ""
            if len(servers) > 1:
                note += f", the last at {servers[server]}"
            delay_s = self._policy.delay_s(attempt, failure, random.uniform, elsewhere)
            if delay_s is None:
                raise failure.exception(context, note)
            if delay_s >= deadline.remaining_s():
                raise out_of_time()
            await asyncio.sleep(delay_s)
        raise Unavailable(f"{context}: the client was closed during the call")


async def _send(
    channel: Any, method: str, request: bytes, timeout_s: float, metadata: Any
) -> bytes | RpcFailure:
    call = channel.unary_unary(f"/{SERVICE_NAME}/{method}")
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    future = call.future(request, timeout=timeout_s, metadata=metadata)

    def wake(_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
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


class RewardClient(ServerClient[ScoredBatch, Explained, ServerInfo], BlockingClient):
    """Scores rollouts by a reward server; arguments are those of :class:`ServerClient`."""

    def close(self) -> None:
        self._close()

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:  # in a notebook, say: a thread runs one loop at a time
            with ThreadPoolExecutor(1) as thread:
                return thread.submit(self._run, call).result()
        # A loop that is kept would be shared with a forked child, which breaks it by closing it.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(call)


class AsyncRewardClient(
    ServerClient[
        Coroutine[Any, Any, ScoredBatch],
        Coroutine[Any, Any, Explained],
        Coroutine[Any, Any, ServerInfo],
    ]
):
    """Scores rollouts by a reward server, without blocking the event loop.

    Use a client in one event loop.  Arguments are those of :class:`ServerClient`.
    """

    _loop: asyncio.AbstractEventLoop | None = None

    async def score_one(
        self,
        rollout: Rollout,
        reward: RewardSpec | RewardName = DEFAULT_REWARD,
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
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise RuntimeError("the client was used in another event loop; make one in each")
        self._loop = loop
        self._open()  # a closed client raises before anything waits
        deadline, options = self._deadline(timeout_s), self._completed(options)
        encoded = convert_rollout(0, rollout, encode_rollout_field)
        return await self._batcher.submit(encoded, options, deadline)

    async def close(self) -> None:
        """Close the channels; calls in progress end with an error.  May be called twice."""
        self._batcher.close()
        self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @cached_property
    def _batcher(self) -> Batcher[EncodedRollout]:
        return Batcher(self._score, lambda encoded: encoded.num_bytes, self._requests_per_server)

    def _run(self, call: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        return call
