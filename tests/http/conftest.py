"""Servers with the HTTP endpoint: in this process with a scorer to hold up, and real ones."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

pytest.importorskip("starlette", reason="the HTTP endpoint needs the extra http")
pytest.importorskip("uvicorn", reason="the HTTP endpoint needs the extra http")

from consensuspr.data import read_problems
from consensuspr.http.problems import ProblemTexts
from consensuspr.http.problems import build as build_texts
from consensuspr.http.worker import build_front
from consensuspr.scoring import DatasetIndex
from consensuspr.server.config import ServerConfig
from consensuspr.server.service import Draining
from tests import rows, servers

DUCKS = "Janet's ducks lay 16 eggs per day. She eats 3 and bakes with 4. What do 9 at $2 make?"
PROBLEMS = [
    rows.DUCKS | {"problem": DUCKS},
    {
        "problem_id": "bare",
        "data_source": "plain",
        "problem": "What is two plus three?",
        "ground_truth": "5",
        "nodes": [],
    },
    {
        "problem_id": "open",
        "data_source": "plain",
        "problem": "为什么 𝑥+1 等于 2 呢？",
        "nodes": [{"node_id": "n", "expressions": ["x+1=2"]}],
    },
    {
        "problem_id": "twin-a",
        "problem": "Which of the two twins is the older one?",
        "ground_truth": "A",
        "nodes": [{"node_id": "n", "expressions": ["a>b"]}],
    },
    {
        "problem_id": "twin-b",
        "problem": "Which of the two twins is the older one?",
        "ground_truth": "B",
        "nodes": [{"node_id": "n", "expressions": ["b>a"]}],
    },
]


@pytest.fixture(scope="session")
def dataset_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small dataset on disk."""
    return rows.write_rows(tmp_path_factory.mktemp("dataset") / "problems.jsonl", PROBLEMS)


@pytest.fixture(scope="session")
def index(dataset_file: Path) -> DatasetIndex:
    """The same, loaded."""
    return DatasetIndex.load(dataset_file)


@pytest.fixture(scope="session")
def texts(dataset_file: Path, index: DatasetIndex) -> ProblemTexts:
    """The texts of its problems."""
    numbered = ((index.image.find(p.problem_id), p.problem) for p in read_problems(dataset_file))
    return build_texts((at, text) for at, text in numbered if at is not None)


@dataclass
class Reply:
    """What came back.

    Attributes:
        code: of HTTP.
        headers: with names in lower case.
        body: decoded from JSON.
    """

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
    try:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(
            method, path, raw, {"Content-Type": "application/json", **(headers or {})}
        )
        response = connection.getresponse()
        text = response.read()
        received = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, received, json.loads(text) if text else None)
    finally:
        connection.close()


class InProcessServer(servers.InProcessServer):
    """A worker's two faces on an event loop in a thread.

    Attributes:
        http_address: where it listens for HTTP; ``address`` is that of gRPC.
    """

    def __init__(
        self,
        config: ServerConfig,
        datasets: dict[str, DatasetIndex],
        texts: dict[str, ProblemTexts],
    ) -> None:
        self._texts = texts
        super().__init__(config, datasets)

    async def _start(self, config: ServerConfig, datasets: dict[str, DatasetIndex]) -> None:
        await super()._start(config, datasets)
        self._front = build_front(config, self.built, servers.ANY_PORT)
        for name, index in self.built.scorer.datasets.items():
            self._front.batches.add(index, self._texts[name])
        await self._front.start()
        self.http_address = f"127.0.0.1:{self._front.port}"

    async def _drain(self, how: Draining) -> int:
        self._front.announce_shutdown()
        dropped = await super()._drain(how)
        await self._front.stop()
        return dropped

    def post(self, path: str, body: object, method: str = "POST") -> Reply:
        """Send one request."""
        return request(self.http_address, path, body, method)

    def sizes(self) -> list[int]:
        """Return the number of rollouts of each piece that was scored."""
        return list(map(len, self.scorer.pieces))


Serve = Callable[..., InProcessServer]


@pytest.fixture
def serve(index: DatasetIndex, texts: ProblemTexts) -> Iterator[Serve]:
    """Start servers in this process; settings as keywords, ``names`` for several datasets."""
    with ExitStack() as running:

        def start(names: Sequence[str] = ("default",), **settings: Any) -> InProcessServer:
            config = ServerConfig(
                datasets=dict.fromkeys(names, Path("unused")),
                http_address=servers.ANY_PORT,
                **settings,
            )
            server = InProcessServer(
                config, dict.fromkeys(names, index), dict.fromkeys(names, texts)
            )
            return running.enter_context(closing(server))

        yield start


@pytest.fixture
def server(serve: Serve) -> InProcessServer:
    """A server in this process with the usual settings."""
    return serve()


class ServeProcess(servers.ServeProcess):
    """``consensuspr serve --http-address`` as a process.

    Attributes:
        http_address: where it listens for HTTP, once it does; ``address`` is that of gRPC.
    """

    http_address = ""

    def wait_until_listening(self) -> Self:
        super().wait_until_listening()
        log = self.log.read_text()
        self.http_address = log.partition("HTTP endpoint on http://")[2].split()[0]
        return self

    def post(self, path: str, body: object, method: str = "POST") -> Reply:
        """Send one request."""
        return request(self.http_address, path, body, method)


ServeReal = Callable[..., ServeProcess]


@pytest.fixture
def serve_real(dataset_file: Path, tmp_path: Path) -> Iterator[ServeReal]:
    """Start the command as a process; further arguments as given."""
    with ExitStack() as running:

        def start(
            *arguments: str,
            slow: bool = False,
            http_address: str = servers.ANY_PORT,
            dataset: Path = dataset_file,
        ) -> ServeProcess:
            own = ["--workers", "1", "--http-address", http_address, *arguments]
            command = servers.serve_command(dataset, *own)
            return running.enter_context(closing(ServeProcess(tmp_path, command, slow)))

        yield start
