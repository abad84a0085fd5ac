"""The service of one worker: the work of each RPC, and the gRPC server.

:class:`Handlers` do the work in a scoring thread, from the bytes of a request to the bytes of its
reply.  A request that is wrong as a whole ends in :class:`Abort`; a fault of a single rollout is
a status in the reply.  :class:`ScoringService` receives, admits and replies on one event loop; HTTP
and Ray Serve share it.  When a caller leaves or its deadline passes, queued work is dropped and
running work stops at its next piece.

No text of an unexpected exception reaches a client: such an RPC is INTERNAL with an id, and the log
has the traceback under that id.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
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
    COPIES,
    COPIES_EXPLAINED,
    REQUEST_OVERHEAD_BYTES,
    TRIM_BYTES,
    TRIM_PAUSE_S,
    Admission,
    Job,
    Refusal,
    ScoringThreads,
    available_cores,
    charge,
    field_table,
    trim_memory,
)
from consensuspr.server.config import ServerConfig
from consensuspr.server.logs import LOGGER_NAME
from consensuspr.server.metrics import MeteredScorer, Metrics, TimedVerifier
from consensuspr.server.reception import Reception, SmallCalls, TooBusy
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
# Python's own 5 ms would make the event loop wait several times in a request.
SWITCH_INTERVAL_S = 0.0005
# Open requests of one connection; more wait on the client's side.
MAX_CONCURRENT_STREAMS = 128
# gRPC's default, a ping in five minutes, would cut off a client that is silent for a policy update.
# Half of our clients' interval, because pings may arrive closer together.
MIN_PING_INTERVAL_MS = 5000
# Clients do not compress, and a small compressed message can become a gigabyte.
IDENTITY_ONLY = 1 << 0
# Calls that gRPC holds before Python sees them, of some 84 KB each; more are dropped.
PENDING_CALLS = 1024
# Of one call, tokens and names of runs included; it stays in memory as long as the call.
MAX_HEADER_BYTES = 8192
# Ends connections of clients that are gone, or read nothing, after twenty seconds more.
PING_INTERVAL_MS = 60_000
# Then a connection ends after its requests, and the client may find a worker or a server that is
# new.  Requests may go on for LAST_CALLS_S.
MAX_CONNECTION_AGE_S = 300
LAST_CALLS_S = 120
# For the first words of HTTP/2.
HANDSHAKE_S = 20
# After the last reply, for calls that watch and for connections to end.
CLOSE_S = 1.0

# Fields of one request, those of its rollouts, nodes and expressions included.
MAX_FIELDS = 262_144
# Of a sentence in a status, which gRPC sends in a header of a few kilobytes.
MAX_SENTENCE_CHARS = 600
# The hint of a request that is not received, because too many others arrive.
ARRIVAL_RETRY_S = 0.5

_UNTRACED = contextlib.nullcontext()

if TYPE_CHECKING:
    from consensuspr.score_log import ScoreLog

M = TypeVar("M", bound=Message)
R = TypeVar("R")

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
        if len(message) > MAX_SENTENCE_CHARS:  # it quotes text of the client
            message = f"{message[:MAX_SENTENCE_CHARS]}... ({len(message)} characters)"
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s
        self.digest = digest
        super().__init__(self.message)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata sent with the sentence."""
        metadata = []
        if self.retry_after_s is not None:
            metadata.append((RETRY_AFTER_KEY, str(max(1, round(self.retry_after_s * 1000)))))
        if self.digest is not None:
            metadata.append((DATASET_DIGEST_KEY, self.digest))
        return tuple(metadata)


class RunningCall:
    """The part of an RPC that work depends on; set on the event loop, read by a thread.

    Args:
        deadline: ``time.monotonic()`` at which the caller stops waiting; None: never.
        trace: gets the stages; None: the call is not traced.
    """

    def __init__(self, deadline: float | None = None, trace: Trace | None = None) -> None:
        self.deadline = deadline
        self.trace = trace
        self._abandoned = False

    def abandon(self) -> None:
        """Note that nobody waits for the result any more."""
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


# A request: bytes of gRPC, or the buffer of another endpoint.
B = TypeVar("B", bytes, bytes | bytearray)
Work = Callable[[B, RunningCall], R]
Context = grpc.aio.ServicerContext[bytes, bytes]


