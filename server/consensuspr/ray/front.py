"""The service as Ray Serve's gRPC proxies see it, named in ``grpc_servicer_functions``.

Serve replaces the behaviour of every method that is registered with its proxies by its own,
which carries the request to a replica.  That alone would change what clients see, so this
registers methods that wrap Serve's behaviour:

- Messages pass as bytes: a proxy that unpacked and packed them would be a bottleneck.
- The caller's deadline travels on to the replica, which stops when nobody waits any more.
- A replica that died, or an application that is not there yet, is UNAVAILABLE, which clients
  retry (scoring is a pure function); Serve says INTERNAL or NOT_FOUND, which they do not.
- A full queue of Serve's is RESOURCE_EXHAUSTED with the hint ``retry-after-ms`` that tells
  load from a message that is too large.
- In a rolling update a proxy goes from the old version to the new one once and never back:
  once a newer replica has answered, older ones are not listened to.  Else rewards of one
  training step would come from two datasets at random.
- Clients name no application; where the cluster has several, ours is the one that is called
  :data:`APPLICATION`.

Health (``grpc.health.v1``, ``Check`` alone) is answered by a replica: SERVING means that a
request would find one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health

from consensuspr.ray.envelope import (
    AT_LEAST_KEY,
    GENERATION_KEY,
    TIMEOUT_KEY,
    Metadata,
    number_in,
)
from consensuspr.server.service import RETRY_AFTER_KEY
from consensuspr.v1 import SERVICE_NAME, scoring_pb2

APPLICATION = "consensuspr"

# Imported so that Serve's reflection finds the messages of what is registered here.
assert scoring_pb2.DESCRIPTOR.services_by_name["ScoringService"].full_name == SERVICE_NAME

# A queue of Serve's has no pace that could be measured here; a request of one mebibyte takes
# some 10 ms, a full queue of the shipped configuration about a second on two cores.
BACKPRESSURE_RETRY_MS = 500
# Between two attempts to find a replica of the newer version among those of the older one.
OUTDATED_PAUSE_S = 0.02
MAX_DETAILS_CHARS = 300

Behaviour = Callable[[bytes, Any], Awaitable[bytes]]

_SERVES_OWN_ENDS = frozenset({grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED})


def add_scoring_to_server(servicer: object, server: Any) -> None:
    """Register the scoring and the health service with a proxy's server.

    Args:
        servicer: unused; Serve passes a stand-in, as for generated functions.
        server: Serve's gRPC server.
    """
    newest = _Newest()
    for service, methods in (
        (SERVICE_NAME, ("Score", "Explain", "ServerInfo")),
        (health.SERVICE_NAME, ("Check",)),
    ):
        server.add_generic_rpc_handlers((_Front(service, methods, newest),))


class _Newest:
    """The newest generation that this proxy has met."""

    def __init__(self) -> None:
        self.generation = 0


class _Front(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """The methods of one service.

    Serve finds them in ``_method_handlers``, under which gRPC's own handlers keep theirs, and
    puts its behaviour in place of each; what gRPC gets to see has ours around it.
    """

    def __init__(self, service: str, methods: tuple[str, ...], newest: _Newest) -> None:
        self._newest = newest
        self._method_handlers = {
            f"/{service}/{method}": grpc.unary_unary_rpc_method_handler(_replaced_by_serve)
            for method in methods
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        handler: Any = self._method_handlers.get(handler_call_details.method)
        if handler is None:
            return None
        return handler._replace(unary_unary=self._around(handler.unary_unary))

    def _around(self, forward: Behaviour) -> Behaviour:
        async def behaviour(request: bytes, context: Any) -> bytes:
            while True:
                attempt = _Attempt(context, self._newest.generation)
                reply = await forward(request, attempt)
                generation = number_in(attempt.trailing_metadata(), GENERATION_KEY)
                if generation is None:
                    attempt.translate()
                elif generation < self._newest.generation:
                    await asyncio.sleep(OUTDATED_PAUSE_S)
                    continue
                else:
                    self._newest.generation = generation
                return await attempt.finish(reply)

        return behaviour


def _replaced_by_serve(request: bytes, context: object) -> bytes:
    raise AssertionError("Serve puts its own behaviour in the place of this one")


class _Attempt:
    """The context of a call as Serve sees it in one attempt.

    Outcomes are kept here and not set on the real context, where they could not be taken back.
    What is not here is the real context's.
    """

    def __init__(self, context: Any, at_least: int) -> None:
        self._context = context
        self._code = grpc.StatusCode.OK
        self._details = ""
        self._trailing: Metadata = ()
        added = [(AT_LEAST_KEY, str(at_least))]
        remaining_s = context.time_remaining()
        if remaining_s is not None:
            added.append((TIMEOUT_KEY, str(max(0, int(remaining_s * 1000)))))
        given = tuple(context.invocation_metadata() or ())
        if not any(key == "application" for key, _ in given):
            added.append(("application", APPLICATION))
        self._metadata = (*given, *added)

    def invocation_metadata(self) -> Any:
        return self._metadata

    def code(self) -> Any:
        # Serve asks whether one was set, in the words of gRPC, where OK is 0.
        return 0 if self._code is grpc.StatusCode.OK else self._code

    def set_code(self, code: grpc.StatusCode) -> None:
        self._code = code

    def details(self) -> str:
        return self._details

    def set_details(self, details: str) -> None:
        self._details = details

    def trailing_metadata(self) -> Metadata:
        return self._trailing

    def set_trailing_metadata(self, metadata: Any) -> None:
        self._trailing = tuple(metadata)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def translate(self) -> None:
        """Say what Serve said of a call that no replica answered in the words of our protocol."""
        # It may be a traceback, larger than what gRPC lets through.
        self._details = " ".join(self._details.split())[:MAX_DETAILS_CHARS]
        if self._code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            self._trailing = ((RETRY_AFTER_KEY, str(BACKPRESSURE_RETRY_MS)),)
        elif self._code not in _SERVES_OWN_ENDS:
            self._code = grpc.StatusCode.UNAVAILABLE
            self._details = f"no replica answered: {self._details}"

    async def finish(self, reply: bytes) -> bytes:
        """End the call as this attempt ended."""
        if self._code is grpc.StatusCode.OK:
            self._context.set_trailing_metadata(self._trailing)
            return reply
        await self._context.abort(self._code, self._details, self._trailing)
        raise AssertionError("abort does not return")
