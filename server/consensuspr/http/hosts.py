"""Whom HTTP requests may be for, from whose pages they may come, and where they end.

A browser sends requests that pages of others make, to loopback addresses too, and a page can point
a name of its own at one (DNS rebinding): Host and Origin tell.  A request with two ends, by
Content-Length and by Transfer-Encoding, can be one to a proxy and two here (smuggling).
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Collection, Mapping
from urllib.parse import urlsplit

from starlette import types as asgi
from starlette.requests import Request
from starlette.responses import Response

from consensuspr.server.config import Address


class Hosts:
    """Whom requests may be for: against pages that made a name of their own point here.

    On a loopback address nobody means anything but a loopback name or one that is configured.
    On another, a server has more names than it can know of; there the configured ones are
    checked where there are any.

    Args:
        address: where it listens.
        configured: names that are good beside it.
        own_pages: whether pages that were loaded from here may ask: those of the host that a
            request is for.
    """

    def __init__(
        self, address: Address, configured: Collection[str], *, own_pages: bool = False
    ) -> None:
        self._own_pages = own_pages
        self._configured = {name.lower() for name in configured} - {""}
        self._own = {"localhost", address.host.lower()}
        self._any = not (configured or _is_loopback(address.host))

    def refusal(self, request: Request) -> Response | None:
        """Return what a request for another host, or from a page of one, is told."""
        host = request.headers.get("host", "")
        if host and not (self._any or self._knows(_host_of("//" + host))):
            return json_response(
                421, {"error": f"{host[:80]!r} is not served here; {self._known()}"}
            )
        origin = request.headers.get("origin")
        if origin is None or (self._own_pages and _host_and_port(origin) == host):
            return None
        if _host_of(origin) not in self._configured:
            sentence = f"web pages are not answered, this request comes from {origin[:80]!r}"
            return json_response(403, {"error": sentence})
        return None

    def _knows(self, host: str) -> bool:
        return host in self._own or host in self._configured or _is_loopback(host)

    def _known(self) -> str:
        names = ", ".join(sorted(self._configured | self._own))
        return f"requests are for {names}, and others by http_allowed_hosts"


def _host_of(url: str) -> str:
    """Return the host of a URL, as a name or number without brackets; "" where there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _host_and_port(origin: str) -> str:
    """Return host and port of an origin, as the Host header has them."""
    return origin.partition("://")[2]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Checked:
    """Answers a request that a check refuses, or that has two ends, and hands on all others."""

    def __init__(self, app: asgi.ASGIApp, check: Callable[[Request], Response | None]) -> None:
        self._app = app
        self._check = check

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        request = Request(scope)
        if {"content-length", "transfer-encoding"} <= {*request.headers}:
            sentence = "a request has a Content-Length or a Transfer-Encoding, this one has both"
            refusal: Response | None = json_response(
                400, {"error": sentence}, {"Connection": "close"}
            )
        else:
            refusal = self._check(request)
        await (self._app if refusal is None else refusal)(scope, receive, send)


def json_response(code: int, content: object, headers: Mapping[str, str] | None = None) -> Response:
    """Return a reply of JSON."""
    # ASCII: a lone surrogate of a message survives as an escape.
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return Response(text, code, headers, "application/json")
