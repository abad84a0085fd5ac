"""What a scoring call returns, and putting it together from the replies to its requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from google.protobuf.message import Message

from consensuspr.client.pipeline import Deadline, Job, Pipeline, RetryPolicy
from consensuspr.client.transport import check_target
from consensuspr.errors import IncompatibleServer, InputError, ServerFault, Unavailable
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
    from consensuspr.scoring.explain import Explanation


class ScoredBatch(list[Score]):
    """The scores of a batch in the order of its rollouts; a list, and one thing more.

    Attributes:
        identity: the dataset's digest, versions and reward that all of them were computed
            under; what a replay needs to get the same scores bit for bit.
    """

    identity: Identity

    def __init__(self, scores: Iterable[Score], identity: Identity) -> None:
        super().__init__(scores)
        self.identity = identity


class Assembly:
    """The scores of one call while its replies come in, in any order.

    Args:
        num_rollouts: of the call.

    Attributes:
        num_scored: rollouts that have their score.
        changed: whether replies came under different identities.
    """

    def __init__(self, num_rollouts: int) -> None:
        self._scores: list[Score | None] = [None] * num_rollouts
        self._identity: Identity | None = None
        self.num_scored = 0
        self.changed = False

    def put(self, position: int, score: Score) -> None:
        """Take the score of one rollout."""
        self._scores[position] = score
        self.num_scored += 1

    def put_reply(self, positions: Sequence[int], reply: pb.ScoreResponse) -> None:
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
            raise IncompatibleServer(f"the server's reply cannot be read: {error}") from None
        if self._identity is None:
            self._identity = identity
        elif identity != self._identity:
            self.changed = True
            raise ServerFault(
                "the server changed during the call: some rollouts were scored under"
                f" {self._identity}, others under {identity}"
            )
        for position, score in zip(positions, scores, strict=True):
            self.put(position, score)

    def result(self) -> ScoredBatch:
        """Return the batch; every rollout has its score by now."""
        assert self._identity is not None, "a call sends at least one request"
        scores = [score for score in self._scores if score is not None]
        assert len(scores) == len(self._scores), "every rollout is put once"
        return ScoredBatch(scores, self._identity)


def read_explanation(reply: pb.ExplainResponse) -> Explanation:
    """Return the explanation of a reply.

    Raises:
        IncompatibleServer: it holds a value that this protocol version does not know.
    """
    try:
        return decode_explain_response(reply)
    except InputError as error:
        raise IncompatibleServer(f"the server's reply cannot be read: {error}") from None


# MERGED From the rollouts of a call to its requests: what fits, in pieces, built when needed.

# Tags, lengths and the request's own fields, well above what they can take.
_ENVELOPE_BYTES = 64 * 1024

# How often a call is scored anew because the server changed under it: once for an update or a
# restart, once more for bad luck.  Past that, servers of different content share an address.
MAX_CHANGES = 2

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server takes, as far as a client has to know.

    Attributes:
        max_response_bytes: of one response.
        max_message_bytes: of one request.
        max_rollouts: in one request.
    """

    max_response_bytes: int
    max_message_bytes: int
    max_rollouts: int

    @classmethod
    def of(cls, info: ServerInfo) -> Limits:
        """Return the limits that a server announced."""
        return cls(info.max_response_bytes, info.max_message_bytes, info.max_rollouts)


class _Piece(NamedTuple):
    """One rollout as it will be sent, with its place in the batch."""

    position: int
    encoded: bytes


class ScorePlan:
    """The requests of one scoring call.

    A rollout that no request can carry is scored OVERSIZE here, without being sent; all
    others go out.  At least one request is made, also for an empty batch: it brings the
    identity, and an unknown dataset is an error whatever the batch holds.

    Args:
        rollouts: the batch, in order.
        options: how to score it.
        limits: of the server.
        progress: called after each reply with the number of rollouts scored and of all.
        encoded: of all rollouts, what :func:`encode_checked` returned, where that is known.
    """

    def __init__(
        self,
        rollouts: Sequence[Rollout],
        options: ScoreOptions,
        limits: Limits,
        progress: Progress | None = None,
        encoded: Sequence[bytes] | None = None,
    ) -> None:
        self._rollouts = rollouts
        self._encoded = encoded
        self._options = options
        self._limits = limits
        self._progress = progress
        self._changes = 0
        self.assembly = Assembly(len(rollouts))

    def jobs(self) -> Iterator[Job[pb.ScoreResponse]]:
        """Yield the requests in order, each built when it is asked for."""
        max_bytes = min(PIECE_BYTES, self._limits.max_message_bytes - _ENVELOPE_BYTES)
        max_rollouts = min(PIECE_ROLLOUTS, self._limits.max_rollouts)
        for piece in cut(self._pieces(), lambda p: len(p.encoded), max_bytes, max_rollouts):
            yield self._job(piece)

    def start_over(self) -> bool:
        """Forget all scores where the call failed because the server changed in its midst.

        Scores of one call are all of one identity, and those that there are belong to an older
        one; scoring is a pure function, so that all of them can be had again.

        Returns:
            Whether the call is to be made again.
        """
        if not self.assembly.changed or self._changes == MAX_CHANGES:
            return False
        self._changes += 1
        self.assembly = Assembly(len(self._rollouts))
        return True

    def _job(self, piece: list[_Piece]) -> Job[pb.ScoreResponse]:
        request = join_score_request((p.encoded for p in piece), self._options)
        positions = [p.position for p in piece]

        def deliver(reply: pb.ScoreResponse) -> None:
            self.assembly.put_reply(positions, reply)
            if self._progress is not None:
                self._progress(self.assembly.num_scored, len(self._rollouts))

        return Job(request, deliver)

    def _pieces(self) -> Iterator[_Piece]:
        for position, rollout in enumerate(self._rollouts):
            fault = self._oversize(rollout)
            if fault is None:
                encoded = (
                    encode_checked(position, rollout)
                    if self._encoded is None
                    else self._encoded[position]
                )
                if len(encoded) + _ENVELOPE_BYTES <= self._limits.max_message_bytes:
                    yield _Piece(position, encoded)
                    continue
                fault = (
                    f"the rollout has {len(encoded)} bytes; a request holds at most"
                    f" {self._limits.max_message_bytes}"
                )
            self.assembly.put(position, Score(Status.OVERSIZE, message=fault))

    def _oversize(self, rollout: Rollout) -> str | None:
        """Return why the response is too large, in the words of the scorer; else None."""
        if not isinstance(rollout.response, str | bytes):
            return None  # of no size; encoding will say what is wrong
        limit = self._limits.max_response_bytes
        size = exceeds(rollout.response, limit)
        return None if size is None else f"the response has {size} bytes; the limit is {limit}"


