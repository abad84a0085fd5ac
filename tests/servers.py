"""Reward servers: played ones, real ones in this process with a scorer to hold up, processes."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import grpc
import psutil
import pytest

from consensuspr.scoring import DatasetIndex, Identity, Rollout, Scorer
from consensuspr.scoring.types import ScoreColumns
from consensuspr.server import service
from consensuspr.server.config import ServerConfig
from consensuspr.server.grpc_server import GrpcServer
from consensuspr.server.metrics import Metrics
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.v1.scoring_pb2_grpc import (
    ScoringServiceServicer,
    ScoringServiceStub,
    add_ScoringServiceServicer_to_server,
)
from tests.processes import end_those_with, wait_for

ANY_PORT = "127.0.0.1:0"


def free_port() -> int:
    """Return a free port that the system gives to no connection and no listener on port 0."""
    while True:
        port = random.SystemRandom().randrange(20_000, 30_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class PlayedService(ScoringServiceServicer):
    """What a server does that does not score for real; ``Score`` and ``ServerInfo`` are its own."""

    def Explain(self, request: pb.ExplainRequest, context: Any) -> pb.ExplainResponse:
        context.abort(grpc.StatusCode.INTERNAL, "not played")
        raise AssertionError

    @contextmanager
    def running(self) -> Iterator[str]:
        """Serve in this process; give the address."""
        threads = ThreadPoolExecutor(16)
        server = grpc.server(threads, options=[("grpc.max_receive_message_length", 64 << 20)])
        add_ScoringServiceServicer_to_server(self, server)
        port = server.add_insecure_port(ANY_PORT)
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(None).wait()
        threads.shutdown()  # calls that nobody waits for any more still run


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

    def score_columns(
        self, rollouts: Sequence[Rollout], *options: Any
    ) -> tuple[ScoreColumns, Identity]:
        self.pieces.append([rollout.problem_id for rollout in rollouts])
        self.hook(rollouts)
        return super().score_columns(rollouts, *options)


class Gate:
    """A hook that holds every piece of work up until it is opened.

    Attributes:
        entered: released by each piece that is held.
        open: set to let all go on.
    """

    def __init__(self, server: InProcessServer) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()
        server.scorer.hook = self._wait

    def _wait(self, rollouts: Sequence[Rollout]) -> None:
        self.entered.release()
        assert self.open.wait(120)


class InProcessServer:
    """A real gRPC server on an event loop in a thread.

    Attributes:
        address: where it listens.
        scorer: its scorer, with its hook.
        service: its service.
        metrics: its metrics.
        stub: a client's side of it.
    """

    def __init__(self, config: ServerConfig, datasets: dict[str, DatasetIndex]) -> None:
        self.metrics = Metrics()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._stopped = False
        self._run(self._start(config, datasets)).result(60)
        self.channel = grpc.insecure_channel(
            self.address,
            options=[
                ("grpc.max_send_message_length", -1),
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.enable_retries", 0),
            ],
        )
        self.stub = ScoringServiceStub(self.channel)

    def _run(self, work: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _start(self, config: ServerConfig, datasets: dict[str, DatasetIndex]) -> None:
        scorers: list[HeldScorer] = []

        def held(*args: Any, **kwargs: Any) -> HeldScorer:
            scorers.append(HeldScorer(*args, **kwargs))
            return scorers[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(service, "Scorer", held)
            self.service = service.ScoringService(config, datasets, self.metrics)
        [self.scorer] = scorers
        self._server = GrpcServer(self.service, config)
        self.address = f"127.0.0.1:{await self._server.start(ANY_PORT)}"

    def start_draining(self, grace_s: float) -> Future[int]:
        """Begin to drain; return the future of how many requests were dropped."""
        self._stopped = True
        return self._run(self._drain(grace_s))

    async def _drain(self, grace_s: float) -> int:
        return await self._server.drain(0, grace_s)

    def metric(self, name: str, **labels: str) -> float | None:
        """Return one value of its metrics, None if nothing was counted."""
        return self.metrics.registry.get_sample_value(f"consensuspr_{name}", labels)

    def close(self) -> None:
        self.channel.close()
        if not self._stopped:
            self.start_draining(0).result(60)
        self.service.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


# Run by every interpreter of such a server at its start: makes a response of the form
# "SLEEP <seconds>" take that long, which no real answer does for sure, and leaves a file when it
# begins.
SLOW_SCORING = """
import time
from pathlib import Path
from consensuspr.scoring import scorer

