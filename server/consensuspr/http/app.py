"""The HTTP endpoint of a worker: routes, and the code of each failure.

``docs/guides/trainers.md`` describes both for users.

No code but 200 carries a reward, so that no failure can be trained on as one.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from consensuspr.credentials import Scope
from consensuspr.errors import InputError
from consensuspr.http.requests import Unscorable, answer
from consensuspr.http.server import HttpServer, json_response, trusted_hosts
from consensuspr.http.settings import read_settings
from consensuspr.server.admission import REQUEST_OVERHEAD_BYTES
from consensuspr.server.config import Address, ServerConfig
from consensuspr.server.service import Abort, RunningCall, ScoringService, denied, internal
from consensuspr.server.worker import main

SHAPES = ("openrlhf", "slime")
# Memory of a body at most: its text and its strings, of four bytes a character if one is an emoji.
COPIES = 10
# A body that takes longer comes from a stuck sender.
RECEIVE_S = 120.0
# For the work on a body, the wait in the queue included: HTTP clients do not send their timeout.
SCORE_S = 120.0
# While the server drains: another worker or a new server is there by then.
SHUTDOWN_RETRY_S = 1.0

_HTTP_CODES = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.FAILED_PRECONDITION: 412,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 503,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}


class HttpFront(HttpServer):
    """Listens beside gRPC on the running event loop, and scores with the same service."""

    def __init__(self, config: ServerConfig, service: ScoringService, address: str) -> None:
        self._service = service
        self._max_body_bytes = int(config.http_max_body_bytes)
        # Bodies that arrive are not in the queue yet, and may take as much memory again.
        self._max_arriving_bytes = int(config.queue_limit_bytes)
        self._arriving_bytes = 0
        self._leaving = False
        listen = Address.parse(address)
        routes = [Route(f"/{shape}", self._handler(shape), methods=["POST"]) for shape in SHAPES]
        application = Starlette(
            routes=[*routes, Route("/health", self._health, methods=["GET"])],
            middleware=[trusted_hosts(listen, config.http_allowed_hosts)],
            exception_handlers={HTTPException: _no_route},
        )
        super().__init__(application, listen, config.max_connections, service.security.tls)

    def announce_shutdown(self) -> None:
        """Answer ``/health`` with 503 from now on, and serve on."""
        self._leaving = True

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
                self._service.metrics.request(shape, code, time.monotonic() - start)

        return handle

    async def _respond(self, shape: str, request: Request) -> tuple[str, Response]:
        """Return the outcome of a request as metrics name it, and the response."""
        try:
            return "OK", json_response(200, await self._answer(shape, request))
        except Unscorable as error:
            reply = {"error": str(error), "unscorable": error.named}
            return "UNSCORABLE", json_response(422, reply)
        except HTTPException as error:
            name = "RESOURCE_EXHAUSTED" if error.status_code == 413 else "INVALID_ARGUMENT"
            return name, json_response(error.status_code, {"error": error.detail})
        except InputError as error:
            return "INVALID_ARGUMENT", json_response(400, {"error": str(error)})
        except Abort as abort:
            return abort.code.name, _refusal(abort)
        except ClientDisconnect:
            return "CANCELLED", Response(status_code=400)  # nobody gets it
        except Exception:
            return "INTERNAL", _refusal(internal(shape))

    async def _answer(self, shape: str, request: Request) -> object:
        service = self._service
        denial = service.security.gate.denial(Scope.SCORE, request.headers.get("authorization"))
        if denial is not None:
            raise denied(denial)
        # A web page may send any other type to a server on its reader's machine.
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise HTTPException(415, "send the body with Content-Type: application/json")
        settings = read_settings(request.query_params.multi_items(), shape)
        options = settings.options()
        body = await self._receive(request)

        def work(raw: bytes | bytearray, call: RunningCall) -> object:
            return answer(shape, raw, call, settings, service)

        num_bytes = COPIES * len(body) + REQUEST_OVERHEAD_BYTES
        with service.begin_trace(shape, request.headers.items()) as trace:
            deadline = time.monotonic() + SCORE_S
            submitted = service.submit(work, body, num_bytes, deadline, options.run or "", trace)
            del body
            return await _unless_disconnected(submitted, request)

    async def _receive(self, request: Request) -> bytearray:
        """Return the body of a request; raise if it is too large or takes too long."""
        body = bytearray()
        try:
            async with asyncio.timeout(RECEIVE_S):
                async for chunk in request.stream():
                    body += chunk
                    self._arriving_bytes += len(chunk)
                    if len(body) > self._max_body_bytes:
                        raise HTTPException(
                            413, f"the body is larger than {self._max_body_bytes} bytes"
                        )
                    if self._arriving_bytes > self._max_arriving_bytes:
                        raise Abort(
                            grpc.StatusCode.RESOURCE_EXHAUSTED,
                            f"too many bodies are arriving: {self._arriving_bytes} bytes, the limit"
                            f" is {self._max_arriving_bytes}",
                            SHUTDOWN_RETRY_S,
                        )
        except TimeoutError:
            raise Abort(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                f"the body was not received within {RECEIVE_S:g} s",
            ) from None
        finally:
            self._arriving_bytes -= len(body)
        return body


async def _unless_disconnected(work: Awaitable[Any], request: Request) -> Any:
    """Return the result of ``work``; cancel it if the sender disconnects."""
    task = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(request.receive())  # the body was received before
    try:
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
        leaving.cancel()
        # Its failure knows this frame: a cycle, which would keep the body.
        del task, leaving


def _refusal(abort: Abort) -> Response:
    retry_s = abort.retry_after_s
    if retry_s is None and abort.code is grpc.StatusCode.UNAVAILABLE:
        retry_s = SHUTDOWN_RETRY_S
    headers = {} if retry_s is None else {"Retry-After": str(max(1, math.ceil(retry_s)))}
    if abort.code is grpc.StatusCode.UNAUTHENTICATED:
        headers["WWW-Authenticate"] = "Bearer"
    return json_response(_HTTP_CODES.get(abort.code, 500), {"error": abort.message}, headers)


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = ", ".join(f"POST /{shape}" for shape in SHAPES)
    sentence = f"no route {request.method} {request.url.path[:80]}; use {known} or GET /health"
    return json_response(error.status_code, {"error": sentence}, dict(error.headers or {}))


if __name__ == "__main__":
    sys.exit(main(HttpFront))
