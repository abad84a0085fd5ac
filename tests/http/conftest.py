"""Servers with the HTTP endpoint: in this process with a scorer to hold up, and real ones."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the HTTP endpoint needs the extra http")
pytest.importorskip("uvicorn", reason="the HTTP endpoint needs the extra http")

from consensuspr.data import read_problems
from consensuspr.http.problems import ProblemTexts
from consensuspr.http.problems import build as build_texts
from consensuspr.http.worker import build_front
from consensuspr.scoring import DatasetIndex, Identity, Rollout, Score, Scorer
from consensuspr.server import service
from consensuspr.server.config import ServerConfig
from consensuspr.server.metrics import Metrics
from consensuspr.server.service import Draining, GrpcServer

DUCKS = "Janet's ducks lay 16 eggs per day. She eats 3 and bakes with 4. What do 9 at $2 make?"
PROBLEMS = [
    {
        "problem_id": "ducks",
        "data_source": "toy",
        "problem": DUCKS,
        "ground_truth": "18",
        "nodes": [
            {"node_id": "left", "label": "eggs left", "expressions": ["16-3-4=9"]},
            {"node_id": "money", "label": "money", "expressions": ["9*2=18"], "is_final": True},
        ],
    },
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
    path = tmp_path_factory.mktemp("dataset") / "problems.jsonl"
    path.write_text("".join(json.dumps(problem) + "\n" for problem in PROBLEMS))
    return path


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


def post(address: str, path: str, body: object, method: str = "POST") -> Reply:
    """Send one request on a connection of its own; bytes go as they are."""
    host, port = address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=120)
    try:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, raw, {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, headers, json.loads(text) if text else None)
    finally:
        connection.close()


class HeldScorer(Scorer):
    """A scorer that runs a hook before each piece of work.

    Attributes:
        hook: called in the working thread with the rollouts of the piece.
        pieces: the number of rollouts of each piece so far.
    """

    hook: Callable[[Sequence[Rollout]], None] = staticmethod(lambda rollouts: None)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pieces: list[int] = []

    def score(self, rollouts: Sequence[Rollout], *how: Any) -> tuple[list[Score], Identity]:
        self.pieces.append(len(rollouts))
        self.hook(rollouts)
        return super().score(rollouts, *how)


class InProcessServer:
    """A worker's two faces on an event loop in a thread.

    Attributes:
        address: of HTTP.
        grpc_address: of gRPC.
        scorer: its scorer, with its hook.
        metrics: its metrics.
    """

    def __init__(
        self,
        config: ServerConfig,
        datasets: dict[str, DatasetIndex],
        texts: dict[str, ProblemTexts],
    ) -> None:
        self.metrics = Metrics()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._stopping: Any = None
        self.run(self._start(config, datasets, texts))

    def run(self, work: Any) -> Any:
        """Run a coroutine on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _start(
        self,
        config: ServerConfig,
        datasets: dict[str, DatasetIndex],
        texts: dict[str, ProblemTexts],
    ) -> None:
        scorers: list[HeldScorer] = []

        def held(*args: Any, **kwargs: Any) -> HeldScorer:
            scorers.append(HeldScorer(*args, **kwargs))
            return scorers[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(service, "Scorer", held)
            self.built = service.build_service(config, datasets, self.metrics)
        [self.scorer] = scorers
        self._server = GrpcServer(self.built.service, int(config.max_message_bytes))
        self.grpc_address = f"127.0.0.1:{await self._server.start('127.0.0.1:0')}"
        self._front = build_front(config, self.built, texts, "127.0.0.1:0")
        await self._front.start()
        self.address = f"127.0.0.1:{self._front.port}"

    def post(self, path: str, body: object, method: str = "POST") -> Reply:
        """Send one request."""
        return post(self.address, path, body, method)

    def start_draining(self, how: Draining) -> Any:
        """Go down as a worker does; return the future of how many requests were dropped."""
        self._stopping = asyncio.run_coroutine_threadsafe(self._drain(how), self._loop)
        return self._stopping

    async def _drain(self, how: Draining) -> int:
        self._front.announce_shutdown()
        dropped = await self._server.drain(how)
        await self._front.stop()
        return dropped

    def close(self) -> None:
        if self._stopping is None:
            self.start_draining(Draining(0, 0))
        self._stopping.result(30)
        self.built.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


Serve = Callable[..., InProcessServer]


@pytest.fixture
def serve(index: DatasetIndex, texts: ProblemTexts) -> Iterator[Serve]:
    """Start servers in this process; settings as keywords, ``names`` for several datasets."""
    servers: list[InProcessServer] = []

    def start(names: Sequence[str] = ("default",), **settings: Any) -> InProcessServer:
        config = ServerConfig(
            datasets=dict.fromkeys(names, Path("unused")), http_address="127.0.0.1:0", **settings
        )
        servers.append(
            InProcessServer(config, dict.fromkeys(names, index), dict.fromkeys(names, texts))
        )
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def server(serve: Serve) -> InProcessServer:
    """A server in this process with the usual settings."""
    return serve()


# Run by every interpreter of such a server at its start: makes a response of the form
# "SLEEP <seconds>" take that long, which no real answer does for sure.
SLOW_SCORING = """
import time
from consensuspr.scoring import scorer

score = scorer.Scorer.score

def slow_score(self, rollouts, *how):
    for rollout in rollouts:
        if rollout.response.startswith(b"SLEEP "):
            time.sleep(float(rollout.response.split()[1]))
    return score(self, rollouts, *how)

scorer.Scorer.score = slow_score
"""


class ServeProcess:
    """``consensuspr serve --http-address`` as a process.

    Attributes:
        address: of HTTP, once it listens.
        grpc_address: of gRPC.
        log: its standard error.
    """

    def __init__(self, folder: Path, arguments: Sequence[str], slow: bool) -> None:
        self.log = folder / "log"
        self.address = self.grpc_address = ""
        self.scratch = folder / "tmp"
        self.scratch.mkdir()
        environment = {**os.environ, "TMPDIR": str(self.scratch)}
        if slow:
            (folder / "sitecustomize.py").write_text(SLOW_SCORING)
            environment["PYTHONPATH"] = str(folder)
        with self.log.open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "consensuspr.cli", "serve", *arguments],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=environment,
            )

    def wait_until_listening(self) -> ServeProcess:
        """Read the one line; fail with the log where there is none."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("listening on "), self.log.read_text()
        self.grpc_address = line.split()[-1]
        self.address = self.log.read_text().partition("HTTP endpoint on http://")[2].split()[0]
        return self

    def post(self, path: str, body: object, method: str = "POST") -> Reply:
        """Send one request."""
        return post(self.address, path, body, method)

    def worker_pids(self) -> list[int]:
        """Return the processes that the supervisor has now."""
        pid = self.process.pid
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(number) for number in text.split()]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(30)


ServeReal = Callable[..., ServeProcess]


@pytest.fixture
def serve_real(dataset_file: Path, tmp_path: Path) -> Iterator[ServeReal]:
    """Start the command as a process; further arguments as given."""
    processes: list[ServeProcess] = []

    def start(
        *arguments: str, slow: bool = False, http_address: str = "127.0.0.1:0"
    ) -> ServeProcess:
        folder = tmp_path / f"server{len(processes)}"
        folder.mkdir()
        usual = [
            "--dataset", str(dataset_file), "--address", "127.0.0.1:0", "--workers", "1",
            "--http-address", http_address,
        ]  # fmt: skip
        processes.append(ServeProcess(folder, [*usual, *arguments], slow))
        return processes[-1]

    yield start
    for process in processes:
        process.process.kill()
        process.process.wait()
        assert process.process.stdout is not None
        process.process.stdout.close()


@pytest.fixture
def wait_for() -> Callable[[Callable[[], bool]], None]:
    """Wait until a condition holds; fail where it does not within twenty seconds."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true"
            time.sleep(0.01)

    return wait
