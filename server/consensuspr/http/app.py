"""The HTTP face of a worker: routes, codes, what a failed request is told, and the socket.

===========================================  ====================================================
what happened                                code, and body
===========================================  ====================================================
every rollout has a reward                   200, the trainer's shape
body, label or URL setting is wrong          400 ``{"error"}``
no token, or an unknown one                  401 ``{"error"}``
a token without scope ``score``              403 ``{"error"}``
no such dataset, or path                     404 ``{"error"}``
another method than POST                     405 ``{"error"}``
the dataset is not the expected one          412 ``{"error"}``
body is larger than allowed                  413 ``{"error"}``
a rollout has no reward                      422 ``{"error", "unscorable": [{index, status, …}]}``
a defect of the server                       500 ``{"error"}`` with an id that is in its log
queue full, or shutting down                 503 ``{"error"}`` with ``Retry-After``
body came too slowly                         504 ``{"error"}``
===========================================  ====================================================

No code but 200 carries a reward, so that no failure can be trained on as one.  The workers
share one port, as they do for gRPC.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

import grpc
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from consensuspr.credentials import Scope
from consensuspr.errors import (
    ConsensusPRError,
    DatasetMismatch,
    InputError,
    InvalidRequest,
    UnknownDataset,
)
from consensuspr.http.adapters import DIALECTS, Batches, Unscorable, read_settings
from consensuspr.http.json_body import BodyTooLarge, Receiver
from consensuspr.http.problems import open_texts, texts_folder
from consensuspr.scoring import DatasetIndex
from consensuspr.server.config import Address
from consensuspr.server.logs import LOGGER_NAME
from consensuspr.server.metrics import Metrics
from consensuspr.server.security import Security, Tls
from consensuspr.server.service import (
    SHUTTING_DOWN,
    Abort,
    RunningCall,
    ScoringService,
    code_of,
    internal,
)

T = TypeVar("T")
End = Callable[[], Coroutine[Any, Any, object]]

_HTTP_CODES = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.FAILED_PRECONDITION: 412,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 503,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.INTERNAL: 500,
}
# While it drains: another worker or a new server is there by then.
_SHUTDOWN_RETRY_S = 1.0

# Longer than trainers' clients keep an idle connection (aiohttp: 15 s), so that it is they
# who close it, and no request meets a connection that is just being closed.
KEEP_ALIVE_S = 75
# For replies that are under way when everything else has ended.
CLOSE_S = 1
BACKLOG = 2048

_log = logging.getLogger(LOGGER_NAME)


class HttpFront:
    """Listens beside gRPC on the running event loop, and answers from the same scorer.

    The address is HOST:PORT with a numeric host, claimed by the supervisor; ``port`` is where it
    listens, once it does.
    """

    def __init__(
        self,
        service: ScoringService,
        batches: Batches,
        receiver: Receiver,
        metrics: Metrics,
        security: Security,
        address: str,
    ) -> None:
        self.batches = batches
        self._service = service
        self._receiver = receiver
        self._metrics = metrics
        self._address = Address.parse(address)
        self._gate = security.gate
        self._server = _Server(_uvicorn_settings(self._application(), security.tls))
        self._serving: asyncio.Task[None] | None = None
        self._leaving = False
        self._closing = asyncio.Event()
        self.port = 0

    def add(self, index: DatasetIndex, snapshot: str) -> None:
        """Take the texts of a dataset's problems, which are kept beside its snapshot."""
        self.batches.add(index, open_texts(texts_folder(snapshot)))

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
        """Tell load balancers to look elsewhere: answer ``/health`` with 503, and serve on."""
        self._leaving = True

    async def stop(self) -> None:
        """Tell who still waits that the server ends, let replies under way leave, and stop."""
        self._closing.set()
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving

    def _application(self) -> Starlette:
        routes = [Route(f"/{shape}", self._handler(shape), methods=["POST"]) for shape in DIALECTS]
        routes.append(Route("/health", self._health, methods=["GET"]))
        application = Starlette(routes=routes, exception_handlers={HTTPException: _no_route})
        # A client that follows a redirect turns its POST into a GET.
        application.router.redirect_slashes = False
        return application

    async def _health(self, request: Request) -> Response:
        if self._leaving or self._service.draining:
            return _json(503, {"status": "NOT_SERVING"})
        return _json(200, {"status": "SERVING"})

    def _handler(self, shape: str) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            start = time.monotonic()
            code = grpc.StatusCode.CANCELLED.name
            try:
                code, response = await self._respond(shape, request)
                return response
            finally:
                self._metrics.request(shape, code, time.monotonic() - start)

        return handle

    async def _respond(self, shape: str, request: Request) -> tuple[str, Response]:
        """Return what a request came to, as metrics call it and as its sender gets it."""
        try:
            reply = await self._answer(shape, request)
            return "OK", _json(200, reply)
        except Unscorable as error:
            return "UNSCORABLE", _json(422, {"error": str(error), "unscorable": error.told})
        except BodyTooLarge as error:
            return "RESOURCE_EXHAUSTED", _json(413, {"error": str(error)})
        except UnknownDataset as error:
            return "NOT_FOUND", _json(404, {"error": str(error)})
        except DatasetMismatch as error:
            return "FAILED_PRECONDITION", _json(412, {"error": str(error)})
        except (InputError, InvalidRequest) as error:
            return "INVALID_ARGUMENT", _json(400, {"error": str(error)})
        except Abort as abort:
            return abort.code.name, _refusal(abort)
        except ClientDisconnect:
            return "CANCELLED", Response(status_code=400)  # nobody gets it
        except Exception:
            return "INTERNAL", _refusal(internal(shape))

    async def _answer(self, shape: str, request: Request) -> object:
        refused = self._gate.refusal(Scope.SCORE, request.headers.get("authorization"))
        if refused is not None:
            raise Abort(code_of(refused), refused.sentence)
        dialect = DIALECTS[shape]
        settings = read_settings(request.query_params.multi_items(), dialect.choices)
        self.batches.dataset(settings.options)
        closing = (self._closing.wait, Abort(grpc.StatusCode.UNAVAILABLE, SHUTTING_DOWN))
        body = await _unless(self._receiver.receive(request), closing)

        def work(raw: bytes, call: RunningCall) -> object:
            return dialect.answer(raw, call, settings, self.batches)

        sender = "" if request.client is None else f"{request.client.host}:{request.client.port}"
        trace = self._service.begin_trace(shape, request.headers.items())
        submitted = self._service.submit(work, body, None, sender, trace)
        del body
        # What nobody waits for any more is dropped from the queue, or stops at its next piece.
        with trace or contextlib.nullcontext():
            return await _unless(submitted, closing, (partial(_left, request), ClientDisconnect()))


