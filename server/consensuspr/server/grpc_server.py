"""The gRPC server of a worker: who may call, how messages arrive, and how it goes down.

gRPC would take in whole messages of every open call before Python sees them.  Here each call first
passes the gate, then asks for its message when it has a turn.  So received and not yet admitted
messages of one :class:`Reception` take at most ``2 * RECEIVED_AT_ONCE * max_message_bytes``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from consensuspr.credentials import Scope
from consensuspr.errors import ConsensusPRError
from consensuspr.server.admission import REQUEST_OVERHEAD_BYTES
from consensuspr.server.config import ServerConfig
from consensuspr.server.logs import LOGGER_NAME
from consensuspr.server.metrics import Metrics
from consensuspr.server.security import Certificates, Gate, Tls
from consensuspr.server.service import (
    Abort,
    Context,
    ScoringService,
    counted,
    denied,
    refused,
    run_of,
)
from consensuspr.v1 import ADMIN_SERVICE_NAME, SERVICE_NAME

# Messages that are received at a time, and calls that wait for their turn.
RECEIVED_AT_ONCE = 2
MAX_WAITING = 256
# For a message to arrive; 17 MiB take 1.4 s at 100 Mbit/s.  Shorter while other calls wait.
RECEIVE_S = 10.0
SHORT_RECEIVE_S = 2.0
# The hint of a request that is not received, because too many others arrive.
ARRIVAL_RETRY_S = 0.5
# Connections of which a message has arrived in time are remembered, the latest ones.
MAX_KNOWN = 4096
# Of health, reflection and administration: largest message (a path has 4,096 bytes), time for it to
# arrive while others wait, and open streams, such as calls that watch the health.
SMALL_BYTES = 8192
SMALL_RECEIVE_S = 1.0
MAX_SMALL_STREAMS = 512

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

# What a call needs, by service and method; "": any method of the service.
_SCOPES = {
    (SERVICE_NAME, "Score"): Scope.SCORE,
    (SERVICE_NAME, "Explain"): Scope.SCORE,
    (SERVICE_NAME, "ServerInfo"): Scope.READ,
    (reflection.SERVICE_NAME, ""): Scope.READ,
    (ADMIN_SERVICE_NAME, "ListDatasets"): Scope.READ,
}

_log = logging.getLogger(LOGGER_NAME)


def check_access(gate: Gate, service: str, method: str, context: Context) -> None:
    """Raise Abort if the caller may not make this call.

    Health is for everybody, because few probes can show a token.  Unknown methods need the widest
    scope.
    """
    if service == health.SERVICE_NAME:
        return
    scope = _SCOPES.get((service, method)) or _SCOPES.get((service, ""), Scope.ADMIN)
    metadata = context.invocation_metadata() or ()
    authorization = next((text for name, text in metadata if name == "authorization"), None)
    denial = gate.denial(scope, authorization, context.peer())
    if denial is not None:
        raise denied(denial)


class Reception:
    """Gives calls turns to receive their message; for one event loop.

    Connections that delivered a message before take other turns than new ones, so that clients
    that begin requests and never end them wait for each other only.

    Args:
        receive_s: for a message to arrive, turn included.
        short_receive_s: for a message to arrive in its turn while others wait.
    """

    def __init__(
        self, receive_s: float = RECEIVE_S, short_receive_s: float = SHORT_RECEIVE_S
    ) -> None:
        self._receive_s = receive_s
        self._short_receive_s = short_receive_s
        self._known: dict[str, None] = {}
        self._turns = {known: asyncio.Semaphore(RECEIVED_AT_ONCE) for known in (True, False)}
        self._waiting = {True: 0, False: 0}

    async def receive(self, context: Context) -> bytes | None:
        """Return the next message of a call, None if the caller sends none.

        Raises Abort if too many calls wait, or if it does not arrive in time.
        """
        sender = context.peer()
        known = sender in self._known
        if self._waiting[known] >= MAX_WAITING:
            raise _too_busy(f"{MAX_WAITING} requests are waiting to be received")
        self._waiting[known] += 1
        its_turn = False
        try:
            async with asyncio.timeout(self._receive_s), self._turns[known]:
                its_turn = True
                if known and sender not in self._known:
                    raise _too_busy("another request on this connection did not arrive in time")
                crowded = self._waiting[known] > RECEIVED_AT_ONCE
                limit_s = self._short_receive_s if crowded else self._receive_s
                async with asyncio.timeout(limit_s):
                    message = await context.read()
        except TimeoutError:
            if its_turn:
                self._known.pop(sender, None)
            raise _too_busy(f"the request did not arrive within {self._receive_s:g} s") from None
        finally:
            self._waiting[known] -= 1
        if not isinstance(message, bytes):  # an empty call earns no turns
            return None
        self._known.pop(sender, None)
        self._known[sender] = None
        if len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]
        return message


def _too_busy(sentence: str) -> Abort:
    return Abort(grpc.StatusCode.RESOURCE_EXHAUSTED, sentence, ARRIVAL_RETRY_S)


class Calls(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """The methods of a server, each behind the gate and a reception.

    Those of :meth:`add` take and return bytes.  Generated code adds health and reflection as it
    would to a server.
    """

    def __init__(self, gate: Gate, metrics: Metrics) -> None:
        self._gate = gate
        self._metrics = metrics
        self._requests = Reception()
        self._small = Reception(RECEIVE_S, SMALL_RECEIVE_S)
        # Turns of its own for health, for which nobody needs a token.
        self._public = Reception(RECEIVE_S, SMALL_RECEIVE_S)
        self._streams = 0
        self._handlers: dict[str, Any] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of a call; None: there is no such method."""
        path = handler_call_details.method
        handler = self._handlers.get(path)
        if handler is not None or not self._gate.wants_tokens:
            return handler
        return grpc.stream_unary_rpc_method_handler(self._unknown(path))

    def add(
        self,
        service: str,
        method: str,
        answer: Callable[[bytes, Context], Awaitable[bytes]],
        admit: Callable[[Context], None] | None = None,
    ) -> None:
        """Add a method, whose message is small unless ``admit`` is given.

        Both functions raise Abort: ``admit`` before the message is received, ``answer`` after.
        """

        async def receive_and_answer(context: Context) -> bytes:
            check_access(self._gate, service, method, context)
            if admit is None:
                raw = await self._receive_small(self._small, context)
            else:
                admit(context)
                raw = await self._requests.receive(context)
            if raw is None:
                raise Abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no request")
            return await answer(raw, context)

        async def behaviour(_: object, context: Context) -> bytes:
            return await counted(self._metrics, method, receive_and_answer(context), context)

        self._handlers[f"/{service}/{method}"] = grpc.stream_unary_rpc_method_handler(behaviour)

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Do nothing: generated code also adds its methods by name."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Add the methods of a service, by name."""
        for method, handler in handlers.items():
            self._handlers[f"/{service}/{method}"] = self._bounded(service, method, handler)

    def _unknown(self, path: str) -> Callable[[object, Context], Awaitable[bytes]]:
        service, _, method = path.strip("/").partition("/")

        async def refuse(context: Context) -> bytes:
            check_access(self._gate, service, method, context)
            raise Abort(grpc.StatusCode.UNIMPLEMENTED, "there is no such method")

        async def behaviour(_: object, context: Context) -> bytes:
            # The name is the caller's, and would be a series of its own.
            return await counted(self._metrics, "other", refuse(context), context)

        return behaviour

    def _bounded(self, service: str, method: str, handler: Any) -> Any:
        reception = self._public if service == health.SERVICE_NAME else self._small

        async def answer(context: Any) -> AsyncIterator[Any]:
            check_access(self._gate, service, method, context)
            if handler.request_streaming:
                async for reply in handler.stream_stream(requests(context), context):
                    yield reply
                return
            request = await self._receive_small(reception, context, handler.request_deserializer)
            if request is None:
                raise Abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no request")
            if handler.response_streaming:
                await handler.unary_stream(request, context)
            else:
                yield await handler.unary_unary(request, context)

        async def requests(context: Any) -> AsyncIterator[Any]:
            deserialize = handler.request_deserializer
            receive = partial(self._receive_small, reception, context, deserialize)
            while (request := await receive()) is not None:
                yield request

        async def behaviour(_: object, context: Any) -> AsyncIterator[Any]:
            try:
                with self._stream() if handler.response_streaming else contextlib.nullcontext():
                    async for reply in answer(context):
                        yield reply
                return
            except Abort as abort:
                code, sentence = abort.code, abort.message
            # Outside of the handler, as in counted().
            self._metrics.request("other", code.name, 0.0)
            await context.abort(code, sentence)

        serializer = handler.response_serializer
        return grpc.stream_stream_rpc_method_handler(behaviour, response_serializer=serializer)

    @contextlib.contextmanager
    def _stream(self) -> Iterator[None]:
        if self._streams >= MAX_SMALL_STREAMS:
            raise _too_busy(f"{MAX_SMALL_STREAMS} streams are open; try again when some have ended")
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    async def _receive_small(
        self,
        reception: Reception,
        context: Context,
        deserialize: Callable[[bytes], Any] = bytes,
    ) -> Any:
        """Return the next message of a call, None if the caller sends none."""
        raw = await reception.receive(context)
        if raw is None:
            return None
        if len(raw) > SMALL_BYTES:
            sentence = f"the request has {len(raw)} bytes; the limit is {SMALL_BYTES}"
            raise Abort(grpc.StatusCode.RESOURCE_EXHAUSTED, sentence)
        try:
            return deserialize(raw)
        except DecodeError:
            sentence = f"the request of {len(raw)} bytes is not one of this method"
            raise Abort(grpc.StatusCode.INVALID_ARGUMENT, sentence) from None