def encode_checked(position: int, rollout: Rollout) -> bytes:
    """Return the rollout at a position of its batch as it stands in a request.

    Raises:
        InputError: a field has a wrong type.
    """
    try:
        return encode_rollout_field(rollout)
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"rollouts[{position}] has a field of a wrong type: {error}") from None


# MERGED What the synchronous and the asynchronous client have in common: everything but waiting.

R = TypeVar("R", bound=Message)

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


@dataclass(frozen=True, slots=True)
class Calls:
    """The settings of a client, and the pipelines of its calls.

    Attributes:
        address: ``HOST:PORT`` of the server.
        timeout_s: of a call that is given none of its own.
        retry: when failed attempts are repeated.
        max_in_flight: requests of one call at a time.

    Raises:
        InputError: a setting is out of range.
    """

    address: str
    timeout_s: float = 30.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    max_in_flight: int = 8

    def __post_init__(self) -> None:
        check_target(self.address)
        Deadline.after(self.timeout_s)
        if self.max_in_flight < 1:
            raise InputError(f"max_in_flight must be at least 1, got {self.max_in_flight}")

    def deadline(self, timeout_s: float | None) -> Deadline:
        """Return the deadline of a call that begins now."""
        return Deadline.after(self.timeout_s if timeout_s is None else timeout_s)

    def score(self, plan: ScorePlan, deadline: Deadline) -> Pipeline[pb.ScoreResponse]:
        """Return the course of a ``Score`` call."""
        return self._pipeline("Score", plan.jobs(), deadline)

    def explain(
        self,
        rollout: Rollout,
        options: ScoreOptions,
        deadline: Deadline,
        replies: list[pb.ExplainResponse],
    ) -> Pipeline[pb.ExplainResponse]:
        """Return the course of an ``Explain`` call; its reply goes into ``replies``."""
        request = encode_explain_request(rollout, options).SerializeToString()
        return self._pipeline("Explain", iter([Job(request, replies.append)]), deadline)

    def server_info(
        self, deadline: Deadline, replies: list[pb.ServerInfoResponse]
    ) -> Pipeline[pb.ServerInfoResponse]:
        """Return the course of a ``ServerInfo`` call; its reply goes into ``replies``."""
        request = pb.ServerInfoRequest(protocol_version=PROTOCOL_VERSION).SerializeToString()
        return self._pipeline("ServerInfo", iter([Job(request, replies.append)]), deadline)

    def read_server_info(self, reply: pb.ServerInfoResponse) -> ServerInfo:
        """Return what a server said about itself.

        Raises:
            IncompatibleServer: it speaks another protocol version.
        """
        if reply.protocol_version != PROTOCOL_VERSION:
            raise IncompatibleServer(
                f"the server at {self.address} speaks protocol version"
                f" {reply.protocol_version}, this client speaks version {PROTOCOL_VERSION}"
            )
        return decode_server_info(reply)

    def _pipeline(self, method: str, jobs: Iterator[Job[R]], deadline: Deadline) -> Pipeline[R]:
        return Pipeline(
            jobs,
            context=f"{method} at {self.address}",
            deadline=deadline,
            policy=self.retry,
            max_in_flight=self.max_in_flight,
        )


# MERGED Many concurrent calls with one rollout each, turned into few requests.
#
# Trainers that stream hand over one sample as soon as it is finished; one RPC a sample
# would spend more on the RPC than on the score.  So callers queue up, and whenever a
# request may go out it takes along all that are waiting.  Under light load nobody waits for
# company; under heavy load batches grow by themselves.  No timer, nothing to tune.
#
# Several requests may be out at a time, so that one answer that spends its whole budget
# does not hold up everybody else.  Belongs to one event loop; not thread-safe.

# Scores rollouts that have been encoded already, for requests to be joined from.
ScoreBatch = Callable[
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