class Handlers:
    """The RPCs of one worker, for many threads; ``info`` has the limits on a request.

    Each raises Abort if the request is wrong as a whole, or if nobody waits for it any more.
    """

    def __init__(self, scorer: MeteredScorer, info: ServerInfo) -> None:
        self._scorer = scorer
        self._info = info

    def score(self, raw: bytes, call: RunningCall) -> bytes:
        """Answer ``Score``."""
        call.check()
        request = parse_message(pb.ScoreRequest, raw)
        check_version(request.protocol_version)
        options = decode_options(request)
        rollouts = decode_rollouts(request, with_samples=bool(self._scorer.logs))
        del request  # it holds a copy of every response
        chosen = self._scorer.scorer.dataset(options)
        if len(rollouts) > self._info.max_rollouts:
            raise Abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"a request holds at most {self._info.max_rollouts} rollouts, got {len(rollouts)}",
            )
        if not options.probe:
            self._scorer.metrics.request_rollouts(len(rollouts))
        if call.trace is not None:
            call.trace.describe(rollouts=len(rollouts), dataset=chosen[0], run=options.run or "")
        columns: ScoreColumns | None = None
        pieces = iter((rollouts,))  # nearly always: a client's request is a piece
        if len(raw) > PIECE_BYTES or len(rollouts) > PIECE_ROLLOUTS:
            pieces = cut(rollouts, lambda r: len(r.response), PIECE_BYTES, PIECE_ROLLOUTS)
        for piece in pieces:
            call.check()
            part, identity = self._scorer.score(piece, options, call.deadline, chosen)
            if columns is None:
                columns = part
            else:
                columns.extend(part)
        # A reply that comes too late would be thrown away; encoding it is work too.
        call.check()
        assert columns is not None, "no rollouts are one empty piece"
        return encode_score_response(columns, identity)

    def explain(self, raw: bytes, call: RunningCall) -> bytes:
        """Answer ``Explain``."""
        call.check()
        request = parse_message(pb.ExplainRequest, raw)
        check_version(request.protocol_version)
        options = decode_options(request)
        if not request.HasField("rollout"):
            raise Abort(grpc.StatusCode.INVALID_ARGUMENT, "rollout is required, got none")
        rollout = decode_rollout(request.rollout)
        explanation = self._scorer.scorer.explain(rollout, options, call.deadline)
        call.check()
        return encode_explain_response(explanation).SerializeToString()

    def server_info(self, raw: bytes, call: RunningCall) -> bytes:
        """Answer ``ServerInfo`` for clients of any protocol version."""
        call.check()
        parse_message(pb.ServerInfoRequest, raw)
        info = replace(self._info, datasets=describe_datasets(self._scorer.scorer.datasets))
        return encode_server_info(info).SerializeToString()


