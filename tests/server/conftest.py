"""Servers in this process with a scorer that can be held up, and real ones as processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import grpc
import pytest

from consensuspr.scoring import DatasetIndex, Identity, Rollout, Score, Scorer
from consensuspr.server import service
from consensuspr.server.config import ServerConfig
from consensuspr.server.metrics import Metrics
from consensuspr.server.service import Draining, GrpcServer
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.v1.scoring_pb2_grpc import ScoringServiceStub

PROBLEMS = [
    {
        "problem_id": "ducks",
        "data_source": "toy",
        "ground_truth": "18",
        "nodes": [
            {"node_id": "left", "label": "eggs left", "expressions": ["16-3-4=9"]},
            {"node_id": "money", "label": "money", "expressions": ["9*2=18"], "is_final": True},
        ],
    },
    {"problem_id": "bare", "data_source": "plain", "ground_truth": "5", "nodes": []},
]

RIGHT = b"16 - 3 - 4 = 9 eggs are left, so 9 * 2 = 18. #### 18"


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


class HeldScorer(Scorer):
    """A scorer that runs a hook before each piece of work.

    Attributes:
        hook: called in the working thread with the rollouts of the piece.
        pieces: problem ids of each piece so far.
    """

    hook: Callable[[Sequence[Rollout]], None] = staticmethod(lambda rollouts: None)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pieces: list[list[str]] = []

    def score(self, rollouts: Sequence[Rollout], *how: Any) -> tuple[list[Score], Identity]:
        self.pieces.append([rollout.problem_id for rollout in rollouts])
        self.hook(rollouts)
        return super().score(rollouts, *how)


class InProcessServer:
    """A real gRPC server on an event loop in a thread.

    Attributes:
        address: where it listens.
        scorer: its scorer, with its hook.
        metrics: its metrics.
        stub: a client's side of it.
    """

    def __init__(self, config: ServerConfig, datasets: dict[str, DatasetIndex]) -> None:
        self.metrics = Metrics()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._stopped = False
        self.run(self._start(config, datasets))
        self.channel = grpc.insecure_channel(
            self.address,
            options=[
                ("grpc.max_send_message_length", -1),
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.enable_retries", 0),
            ],
        )
        self.stub = ScoringServiceStub(self.channel)

    def run(self, work: Any) -> Any:
        """Run a coroutine on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _start(self, config: ServerConfig, datasets: dict[str, DatasetIndex]) -> None:
        scorers: list[HeldScorer] = []

        def held(*args: Any, **kwargs: Any) -> HeldScorer:
            scorers.append(HeldScorer(*args, **kwargs))
            return scorers[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(service, "Scorer", held)
            self.built = service.build_service(config, datasets, self.metrics)
        [self.scorer] = scorers
        self._server = GrpcServer(self.built.service, int(config.max_message_bytes))
        self.address = f"127.0.0.1:{await self._server.start('127.0.0.1:0')}"

    def start_draining(self, how: Draining) -> Any:
        """Begin to drain; return the future of how many requests were dropped."""
        self._stopped = True
        return asyncio.run_coroutine_threadsafe(self._drain(how), self._loop)

    async def _drain(self, how: Draining) -> int:
        return await self._server.drain(how)

    def close(self) -> None:
        self.channel.close()
        if not self._stopped:
            self.start_draining(Draining(0, 0)).result(30)
        self.built.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


Serve = Callable[..., InProcessServer]


@pytest.fixture
def serve(index: DatasetIndex) -> Iterator[Serve]:
    """Start servers in this process; settings as keywords, ``names`` for several datasets."""
    servers: list[InProcessServer] = []

    def start(names: Sequence[str] = ("default",), **settings: Any) -> InProcessServer:
        config = ServerConfig(datasets=dict.fromkeys(names, Path("unused")), **settings)
        servers.append(InProcessServer(config, dict.fromkeys(names, index)))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def request_of(*responses: bytes, **fields: Any) -> pb.ScoreRequest:
    """Return a request with a rollout of the same problem for each response."""
    rollouts = [pb.Rollout(problem_id="ducks", response=response) for response in responses]
    return pb.ScoreRequest(rollouts=rollouts, **fields)


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
    """A server in a process of its own.

    Attributes:
        address: where it listens, once it does.
        log: its standard error.
        scratch: its folder of temporary files.
    """

    def __init__(self, folder: Path, arguments: Sequence[str], slow: bool = False) -> None:
        self.log = folder / "log"
        self.address = ""
        self.scratch = folder / "tmp"
        self.scratch.mkdir(parents=True)
        environment = {**os.environ, "TMPDIR": str(self.scratch)}
        if slow:
            (folder / "sitecustomize.py").write_text(SLOW_SCORING)
            environment["PYTHONPATH"] = str(folder)
        with self.log.open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=environment,
            )

    def wait_until_listening(self) -> Self:
        """Read the one line; fail with the log where there is none."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("listening on "), self.log.read_text()
        self.address = line.split()[-1]
        return self

    def worker_pids(self) -> list[int]:
        """Return the processes that the supervisor has now."""
        pid = self.process.pid
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(number) for number in text.split()]

    def close(self) -> None:
        """End it, however it is."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(30)


def run_with(settings: dict[str, Any], prelude: str = "") -> list[str]:
    """Return the arguments of an interpreter that calls ``run()`` after a prelude."""
    program = (
        "import json, sys\n"
        "from consensuspr.errors import ConsensusPRError, InputError\n"
        "from consensuspr.server import load_config, run\n"
        f"{prelude}\n"
        "try: sys.exit(run(load_config(overrides=json.loads(sys.argv[1]))))\n"
        "except InputError as error: print(error, file=sys.stderr); sys.exit(2)\n"
        "except ConsensusPRError as error: print(error, file=sys.stderr); sys.exit(1)\n"
    )
    return ["-c", program, json.dumps(settings)]


ServeReal = Callable[..., ServeProcess]


@pytest.fixture
def serve_real(dataset_file: Path, tmp_path: Path) -> Iterator[ServeReal]:
    """Start ``run()`` as a process; settings as keywords."""
    processes: list[ServeProcess] = []

    def start(prelude: str = "", slow: bool = False, **settings: Any) -> ServeProcess:
        defaults = {
            "datasets": {"default": str(dataset_file)},
            "address": "127.0.0.1:0",
            "workers": 1,
        }
        folder = tmp_path / f"server{len(processes)}"
        processes.append(ServeProcess(folder, run_with({**defaults, **settings}, prelude), slow))
        return processes[-1]

    yield start
    for server in processes:
        server.close()
