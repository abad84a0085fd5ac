"""The HTTP face of a worker: a socket that the workers share, and the server on it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator

import uvicorn
from starlette.applications import Starlette

from consensuspr.errors import ConsensusPRError
from consensuspr.http.app import Endpoint
from consensuspr.server.address import Address
from consensuspr.server.logs import LOGGER_NAME

# Longer than trainers' clients keep an idle connection (aiohttp: 15 s), so that it is they
# who close it, and no request meets a connection that is just being closed.
KEEP_ALIVE_S = 75
# For replies that are under way when everything else has ended.
CLOSE_S = 1
BACKLOG = 2048

_log = logging.getLogger(LOGGER_NAME)


class HttpFront:
    """Listens beside gRPC on the running event loop.

    Args:
        endpoint: what is served.
        address: HOST:PORT with a numeric host, claimed by the supervisor.

    Attributes:
        port: where it listens, once it does.
    """

    def __init__(self, endpoint: Endpoint, address: str) -> None:
        self._endpoint = endpoint
        self._address = Address.parse(address)
        self._server = _Server(_settings(endpoint.application()))
        self._serving: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen and serve.

        Raises:
            ConsensusPRError: it cannot listen there.
        """
        listening = _listen(self._address)
        self.port = listening.getsockname()[1]
        self._serving = asyncio.create_task(self._server.serve(sockets=[listening]))
        while not self._server.started:
            if self._serving.done():
                self._serving.result()
                raise ConsensusPRError(f"the HTTP endpoint on {self._address} did not start")
            await asyncio.sleep(0.01)

    def announce_shutdown(self) -> None:
        """Answer ``/health`` with 503, and serve on."""
        self._endpoint.announce_shutdown()

    async def stop(self) -> None:
        """Let replies that are under way leave, and stop."""
        self._endpoint.close()
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving


class _Server(uvicorn.Server):
    """A server that leaves signals to the worker, which drains first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def _settings(application: Starlette) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=CLOSE_S,
    )


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Connections of an earlier worker in TIME_WAIT do not count; other workers may listen.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind((address.host, address.port))
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise ConsensusPRError(f"cannot listen on {address}: {error.strerror}") from None
    return listening
