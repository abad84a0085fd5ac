"""What clients see of Serve's own failures; Serve is played by a server that does as it does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from consensuspr.client import AsyncRewardClient, RetryPolicy
from consensuspr.client.retries import RpcFailure
from consensuspr.errors import Unavailable
from consensuspr.ray.serve import ANSWERED_KEY, TIMEOUT_KEY, add_scoring_to_server

METHOD = "/consensuspr.v1.ScoringService/Score"
Code = grpc.StatusCode
RAW = (bytes, bytes)  # messages pass as they are
Play = Callable[[bytes, Any], Awaitable[bytes]]


class PlayedServe:
    """A gRPC server that puts a behaviour of its own in the place of every method's."""

    def __init__(self, play: Play) -> None:
        self.server = grpc.aio.server()
        self._play = play

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        handler = handlers[0]
        handler._method_handlers = {
            name: method._replace(unary_unary=self._play, response_serializer=None)
            for name, method in handler._method_handlers.items()
        }
        self.server.add_generic_rpc_handlers(handlers)


@asynccontextmanager
async def playing(play: Play) -> AsyncIterator[str]:
    """Run a front over what is played; the value is its address."""
    serve = PlayedServe(play)
    add_scoring_to_server(object(), serve)
    port = serve.server.add_insecure_port("127.0.0.1:0")
    await serve.server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await serve.server.stop(None)


async def call(play: Play, **options: Any) -> tuple[bytes | None, RpcFailure | None]:
    """Send one request to a front over what is played; return its reply or its failure."""
    async with playing(play) as address, grpc.aio.insecure_channel(address) as channel:
        try:
            return await channel.unary_unary(METHOD, *RAW)(b"request", **options), None
        except grpc.aio.AioRpcError as error:
            return None, RpcFailure.of(error)


def played(
    reply: bytes = b"",
    code: grpc.StatusCode | None = None,
    details: str = "",
    answered: bool = False,
) -> Play:
    """Return what always ends like this; only a replica marks its answers."""

    async def play(request: bytes, context: Any) -> bytes:
        if code is not None:
            context.set_code(code)
            context.set_details(details)
        if answered:
            context.set_trailing_metadata([(ANSWERED_KEY, "1")])
        return reply

    return play


@pytest.mark.parametrize(
    ("code", "seen", "retried"),
    [
        (Code.INTERNAL, Code.UNAVAILABLE, True),  # a replica died
        (Code.NOT_FOUND, Code.UNAVAILABLE, True),  # no application yet
        (Code.UNAVAILABLE, Code.UNAVAILABLE, True),
        (Code.RESOURCE_EXHAUSTED, Code.RESOURCE_EXHAUSTED, True),  # its queue is full
        (Code.DEADLINE_EXCEEDED, Code.DEADLINE_EXCEEDED, False),
    ],
)
async def test_serves_own_failures_are_those_that_clients_know(
    code: grpc.StatusCode, seen: grpc.StatusCode, retried: bool
) -> None:
    died = "The actor died.\n  File x\n" + "traceback " * 1000
    _, failure = await call(played(code=code, details=died))
    assert failure is not None
    assert failure.code is seen
    assert failure.is_transient is retried
    if seen is Code.UNAVAILABLE:
        assert failure.details.startswith("no replica answered: The actor died. File x")
        assert len(failure.details) < 400


async def test_what_a_replica_says_passes_unchanged() -> None:
    sentence = "no dataset is called 'mars'"
    _, failure = await call(played(code=Code.NOT_FOUND, details=sentence, answered=True))
    assert failure == RpcFailure(Code.NOT_FOUND, sentence)
    assert await call(played(b"answered", answered=True)) == (b"answered", None)


async def test_deadline_and_application_travel_to_the_replica() -> None:
    seen: dict[str, str] = {}

    async def look(request: bytes, context: Any) -> bytes:
        assert request == b"request"
        seen.update(context.invocation_metadata())
        context.set_trailing_metadata([(ANSWERED_KEY, "1")])
        return b""

    await call(look, timeout=20.0)
    assert seen["application"] == "consensuspr"
    assert 10_000 < int(seen[TIMEOUT_KEY]) <= 21_000
    seen.clear()
    await call(look, metadata=(("application", "mine"), (TIMEOUT_KEY, "soon")))
    assert (seen["application"], TIMEOUT_KEY in seen) == ("mine", False)


async def test_a_client_waits_for_an_application_that_is_not_there() -> None:
    not_there = played(code=Code.NOT_FOUND, details="Application 'consensuspr' not found.")
    retry = RetryPolicy(0.01, 0.05)
    async with (
        playing(not_there) as address,
        AsyncRewardClient(address, timeout_s=0.5, retry=retry) as client,
    ):
        with pytest.raises(Unavailable, match="no replica answered: Application"):
            await client.server_info()
