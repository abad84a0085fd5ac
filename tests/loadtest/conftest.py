"""A server that scores correctly and can be made to misbehave, and the command."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from consensuspr.cli import main
from consensuspr.client import LocalClient, Score
from consensuspr.scoring.types import ScoreColumns
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire.codec import decode_rollout, encode_score_response
from consensuspr.wire.server_info import encode_server_info
from tests.commands import Outcome, runner
from tests.rows import DUCKS, write_rows
from tests.servers import PlayedService, served

PROBLEMS = [DUCKS, {"problem_id": "bare", "ground_truth": "5", "nodes": []}]
ROLLOUTS = [
    {
        "problem_id": "ducks",
        "response": "16 - 3 - 4 = 9 eggs, so 9 * 2 = 18. \\boxed{18}",
    },
    {"problem_id": "ducks", "response": "16-3-4=9. \\boxed{17}"},
    {"problem_id": "bare", "response": "Answer: 5"},
]

Load = Callable[..., Outcome]


class PlayedServer(PlayedService):
    """Scores as a real server does, unless a script changes that.

    Attributes:
        script: called before each ``Score`` with its number from 0 and the context.
        bend: called with each score before it is sent; may change it.
        drop: number of scores missing at the end of each reply.
        sizes: rollouts of each ``Score`` call.
    """

    def __init__(self, dataset: Path) -> None:
        self._local = LocalClient(dataset)
        self.address = ""
        self.script: Callable[[int, Any], None] = lambda number, context: None
        self.bend: Callable[[Score], None] = lambda score: None
        self.drop = 0
        self.sizes: list[int] = []
        self._lock = threading.Lock()

    def ServerInfo(self, request: pb.ServerInfoRequest, context: Any) -> pb.ServerInfoResponse:
        info = encode_server_info(self._local.server_info())
        info.max_message_bytes, info.max_rollouts = 1 << 20, 256
        return info

    def Score(self, request: pb.ScoreRequest, context: Any) -> pb.ScoreResponse:
        with self._lock:
            number = len(self.sizes)
            self.sizes.append(len(request.rollouts))
        self.script(number, context)
        scored = self._local.score([decode_rollout(r) for r in request.rollouts])
        for score in scored:
            self.bend(score)
        columns = ScoreColumns.of(scored[: len(scored) - self.drop])
        return pb.ScoreResponse.FromString(encode_score_response(columns, scored.identity))

    def close(self) -> None:
        self._local.close()


def refuse(context: Any) -> None:
    """Refuse a call as an overloaded server does."""
    context.set_trailing_metadata((("retry-after-ms", "20"),))
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
    """A running server that can be made to misbehave."""
    servicer = PlayedServer(dataset)
    with servicer.running() as servicer.address:
        yield servicer
    servicer.close()


@pytest.fixture(scope="session")
def real_server(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real server."""
    options = ("--workers", "1", "--log-level", "error")
    with served(tmp_path_factory.mktemp("server"), f"small={dataset}", *options) as address:
        yield address


@pytest.fixture
def load(
    dataset: Path,
    rollouts: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Load:
    """Run a short ``consensuspr loadtest`` with the small rollouts, as JSON.

    A later option replaces an earlier one.
    """
    invoke = runner(main, capsys, monkeypatch)

    def run(address: str, *options: object, text: bool = False) -> Outcome:
        command = ["loadtest", "--address", address, "--dataset", dataset, "--rollouts", rollouts]
        command += ["--batch", 3, "--connections", 1, "--duration", 0.4]
        return invoke(*command, *options, *([] if text else ["--json"]))

    return run