async def _unless(work: Coroutine[Any, Any, T], *ends: tuple[End, Exception]) -> T:
    """Return what ``work`` returns; an end that comes first cancels it and raises its error."""
    task = asyncio.ensure_future(work)
    others = {asyncio.ensure_future(end()): error for end, error in ends}
    try:
        await asyncio.wait({task, *others}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise next(error for other, error in others.items() if other.done())
        return task.result()
    finally:
        for pending in (task, *others):
            pending.cancel()
        await asyncio.gather(task, *others, return_exceptions=True)


async def _left(request: Request) -> None:
    """Return when the sender is gone; its body was received before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _refusal(abort: Abort) -> Response:
    retry_s = abort.retry_after_s
    if retry_s is None and abort.code is grpc.StatusCode.UNAVAILABLE:
        retry_s = _SHUTDOWN_RETRY_S
    # Whole seconds are all that the header can say.
    headers = {} if retry_s is None else {"Retry-After": str(max(1, math.ceil(retry_s)))}
    if abort.code is grpc.StatusCode.UNAUTHENTICATED:
        headers["WWW-Authenticate"] = "Bearer"
    return _json(_HTTP_CODES.get(abort.code, 500), {"error": abort.message}, headers)


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = ", ".join(f"POST /{shape}" for shape in DIALECTS)
    sentence = (
        f"there is no {request.method} {request.url.path[:80]}; there are {known}, GET /health"
    )
    return _json(error.status_code, {"error": sentence}, dict(error.headers or {}))


def _json(code: int, content: object, headers: Mapping[str, str] | None = None) -> Response:
    # ASCII: a lone surrogate of a message survives as an escape.
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return Response(text, code, headers, "application/json")


class _Server(uvicorn.Server):
    """A server that leaves signals to the worker, which drains first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def _uvicorn_settings(application: Starlette, tls: Tls | None) -> uvicorn.Config:
    settings = uvicorn.Config(
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
    if tls is not None:
        # Not by its own settings, which would read the files once and for all.
        settings.load()
        settings.ssl = tls.context()
    return settings


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
