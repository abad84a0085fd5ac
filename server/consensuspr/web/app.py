"""The page over HTTP: its files, its documents as JSON, and who may ask for them.

==============================  ==================================================================
``GET /``, ``GET /assets/…``    the page and its files; none of them holds anything of a run
``GET /api/…``                  documents (:mod:`.views`), with parameters (:class:`.Filter`)
``GET /samples.csv``            the light columns of all samples of a filter
``POST /api/dataset/…/review``  writes a new dataset file
==============================  ==================================================================

**Who may ask.**  Beyond loopback, only with tokens or TLS (:func:`.check_exposure`).  Where there
are tokens, documents take one of scope ``read`` and a review one of ``admin``; without, a review
takes a caller on this machine.  The Host header is checked.

**What an address can name**: runs, keys, problems and digests that the store knows, no path of a
file system.  What models wrote leaves as JSON, never as markup.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import mimetypes
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from consensuspr.credentials import Scope
from consensuspr.data.writers import csv_cell
from consensuspr.errors import ConsensusPRError, DataError
from consensuspr.http.server import HttpServer, json_response, trusted_hosts
from consensuspr.score_log.files import FOLDER_MODE, SCORES
from consensuspr.scoring.dataset_index import is_index
from consensuspr.server import logs
from consensuspr.server.config import Address, ServerConfig
from consensuspr.server.processes import Parent
from consensuspr.server.security import Security
from consensuspr.web.sources import LogSource, Source
from consensuspr.web.store import PARAMETERS, SHOWN, Filter, Store
from consensuspr.web.views import Documents, Views

# Documents that are made at a time; more wait.
THREADS: Final = 4
ARROW_THREADS: Final = 2
MAX_CONNECTIONS: Final = 256
PAGE_NICE: Final = 5
MAX_BODY_BYTES: Final = 4 << 20
# Rows of a download that are asked for at a time.
CSV_ROWS: Final = 10_000
ASSETS: Final = Path(__file__).parent / "assets"

_CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src"
    " 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
mimetypes.add_type("font/woff2", ".woff2")  # not all systems know it
# Parameters of a download.
_DOWNLOADED: Final = tuple(name for name in PARAMETERS if name not in ("offset", "limit"))


class WatchApp:
    """The page of some runs as an application.

    Args:
        views: its documents.
        store: the samples.
        security: who may ask.
        address: where it listens.
        allowed_hosts: names that requests may be for beside it.
    """

    def __init__(
        self,
        views: Views,
        store: Store,
        security: Security,
        address: Address,
        allowed_hosts: Sequence[str] = (),
    ) -> None:
        self._views = views
        self._store = store
        self._gate = security.gate
        self._threads = ThreadPoolExecutor(THREADS, "watch-view")
        routes = [
            self._route("POST", "/api/dataset/{digest}/review", Scope.ADMIN, self._review),
            self._route("GET", "/api/{path:path}", Scope.READ, self._document),
            self._route("GET", "/samples.csv", Scope.READ, self._csv),
            Route("/", _page, methods=["GET"]),
            Mount("/assets", _Assets(directory=ASSETS)),
        ]
        self.application = Starlette(
            routes=routes,
            middleware=[trusted_hosts(address, allowed_hosts)],
            exception_handlers={HTTPException: _no_route, LookupError: _failed}
            | {ConsensusPRError: _failed},
        )
        self.application.router.redirect_slashes = False

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(cancel_futures=True)

    def _route(
        self,
        method: str,
        path: str,
        scope: Scope,
        answer: Callable[[Request], Awaitable[Response]],
    ) -> Route:
        """Return a route for callers whose token has a scope."""

        async def endpoint(request: Request) -> Response:
            peer = "" if request.client is None else f"{request.client.host}:{request.client.port}"
            kind = "ipv6" if peer.count(":") > 1 else "ipv4"
            token = request.headers.get("authorization")
            denial = self._gate.denial(scope, token, f"{kind}:{peer}")
            if denial is None:
                return await answer(request)
            response = _error(403 if denial.known else 401, denial.sentence)
            if not denial.known:
                response.headers["WWW-Authenticate"] = "Bearer"
            return response

        return Route(path, endpoint, methods=[method])

    async def _answer(self, make: Callable[[Documents], dict[str, Any]]) -> Response:
        """Reply with a document, which a thread makes."""

        def made() -> bytes:
            with self._views.now() as documents:
                # ASCII: a lone surrogate of a message survives as an escape.
                return json.dumps(make(documents), allow_nan=False, separators=(",", ":")).encode()

        body = await asyncio.get_running_loop().run_in_executor(self._threads, made)
        return Response(body, 200, {**_HEADERS, "Cache-Control": "no-store"}, "application/json")

    async def _document(self, request: Request) -> Response:
        path, query = request.path_params["path"], request.query_params.multi_items()
        return await self._answer(lambda documents: documents.answer(path, query))

    async def _review(self, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return _error(415, "a review is sent with Content-Type: application/json")
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > MAX_BODY_BYTES:
                return _error(413, f"a review has at most {MAX_BODY_BYTES} bytes")
        try:
            sent = json.loads(bytes(body))
        except (ValueError, RecursionError):
            sent = None
        if not isinstance(sent, dict) or set(sent) != {"drop"}:
            return _error(400, 'a review is {"drop": [[problem, node], …]} as JSON')
        digest = request.path_params["digest"]
        return await self._answer(lambda documents: documents.review(digest, sent["drop"]))

    async def _csv(self, request: Request) -> Response:
        wanted = Filter.of(request.query_params.multi_items(), _DOWNLOADED)
        with self._store.moment() as now:
            now.where(wanted)  # a run that is not there fails before the reply begins
        headers = {**_HEADERS, "Content-Disposition": 'attachment; filename="samples.csv"'}
        rows = _csv_of(self._store, replace(wanted, limit=CSV_ROWS))
        return StreamingResponse(rows, 200, headers, "text/csv; charset=utf-8")


def _csv_of(store: Store, wanted: Filter) -> Iterator[bytes]:
    """Yield the samples of a filter as CSV, a page of rows at a time."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([*SHOWN, "flags"])
    with store.moment() as now:
        offset: int | None = 0
        while offset is not None:
            asked = replace(wanted, offset=offset)
            if wanted.q:
                rows, search = now.search(asked)
                offset = None if search["complete"] else search["searched"]
            else:
                rows = now.page(asked)
                offset = None if len(rows) < wanted.limit else offset + len(rows)
            for row in rows:
                cells = [csv_cell(row[name]) for name in SHOWN]
                writer.writerow([*cells, " ".join(row["flags"])])
            yield out.getvalue().encode("utf-8", "replace")
            out.seek(0)
            out.truncate()


