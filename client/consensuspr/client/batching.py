"""The calls of a client of a server, without any waiting: both clients only carry them out.

A call is a generator (:data:`Course`): it yields one RPC after the other, each as the name of
its method and the :class:`Pipeline` of its requests, is told how each ended, and returns what
the caller gets.  So whatever a call consists of (limits that are asked for first, a batch that
is scored anew because the server changed) is said here, once.

:class:`ScorePlan` cuts a batch into requests and puts the replies together; :class:`Batcher`
turns many concurrent calls with one rollout each into few requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from google.protobuf.message import Message

from consensuspr.client.interface import Progress, ScoredBatch, convert_rollout
from consensuspr.client.pipeline import Deadline, PendingRequest, Pipeline, RetryPolicy
from consensuspr.client.transport import check_target
from consensuspr.errors import (
    IncompatibleServer,
    InputError,
    RewardServiceError,
    ServerFault,
    Unavailable,
)
from consensuspr.scoring.types import Identity, Rollout, Score, ScoreOptions, Status, exceeds
from consensuspr.v1 import PROTOCOL_VERSION, SERVICE_NAME
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire.codec import (
    PIECE_BYTES,
    PIECE_ROLLOUTS,
    cut,
    decode_explain_response,
    decode_identity,
    decode_score,
    encode_explain_request,
    encode_rollout_field,
    join_score_request,
)
from consensuspr.wire.server_info import ServerInfo, decode_server_info

if TYPE_CHECKING:
    from consensuspr.scoring.types import Explanation

# Tags, lengths and the request's own fields, well above what they can take.
_ENVELOPE_BYTES = 64 * 1024

# How often a call is scored anew because the server changed under it: once for an update or a
# restart, once more for bad luck.  Past that, servers of different content share an address.
MAX_CHANGES = 2

T = TypeVar("T")
R = TypeVar("R", bound=Message)
Course: TypeAlias = Generator[tuple[str, Pipeline[Any]], None, T]

_REPLIES: dict[str, type[Message]] = {
    "Score": pb.ScoreResponse,
    "Explain": pb.ExplainResponse,
    "ServerInfo": pb.ServerInfoResponse,
}


def open_method(channel: Any, method: str) -> Any:
    """Return a method of the service on a channel of either kind; it takes bytes as a request.

    The generated stub would take messages; requests are joined from encoded rollouts.
    """
    return channel.unary_unary(
        f"/{SERVICE_NAME}/{method}", response_deserializer=_REPLIES[method].FromString
    )


@dataclass(slots=True)
class Calls:
    """The calls of one client, its settings, and the limits of its server once it has told."""

    address: str
    timeout_s: float = 30.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    max_in_flight: int = 8
    limits: ServerInfo | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        check_target(self.address)
        Deadline.after(self.timeout_s)
        if self.max_in_flight < 1:
            raise InputError(f"max_in_flight must be at least 1, got {self.max_in_flight}")

    def deadline(self, timeout_s: float | None) -> Deadline:
        """Return the deadline of a call that begins now."""
        return Deadline.after(self.timeout_s if timeout_s is None else timeout_s)

    def score(
        self,
        rollouts: Sequence[Rollout],
        options: ScoreOptions,
        deadline: Deadline,
        progress: Progress | None = None,
        encoded: Sequence[bytes] | None = None,
    ) -> Course[ScoredBatch]:
        """Score a batch; the arguments are those of :class:`ScorePlan`.

        Scores of one call are all of one identity.  Where the server changed during the call,
        those that there are belong to an older one; scoring is a pure function, so that all of
        them can be had again.
        """
        limits = self.limits
        if limits is None:
            limits = self.limits = yield from self.server_info(deadline)
        changes = 0
        while True:
            plan = ScorePlan(rollouts, options, limits, progress, encoded)
            try:
                yield from self._call("Score", plan.requests(), deadline)
                return plan.result()
            except ServerFault:
                if not plan.changed or changes == MAX_CHANGES:
                    raise
            changes += 1

    def explain(
        self, rollout: Rollout, options: ScoreOptions, deadline: Deadline
    ) -> Course[Explanation]:
        """Score one rollout and say what was found where.

        Raises:
            IncompatibleServer: the reply holds a value that this protocol version does not know.
        """
        reply = yield from self._ask("Explain", encode_explain_request(rollout, options), deadline)
        try:
            return decode_explain_response(reply)
        except InputError as error:
            raise _unreadable(error) from None

    def server_info(self, deadline: Deadline) -> Course[ServerInfo]:
        """Ask the server about itself.

        Raises:
            IncompatibleServer: it speaks another protocol version.
        """
        request = pb.ServerInfoRequest(protocol_version=PROTOCOL_VERSION)
        reply = yield from self._ask("ServerInfo", request, deadline)
        spoken = reply.protocol_version
        if spoken != PROTOCOL_VERSION:
            raise IncompatibleServer(
                f"the server at {self.address} speaks protocol version"
                f" {spoken}, this client speaks version {PROTOCOL_VERSION}"
            )
        return decode_server_info(reply)

    def _ask(self, method: str, request: Message, deadline: Deadline) -> Course[Any]:
        """Send one request and return its reply."""
        replies: list[Message] = []
        only = PendingRequest(request.SerializeToString(), replies.append)
        yield from self._call(method, iter([only]), deadline)
        return replies[0]

    def _call(
        self, method: str, requests: Iterator[PendingRequest[R]], deadline: Deadline
    ) -> Course[None]:
        try:
            yield (
                method,
                Pipeline(
                    requests,
                    context=f"{method} at {self.address}",
                    deadline=deadline,
                    policy=self.retry,
                    max_in_flight=self.max_in_flight,
                ),
            )
        except RewardServiceError:
            # It may have been replaced by a server with other limits.
            self.limits = None
            raise


class _Piece(NamedTuple):
    """One rollout as it will be sent, with its place in the batch."""

    position: int
    encoded: bytes


class ScorePlan:
    """The requests of one scoring call, and the scores while the replies come in, in any order.

    A rollout that no request can carry is scored OVERSIZE here, without being sent; all
    others go out.  At least one request is made, also for an empty batch: it brings the
    identity, and an unknown dataset is an error whatever the batch holds.  ``encoded`` is what
    :func:`encode_checked` returned of all rollouts, where that is known.

    Attributes:
        changed: whether replies came under different identities.
    """

    def __init__(
        self,
        rollouts: Sequence[Rollout],
        options: ScoreOptions,
        limits: ServerInfo,
        progress: Progress | None = None,
        encoded: Sequence[bytes] | None = None,
    ) -> None:
        self._rollouts = rollouts
        self._encoded = encoded
        self._options = options
        self._limits = limits
        self._progress = progress
        self._scores: list[Score | None] = [None] * len(rollouts)
        self._num_scored = 0
        self._identity: Identity | None = None
        self.changed = False

    def requests(self) -> Iterator[PendingRequest[pb.ScoreResponse]]:
        """Yield the requests in order, each built when it is asked for."""
        max_bytes = min(PIECE_BYTES, self._limits.max_message_bytes - _ENVELOPE_BYTES)
        max_rollouts = min(PIECE_ROLLOUTS, self._limits.max_rollouts)
        for piece in cut(self._pieces(), lambda p: len(p.encoded), max_bytes, max_rollouts):
            yield self._request(piece)

    def result(self) -> ScoredBatch:
        """Return the batch; every rollout has its score by now."""
        assert self._identity is not None, "a call sends at least one request"
        scores = [score for score in self._scores if score is not None]
        assert len(scores) == len(self._scores), "every rollout is put once"
        return ScoredBatch(scores, self._identity)

    def _request(self, piece: list[_Piece]) -> PendingRequest[pb.ScoreResponse]:
        request = join_score_request((p.encoded for p in piece), self._options)
        positions = [p.position for p in piece]

        def deliver(reply: pb.ScoreResponse) -> None:
            self._take(positions, reply)
            if self._progress is not None:
                self._progress(self._num_scored, len(self._rollouts))

        return PendingRequest(request, deliver)

    def _pieces(self) -> Iterator[_Piece]:
        most = self._limits.max_message_bytes
        for position, rollout in enumerate(self._rollouts):
            fault = self._oversize(rollout)
            if fault is None:
                encoded = (
                    encode_checked(position, rollout)
                    if self._encoded is None
                    else self._encoded[position]
                )
                if len(encoded) + _ENVELOPE_BYTES <= most:
                    yield _Piece(position, encoded)
                    continue
                fault = f"the rollout has {len(encoded)} bytes; a request holds at most {most}"
            self._put(position, Score(Status.OVERSIZE, message=fault))

    def _oversize(self, rollout: Rollout) -> str | None:
        """Return why the response is too large, in the words of the scorer; else None."""
        if not isinstance(rollout.response, str | bytes):
            return None  # of no size; encoding will say what is wrong
        limit = self._limits.max_response_bytes
        size = exceeds(rollout.response, limit)
        return None if size is None else f"the response has {size} bytes; the limit is {limit}"

    def _put(self, position: int, score: Score) -> None:
        self._scores[position] = score
        self._num_scored += 1

    def _take(self, positions: Sequence[int], reply: pb.ScoreResponse) -> None:
        """Take the reply to the rollouts at ``positions``.

        Raises:
            ServerFault: it holds another number of scores, or was computed under another
                identity than an earlier reply of the same call.
            IncompatibleServer: it holds a value that this protocol version does not know.
        """
        if len(reply.scores) != len(positions):
            raise ServerFault(
                f"the server replied with {len(reply.scores)} scores to {len(positions)} rollouts"
            )
        try:
            identity = decode_identity(reply.identity)
            scores = list(map(decode_score, reply.scores))
        except InputError as error:
            raise _unreadable(error) from None
        if self._identity is None:
            self._identity = identity
        elif identity != self._identity:
            self.changed = True
            raise ServerFault(
                "the server changed during the call: some rollouts were scored under"
                f" {self._identity}, others under {identity}"
            )
        for position, score in zip(positions, scores, strict=True):
            self._put(position, score)


def encode_checked(position: int, rollout: Rollout) -> bytes:
    """Return the rollout at a position of its batch as it stands in a request.

    Raises:
        InputError: a field has a wrong type.
    """
    return convert_rollout(position, rollout, encode_rollout_field)


def _unreadable(error: InputError) -> IncompatibleServer:
    return IncompatibleServer(f"the server's reply cannot be read: {error}")


# Scores rollouts that have been encoded already, for requests to be joined from.
ScoreEncoded: TypeAlias = Callable[
    [Sequence[Rollout], Sequence[bytes], ScoreOptions, Deadline], Awaitable[Sequence[Score]]
]


@dataclass(slots=True, eq=False)
class _Waiter:
    """One caller: its rollout, also as it is sent, how long it waits, where its score goes."""

    rollout: Rollout
    encoded: bytes
    deadline: Deadline
    score: asyncio.Future[Score]
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
        self._queues: dict[ScoreOptions, _Queue] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, rollout: Rollout, options: ScoreOptions, deadline: Deadline) -> Score:
        """Return the score of a rollout, sent together with others that wait.

        Raises:
            InputError: a field has a wrong type; found here, before it can spoil a batch.
            RewardServiceError: the request that carried it failed, or the deadline passed.
        """
        loop = asyncio.get_running_loop()
        encoded = encode_checked(0, rollout)
        waiter = _Waiter(rollout, encoded, deadline, loop.create_future())
        queue = self._queues.get(options)
        if queue is None:
            queue = self._queues[options] = _Queue()
        queue.waiting.append(waiter)
        if not queue.flush_planned:
            # At the end of this turn of the loop: tasks that run in it too come along.
            queue.flush_planned = True
            loop.call_soon(self._flush, options, queue)
        # A timer alone: asyncio's own timeouts cost several times as much, once a sample.
        timer = loop.call_later(max(0.0, deadline.remaining_s()), _give_up, waiter)
        try:
            return await waiter.score
        finally:
            timer.cancel()
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
        for task in self._tasks:
            task.cancel()

    def _flush(self, options: ScoreOptions, queue: _Queue) -> None:
        queue.flush_planned = False
        while queue.in_flight < self._max_in_flight and (batch := _take(queue.waiting)):
            queue.in_flight += 1
            task = asyncio.get_running_loop().create_task(self._send(batch, options, queue))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            request = _Request(task, batch)
            for waiter in batch:
                waiter.request = request
        if not queue.in_flight and not queue.waiting:
            # Options change with every epoch; a queue that is empty need not be kept.
            self._queues.pop(options, None)

    async def _send(self, batch: list[_Waiter], options: ScoreOptions, queue: _Queue) -> None:
        last = max((waiter.deadline for waiter in batch), key=lambda deadline: deadline.at)
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
            for waiter, score in zip(batch, scores, strict=True):
                if not waiter.score.done():
                    waiter.score.set_result(score)
        finally:
            queue.in_flight -= 1
            self._flush(options, queue)


def _give_up(waiter: _Waiter) -> None:
    if not waiter.score.done():
        waiter.score.set_exception(waiter.deadline.error("score_one"))


def _take(waiting: deque[_Waiter]) -> list[_Waiter]:
    """Take from the queue what one request carries, without those that left."""
    batch: list[_Waiter] = []
    num_bytes = 0
    while waiting and len(batch) < PIECE_ROLLOUTS:
        waiter = waiting[0]
        if not waiter.score.done():
            num_bytes += len(waiter.encoded)
            if batch and num_bytes > PIECE_BYTES:
                break
            batch.append(waiter)
        waiting.popleft()
    return batch
