"""A uvicorn server on a running event loop, for the HTTP endpoint and the page."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import socket
from collections.abc import Collection, Iterator, Mapping

import uvicorn
from starlette import types as asgi
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from consensuspr.errors import ConsensusPRError
from consensuspr.server.config import Address
from consensuspr.server.security import Tls

# Longer than trainers' clients keep an idle connection (aiohttp: 15 s), so that it is they
# who close it, and no request meets a connection that is just being closed.
KEEP_ALIVE_S = 75
# For replies that are under way when everything else has ended.
CLOSE_S = 1
MAX_HEADER_BYTES = 16 << 10


class HttpServer:
    """Serves an application beside the other workers of a port; ``port`` is where it listens.

    Requests beyond ``max_connections`` get 503.
    """

    def __init__(
        self, application: asgi.ASGIApp, address: Address, max_connections: int, tls: Tls | None
    ) -> None:
        self._address = address
        config = uvicorn.Config(
            application,
            # httptools, which vLLM installs, has no limit on headers.
            http=_Connection,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            limit_concurrency=max_connections,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=CLOSE_S,
        )
        config.load()
        config.ssl = None if tls is None else tls.context()
        self._server = _Server(config)
        self._serving: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen and serve, or raise ConsensusPRError."""
        listening = _listen(self._address)
        self.port = listening.getsockname()[1]
        self._serving = asyncio.create_task(self._server.serve(sockets=[listening]))
        while not self._server.started:
            if self._serving.done():
                self._serving.result()
                raise ConsensusPRError(f"the HTTP server on {self._address} did not start")
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Send the replies under way, and stop."""
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving


class _Connection(H11Protocol):
    """Also closed if its first header is incomplete after the keep-alive time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # uvicorn itself begins to count after the first reply.
        self._first_header = self.loop.call_later(self.timeout_keep_alive, self._close_unused)

    def connection_lost(self, exc: Exception | None) -> None:
        self._first_header.cancel()
        super().connection_lost(exc)

    def _close_unused(self) -> None:
        if self.cycle is None:
            self.transport.close()


class _Server(uvicorn.Server):
    """A server that leaves signals to the process, which drains first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Connections of an earlier worker in TIME_WAIT do not count; other workers may listen.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind((address.host, address.port))
    except OSError as error:
        listening.close()
        raise ConsensusPRError(f"cannot listen on {address}: {error.strerror}") from None
    return listening


def trusted_hosts(address: Address, configured: Collection[str]) -> Middleware:
    """Return the check of the Host header: no web page whose own name was pointed here may ask.

    A server beyond loopback has more names than it can know, and checks the configured ones only.
    """
    own = ["localhost", "127.0.0.1", "::1", "[::1]", address.host]
    anybody = not configured and not ipaddress.ip_address(address.host).is_loopback
    return Middleware(
        TrustedHostMiddleware,
        allowed_hosts=["*"] if anybody else [*own, *configured],
        www_redirect=False,
    )


def json_response(code: int, content: object, headers: Mapping[str, str] | None = None) -> Response:
    """Return a reply of JSON."""
    # ASCII: a lone surrogate of a message survives as an escape.
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return Response(text, code, headers, "application/json")