def _error(code: int, sentence: str) -> Response:
    return json_response(code, {"error": sentence}, _HEADERS)


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, f"there is no {request.method} {request.url.path[:80]}")


async def _failed(request: Request, error: Exception) -> Response:
    if isinstance(error, DataError):
        return _error(410, f"it cannot be read any more: {error}")
    if isinstance(error, LookupError):
        return _error(404, str(error.args[0] if error.args else error))
    return _error(400, str(error))


async def _page(request: Request) -> Response:
    return FileResponse(ASSETS / "index.html", headers={**_HEADERS, "Cache-Control": "no-cache"})


class _Assets(StaticFiles):
    """The files of the page; none of them holds anything of a run."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers.update({**_HEADERS, "Cache-Control": "no-cache"})
        return response


def serve_page(
    sources: Sequence[Source],
    datasets: Sequence[Path],
    address: Address,
    security: Security,
    announce: Callable[[], object],
    until: Callable[[asyncio.Event], object],
    allowed_hosts: Sequence[str] = (),
) -> None:
    """Serve the page until it is stopped.

    Args:
        sources: runs to show.
        datasets: files, for texts of problems and for runs that keep none.
        address: with a numeric host, and a port that is held by a claim.
        security: who may ask, and certificates.
        announce: called once when it answers.
        until: given an event on the running loop, which it sets when the page shall end.
        allowed_hosts: names that requests may be for, beside the address.

    Raises:
        ConsensusPRError: it cannot listen there.
    """
    # Memory goes back to the system after a log is read; the allocator of Arrow keeps it.
    pa.set_memory_pool(pa.system_memory_pool())
    # Each thread of Arrow holds what it unpacks, and has memory of its own in the allocator.
    pa.set_cpu_count(ARROW_THREADS)
    pa.set_io_thread_count(ARROW_THREADS)
    store = Store(sources)
    try:
        store.start()
        views = Views(store, datasets)
        page = WatchApp(views, store, security, address, allowed_hosts)

        async def serve() -> None:
            server = HttpServer(page.application, address, MAX_CONNECTIONS, security.tls)
            await server.start()
            ending = asyncio.Event()
            until(ending)
            announce()
            await ending.wait()
            await server.stop()

        asyncio.run(serve())
        page.close()
        views.close()
    finally:
        store.close()


def main() -> int:
    """Serve the page as a child of ``serve``; return an exit code."""
    # It is for the supervisor alone.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # Scoring goes before looking.
    os.nice(PAGE_NICE)
    parent = Parent()
    config = ServerConfig.model_validate(parent.payload["config"])
    logs.configure(config.log_format, config.log_level, "page")
    assert config.score_log is not None  # web takes it

    def until(ending: asyncio.Event) -> None:
        until_signal(ending)
        loop = asyncio.get_running_loop()

        def end() -> None:
            loop.call_soon_threadsafe(ending.set)

        parent.listen(end)

    try:
        (config.score_log / SCORES).mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        serve_page(
            [LogSource(config.score_log)],
            [path for path in config.datasets.values() if not is_index(path)],
            Address.parse(parent.payload["web"]),
            Security.of(config),
            parent.report_ready,
            until,
            config.http_allowed_hosts,
        )
    except ConsensusPRError as error:
        parent.report_failure(error)
        return 1
    return 0


def until_signal(ending: asyncio.Event) -> None:
    """End the page at SIGTERM and SIGINT."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)


if __name__ == "__main__":
    sys.exit(main())
