"""HTTP connections: accepted within a limit, and closed where their peer keeps the server waiting.

uvicorn speaks HTTP; what it leaves to a proxy in front of it stands here.

How many
    A worker has at most a limit of connections open.  When it is reached, a new one takes the
    place of the one that has waited longest for its peer: idle, within a header, or within a
    body.  So thousands that send nothing, or a byte now and then, do not keep others out.  Who
    waits for a reply is never closed for another; where all do, new ones wait in the system's
    queue, which they do as well while there are no file descriptors.
How long
    A header has to be complete soon after the connection is made, or after its first byte, and
    a reply has to be taken; a connection that fails to is reset.  Bodies have a limit of their
    own (:mod:`.json_body`), pauses between requests that of uvicorn's keep-alive.

asyncio's own server is not used: without descriptors it tries thousands of times a second to
accept, with a traceback each, and it counts nothing that is within a TLS handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from typing import Any

import uvicorn
from starlette import types as asgi
from uvicorn.protocols.http.h11_impl import H11Protocol

from consensuspr.errors import ConsensusPRError
from consensuspr.server.config import Address
from consensuspr.server.logs import LOGGER_NAME

# For a header, TLS handshake included: a packet or two, also where packets are lost.
HEADER_S = 20.0
# For a reply, from when the peer has stopped taking it.
TAKE_S = 60.0
# What is not complete within so many bytes is no header; lines of trainers have a few hundred.
MAX_HEADER_BYTES = 16 << 10
# Between two tries to accept where the system has no descriptor or memory for it.
RETRY_S = 1.0
# So long a connection is not closed for another: many honest ones may be made at one moment.
KEEP_S = 1.0
# Accepted before others have a turn on the event loop.
_AT_A_TIME = 32
_BACKLOG = 2048

# Longer than trainers' clients keep an idle connection (aiohttp: 15 s), so that it is they
# who close it, and no request meets a connection that is just being closed.
KEEP_ALIVE_S = 75
# For replies that are under way when everything else has ended.
CLOSE_S = 1

_log = logging.getLogger(LOGGER_NAME)


class Connections:
    """Accepts connections on the running event loop for a uvicorn server without sockets.

    Args:
        listening: a listening socket that does not block; closed at the end.
        server: what serves the connections.
        limit: how many may be open at a time (>= 1).
        tls: what to speak TLS with; None: plain HTTP.
    """

    def __init__(
        self,
        listening: socket.socket,
        server: uvicorn.Server,
        limit: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._listening = listening
        self._server = server
        self._limit = limit
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._open: set[_Connection] = set()
        # Those whose peers have something to send, the longest first, and since when.
        self._waiting: dict[_Connection, float] = {}
        self._accepting = False
        self._retry: asyncio.TimerHandle | None = None
        self._resume()

    def close(self) -> None:
        """Accept no more; those that are open are the server's to end."""
        self._pause()
        if self._retry is not None:
            self._retry.cancel()
        self._listening.close()

    def waits(self, connection: _Connection, waits: bool) -> None:
        """Note whether a connection waits for its peer now."""
        if not waits:
            self._waiting.pop(connection, None)
        elif connection not in self._waiting and connection in self._open:
            self._waiting[connection] = self._loop.time()
            self._resume()  # a new one can take its place

    def leave(self, connection: _Connection) -> None:
        """Give up the place of a connection; it may have lost it before."""
        self._waiting.pop(connection, None)
        self._open.discard(connection)
        self._resume()

    def _resume(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if not self._accepting and self._listening.fileno() >= 0:
            self._accepting = True
            self._loop.add_reader(self._listening.fileno(), self._accept)

    def _pause(self, most_s: float | None = None) -> None:
        """Accept no more until a place is free, or some seconds have passed."""
        if self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._listening.fileno())
        if most_s is not None and self._retry is None:
            self._retry = self._loop.call_later(most_s, self._resume)

    def _accept(self) -> None:
        for _ in range(_AT_A_TIME):
            full = len(self._open) >= self._limit
            if full and not self._can_replace():
                self._pause()
                return
            try:
                accepted, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # out of descriptors, or of memory for one
                reason = f"no HTTP connection can be accepted: {error.strerror}"
                if self._can_replace():
                    self._replace(reason)
                else:
                    _log.warning("%s", reason)
                self._pause(RETRY_S)
                return
            if full:
                self._replace(f"{self._limit} HTTP connections are open, the limit")
            accepted.setblocking(False)
            self._make(accepted)

    def _can_replace(self) -> bool:
        """Return whether a connection has waited for its peer so long that another may take over.

        Where none has yet, look again when one has.
        """
        longest = next(iter(self._waiting.values()), None)
        if longest is None:
            return False
        left_s = longest + KEEP_S - self._loop.time()
        if left_s > 0:
            self._pause(left_s)
        return left_s <= 0

    def _replace(self, reason: str) -> None:
        """Reset the connection that waits for its peer longest."""
        longest = next(iter(self._waiting))
        _log.warning("%s; the one that waits longest for its sender is closed", reason)
        self.leave(longest)
        longest.reset()

    def _make(self, accepted: socket.socket) -> None:
        connection = _Connection(self, self._server)
        self._open.add(connection)
        self._waiting[connection] = self._loop.time()
        connection.opening = self._loop.create_task(
            self._loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else HEADER_S,
            )
        )
        connection.opening.add_done_callback(partial(self._opened, connection, accepted))

    def _opened(
        self, connection: _Connection, accepted: socket.socket, opening: asyncio.Task[Any]
    ) -> None:
        """Clear up where a connection was not made; all else is uvicorn's."""
        if connection.made:
            return
        self.leave(connection)
        accepted.close()
        if not opening.cancelled() and (error := opening.exception()) is not None:
            if not isinstance(error, OSError):
                raise error
            _log.debug("an HTTP connection was not made: %s", error)


