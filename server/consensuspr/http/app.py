"""The HTTP face of a worker: routes, codes, what a failed request is told, and the socket.

===========================================  ====================================================
what happened                                code, and body
===========================================  ====================================================
every rollout has a reward                   200, the trainer's shape
body, label or URL setting is wrong          400 ``{"error"}``
no token, or an unknown one                  401 ``{"error"}``
a token without scope ``score``              403 ``{"error"}``
no such dataset, or path                     404 ``{"error"}``
for another host, or from a web page         421, 403 ``{"error"}``
another method than POST                     405 ``{"error"}``
the dataset is not the expected one          412 ``{"error"}``
body is larger than allowed                  413 ``{"error"}``
body is not sent as JSON                     415 ``{"error"}``
a rollout has no reward                      422 ``{"error", "unscorable": [{index, status, …}]}``
a defect of the server                       500 ``{"error"}`` with an id that is in its log
queue full, or shutting down                 503 ``{"error"}`` with ``Retry-After``
body came too slowly                         504 ``{"error"}``
===========================================  ====================================================

No code but 200 carries a reward, so that no failure can be trained on as one.  The workers
share one port, as they do for gRPC.

A web browser may stand on the same machine as the server, and what it shows comes from anywhere.
So no page of another origin is answered: not one that asks by a name of its own that it made
point here (``Host``), not one that says where it comes from (``Origin``), and not one that may send
what a form can without asking first (``Content-Type``).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine
from functools import partial
from typing import Any, TypeVar

import grpc
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
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
from consensuspr.http.connections import Connections, QuietServer, listen, uvicorn_settings
from consensuspr.http.hosts import Checked, Hosts, json_response
from consensuspr.http.json_body import Body, BodyTooLarge, Receiver
from consensuspr.http.problems import open_texts, texts_folder
from consensuspr.scoring import DatasetIndex
from consensuspr.server.admission import REQUEST_OVERHEAD_BYTES
from consensuspr.server.config import Address
from consensuspr.server.metrics import Metrics
from consensuspr.server.security import Security
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

# The one type of a body.  A page of another origin may send others without being asked back.
CONTENT_TYPE = "application/json"


class _WrongType(Exception):
    """A body that is not sent as JSON; the text is the sentence for the sender."""


class HttpFront:
    """Listens beside gRPC on the running event loop, and answers from the same scorer.

    Args:
        service: whose admission and threads requests share.
        batches: scores them.
        receiver: receives their bodies.
        metrics: counts them.
        security: who may call it, and its certificates.
        address: HOST:PORT with a numeric host, claimed by the supervisor.
        max_connections: open at a time.
        allowed_hosts: names that requests may be for, beside the loopback ones and the address.

    Attributes:
        port: where it listens, once it does.
    """

    def __init__(
        self,
        service: ScoringService,
        batches: Batches,
        receiver: Receiver,
        metrics: Metrics,
        security: Security,
        address: str,
        max_connections: int,
        allowed_hosts: Collection[str] = (),
    ) -> None:
        self.batches = batches
        self._service = service
        self._receiver = receiver
        self._metrics = metrics
        self._address = Address.parse(address)
        self._gate = security.gate
        self._tls = security.tls
        self._max_connections = max_connections
        self._hosts = Hosts(self._address, allowed_hosts)
        self._server = QuietServer(uvicorn_settings(self._application()))
        self._serving: asyncio.Task[None] | None = None
        self._connections: Connections | None = None
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
        listening = listen(self._address)
        self.port = listening.getsockname()[1]
        self._serving = asyncio.create_task(self._server.serve(sockets=[]))
        while not self._server.started:
            if self._serving.done():
                self._serving.result()
                raise ConsensusPRError(f"the HTTP endpoint on {self._address} did not start")
            await asyncio.sleep(0.01)
        tls = None if self._tls is None else self._tls.context()
        self._connections = Connections(listening, self._server, self._max_connections, tls)

    def announce_shutdown(self) -> None:
        """Tell load balancers to look elsewhere: answer ``/health`` with 503, and serve on."""
        self._leaving = True

    async def stop(self) -> None:
        """Tell who still waits that the server ends, let replies under way leave, and stop."""
        self._closing.set()
        if self._connections is not None:
            self._connections.close()
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving

    def _application(self) -> Starlette:
        routes = [Route(f"/{shape}", self._handler(shape), methods=["POST"]) for shape in DIALECTS]
        routes.append(Route("/health", self._health, methods=["GET"]))
        application = Starlette(
            routes=routes,
            middleware=[Middleware(Checked, check=self._hosts.refusal)],
            exception_handlers={HTTPException: _no_route},
        )
        # A client that follows a redirect turns its POST into a GET.
        application.router.redirect_slashes = False
        return application

    async def _health(self, request: Request) -> Response:
        if self._leaving or self._service.draining:
            return json_response(503, {"status": "NOT_SERVING"})
        return json_response(200, {"status": "SERVING"})

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
            return "OK", json_response(200, reply)
        except Unscorable as error:
            return "UNSCORABLE", json_response(422, {"error": str(error), "unscorable": error.told})
        except _WrongType as error:
            return "INVALID_ARGUMENT", json_response(415, {"error": str(error)})
        except BodyTooLarge as error:
            return "RESOURCE_EXHAUSTED", json_response(413, {"error": str(error)})
        except UnknownDataset as error:
            return "NOT_FOUND", json_response(404, {"error": str(error)})
        except DatasetMismatch as error:
            return "FAILED_PRECONDITION", json_response(412, {"error": str(error)})
        except (InputError, InvalidRequest) as error:
            return "INVALID_ARGUMENT", json_response(400, {"error": str(error)})
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
        _check_type(request)
        settings = read_settings(request.query_params.multi_items(), dialect.choices)
        self.batches.dataset(settings.options)
        closing = (self._closing.wait, Abort(grpc.StatusCode.UNAVAILABLE, SHUTTING_DOWN))
        body = await _unless(self._receiver.receive(request), closing)

        def work(raw: Body, call: RunningCall) -> object:
            return dialect.answer(raw, call, settings, self.batches)

        trace = self._service.begin_trace(shape, request.headers.items())
        num_bytes = len(body) + REQUEST_OVERHEAD_BYTES
        run = settings.options.run or ""
        submitted = self._service.submit(work, body, num_bytes, None, run, trace)
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
        ended = [task, *others]
        for pending in ended:
            pending.cancel()
        await asyncio.gather(*ended, return_exceptions=True)
        # An error knows this frame, and by those that it came through the body.
        del task, others, ended, pending


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
    return json_response(_HTTP_CODES.get(abort.code, 500), {"error": abort.message}, headers)


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = ", ".join(f"POST /{shape}" for shape in DIALECTS)
    sentence = (
        f"there is no {request.method} {request.url.path[:80]}; there are {known}, GET /health"
    )
    return json_response(error.status_code, {"error": sentence}, dict(error.headers or {}))


def _check_type(request: Request) -> None:
    sent = request.headers.get("content-type", "")
    if sent.partition(";")[0].strip().lower() != CONTENT_TYPE:
        got = f"this one with {sent[:80]!r}" if sent else "this one has none"
        raise _WrongType(f"a body is sent with Content-Type: {CONTENT_TYPE}, {got}")
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise _WrongType(
            f"a body is sent as it is, this one with Content-Encoding: {encoding[:80]}"
        )
