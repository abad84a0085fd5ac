"""The service of one worker: what each RPC does, and its gRPC server.

**Handlers** do the work, from the bytes of a request to the bytes of its reply.  They run in a
working thread, know nothing of sockets or event loops, and are therefore also what another front
(HTTP, a Ray Serve deployment, a test) calls.  A request that is wrong as a whole ends in
:class:`Abort`; whatever concerns a single rollout is a status in the reply.  Requests are parsed
here and not by gRPC: their size is known before anything is unpacked, and bytes that are no request
become INVALID_ARGUMENT instead of an internal error.

**The service** has one event loop that receives and replies; the work of each request runs in a
thread, a bounded number at a time, the rest waits in the admission's queue (bounded in bytes, a
share of the work for each run).  Matching releases the GIL, so that threads are real
parallelism.  A caller that leaves, or whose deadline passes, leaves its work behind: what is queued
is dropped, what runs stops at the next piece.  Its bytes count as unfinished until then.

No Python traceback and no text of an unexpected exception reaches a client: such an RPC is
INTERNAL with an id, and the log has the rest under that id.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from consensuspr.credentials import Scope
from consensuspr.errors import (
    ConsensusPRError,
    DatasetMismatch,
    DeadlineExceeded,
    InputError,
    InvalidRequest,
    UnknownDataset,
)
from consensuspr.scoring import DatasetIndex, Limits, Scorer
from consensuspr.scoring.types import MAX_LABEL_BYTES, ScoreColumns
from consensuspr.server.admission import (
    Admission,
    Job,
    Origin,
    R,
    Refusal,
    Slots,
    WorkingThreads,
    Yielding,
    available_cores,
)
from consensuspr.server.config import ServerConfig
from consensuspr.server.logs import LOGGER_NAME
from consensuspr.server.memory import (
    COPIES,
    COPIES_EXPLAINED,
    GZIP_MAGIC,
    REQUEST_OVERHEAD_BYTES,
    TURN_S,
    WINDOW_BYTES,
    Arrival,
    Reception,
    SmallCalls,
    Trimmer,
    charge,
    field_table,
    unpacked,
    unpacked_bytes,
)
from consensuspr.server.metrics import MeteredScorer, Metrics, TimedVerifier
from consensuspr.server.security import (
    OPEN,
    Certificates,
    Gate,
    Refused,
    Security,
    Tls,
)
from consensuspr.server.tracing import Trace, Tracing
from consensuspr.v1 import (
    ADMIN_SERVICE_NAME,
    DATASET_DIGEST_KEY,
    PROTOCOL_VERSION,
    RETRY_AFTER_KEY,
    RUN_KEY,
    SERVICE_NAME,
)
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire.codec import (
    PIECE_BYTES,
    PIECE_ROLLOUTS,
    cut,
    decode_options,
    decode_rollout,
    decode_rollouts,
    encode_explain_response,
    encode_score_response,
)
from consensuspr.wire.server_info import (
    ServerInfo,
    describe,
    describe_datasets,
    encode_server_info,
)

SHUTTING_DOWN = "the server is shutting down"
# So soon threads give Python's lock away when it is asked for; 5 ms are Python's own choice,
# which the event loop would wait for several times a request.
SWITCH_INTERVAL_S = 0.0005
# Requests that one connection may have open.  More wait on the client's side; without the
# bound, one client could have any number of messages received and not yet admitted.
MAX_CONCURRENT_STREAMS = 128
# A client that is silent for a policy update pings meanwhile; gRPC's default (one ping in
# five minutes) would cut it off.  Half of our clients' interval: they may arrive closer together.
MIN_PING_INTERVAL_MS = 5000
# Of gRPC's encodings; what deflate makes of a message cannot be told from one that is not packed.
IDENTITY_AND_GZIP = 1 << 0 | 1 << 2
# Calls that gRPC holds before Python sees them; more are dropped.  Each takes some twenty kilobytes
# and a window of 64 KiB of its body.  A thousand that come in one moment are not too many.
PENDING_CALLS = 1024
# Of a call's header, tokens and names of runs included; it stays in memory as long as the call.
MAX_HEADER_BYTES = 8192
# A client that answers no ping for twenty seconds more has gone, or reads nothing.
PING_INTERVAL_MS = 60_000
# Then a connection is ended in order, after its requests, and the client makes another: to a worker
# or a server that was not there when it made the first (a replaced one, or one more behind a name).
MAX_CONNECTION_AGE_S = 300
# So long requests on a connection may go on then; replies that nobody takes end with it.
LAST_CALLS_S = 120
# Within it the first words of HTTP/2 have to come.
HANDSHAKE_S = 20
# After the last reply: for calls that only watch, and for connections to end in order.
CLOSE_S = 1.0
# Before connections are ended: requests that gRPC has received are refused one by one, until for so
# long there was none, or for so long in all.
QUIET_S = 0.05
SETTLE_S = 0.5

# Of a sentence in a status; nine bytes each, as a header may say a character, fit into one.
MAX_SENTENCE_CHARS = 600
# When to come again where too many requests arrive at a time.
ARRIVAL_RETRY_S = 0.5

_UNTRACED = contextlib.nullcontext()

if TYPE_CHECKING:
    from consensuspr.score_log import ScoreLog

M = TypeVar("M", bound=Message)

_log = logging.getLogger(LOGGER_NAME)


class Abort(Exception):
    """End the RPC with a status code and one sentence.

    Attributes:
        code: any but OK.
        retry_after_s: when to come back, sent as metadata ``retry-after-ms``; None: no hint.
        digest: of the dataset, sent as metadata ``dataset-digest`` where another is expected.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        message: str,
        retry_after_s: float | None = None,
        digest: str | None = None,
    ) -> None:
        self.code = code
        self.message = shortened(message)
        self.retry_after_s = retry_after_s
        self.digest = digest
        super().__init__(self.message)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return what is sent beside the sentence."""
        metadata: tuple[tuple[str, str], ...] = ()
        if self.retry_after_s is not None:
            metadata = ((RETRY_AFTER_KEY, str(max(1, round(self.retry_after_s * 1000)))),)
        if self.digest is not None:
            metadata += ((DATASET_DIGEST_KEY, self.digest),)
        return metadata


def shortened(sentence: str) -> str:
    """Return what a client is told, cut where text of its own makes it long.

    gRPC sends it in a header of a few kilobytes, and fails with another code where it is longer.
    """
    if len(sentence) <= MAX_SENTENCE_CHARS:
        return sentence
    return f"{sentence[:MAX_SENTENCE_CHARS]}... ({len(sentence)} characters)"


class RunningCall:
    """The part of an RPC that work depends on; set on the event loop, read by a thread.

    Args:
        deadline: ``time.monotonic()`` at which the caller stops waiting; None: never.
        trace: is told of the stages; None: nobody is.
    """

    def __init__(self, deadline: float | None = None, trace: Trace | None = None) -> None:
        self.deadline = deadline
        self.trace = trace
        self._abandoned = False

    def abandon(self) -> None:
        """Say that nobody waits for the result any more."""
        self._abandoned = True

    def check(self) -> None:
        """Return while somebody still waits for the result.

        Raises:
            Abort: the deadline passed, or the caller left.
        """
        if self._abandoned:
            raise Abort(grpc.StatusCode.CANCELLED, "the caller left")
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise Abort(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                "the caller's deadline passed before the work was done; it was abandoned",
            )


# What came in: bytes of gRPC, or what a front has received.
B = TypeVar("B", bytes, bytes | bytearray)
Work = Callable[[B, RunningCall], R]
Context = grpc.aio.ServicerContext[bytes, bytes]


class Handlers:
    """The RPCs of one worker, for many threads; ``info`` has the limits on a request.

    Each raises Abort where the request is wrong as a whole, or nobody waits for it any more.
    """

    def __init__(self, scorer: MeteredScorer, info: ServerInfo) -> None:
        self._scorer = scorer
        self._info = info
        self._info_reply: tuple[object, bytes] = (None, b"")  # by digests, which say all

    def score(self, raw: bytes, call: RunningCall) -> bytes:
        """Answer ``Score``."""
        call.check()
        request = parse_message(pb.ScoreRequest, raw)
        check_version(request.protocol_version)
        options = decode_options(request)
        rollouts = decode_rollouts(request, with_samples=bool(self._scorer.logs))
        del request  # it holds a copy of every response
        chosen = self._scorer.dataset(options)
        if len(rollouts) > self._info.max_rollouts:
            raise Abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"a request holds at most {self._info.max_rollouts} rollouts, got {len(rollouts)}",
            )
        if not options.probe:
            self._scorer.metrics.request_rollouts(len(rollouts))
        if call.trace is not None:
            call.trace.stage_ended("parse")
            call.trace.describe(rollouts=len(rollouts), dataset=chosen[0], run=options.run or "")
        columns: ScoreColumns | None = None
        pieces = iter((rollouts,))  # nearly always: a client's request is a piece
        if len(raw) > PIECE_BYTES or len(rollouts) > PIECE_ROLLOUTS:
            pieces = cut(rollouts, lambda r: len(r.response), PIECE_BYTES, PIECE_ROLLOUTS)
        for piece in pieces:
            call.check()
            part, identity = self._scorer.score(piece, options, call.deadline, chosen, call.trace)
            if columns is None:
                columns = part
            else:
                columns.extend(part)
        # A reply that comes too late would be thrown away; encoding it is work too.
        call.check()
        assert columns is not None, "no rollouts are one empty piece"
        reply = encode_score_response(columns, identity)
        if call.trace is not None:
            call.trace.stage_ended("reply")
        return reply

    def explain(self, raw: bytes, call: RunningCall) -> bytes:
        """Answer ``Explain``."""
        call.check()
        request = parse_message(pb.ExplainRequest, raw)
        check_version(request.protocol_version)
        options = decode_options(request)
        if not request.HasField("rollout"):
            raise Abort(grpc.StatusCode.INVALID_ARGUMENT, "rollout is required, got none")
        rollout = decode_rollout(request.rollout)
        explanation = self._scorer.explain(rollout, options, call.deadline)
        call.check()
        return encode_explain_response(explanation).SerializeToString()

    def server_info(self, raw: bytes, call: RunningCall) -> bytes:
        """Answer ``ServerInfo``; asked by clients of any protocol version."""
        call.check()
        parse_message(pb.ServerInfoRequest, raw)
        datasets = self._scorer.datasets
        digests = {name: index.digest for name, index in datasets.items()}
        known, reply = self._info_reply
        if known != digests:
            info = replace(self._info, datasets=describe_datasets(datasets))
            reply = encode_server_info(info).SerializeToString()
            self._info_reply = digests, reply
        return reply


def check_version(version: int) -> None:
    """End the RPC where a request was written for another version, or for none."""
    if version != PROTOCOL_VERSION:
        # Unset too: one that was written for another version would find no scores and no error.
        raise Abort(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"the client speaks protocol version {version or '0 (unset)'},"
            f" this server speaks version {PROTOCOL_VERSION}",
        )


def parse_message(message: type[M], raw: bytes) -> M:
    """Return a request of its bytes; other bytes end the RPC with INVALID_ARGUMENT."""
    try:
        return message.FromString(raw)
    except DecodeError:
        raise Abort(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"the {len(raw)} bytes of the request are no {message.DESCRIPTOR.full_name}",
        ) from None


class ScoringService:
    """The RPCs of one worker on its event loop.

    Args:
        handlers: do the work.
        admission: lets requests in; an attribute too.
        threads: in which the work is done.
        metrics: where requests are counted.
        max_message_bytes: of one request, once it is unpacked.
        max_fields: of one request.
        tracing: traces them; None: nothing does.
    """

    def __init__(
        self,
        handlers: Handlers,
        admission: Admission,
        threads: WorkingThreads,
        metrics: Metrics,
        max_message_bytes: int,
        max_fields: int,
        tracing: Tracing | None = None,
    ) -> None:
        self._tracing = tracing
        self._work: dict[str, Work[bytes, bytes]] = {
            "Score": handlers.score,
            "Explain": handlers.explain,
        }
        self._tables = {
            "Score": field_table(pb.ScoreRequest.DESCRIPTOR),
            "Explain": field_table(pb.ExplainRequest.DESCRIPTOR),
        }
        self._max_message_bytes = max_message_bytes
        self._max_fields = max_fields
        self._reception = Reception()
        self._unpacking = asyncio.Semaphore(1)
        self._trimmer = Trimmer(lambda: not admission.unfinished_bytes)
        self._server_info = handlers.server_info
        self.admission = admission
        self.metrics = metrics
        metrics.queue = lambda: (admission.unfinished_bytes, admission.unfinished_requests)
        self._threads = threads
        self._yielding = Yielding()
        self._draining = False
        self._under_way = 0  # requests that submit() has let in and not returned from
        # Once draining: what sends replies that are ready.
        self._replying: set[asyncio.Task[Any]] = set()
        self._refused_at = 0.0

    def rpc_handler(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        """Return what a gRPC server is to be given; messages pass as bytes."""
        return _Front(self, [*self._work, "ServerInfo"])

    @property
    def receives_in_turn(self) -> bool:
        """Whether so many requests arrive that further ones wait for their turn."""
        return self._reception.busy

    def guards(self, method: str) -> bool:
        """Whether some requests of a method end or wait now without their bytes being received."""
        return self.receives_in_turn or (
            method in self._work and (self._draining or self.admission.refusing)
        )

    @property
    def draining(self) -> bool:
        """Whether new requests are refused."""
        return self._draining

    def refuse_new_requests(self) -> None:
        """From now on, answer new requests with UNAVAILABLE."""
        self._draining = True

    async def wait_until_quiet(self) -> None:
        """Wait until new requests have stopped coming, or for SETTLE_S at most."""
        end = time.monotonic() + SETTLE_S
        self._refused_at = time.monotonic()
        while time.monotonic() < min(end, self._refused_at + QUIET_S):
            await asyncio.sleep(0.01)

    async def wait_until_idle(self, timeout_s: float) -> int:
        """Wait until all admitted requests have their replies; return how many do not."""
        deadline = time.monotonic() + timeout_s
        while (unanswered := self._unanswered()) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        return unanswered

    def _unanswered(self) -> int:
        # Of a caller that has left, only the work is there still.
        return max(self.admission.unfinished_requests, self._under_way + len(self._replying))

    def close(self) -> None:
        """Drop what is queued; what runs stops at its next piece."""
        self._threads.close()

    def arrival(self, behaviour: Callable[[bytes, Context], Awaitable[bytes]]) -> Arrival:
        """Return the handler of one call, whose body arrives without a turn."""
        return Arrival(self._reception, behaviour)

    def behaviour(self, method: str) -> Callable[[bytes, Context], Awaitable[bytes]]:
        """Return what carries out a method."""

        async def behaviour(raw: bytes, context: Context) -> bytes:
            work = self._serve(method, raw, context)
            del raw  # as in counted()
            return await counted(self.metrics, method, work, context)

        return behaviour

    def guarded(self, method: str) -> Callable[[AsyncIterator[bytes], Context], Awaitable[bytes]]:
        """Return what carries out a method, and receives only what will not be refused."""

        async def serve(context: Context) -> bytes:
            self._check_open()
            try:
                with self.admission.coming(
                    _caller(context), _deadline(context), REQUEST_OVERHEAD_BYTES + WINDOW_BYTES
                ) as refusal:
                    if refusal is not None:
                        raise _refused(refusal)
                    raw = await self._reception.receive(context)
            except TimeoutError:
                raise Abort(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"the request did not arrive in its turn of {TURN_S:g} s at most; others wait",
                    ARRIVAL_RETRY_S,
                ) from None
            if raw is None:
                raise Abort(grpc.StatusCode.INVALID_ARGUMENT, "the call brought no request")
            return await self._serve(method, raw, context)

        async def behaviour(messages: AsyncIterator[bytes], context: Context) -> bytes:
            return await counted(self.metrics, method, serve(context), context)

        return behaviour

    async def _serve(self, method: str, raw: bytes, context: Context) -> bytes:
        self._check_open()
        if method == "ServerInfo":
            # At once: a client that asks what the server takes must not wait behind others.
            return self._server_info(raw, RunningCall())
        try:
            if raw.startswith(GZIP_MAGIC):
                raw = await self._unpacked(raw, _caller(context))
            copies = COPIES_EXPLAINED if method == "Explain" else COPIES
            num_bytes = charge(raw, self._tables[method], self._max_fields, copies)
        except InvalidRequest as error:
            raise Abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
        trace = None
        if self._tracing is not None:
            trace = self.begin_trace(method, context.invocation_metadata() or ())
        with trace or _UNTRACED:
            return await self.submit(
                self._work[method], raw, num_bytes, _deadline(context), _caller(context), trace
            )

    def begin_trace(self, method: str, headers: Iterable[tuple[str, Any]]) -> Trace | None:
        """Begin the trace of a request, which is to be entered; None where it is not traced."""
        return None if self._tracing is None else self._tracing.begin(method, headers)

    async def _unpacked(self, raw: bytes, caller: Origin) -> bytes:
        """Return what a compressed request becomes.

        Unpacking takes longer than receiving, so that what waits for it has to count too.
        """
        size = unpacked_bytes(raw)
        if size > self._max_message_bytes:
            raise Abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"the {len(raw)} compressed bytes of the request become {size}, the limit is"
                f" {self._max_message_bytes}",
            )
        # In pieces first, then in one.
        with self.admission.unpacking(caller, len(raw) + COPIES * size) as refusal:
            if refusal is not None:
                raise _refused(refusal)
            # One at a time: what it becomes is let in before the next one becomes anything.
            async with self._unpacking:
                return await asyncio.to_thread(unpacked, raw)

    async def submit(
        self,
        work: Work[B, R],
        raw: B,
        num_bytes: int,
        deadline: float | None,
        caller: Origin,
        trace: Trace | None = None,
    ) -> R:
        """Let a request in and have it worked on by a thread; what every front calls.

        Args:
            work: what to do with the request's bytes.
            raw: the request.
            num_bytes: that it takes of the memory, which is what the admission counts.
            deadline: ``time.monotonic()`` at which the caller stops waiting; None: never.
            caller: who sent the request, for the admission.
            trace: is told of the stages.

        Returns:
            What ``work`` returned.

        Raises:
            Abort: it was refused, or ended otherwise than with a reply.
        """
        self._check_open()
        call = RunningCall(deadline, trace)
        admitted = time.monotonic()
        # Emptied as soon as the request is done with: the books keep what was cancelled before
        # its turn, and must not keep its bytes.
        request = [raw]
        del raw

        def work_on() -> R:
            if self.admission.too_late(num_bytes, deadline):
                raise DeadlineExceeded("the caller's deadline is too near for the work to be begun")
            if self.admission.flooded:
                self._yielding()
            self.metrics.queued(time.monotonic() - admitted)
            if trace is not None:
                trace.stage_ended("queue")
            return work(request.pop(), call)

        job = Job(work_on, num_bytes, caller, deadline, REQUEST_OVERHEAD_BYTES)
        refusal = self.admission.admit(job)
        if refusal is not None:
            raise _refused(refusal)
        task = asyncio.current_task()
        assert task is not None, "a coroutine is run by one"
        # It ends when the reply has been taken.
        task.add_done_callback(partial(_replied, self.admission, job))

        loop = asyncio.get_running_loop()
        # What asyncio.wrap_future makes of a job costs as much as its admission.
        ended = loop.create_future()

        def finish(done: Future[Any]) -> None:
            # In the working thread, also long after the caller has left.
            request.clear()
            served = not done.cancelled() and done.exception() is None
            # As it is given here: one that this function held on to would hold itself.
            assert isinstance(done, Job)
            reply = done.result() if served else None
            reply_bytes = COPIES * len(reply) if isinstance(reply, bytes) else 0
            self.admission.finish(done, served=served, reply_bytes=reply_bytes)
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(_wake, ended)

        job.add_done_callback(finish)
        try:
            self._threads.wake()
        except RuntimeError:  # the threads were shut down while the request came in
            job.cancel()
            raise Abort(grpc.StatusCode.UNAVAILABLE, SHUTTING_DOWN) from None
        self._trimmer.plan()
        self._under_way += 1
        try:
            await ended
            if job.cancelled():  # the work was dropped by close(), not left by its caller
                raise Abort(grpc.StatusCode.UNAVAILABLE, SHUTTING_DOWN)
            result: R = job.result()
            return result
        except asyncio.CancelledError:
            job.cancel()
            call.abandon()
            raise
        except UnknownDataset as error:
            raise Abort(grpc.StatusCode.NOT_FOUND, str(error)) from None
        except DatasetMismatch as error:
            raise Abort(
                grpc.StatusCode.FAILED_PRECONDITION, str(error), digest=error.digest
            ) from None
        except (InputError, InvalidRequest) as error:
            raise Abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
        except DeadlineExceeded as error:
            raise Abort(grpc.StatusCode.DEADLINE_EXCEEDED, str(error)) from None
        finally:
            self._under_way -= 1
            self._trimmer.ended(num_bytes)
            if self._draining:
                self._replying.add(task)
                task.add_done_callback(self._replying.discard)
            # Its failure knows this frame, and by the frames of the work the request.
            del job, task

    def _check_open(self) -> None:
        if self._draining:
            self._refused_at = time.monotonic()
            raise Abort(grpc.StatusCode.UNAVAILABLE, SHUTTING_DOWN)


class _Front(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """The methods of a service by name; asked by gRPC for each request before its body is read.

    What is refused then costs no receiving: a handler of streams is not given the body.
    """

    def __init__(self, service: ScoringService, methods: list[str]) -> None:
        self._service = service
        self._methods = {f"/{SERVICE_NAME}/{name}": name for name in methods}
        self._behaviours = {name: service.behaviour(name) for name in methods}
        self._guarded = {
            name: grpc.stream_unary_rpc_method_handler(service.guarded(name)) for name in methods
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        name = self._methods.get(handler_call_details.method)
        if name is None:
            return None
        if self._service.guards(name):
            return self._guarded[name]
        return self._service.arrival(self._behaviours[name])


class _Gatekeeper(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Asked for every call, before its body is read: ends what may not be asked for.

    Health is for everybody, since probes can seldom show a token.  What is not known here needs
    the widest scope.
    """

    def __init__(self, gate: Gate, metrics: Metrics) -> None:
        self._gate = gate
        self._metrics = metrics

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        service, _, method = handler_call_details.method.strip("/").partition("/")
        if service == health.SERVICE_NAME:
            return await continuation(handler_call_details)
        shown = handler_call_details.invocation_metadata
        refused = refusal(self._gate, service, method, shown)
        if refused is None:
            return await continuation(handler_call_details)
        code = code_of(refused)
        # Its name comes from the caller, and each would be a series of its own.
        counted = method if (service, method) in _SCOPES else "other"

        async def refuse(messages: AsyncIterator[bytes], context: Context) -> bytes:
            self._metrics.request(counted, code.name, 0.0)
            await context.abort(code, refused.sentence)
            raise AssertionError("abort does not return")

        return grpc.stream_unary_rpc_method_handler(refuse)


