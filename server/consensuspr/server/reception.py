"""How a worker receives messages: few at a time, within a time limit.

gRPC would take in whole messages of every open call before Python sees them.  Here each handler
asks for its message only when it has a turn, so that received and not yet admitted messages take at
most ``2 * RECEIVED_AT_ONCE * max_message_bytes``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

# Messages that are received at a time, and calls that wait for their turn.
RECEIVED_AT_ONCE = 2
MAX_WAITING = 256
# For a message to arrive; 17 MiB take 1.4 s at 100 Mbit/s.  Shorter while other calls wait.
RECEIVE_S = 10.0
SHORT_RECEIVE_S = 2.0
# Connections of which a message has arrived in time are remembered, the latest ones.
MAX_KNOWN = 4096
# Of health, reflection and administration: largest message (a path has 4,096 bytes), time for it to
# arrive while others wait, and open streams, such as calls that watch the health.
SMALL_BYTES = 8192
SMALL_RECEIVE_S = 1.0
MAX_SMALL_STREAMS = 512


class TooBusy(Exception):
    """A message is not received; the text is one sentence."""


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

    async def receive(self, context: grpc.aio.ServicerContext[Any, Any]) -> bytes | None:
        """Return the next message of a call, None if the caller sends none.

        Raises:
            TooBusy: too many calls wait, or the message does not arrive in time.
        """
        sender = context.peer()
        known = sender in self._known
        if self._waiting[known] >= MAX_WAITING:
            raise TooBusy(f"{MAX_WAITING} requests wait to be received")
        self._waiting[known] += 1
        its_turn = False
        try:
            async with asyncio.timeout(self._receive_s), self._turns[known]:
                its_turn = True
                if known and sender not in self._known:
                    raise TooBusy("another request of this connection did not arrive in time")
                crowded = self._waiting[known] > RECEIVED_AT_ONCE
                limit_s = self._short_receive_s if crowded else self._receive_s
                async with asyncio.timeout(limit_s):
                    message = await context.read()
        except TimeoutError:
            if its_turn:
                self._known.pop(sender, None)
            raise TooBusy(f"the request did not arrive within {self._receive_s:g} s") from None
        finally:
            self._waiting[known] -= 1
        if not isinstance(message, bytes):  # an empty call earns no turns
            return None
        self._known.pop(sender, None)
        self._known[sender] = None
        if len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]
        return message


class SmallCalls(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Services whose messages are small: health, reflection, administration.

    Generated code adds its methods here as it would to a server.
    """

    def __init__(self) -> None:
        self._reception = Reception(RECEIVE_S, SMALL_RECEIVE_S)
        self._streams = 0
        self._handlers: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Do nothing: generated code also adds its methods by name."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Add the methods of a service, by name."""
        for name, handler in handlers.items():
            self._handlers[f"/{service}/{name}"] = self._bounded(handler)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of a call, None for another service's method."""
        return self._handlers.get(handler_call_details.method)

    def _bounded(self, handler: Any) -> Any:
        async def answer(_: object, context: Any) -> Any:
            return await handler.unary_unary(await self._only(handler, context), context)

        async def follow(_: object, context: Any) -> None:
            async with self._stream(context):
                await handler.unary_stream(await self._only(handler, context), context)

        async def converse(_: object, context: Any) -> AsyncIterator[Any]:
            async with self._stream(context):
                async for reply in handler.stream_stream(self._each(handler, context), context):
                    yield reply

        serializer = handler.response_serializer
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(converse, response_serializer=serializer)
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(follow, response_serializer=serializer)
        return grpc.stream_unary_rpc_method_handler(answer, response_serializer=serializer)

    @contextlib.asynccontextmanager
    async def _stream(self, context: Any) -> AsyncIterator[None]:
        if self._streams >= MAX_SMALL_STREAMS:
            sentence = f"{MAX_SMALL_STREAMS} streams are open; try again when some have ended"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, sentence)
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    async def _only(self, handler: Any, context: Any) -> Any:
        request = await self._next(handler, context)
        if request is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call brought no request")
        return request

    async def _each(self, handler: Any, context: Any) -> AsyncIterator[Any]:
        while (request := await self._next(handler, context)) is not None:
            yield request

    async def _next(self, handler: Any, context: Any) -> Any:
        try:
            raw = await self._reception.receive(context)
        except TooBusy as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        if raw is None:
            return None
        size = len(raw)
        code = grpc.StatusCode.RESOURCE_EXHAUSTED
        sentence = f"the request has {size} bytes; the limit is {SMALL_BYTES}"
        if size <= SMALL_BYTES:
            try:
                deserialize = handler.request_deserializer
                return raw if deserialize is None else deserialize(raw)
            except DecodeError:
                code = grpc.StatusCode.INVALID_ARGUMENT
                sentence = f"the {size} bytes are not a request of this method"
        # gRPC's exception refers to the call and to this frame, so the message would stay.
        del raw
        return await context.abort(code, sentence)