def check_version(version: int) -> None:
    """End the RPC if a request was written for another version; unset counts as another."""
    if version != PROTOCOL_VERSION:
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
        admission: accepts requests; an attribute too.
        threads: in which the work is done.
        metrics: where requests are counted.
        tracing: traces them; None: nothing does.
    """

    def __init__(
        self,
        handlers: Handlers,
        admission: Admission,
        threads: ScoringThreads,
        metrics: Metrics,
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
        self._reception = Reception()
        self._freed_bytes, self._trimmed_at = 0, 0.0
        self._server_info = handlers.server_info
        self.admission = admission
        self.metrics = metrics
        metrics.queue = lambda: (admission.unfinished_bytes, admission.unfinished_requests)
        self._threads = threads
        self._draining = False

    def rpc_handler(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        """Return the handler for a gRPC server; messages pass as bytes."""
        methods = {
            name: grpc.stream_unary_rpc_method_handler(self._receiving(name))
            for name in [*self._work, "ServerInfo"]
        }
        return grpc.method_handlers_generic_handler(SERVICE_NAME, methods)

    @property
    def draining(self) -> bool:
        """Whether new requests are refused."""
        return self._draining

    def refuse_new_requests(self) -> None:
        """From now on, answer new requests with UNAVAILABLE."""
        self._draining = True

    async def wait_until_idle(self, timeout_s: float) -> int:
        """Wait until all admitted requests have their replies; return how many do not."""
        deadline = time.monotonic() + timeout_s
        while (unfinished := self.admission.unfinished_requests) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        return unfinished

    def close(self) -> None:
        """Drop queued requests; running ones stop at their next piece."""
        self._threads.close()

    def behaviour(self, method: str) -> Callable[[bytes, Context], Awaitable[bytes]]:
        """Return the behaviour of a method, from its message on."""

        async def behaviour(raw: bytes, context: Context) -> bytes:
            work = self._serve(method, raw, context)
            del raw  # as in counted()
            return await counted(self.metrics, method, work, context)

        return behaviour

    def _receiving(
        self, method: str
    ) -> Callable[[AsyncIterator[bytes], Context], Awaitable[bytes]]:
        """Return the behaviour of a method that receives only messages it can admit."""

        async def serve(context: Context) -> bytes:
            self._check_open()
            if method in self._work:
                refusal = self.admission.refusal(REQUEST_OVERHEAD_BYTES, _run(context))
                if refusal is not None:
                    raise _refused(refusal)
            try:
                raw = await self._reception.receive(context)
            except TooBusy as error:
                raise Abort(
                    grpc.StatusCode.RESOURCE_EXHAUSTED, str(error), ARRIVAL_RETRY_S
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
            # At once: a client that asks for the limits must not wait behind scoring.
            return self._server_info(raw, RunningCall())
        copies = COPIES_EXPLAINED if method == "Explain" else COPIES
        try:
            num_bytes = charge(raw, self._tables[method], MAX_FIELDS, copies)
        except InvalidRequest as error:
            raise Abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
        trace = self.begin_trace(method, context.invocation_metadata() or ())
        remaining_s = context.time_remaining()
        deadline = None if remaining_s is None else time.monotonic() + remaining_s
        with trace or _UNTRACED:
            return await self.submit(
                self._work[method], raw, num_bytes, deadline, _run(context), trace
            )

    def begin_trace(self, method: str, headers: Iterable[tuple[str, Any]]) -> Trace | None:
        """Begin the trace of a request, which is to be entered; None where it is not traced."""
        return None if self._tracing is None else self._tracing.begin(method, headers)

    async def submit(
        self,
        work: Work[B, R],
        raw: B,
        num_bytes: int,
        deadline: float | None,
        run: str,
        trace: Trace | None = None,
    ) -> R:
        """Admit a request and have a thread work on it; every front calls this.

        Args:
            work: a function of the request's bytes.
            raw: the request.
            num_bytes: memory that the request counts with.
            deadline: ``time.monotonic()`` at which the caller stops waiting; None: never.
            run: name of the training run; empty: none.
            trace: gets the stages.

        Returns:
            The result of ``work``.

        Raises:
            Abort: it was refused, or ended otherwise than with a reply.
        """
        self._check_open()
        call = RunningCall(deadline, trace)
        admitted = time.monotonic()
        # Emptied when the work is over: exceptions and callbacks refer to this frame.
        request = [raw]
        del raw

        def work_on() -> R:
            self.metrics.queued(time.monotonic() - admitted)
            if trace is not None:
                trace.stage_ended("queue")
            result = work(request.pop(), call)
            if trace is not None:
                trace.stage_ended("score")
            return result

        job = Job(work_on, num_bytes, run)
        refusal = self.admission.admit(job)
        if refusal is not None:
            raise _refused(refusal)
        job.add_done_callback(lambda _: request.clear())
        task = asyncio.current_task()
        assert task is not None, "a coroutine is run by one"
        # It ends when gRPC has sent the reply.
        task.add_done_callback(partial(self._call_ended, job))
        try:
            self._threads.run_next()
        except RuntimeError:  # the threads were closed while the request came in
            job.cancel()
            raise Abort(grpc.StatusCode.UNAVAILABLE, SHUTTING_DOWN) from None
        try:
            result: R = await asyncio.wrap_future(job)
            return result
        except asyncio.CancelledError:
            call.abandon()
            if not task.cancelling():  # close() dropped the work, the caller did not leave
                raise Abort(grpc.StatusCode.UNAVAILABLE, SHUTTING_DOWN) from None
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
            # Its failure refers to this frame, and by the frames of the work to the request.
            del job, task

    def _call_ended(self, job: Job, _: asyncio.Task[Any]) -> None:
        self.admission.call_ended(job)
        self._freed_bytes += job.num_bytes
        now = time.monotonic()
        if self._freed_bytes >= TRIM_BYTES and now >= self._trimmed_at + TRIM_PAUSE_S:
            self._freed_bytes, self._trimmed_at = 0, now
            asyncio.get_running_loop().run_in_executor(None, trim_memory)

    def _check_open(self) -> None:
        if self._draining:
            raise Abort(grpc.StatusCode.UNAVAILABLE, SHUTTING_DOWN)


class _Gatekeeper(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Rejects calls without a sufficient token before their body is read.

    Health is for everybody, because few probes can show a token.  Unknown methods need the widest
    scope.
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
        metadata = handler_call_details.invocation_metadata
        refused = refusal(self._gate, service, method, metadata)
        if refused is None:
            return await continuation(handler_call_details)
        code = code_of(refused)
        # A name from the caller would be a series of its own.
        counted_as = method if (service, method) in _SCOPES else "other"

        async def refuse(messages: AsyncIterator[bytes], context: Context) -> bytes:
            self._metrics.request(counted_as, code.name, 0.0)
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


def refusal(gate: Gate, service: str, method: str, metadata: Any) -> Refused | None:
    """Return why a call with this metadata may not be made; None: it may."""
    scope = _SCOPES.get((service, method)) or _SCOPES.get((service, ""), Scope.ADMIN)
    authorization = next((text for name, text in metadata or () if name == "authorization"), None)
    return gate.refusal(scope, authorization)


def code_of(refused: Refused) -> grpc.StatusCode:
    """Return the code of a call that the gate refused."""
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
    """Return the result of ``work``, or end the RPC as it raises; count either."""
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
    # Outside of the handlers: gRPC's exception refers to the call, and would keep the frames of the
    # one before it, the request above all, until the garbage collector runs.
    await context.abort(code, *end)
    raise AssertionError("abort does not return")


def _refused(refusal: Refusal) -> Abort:
    return Abort(grpc.StatusCode.RESOURCE_EXHAUSTED, refusal.reason, refusal.retry_after_s)


def _run(context: Context) -> str:
    """Return the name of the training run, which the head of a request may have."""
    for key, value in context.invocation_metadata() or ():
        if key == RUN_KEY and isinstance(value, bytes):
            return value[:MAX_LABEL_BYTES].decode("utf-8", "replace")
    return ""


def internal(method: str) -> Abort:
    """Log the exception being handled under an id; return the client's error."""
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
        delay_s: serve on for this long while health is NOT_SERVING.
        grace_s: then, wait for admitted requests for at most this long.
    """

    delay_s: float = 0.0
    grace_s: float = 30.0


class GrpcServer:
    """A server of the scoring service on the running event loop.

    Args:
        service: that it serves.
        max_message_bytes: of one request.
        max_connections: open at a time.
        security: its tokens and certificates.
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
                ("grpc.compression_enabled_algorithms_bitset", IDENTITY_ONLY),
                # A message that waits to be received has 64 KiB at the server, and not as much as
                # the connection could carry.
                ("grpc.http2.bdp_probe", 0),
                ("grpc.max_concurrent_streams", MAX_CONCURRENT_STREAMS),
                # It resets requests at random when many end at a time, as when they are rejected.
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

    async def drain(self, draining: Draining) -> int:
        """Go down: announce it, refuse new requests, finish admitted ones, and stop.

        Returns:
            How many requests were not finished in time and were dropped.
        """
        await self._health.enter_graceful_shutdown()
        if draining.delay_s:
            await asyncio.sleep(draining.delay_s)
        self._service.refuse_new_requests()
        start = time.monotonic()
        # Clients look for another server at once, and nobody connects any more.
        closing = asyncio.create_task(self._server.stop(draining.grace_s + CLOSE_S))
        dropped = await self._service.wait_until_idle(draining.grace_s)
        self._service.close()
        await self._server.stop(CLOSE_S)
        await closing
        if dropped:
            _log.warning(
                "%d requests were not finished within grace_s=%g and were dropped",
                dropped, draining.grace_s,
            )  # fmt: skip
        else:
            _log.info("drained in %.2f s", time.monotonic() - start)
        return dropped