score = scorer.Scorer.score_columns

def slow_score(self, rollouts, *options):
    for rollout in rollouts:
        if rollout.response.startswith(b"SLEEP "):
            Path(__file__).with_name("asleep").touch()
            time.sleep(float(rollout.response.split()[1]))
    return score(self, rollouts, *options)

scorer.Scorer.score_columns = slow_score
"""


class ServeProcess:
    """A server in a process of its own.

    Args:
        folder: gets a folder for the server's files.
        arguments: of the interpreter.
        slow: whether a response may say how long it takes.

    Attributes:
        address: where it listens, once it does.
        log: its standard error.
        scratch: its folder of temporary files.
    """

    def __init__(self, folder: Path, arguments: Sequence[str], slow: bool = False) -> None:
        own = Path(tempfile.mkdtemp(prefix="server", dir=folder))
        self.log = own / "log"
        self.address = ""
        self.scratch = own / "tmp"
        self.scratch.mkdir()
        environment = {**os.environ, "TMPDIR": str(self.scratch)}
        if slow:
            (own / "sitecustomize.py").write_text(SLOW_SCORING)
            environment["PYTHONPATH"] = str(own)
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

    def wait_until_asleep(self) -> None:
        """Wait until a request is in work that takes as long as it says."""
        wait_for((self.log.parent / "asleep").exists)

    def worker_pids(self) -> list[int]:
        """Return the processes that the supervisor has now."""
        return [child.pid for child in psutil.Process(self.process.pid).children()]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, nothing where it has ended, and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)

    def close(self) -> None:
        """End it and all that it started, however they are."""
        self.process.kill()
        self.process.wait()
        end_those_with("TMPDIR", str(self.scratch))
        assert self.process.stdout is not None
        self.process.stdout.close()


def serve_command(dataset: Path | str, *options: str, address: str = ANY_PORT) -> list[str]:
    """Return the arguments of an interpreter that is ``consensuspr serve``."""
    command = ["-m", "consensuspr.cli", "serve", "--address", address]
    return [*command, "--dataset", str(dataset), *options]


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


@contextmanager
def served(folder: Path, dataset: Path | str, *options: str) -> Iterator[str]:
    """Serve a dataset by the command; give the address, and demand an orderly end."""
    with closing(ServeProcess(folder, serve_command(dataset, *options))) as server:
        yield server.wait_until_listening().address
        assert server.stop() == 0


class PlayedDns:
    """A name server that knows one name, over UDP on a free port.

    Args:
        name: ``HOST:PORT``, for the target.

    Attributes:
        addresses: of the name, IPv4.
        target: of a client that asks it for the name.
    """

    def __init__(self, name: str) -> None:
        self.addresses = ["127.0.0.1"]
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        asked_at = self._socket.getsockname()[1]
        self.target = f"dns://127.0.0.1:{asked_at}/{name}"

    def _serve(self) -> None:
        while True:
            query, client = self._socket.recvfrom(512)
            if not query:
                return
            end = query.index(b"\0", 12) + 1
            kind, question = query[end : end + 2], query[12 : end + 4]
            found = self.addresses if kind == b"\0\1" else []  # type A
            answers = b"".join(
                # A pointer to the name asked for, type, class, seconds to live, four bytes.
                b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4" + socket.inet_aton(address)
                for address in found
            )
            counts = b"\0\1" + len(found).to_bytes(2, "big") + b"\0\0\0\0"
            self._socket.sendto(query[:2] + b"\x85\x80" + counts + question + answers, client)

    def close(self) -> None:
        self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()