# What a call needs, by service and method; "": any method of the service.
_SCOPES = {
    (SERVICE_NAME, "Score"): Scope.SCORE,
    (SERVICE_NAME, "Explain"): Scope.SCORE,
    (SERVICE_NAME, "ServerInfo"): Scope.READ,
    (reflection.SERVICE_NAME, ""): Scope.READ,
    (ADMIN_SERVICE_NAME, "ListDatasets"): Scope.READ,
    (ADMIN_SERVICE_NAME, "PutDataset"): Scope.ADMIN,
    (ADMIN_SERVICE_NAME, "RemoveDataset"): Scope.ADMIN,
}


def refusal(gate: Gate, service: str, method: str, shown: Any) -> Refused | None:
    """Say why a call that shows this metadata may not be made; None: it may."""
    scope = _SCOPES.get((service, method)) or _SCOPES.get((service, ""), Scope.ADMIN)
    authorization = next((text for name, text in shown or () if name == "authorization"), None)
    return gate.refusal(scope, authorization)


def code_of(refused: Refused) -> grpc.StatusCode:
    """Return how a call ends that was refused at the gate."""
    return grpc.StatusCode.PERMISSION_DENIED if refused.known else grpc.StatusCode.UNAUTHENTICATED


def _server_credentials(tls: Tls) -> grpc.ServerCredentials:
    """Return credentials that ask for the present certificates at each handshake."""
    shown, certificates = tls.current()

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        nonlocal shown
        version, certificates = tls.current()
        if version == shown:
            return None
        shown = version
        return _configuration(certificates)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(certificates),
        fetch,  # type: ignore[arg-type]  # None: nothing new
        tls.wants_client_certificates,
    )


