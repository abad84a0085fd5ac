"""The page of some runs: served by the real command, or as an application in this process."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.processes import wait_for

SAMPLE = Path(__file__).resolve().parents[1] / "examples" / "sample"
DATASET = SAMPLE / "dataset.jsonl"


class Reply(NamedTuple):
    """A reply: code, headers in small letters, body."""

    code: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass
class Watched:
    """A page that is served.

    Attributes:
        url: ``http://HOST:PORT``.
        pid: of its process.
    """

    url: str
    pid: int

    def ask(
        self, path: str, data: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Return the reply to a request, whatever its code."""
        request = urllib.request.Request(self.url + path, data, dict(headers or {}))
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return _reply(reply)
        except urllib.error.HTTPError as error:
            with error:
                return _reply(error)

    def get(self, path: str, **query: object) -> Any:
        """Return a document, which must be there."""
        reply = self.ask(f"/api/{path}?{urllib.parse.urlencode(query)}".rstrip("?"))
        assert reply.code == 200, reply
        return reply.json

    def wait_for(self, condition: Callable[[Any], object]) -> None:
        """Wait until ``state`` is as wanted."""
        wait_for(lambda: condition(self.get("state")))

    def wait_read(self) -> None:
        """Wait until all runs are read, and datasets too."""
        self.wait_for(
            lambda state: (
                not state["datasets_loading"] and all(run["read"] == 1 for run in state["runs"])
            )
        )


def _reply(reply: Any) -> Reply:
    headers = {name.lower(): value for name, value in reply.headers.items()}
    return Reply(reply.status, headers, reply.read())


@dataclass
class Opened(Watched):
    """A page in this process.

    Attributes:
        application: of it.
    """

    application: Any

    def ask(
        self, path: str, data: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Return the reply to a request, whatever its code."""
        where, _, query = path.partition("?")
        given = {"host": "127.0.0.1:1", **(headers or {})}
        scope = {
            "type": "http", "http_version": "1.1", "scheme": "http", "root_path": "",
            "method": "GET" if data is None else "POST",
            "path": urllib.parse.unquote(where), "raw_path": where.encode(),
            "query_string": query.encode(), "client": ("127.0.0.1", 2), "server": ("127.0.0.1", 1),
            "headers": [(name.lower().encode(), text.encode()) for name, text in given.items()],
        }  # fmt: skip
        sent: list[Mapping[str, Any]] = []

        messages = [{"type": "http.request", "body": data or b"", "more_body": False}]

        async def receive() -> Mapping[str, Any]:
            if not messages:
                await asyncio.Event().wait()  # a client that stays connected says nothing
            return messages.pop()

        async def send(message: Mapping[str, Any]) -> None:
            sent.append(message)

        asyncio.run(self.application(scope, receive, send))
        start, *parts = sent
        found = {name.decode().lower(): text.decode() for name, text in start["headers"]}
        return Reply(start["status"], found, b"".join(part.get("body", b"") for part in parts))


@contextmanager
def opened(
    *runs: Path, dataset: Path | None = None, tokens: Path | None = None
) -> Iterator[Opened]:
    """Open the page of some runs in this process, until the block is left."""
    from consensuspr.server.config import Address
    from consensuspr.server.security import Gate, Security
    from consensuspr.web.app import WatchApp
    from consensuspr.web.sources import open_source
    from consensuspr.web.store import Store
    from consensuspr.web.views import Views

    store = Store([open_source(run) for run in runs])
    store.start()
    views = Views(store, [] if dataset is None else [dataset])
    address = Address.parse("127.0.0.1:1")
    page = WatchApp(views, store, Security(Gate(tokens), None), address)
    try:
        yield Opened("", 0, page.application)
    finally:
        page.close()
        views.close()
        store.close()


@contextmanager
def watching(*arguments: object) -> Iterator[Watched]:
    """Run ``consensuspr watch`` on a free port until the block is left."""
    command = [sys.executable, "-m", "consensuspr.cli", "watch", *map(str, arguments)]
    if "--address" not in command:
        command += ["--address", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("watching on http"), line
            yield Watched(line.split()[-1], process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