def _server_credentials(tls: Tls) -> grpc.ServerCredentials:
    """Return credentials that ask for the present certificates at each handshake."""
    shown = tls.current()

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        nonlocal shown
        certificates = tls.current()
        if certificates is shown:
            return None
        shown = certificates
        return _configuration(certificates)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(shown),
        fetch,  # type: ignore[arg-type]  # None: nothing new
        tls.wants_client_certificates,
    )


def _configuration(certificates: Certificates) -> grpc.ServerCertificateConfiguration:
    pair = (certificates.key, certificates.chain)
    return grpc.ssl_server_certificate_configuration([pair], certificates.client_ca)


class GrpcServer:
    """A server of the scoring service on the running event loop, and of the methods of an admin."""

    def __init__(
        self,
        service: ScoringService,
        config: ServerConfig,
        admin: Mapping[str, Callable[[bytes, Context], Awaitable[bytes]]] | None = None,
    ) -> None:
        self._service = service
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        self._server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 1),
                ("grpc.max_receive_message_length", int(config.max_message_bytes)),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_allowed_incoming_connections", config.max_connections),
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
        calls = Calls(service.security.gate, service.metrics)
        for method in ("Score", "Explain"):
            calls.add(SERVICE_NAME, method, partial(service.answer, method), self._check_room)
        calls.add(SERVICE_NAME, "ServerInfo", partial(service.answer, "ServerInfo"))
        for method, answer in (admin or {}).items():
            calls.add(ADMIN_SERVICE_NAME, method, answer)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, calls)
        names = [SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME]
        names += [] if admin is None else [ADMIN_SERVICE_NAME]
        described = reflection.aio.ReflectionServicer(names)  # type: ignore[attr-defined]
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(described, calls)
        self._server.add_generic_rpc_handlers((calls,))

    def _check_room(self, context: Context) -> None:
        """Raise Abort if a request would be rejected whatever its message is."""
        self._service.check_open()
        refusal = self._service.admission.refusal(REQUEST_OVERHEAD_BYTES, run_of(context))
        if refusal is not None:
            raise refused(refusal)

    async def start(self, address: str) -> int:
        """Listen on ``HOST:PORT`` and serve; return the port, or raise ConsensusPRError."""
        tls = self._service.security.tls
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

    async def drain(self, delay_s: float, grace_s: float) -> int:
        """Go down: announce it, refuse new requests, finish admitted ones, and stop.

        Args:
            delay_s: serve on for this long while health is NOT_SERVING.
            grace_s: then, wait for admitted requests for at most this long.

        Returns:
            How many requests were not finished in time and were dropped.
        """
        await self._health.enter_graceful_shutdown()
        if delay_s:
            await asyncio.sleep(delay_s)
        self._service.draining = True
        start = time.monotonic()
        # Clients look for another server at once, and nobody connects any more.
        closing = asyncio.create_task(self._server.stop(grace_s + CLOSE_S))
        dropped = await self._service.wait_until_idle(grace_s)
        self._service.drop_requests()
        await self._server.stop(CLOSE_S)
        await closing
        if dropped:
            _log.warning(
                "%d requests were not finished within grace_s=%g and were dropped",
                dropped, grace_s,
            )  # fmt: skip
        else:
            _log.info("drained in %.2f s", time.monotonic() - start)
        return dropped