def _configuration(certificates: Certificates) -> grpc.ServerCertificateConfiguration:
    pair = (certificates.key, certificates.chain)
    return grpc.ssl_server_certificate_configuration([pair], certificates.client_ca)


async def counted(metrics: Metrics, method: str, work: Awaitable[bytes], context: Context) -> bytes:
    """Return what ``work`` returns, or end the RPC as it raises; either is counted."""
    start = time.monotonic()
    code = grpc.StatusCode.CANCELLED
    try:
        reply = await work
        code = grpc.StatusCode.OK
        return reply
    except Abort as abort:
        code, end = abort.code, (abort.message, abort.metadata())
    except asyncio.CancelledError:
        raise
    except Exception:
        defect = internal(method)
        code, end = defect.code, (defect.message, defect.metadata())
    finally:
        metrics.request(method, code.name, time.monotonic() - start)
    # Past the handlers, and without the exception: what gRPC raises here hangs together with the
    # call, and what that knew, the request above all, would stay until the garbage collector runs.
    await context.abort(code, *end)
    raise AssertionError("abort does not return")


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():  # its task may have been cancelled
        waiting.set_result(None)


def _replied(admission: Admission, job: Job, _: asyncio.Task[Any]) -> None:
    admission.replied(job)


def _refused(refusal: Refusal) -> Abort:
    return Abort(grpc.StatusCode.RESOURCE_EXHAUSTED, refusal.reason, refusal.retry_after_s)


