"""A gRPC server around the scoring service: options, health, reflection, draining.

What a worker process runs, and what tests run in their own process.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from consensuspr.errors import ConsensusPRError
from consensuspr.server.logs import LOGGER_NAME
from consensuspr.server.service import ScoringService
from consensuspr.v1 import SERVICE_NAME

# Requests that one connection may have open.  More wait on the client's side; without the
# bound, one client could have any number of messages received and not yet admitted.
MAX_CONCURRENT_STREAMS = 128
# A client that is silent for a policy update pings meanwhile; gRPC's default (one ping in
# five minutes) would cut it off.
MIN_PING_INTERVAL_S = 10
NO_LIMIT = 2**31 - 1
# After the last reply: for it to leave, and for connections to end in order.
CLOSE_S = 1.0

_log = logging.getLogger(LOGGER_NAME)


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
    """

    def __init__(self, service: ScoringService, max_message_bytes: int) -> None:
        self._service = service
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        self._server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 1),
                ("grpc.max_receive_message_length", max_message_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_concurrent_streams", MAX_CONCURRENT_STREAMS),
                # Else gRPC resets requests at random when many end at a time, which is what
                # refusing does; what is let in is the admission's business alone.
                ("grpc.http.overload_protection", 0),
                # Likewise: it drops requests at random when a thousand wait for Python.
                ("grpc.server.max_pending_requests", NO_LIMIT),
                ("grpc.server.max_pending_requests_hard_limit", NO_LIMIT),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", MIN_PING_INTERVAL_S * 1000),
            ]
        )
        self._server.add_generic_rpc_handlers((service.rpc_handler(),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)

    async def start(self, address: str) -> int:
        """Listen on ``HOST:PORT`` and serve; return the port.

        Raises:
            ConsensusPRError: it cannot listen there.
        """
        try:
            port = self._server.add_insecure_port(address)
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
        dropped = await self._service.wait_until_idle(how.grace_s)
        self._service.close()
        await self._server.stop(CLOSE_S)
        if dropped:
            _log.warning(
                "%d requests were not finished within grace_s=%g and were dropped",
                dropped, how.grace_s,
            )  # fmt: skip
        else:
            _log.info("drained in %.2f s", time.monotonic() - start)
        return dropped