@dataclass(frozen=True, slots=True)
class BuiltService:
    """A service, whose admission and threads all endpoints share, and its resources."""

    service: ScoringService
    verifier: TimedVerifier
    scorer: MeteredScorer
    metrics: Metrics
    security: Security
    tracing: Tracing | None
    score_log: ScoreLog | None

    def close(self) -> None:
        """Drop queued requests, end the answer processes, and close the score log."""
        self.service.close()
        if self.tracing is not None:
            self.tracing.close()
        self.verifier.close()
        if self.score_log is not None:
            self.score_log.close()


def build_service(
    config: ServerConfig, datasets: Mapping[str, DatasetIndex], metrics: Metrics
) -> BuiltService:
    """Make a service of settings, except for their addresses and datasets."""
    security = Security.of(config)
    # All cores, not this worker's share: one busy client is one connection, to one worker.
    admission = Admission(int(config.queue_limit_bytes))
    threads = ScoringThreads(config.max_concurrent_requests, available_cores(), admission)
    verifier = TimedVerifier(
        workers=config.answer_workers,
        budget_s=config.answer_budget_s,
        # While an answer is waited for, another request may compute.
        while_waiting=threads.core_lent,
    )
    limits = Limits(max_response_bytes=int(config.max_response_bytes))
    scorer = Scorer(datasets, verifier=verifier, threads=config.match_threads, limits=limits)
    info = describe(scorer, int(config.max_message_bytes), config.max_rollouts)
    score_log = None
    if config.score_log is not None:
        from consensuspr.score_log import ScoreLog  # loads Arrow

        score_log = ScoreLog(
            config.score_log,
            "server",
            text_bytes=int(config.score_log_bytes),
            on_loss=metrics.score_log_lost,
        )
    metered = MeteredScorer(scorer, verifier, metrics, score_log)
    tracing = None if config.trace_endpoint is None else Tracing(config.trace_endpoint)
    metrics.serving(datasets)
    service = ScoringService(Handlers(metered, info), admission, threads, metrics, tracing)
    return BuiltService(service, verifier, metered, metrics, security, tracing, score_log)