def _deadline(context: Context) -> float | None:
    """Return when the caller stops waiting, on the monotonic clock; None: never."""
    remaining_s = context.time_remaining()
    return None if remaining_s is None else time.monotonic() + remaining_s


def _caller(context: Context) -> Origin:
    """Return who calls, as far as the head of the request says it."""
    for key, value in context.invocation_metadata() or ():
        if key == RUN_KEY and isinstance(value, bytes):
            return Origin(context.peer(), value[:MAX_LABEL_BYTES].decode("utf-8", "replace"))
    return Origin(context.peer())


def internal(method: str) -> Abort:
    """Log the exception being handled under an id; return what the client is told."""
    incident = uuid.uuid4().hex[:12]
    _log.exception("%s failed, incident %s", method, incident, extra={"incident": incident})
    return Abort(
        grpc.StatusCode.INTERNAL,
        f"the server failed on a defect of its own; its log has incident {incident}",
    )


@dataclass(frozen=True, slots=True)
class Draining:
    """How a server goes down.

    Attributes:
        delay_s: serve on for this long while health says NOT_SERVING.
        grace_s: then, wait for admitted requests for at most this long.
    """

    delay_s: float = 0.0
    grace_s: float = 30.0


class GrpcServer:
    """A server of the scoring service on the running event loop.

    Args:
        service: what it serves.
        max_message_bytes: of one request.
        max_connections: open at a time.
        security: who may call it, and its certificates.
        admin: handlers of the admin service by method; None: there is none.
    """

    def __init__(
        self,
        service: ScoringService,
        max_message_bytes: int,
        max_connections: int,
        security: Security = OPEN,
        admin: Mapping[str, Any] | None = None,
    ) -> None:
        self._service = service
        self._security = security
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        # Without tokens nobody would be refused, and each call would pay for being asked.
        asked = [_Gatekeeper(security.gate, service.metrics)] if security.gate.wants_tokens else []
        self._server = grpc.aio.server(
            interceptors=asked,
            options=[
                ("grpc.so_reuseport", 1),
                ("grpc.max_receive_message_length", max_message_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_allowed_incoming_connections", max_connections),
                ("grpc.server_handshake_timeout_ms", HANDSHAKE_S * 1000),
                # gRPC unpacks whatever a message becomes; here that is bounded.
                ("grpc.per_message_decompression", 0),
                ("grpc.compression_enabled_algorithms_bitset", IDENTITY_AND_GZIP),
                # What waits for its turn to be received has 64 KiB at the server, and not as much
                # as the connection could carry.
                ("grpc.http2.bdp_probe", 0),
                ("grpc.max_concurrent_streams", MAX_CONCURRENT_STREAMS),
                # Else gRPC resets requests at random when many end at a time, which is what
                # refusing does; what is let in is the admission's business alone.
                ("grpc.http.overload_protection", 0),
                ("grpc.server.max_pending_requests", PENDING_CALLS),
                ("grpc.server.max_pending_requests_hard_limit", PENDING_CALLS),
                ("grpc.max_metadata_size", MAX_HEADER_BYTES),
                ("grpc.absolute_max_metadata_size", MAX_HEADER_BYTES),
                ("grpc.max_connection_age_ms", MAX_CONNECTION_AGE_S * 1000),
                ("grpc.max_connection_age_grace_ms", LAST_CALLS_S * 1000),
                ("grpc.keepalive_time_ms", PING_INTERVAL_MS),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_INTERVAL_MS),
            ],
        )
        self._server.add_generic_rpc_handlers((service.rpc_handler(),))
        small = SmallCalls()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, small)
        names = [SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME]
        if admin is not None:
            small.add_registered_method_handlers(ADMIN_SERVICE_NAME, admin)
            names.append(ADMIN_SERVICE_NAME)
        described = reflection.aio.ReflectionServicer(names)  # type: ignore[attr-defined]
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(described, small)
        self._server.add_generic_rpc_handlers((small,))

    async def start(self, address: str) -> int:
        """Listen on ``HOST:PORT`` and serve; return the port.

        Raises:
            ConsensusPRError: it cannot listen there.
        """
        tls = self._security.tls
        try:
            if tls is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, _server_credentials(tls))
        except RuntimeError as error:
            raise ConsensusPRError(f"cannot listen on {address}: {error}") from None
        await self._server.start()
        serving = health_pb2.HealthCheckResponse.SERVING
        await self._health.set("", serving)
        await self._health.set(SERVICE_NAME, serving)
        return port

    async def drain(self, how: Draining) -> int:
        """Go down: say so, refuse new requests, finish those that are in, and stop.

        Returns:
            How many requests were not finished in time and were dropped.
        """
        await self._health.enter_graceful_shutdown()
        if how.delay_s:
            await asyncio.sleep(how.delay_s)
        self._service.refuse_new_requests()
        start = time.monotonic()
        # What gRPC has received and not handed over yet would be CANCELLED below.
        await self._service.wait_until_quiet()
        # Connections are told to end, so that clients look for another server at once, and nobody
        # connects any more.
        closing = asyncio.create_task(self._server.stop(how.grace_s + CLOSE_S))
        dropped = await self._service.wait_until_idle(how.grace_s)
        self._service.close()
        await self._server.stop(CLOSE_S)
        await closing
        if dropped:
            _log.warning(
                "%d requests were not finished within grace_s=%g and were dropped",
                dropped, how.grace_s,
            )  # fmt: skip
        else:
            _log.info("drained in %.2f s", time.monotonic() - start)
        return dropped


