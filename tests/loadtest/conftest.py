"""A server that scores right and can be told to misbehave, a real one, and the command."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from consensuspr.cli import main
from consensuspr.client import LocalClient, Score
from consensuspr.loadtest.load import Target
from consensuspr.scoring.types import ScoreColumns, ScoreOptions
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire.codec import decode_rollout, encode_score_response
from consensuspr.wire.server_info import encode_server_info
from tests.commands import Outcome, runner
from tests.rows import DUCKS, write_rows
from tests.servers import PlayedService, served

PROBLEMS = [
    DUCKS,
    {"problem_id": "bare", "data_source": "toy", "ground_truth": "5", "nodes": []},
]

ROLLOUTS = [
    {
        "problem_id": "ducks",
        "rollout_id": "right",
        "response": "16 - 3 - 4 = 9 eggs, so 9 * 2 = 18. \\boxed{18}",
    },
    {"problem_id": "ducks", "rollout_id": "half", "response": "16-3-4=9. \\boxed{17}"},
    {"problem_id": "bare", "rollout_id": "bare", "response": "Answer: 5"},
]


class PlayedServer(PlayedService):
    """Scores as a real server does, unless a script says otherwise.

    Attributes:
        address: where it listens.
        script: called before each ``Score`` with its number from 0 and the context; may wait or
            abort.
        bend: called with each right score before it is sent; may change it.
        drop: so many scores are missing at the end of each reply.
        digest: said to be that of the dataset.
        numbers: how many ``Score`` calls there were.
        sizes: rollouts of each ``Score`` call.
    """

    def __init__(self, dataset: Path) -> None:
        self._local = LocalClient(dataset)
        self.address = ""
        self.digest = self._local.server_info().datasets[0].digest
        self.script: Callable[[int, Any], None] = lambda number, context: None
        self.bend: Callable[[Score], None] = lambda score: None
        self.drop = 0
        self.numbers = 0
        self.sizes: list[int] = []
        self._lock = threading.Lock()

    def ServerInfo(self, request: pb.ServerInfoRequest, context: Any) -> pb.ServerInfoResponse:
        info = encode_server_info(self._local.server_info())
        info.max_message_bytes, info.max_rollouts = 1 << 20, 256
        return info

    def Score(self, request: pb.ScoreRequest, context: Any) -> pb.ScoreResponse:
        with self._lock:
            number = self.numbers
            self.numbers += 1
            self.sizes.append(len(request.rollouts))
        self.script(number, context)
        scored = self._local.score([decode_rollout(r) for r in request.rollouts])
        for score in scored:
            self.bend(score)
        columns = ScoreColumns.of(scored[: len(scored) - self.drop])
        reply = pb.ScoreResponse.FromString(encode_score_response(columns, scored.identity))
        reply.identity.dataset_digest = self.digest
        return reply

    def close(self) -> None:
        self._local.close()


def refuse(context: Any, retry_after_ms: int = 20) -> None:
    """Refuse a call as an overloaded server does."""
    context.set_trailing_metadata((("retry-after-ms", str(retry_after_ms)),))
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too much unfinished work")


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small dataset on disk."""
    return write_rows(tmp_path_factory.mktemp("data") / "problems.jsonl", PROBLEMS)


@pytest.fixture(scope="session")
def rollouts(dataset: Path) -> Path:
    """Three rollouts on disk."""
    return write_rows(dataset.parent / "rollouts.jsonl", ROLLOUTS)


@pytest.fixture
def played(dataset: Path) -> Iterator[PlayedServer]:
    """A running server that can be told to misbehave."""
    servicer = PlayedServer(dataset)
    with servicer.running() as servicer.address:
        yield servicer
    servicer.close()


@pytest.fixture
def shed() -> Callable[[Any], None]:
    """Refuses a call as an overloaded server does."""
    return refuse


@pytest.fixture(scope="session")
def real_server(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real server."""
    options = ("--workers", "1", "--log-level", "error")
    with served(tmp_path_factory.mktemp("server"), f"small={dataset}", *options) as address:
        yield address


Load = Callable[..., Outcome]


@pytest.fixture(scope="session")
def target(dataset: Path) -> Target:
    """A server with the small dataset, as it would describe itself; nobody listens there."""
    with LocalClient(dataset) as local:
        return Target("127.0.0.1:1", local.server_info(), str(dataset), ScoreOptions())


@pytest.fixture
def load(
    dataset: Path,
    rollouts: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Load:
    """Run ``consensuspr loadtest`` on a server: short, with the small rollouts, as JSON.

    Settings without an option go by the environment.
    """
    invoke = runner(main, capsys, monkeypatch)
    monkeypatch.setattr("consensuspr.loadtest.processes.LEAD_S", 0.05)
    monkeypatch.setattr("consensuspr.loadtest.terminal.LINE_S", 600.0)

    def run(address: str, *options: object, text: bool = False, **settings: object) -> Outcome:
        command = ["loadtest", "--address", address, "--dataset", str(dataset)]
        given = [str(option) for option in options]
        if not {"--rollouts", "--generate"} & set(given):
            command += ["--rollouts", str(rollouts)]
        if "--batch" not in given and "verl" not in given:
            command += ["--batch", "3"]
        for name, value in ({"warmup": 0, "processes": 1} | settings).items():
            monkeypatch.setenv(f"CONSENSUSPR_LOADTEST_{name.upper()}", str(value))
        return invoke(*command, *given, *([] if text else ["--json"]))

    return run


@pytest.fixture
def stall() -> Callable[[float, float], Callable[[int, Any], None]]:
    """Return a script in which nothing is answered for a while, as in a long pause."""

    def make(after_s: float, for_s: float) -> Callable[[int, Any], None]:
        began: list[float] = []

        def script(number: int, context: Any) -> None:
            now = time.monotonic()
            if not began:
                began.append(now)
            start = began[0] + after_s
            if start <= now < start + for_s:
                time.sleep(start + for_s - now)

        return script

    return make
