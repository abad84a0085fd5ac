"""The calls of a client of a server, without input or output: its kinds only carry them out.

A call is a generator (:data:`Course`): it yields one RPC after the other, each as the name of
its method and the :class:`Pipeline` of its requests, is told how each ended, and returns what
the caller gets.  So whatever a call consists of (limits that are asked for first, a batch that
is scored anew because the server changed) is said here, once, and tested without a network.

An RPC is a row of requests: the pieces into which :class:`ScorePlan` cuts a large batch, or a
single one.  The :class:`Pipeline` says which to send next, what to do about a failure
(:mod:`consensuspr.client.retries`), how long to wait, and when all is over.  Requests are built
when their turn comes: of a batch of any size, only what is in flight is held as messages.

Nothing here is thread-safe: one call belongs to one thread or task.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from google.protobuf.message import DecodeError, Message
from grpc import StatusCode

from consensuspr.client.interface import (
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
from consensuspr.errors import (
    DatasetMismatch,
    DeadlineExceeded,
    IncompatibleServer,
    InputError,
    RewardServiceError,
    ServerFault,
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

# Tags, lengths and the request's own fields, well above what they can take.
_ENVELOPE_BYTES = 64 * 1024

# How often a call is scored anew because the server changed under it: once for an update or a
# restart, once more for bad luck.  Past that, servers of different content share an address.
MAX_CHANGES = 2

# What a reply becomes that is no scores, which are read as bytes.
_REPLIES: dict[str, type[Message]] = {
    "Explain": pb.ExplainResponse,
    "ServerInfo": pb.ServerInfoResponse,
}

T = TypeVar("T")
R = TypeVar("R", bound=Message | bytes)
Course: TypeAlias = "Generator[tuple[str, Pipeline[Any]], None, T]"


@dataclass(frozen=True, slots=True)
class Deadline:
    """The end of a caller's patience: when ``clock()`` is ``at``, after ``timeout_s``."""

    at: float
    timeout_s: float
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def after(cls, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> Deadline:
        """Return the deadline that is ``timeout_s`` from now.

        Raises:
            InputError: the timeout is not a positive number.
        """
        if not 0 < timeout_s < math.inf:
            raise InputError(f"timeout_s must be a positive number of seconds, got {timeout_s}")
        return cls(clock() + timeout_s, timeout_s, clock)

    def remaining_s(self) -> float:
        """Return the seconds left, 0 or less when it has passed."""
        return self.at - self.clock()

    def error(self, context: str) -> DeadlineExceeded:
        """Return the exception for a call that was not over in time."""
        return DeadlineExceeded(f"{context}: not done within timeout_s={self.timeout_s:g}")


@dataclass(slots=True)
class PendingRequest(Generic[R]):
    """The bytes of one request, and what is called once with its reply."""

    request: bytes
    deliver: Callable[[R], None]


@dataclass(slots=True)
class Attempt(Generic[R]):
    """One sending of a request, to be carried out at once.

    Attributes:
        number: of the attempt, from 1.
        server: that it goes to, a number of the balancer.
    """

    pending: PendingRequest[R]
    number: int
    timeout_s: float
    server: int


class Pipeline(Generic[R]):
    """Keeps a bounded number of requests in flight until all have their replies.

    Args:
        requests: in order; drawn from one at a time.
        context: which call this is, the beginning of error messages.
        max_in_flight: requests at a time to each server, those that wait to be repeated included.
        balancer: of the servers that they may go to.
        run: the training run that asks; None: it has no name.
        uniform: draws the random part of a wait.
    """

    def __init__(
        self,
        requests: Iterator[PendingRequest[R]],
        *,
        context: str,
        deadline: Deadline,
        policy: RetryPolicy,
        max_in_flight: int,
        balancer: Balancer,
        run: str | None = None,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._requests = requests
        self._context = context
        self._deadline = deadline
        self._policy = policy
        self._max_in_flight = max_in_flight * len(balancer.addresses)
        self._balancer = balancer
        self.run = run
        # Of the attempts that have not ended.
        self._servers: list[int] = []
        self._uniform = uniform
        self._open = 0  # requests drawn and not delivered
        self._exhausted = False
        # (due, tie-break, number of the next attempt, request) of what waits to be repeated.
        self._waiting: list[tuple[float, int, int, PendingRequest[R]]] = []
        self._order = itertools.count()
        # The latest transient failure since the latest success.
        self._last: tuple[Attempt[R], RpcFailure] | None = None

    @property
    def done(self) -> bool:
        """Whether every request has been drawn and delivered."""
        return self._exhausted and not self._open

    @property
    def on_last(self) -> bool:
        """Whether one request alone is left, so that nothing happens before it ends."""
        return self._exhausted and self._open == 1

    def due(self) -> list[Attempt[R]]:
        """Return the attempts to start now.

        Raises:
            RewardServiceError: the caller's timeout passed.
        """
        remaining_s = self._deadline.remaining_s()
        if remaining_s <= 0 and not self.done:
            raise self._out_of_time()
        attempts = []
        now = self._deadline.clock()
        while self._waiting and self._waiting[0][0] <= now:
            _, _, number, pending = heapq.heappop(self._waiting)
            attempts.append(self._attempt(pending, number, remaining_s))
        while not self._exhausted and self._open < self._max_in_flight:
            drawn = next(self._requests, None)
            if drawn is None:
                self._exhausted = True
            else:
                self._open += 1
                attempts.append(self._attempt(drawn, 1, remaining_s))
        return attempts

    def _attempt(self, pending: PendingRequest[R], number: int, timeout_s: float) -> Attempt[R]:
        server = self._balancer.pick()
        self._servers.append(server)
        return Attempt(pending, number, timeout_s, server)

    def close(self) -> None:
        """Give up what has not ended."""
        while self._servers:
            self._balancer.leave(self._servers.pop())

    def wait_s(self) -> float:
        """Return how long nothing is due, unless a reply arrives: at least 0."""
        until = min(self._deadline.at, self._waiting[0][0] if self._waiting else self._deadline.at)
        return max(0.0, until - self._deadline.clock())

    def succeeded(self, attempt: Attempt[R], reply: R) -> None:
        """Take the reply to an attempt."""
        self._open -= 1
        self._last = None
        self._servers.remove(attempt.server)
        self._balancer.ended(attempt.server)
        attempt.pending.deliver(reply)

    def failed(self, attempt: Attempt[R], failure: RpcFailure) -> None:
        """Take the failure of an attempt, and plan its repetition.

        Raises:
            RewardServiceError: it is not to be repeated, or not before the deadline.
        """
        self._servers.remove(attempt.server)
        elsewhere = self._balancer.ended(attempt.server, failure)
        if failure.code is StatusCode.DEADLINE_EXCEEDED and self._deadline.remaining_s() <= 0:
            raise self._out_of_time()
        delay_s = self._policy.delay_s(attempt.number, failure, self._uniform, elsewhere)
        if delay_s is None:
            raise failure.exception(self._context_of(attempt))
        self._last = (attempt, failure)
        if delay_s >= self._deadline.remaining_s():
            raise self._out_of_time()
        due = self._deadline.clock() + delay_s
        heapq.heappush(self._waiting, (due, next(self._order), attempt.number + 1, attempt.pending))

    def _out_of_time(self) -> RewardServiceError:
        """Return the exception for a call whose timeout has passed.

        Where attempts failed until then, it is their failure: that nobody listens says more
        than that time has passed.
        """
        if self._last is None:
            return self._deadline.error(self._context)
        attempt, failure = self._last
        timeout_s = self._deadline.timeout_s
        return failure.exception(
            f"{self._context_of(attempt)}, no time left of timeout_s={timeout_s:g}"
        )

    def _context_of(self, attempt: Attempt[R]) -> str:
        """Return the call, how often it was tried, and where last, unless there is one server."""
        servers = self._balancer.addresses
        last = f", the last at {servers[attempt.server]}" if len(servers) > 1 else ""
        tried = "" if attempt.number == 1 else f", {attempt.number} attempts"
        return f"{self._context}{tried or (last and ', 1 attempt')}{last}"


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
        encoded: Sequence[EncodedRollout] | None = None,
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

    def requests(self) -> Iterator[PendingRequest[bytes]]:
        """Yield the requests in order, each built when it is asked for."""
        pieces = cut(
            self._fields(),
            lambda item: item[1].num_bytes,
            min(PIECE_BYTES, self._limits.max_message_bytes - _ENVELOPE_BYTES),
            min(PIECE_ROLLOUTS, self._limits.max_rollouts),
        )
        for piece in pieces:
            request = encode_score_request((field for _, field in piece), self._options)
            yield self._pending(request, [position for position, _ in piece])

    def _fields(self) -> Iterator[tuple[int, EncodedRollout]]:
        """Yield the rollouts that a request can carry, with their positions; score the others."""
        limit, most = self._limits.max_response_bytes, self._limits.max_message_bytes
        for position, rollout in enumerate(self._rollouts):
            if self._encoded is None:
                field = encode_checked(position, rollout)
            else:
                field = self._encoded[position]
            if len(field.response) > limit:
                # In the words of the scorer.
                fault = f"the response has {len(field.response)} bytes; the limit is {limit}"
            elif field.num_bytes > most - _ENVELOPE_BYTES:
                size = field.num_bytes
                fault = f"the rollout has {size} bytes; a request holds at most {most}"
            else:
                yield position, field
                continue
            self._scores[position] = Score(Status.OVERSIZE, message=fault)
            self._num_scored += 1

    def result(self) -> ScoredBatch:
        """Return the batch; every rollout has its score by now."""
        assert self._identity is not None, "a call sends at least one request"
        assert self._num_scored == len(self._scores), "every rollout is put once"
        return ScoredBatch(cast("list[Score]", self._scores), self._identity)

    def _pending(self, request: bytes, positions: Sequence[int]) -> PendingRequest[bytes]:
        def deliver(reply: bytes) -> None:
            self._take(positions, reply)
            if self._progress is not None:
                self._progress(self._num_scored, len(self._rollouts))

        return PendingRequest(request, deliver)

    def _take(self, positions: Sequence[int], reply: bytes) -> None:
        """Take the reply to the rollouts at ``positions``.

        Raises:
            ServerFault: it holds another number of scores, or was computed under another
                identity than an earlier reply of the same call.
            DatasetMismatch: the dataset is not the expected one.
            IncompatibleServer: it holds a value that this protocol version does not know.
        """
        try:
            scores, identity = decode_score_response(reply)
            number = len(scores)
        except DecodeError:
            raise ServerFault(f"the {len(reply)} bytes of the server's reply are none") from None
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
            if expected not in (None, identity.dataset_digest):
                # Of a server that does not know of expectations.
                raise DatasetMismatch.of(identity.dataset, identity.dataset_digest, expected)
            self._identity = identity
        elif identity != self._identity:
            self.changed = True
            raise ServerFault(
                "the server changed during the call: some rollouts were scored under"
                f" {self._identity}, others under {identity}"
            )
        for position, score in zip(positions, scores, strict=True):
            self._scores[position] = score
        self._num_scored += len(scores)


def encode_checked(position: int, rollout: Rollout) -> EncodedRollout:
    """Return the rollout at a position of its batch as a field of a request.

    Raises:
        InputError: a field has a wrong type.
    """
    return convert_rollout(position, rollout, encode_rollout_field)


def _unreadable(error: InputError) -> IncompatibleServer:
    return IncompatibleServer(f"the server's reply cannot be read: {error}")


@dataclass(slots=True)
class Calls:
    """The calls of one client, its settings, and the limits of its server once it has told.

    Attributes:
        on_identity: told what each scored batch was computed under, before it is handed out.
        own: what each call says beside its own options.
    """

    address: str
    timeout_s: float = 30.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    max_in_flight: int = 8
    on_identity: Callable[[Identity], None] | None = None
    own: OwnOptions = field(default_factory=OwnOptions)
    limits: ServerInfo | None = field(default=None, init=False)
    balancer: Balancer = field(init=False)

    def __post_init__(self) -> None:
        self.balancer = Balancer(split_addresses(self.address))
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
        encoded: Sequence[EncodedRollout] | None = None,
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
                yield from self._call("Score", plan.requests(), deadline, options.run)
            except ServerFault:
                if not plan.changed or changes == MAX_CHANGES:
                    raise
                changes += 1
            else:
                break
        scored = plan.result()
        if self.on_identity is not None:
            self.on_identity(scored.identity)
        return scored

    def explain(
        self, rollout: Rollout, options: ScoreOptions, deadline: Deadline
    ) -> Course[Explanation]:
        """Score one rollout and say what was found where.

        Raises:
            IncompatibleServer: the reply holds a value that this protocol version does not know.
        """
        request = encode_explain_request(rollout, options)
        reply = yield from self._ask("Explain", request, deadline, options.run)
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

    def _ask(
        self, method: str, request: Message, deadline: Deadline, run: str | None = None
    ) -> Course[Any]:
        """Send one request and return its reply."""
        replies: list[Message] = []
        only = PendingRequest(request.SerializeToString(), replies.append)
        yield from self._call(method, iter([only]), deadline, run)
        return replies[0]

    def _call(
        self,
        method: str,
        requests: Iterator[PendingRequest[R]],
        deadline: Deadline,
        run: str | None,
    ) -> Course[None]:
        pipeline = Pipeline(
            requests,
            context=f"{method} at {self.address}",
            deadline=deadline,
            policy=self.retry,
            max_in_flight=self.max_in_flight,
            balancer=self.balancer,
            run=run,
        )
        try:
            yield method, pipeline
        except RewardServiceError:
            # It may have been replaced by a server with other limits.
            self.limits = None
            raise
        finally:
            pipeline.close()


def open_method(channel: Any, method: str) -> Any:
    """Return a method of the service on a channel of either kind; it takes bytes as a request.

    The generated stub would take messages, and make one of each reply.
    """
    reply = _REPLIES.get(method)
    return channel.unary_unary(
        f"/{SERVICE_NAME}/{method}",
        response_deserializer=None if reply is None else reply.FromString,
    )


class ServerClient(ScoringClient[ScoredT, ExplainedT, InfoT]):
    """A client of a server; a kind of it says how a course is carried out, now or awaited."""

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
        course = calls.score(rollouts, calls.own.of(options), calls.deadline(timeout_s), progress)
        scored: ScoredT = self._carry_out(course)
        return scored

    def explain_with(
        self, rollout: Rollout, options: ScoreOptions, *, timeout_s: float | None = None
    ) -> ExplainedT:
        calls = self._calls
        course = calls.explain(rollout, calls.own.of(options), calls.deadline(timeout_s))
        explained: ExplainedT = self._carry_out(course)
        return explained

    def server_info(self, timeout_s: float | None = None) -> InfoT:
        info: InfoT = self._carry_out(self._calls.server_info(self._calls.deadline(timeout_s)))
        return info

    @abstractmethod
    def _carry_out(self, course: Course[T]) -> Any:
        """Carry out the RPCs of a call, one after the other; return its result, or a coroutine."""