class _Connection(H11Protocol):
    """One connection, with an end to how long its peer can keep the server waiting."""

    opening: asyncio.Task[Any]

    def __init__(self, connections: Connections, server: uvicorn.Server) -> None:
        super().__init__(server.config, server.server_state, app_state={})
        self._connections = connections
        # What a request is to uvicorn; that of the last one whose header was seen.
        self._seen: object = None
        self._header_timer: asyncio.TimerHandle | None = None
        self._take_timer: asyncio.TimerHandle | None = None
        self.made = False

    def reset(self) -> None:
        """End the connection at once; what is not sent is lost."""
        if self.made:
            self.transport.abort()
        else:
            self.opening.cancel()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.made = True
        # So that writing is paused for as long as anything is not taken.  (Not 0: asyncio's TLS
        # pauses at its limit, which nothing at all would reach.)
        transport.set_write_buffer_limits(1, 0)
        self._watch_header()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_header()
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._take_timer = self.loop.call_later(TAKE_S, self.reset)

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._take_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        _cancel(self._header_timer)
        _cancel(self._take_timer)
        self._connections.leave(self)

    @property
    def _has_header(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _watch_header(self) -> None:
        if self._has_header:
            _cancel(self._header_timer)
            self._header_timer = None
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADER_S, self.reset)

    def _look(self) -> None:
        """Tell whether the peer has something to send, and since when."""
        if self.cycle is not self._seen:
            self._seen = self.cycle
            self._connections.waits(self, False)
        self._connections.waits(self, not self._has_header or self.cycle.more_body)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def listen(address: Address) -> socket.socket:
    """Listen on HOST:PORT, with a numeric host, beside the other workers.

    Raises:
        ConsensusPRError: it cannot listen there.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Connections of an earlier worker in TIME_WAIT do not count; other workers may listen.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind((address.host, address.port))
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise ConsensusPRError(f"cannot listen on {address}: {error.strerror}") from None
    return listening


class QuietServer(uvicorn.Server):
    """A server that leaves signals to the worker, which drains first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def uvicorn_settings(application: asgi.ASGIApp) -> uvicorn.Config:
    """Return how an application is served: no more of a request than is needed, and no log."""
    return uvicorn.Config(
        application,
        # Not httptools where that is installed: it has no limit on headers.
        http="h11",
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=CLOSE_S,
    )