@dataclass(frozen=True, slots=True)
class BuiltService:
    """A service, whose admission and threads all faces share, and what they need besides."""

    service: ScoringService
    verifier: TimedVerifier
    scorer: MeteredScorer
    metrics: Metrics
    security: Security
    tracing: Tracing | None
    score_log: ScoreLog | None

    def close(self) -> None:
        """Drop what is queued, end the answer processes, and close the score log."""
        self.service.close()
        if self.tracing is not None:
            self.tracing.close()
        self.verifier.close()
        if self.score_log is not None:
            self.score_log.close()


def build_service(
    config: ServerConfig, datasets: Mapping[str, DatasetIndex], metrics: Metrics
) -> BuiltService:
    """Put together what scores requests; the settings' addresses and datasets are not looked at."""
    security = Security.of(config)
    # All cores, not this worker's share: one client is one connection, and may keep one
    # worker busy while the others idle.
    slots = Slots(available_cores())
    verifier = TimedVerifier(
        workers=config.answer_workers,
        budget_s=config.answer_budget_s,
        memory_limit_bytes=int(config.answer_memory_bytes),
        # While an answer is waited for, another request may compute.
        while_waiting=slots.lent,
    )
    limits = Limits(
        max_response_bytes=int(config.max_response_bytes),
        max_inline_nodes=config.max_inline_nodes,
        max_expressions_per_node=config.max_expressions_per_node,
        max_expression_bytes=int(config.max_expression_bytes),
        max_inline_bytes=int(config.max_inline_bytes),
    )
    scorer = Scorer(datasets, verifier=verifier, threads=config.match_threads, limits=limits)
    info = describe(
        scorer, max_message_bytes=int(config.max_message_bytes), max_rollouts=config.max_rollouts
    )
    score_log = None
    if config.score_log is not None:
        from consensuspr.score_log import ScoreLog  # Arrow is for who logs

        score_log = ScoreLog(
            config.score_log,
            "server",
            text_bytes=int(config.score_log_bytes),
            on_loss=metrics.score_log_lost,
        )
    metered = MeteredScorer(scorer, verifier, metrics, score_log)
    tracing = None
    if config.trace_endpoint is not None:
        tracing = Tracing(config.trace_endpoint, config.trace_share)
    admission = Admission(
        int(config.queue_limit_bytes), config.queue_burst_s, config.max_concurrent_requests
    )
    metrics.serving(datasets)
    service = ScoringService(
        Handlers(metered, info),
        admission,
        WorkingThreads(config.max_concurrent_requests, slots, admission),
        metrics,
        int(config.max_message_bytes),
        config.max_fields,
        tracing,
    )
    return BuiltService(service, verifier, metered, metrics, security, tracing, score_log)
