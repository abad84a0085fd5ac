"""Servers with the HTTP endpoint in this process, with a scorer to hold up."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the HTTP endpoint needs the extra http")
pytest.importorskip("uvicorn", reason="the HTTP endpoint needs the extra http")

from consensuspr.http.app import HttpFront
from consensuspr.scoring import DatasetIndex
from consensuspr.server.config import ServerConfig
from tests import rows, servers

PROBLEMS = [
    rows.DUCKS,
    {"problem_id": "bare", "data_source": "plain", "ground_truth": "5", "nodes": []},
    {"problem_id": "open", "nodes": [{"node_id": "n", "expressions": ["x+1=2"]}]},
]


@pytest.fixture(scope="session")
def dataset_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small dataset on disk."""
    return rows.write_rows(tmp_path_factory.mktemp("dataset") / "problems.jsonl", PROBLEMS)


@pytest.fixture(scope="session")
def index(dataset_file: Path) -> DatasetIndex:
    """The same, loaded."""
    return DatasetIndex.load(dataset_file)


@dataclass
class Reply:
    """What came back; names of headers are in lower case, the body is decoded from JSON."""

    code: int
    headers: Mapping[str, str]
    body: Any


def request(
    address: str,
    path: str,
    body: object,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
    context: ssl.SSLContext | None = None,
) -> Reply:
    """Send one request on a connection of its own; bytes go as they are, headers win over ours."""
    host, port = address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=120)
    if context is not None:
        connection = http.client.HTTPSConnection(host, int(port), timeout=120, context=context)
    with closing(connection):
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {"Content-Type": "application/json", **(headers or {})}
        connection.request(method, path, raw, given)
        response = connection.getresponse()
        received = {name.lower(): value for name, value in response.getheaders()}
        text = response.read()
        is_json = "json" in received.get("content-type", "")
        return Reply(response.status, received, json.loads(text) if is_json else text.decode())


class InProcessServer(servers.InProcessServer):
    """A worker with both endpoints on an event loop in a thread.

    Attributes:
        http_address: where it listens for HTTP; ``address`` is that of gRPC.
    """

    async def _start(self, config: ServerConfig, datasets: dict[str, DatasetIndex]) -> None:
        await super()._start(config, datasets)
        self._front = HttpFront(config, self.service, servers.ANY_PORT)
        await self._front.start()
        self.http_address = f"127.0.0.1:{self._front.port}"

    async def _drain(self, grace_s: float) -> int:
        self._front.announce_shutdown()
        dropped = await super()._drain(grace_s)
        await self._front.stop()
        return dropped

    def post(self, path: str, body: object, method: str = "POST", **how: Any) -> Reply:
        """Send one request."""
        return request(self.http_address, path, body, method, **how)


Serve = Callable[..., InProcessServer]


@pytest.fixture(scope="session")
def start(index: DatasetIndex) -> Iterator[Serve]:
    """Start servers that live as long as the session; settings as keywords."""
    with ExitStack() as running:

        def start(**settings: Any) -> InProcessServer:
            config = ServerConfig(datasets={"default": Path("unused")}, **settings)
            return running.enter_context(closing(InProcessServer(config, {"default": index})))

        yield start


@pytest.fixture(scope="session")
def server(start: Serve) -> InProcessServer:
    """A server in this process with the usual settings, for tests that leave it as it was."""
    return start()
