"""A server that follows a script, and a real one."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import AnswerRule, Identity, Score, ScoreColumns, Status
from consensuspr.v1 import PROTOCOL_VERSION
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire.codec import encode_score_response
from tests.rows import DUCKS, write_rows
from tests.servers import PlayedService, served

IDENTITY = Identity(
    dataset="default",
    dataset_digest="sha256:0",
    normal_form_version="1",
    answer_version="1",
    reward=RewardSpec.linear(),
    epoch=0,
    answer_rule=AnswerRule.AUTO,
    server_version="0",
)


@dataclass(frozen=True)
class Held:
    """Calls that wait at the server: whether one has begun, and whether they may go on.

    They are over as well when the server learns that nobody waits for one of them any more.
    """

    started: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)


class ScriptedServer(PlayedService):
    """Answers each rollout with a score that names it; may misbehave.

    Attributes:
        address: where it listens.
        info: what ``ServerInfo`` says.
        info_script: called before each ``ServerInfo`` with its context; may abort.
        script: called before each ``Score`` with its number from 0, the request and the
            context; may abort, wait, or return a reply of its own.
        requests: the ``Score`` requests so far.
        peak: most ``Score`` calls at a time.
    """

    def __init__(self) -> None:
        self.info = pb.ServerInfoResponse(
            protocol_version=PROTOCOL_VERSION,
            max_response_bytes=16 << 20,
            max_message_bytes=64 << 20,
            max_rollouts=4096,
        )
        self.address = ""
        self.info_calls = 0
        self.info_script: Callable[[Any], None] | None = None
        self.script: Callable[[int, pb.ScoreRequest, Any], pb.ScoreResponse | None] | None = None
        self.requests: list[pb.ScoreRequest] = []
        self.timeouts: list[float | None] = []
        self.peak = 0
        self._running = 0
        self._lock = threading.Lock()

    def ServerInfo(self, request: pb.ServerInfoRequest, context: Any) -> pb.ServerInfoResponse:
        self.info_calls += 1
        if self.info_script is not None:
            self.info_script(context)
        return self.info

    def Score(self, request: pb.ScoreRequest, context: Any) -> pb.ScoreResponse:
        with self._lock:
            number = len(self.requests)
            self.requests.append(request)
            self.timeouts.append(context.time_remaining())
            self._running += 1
            self.peak = max(self.peak, self._running)
        try:
            reply = self.script(number, request, context) if self.script else None
            return reply or self.reply(request)
        finally:
            with self._lock:
                self._running -= 1

    def fail(
        self,
        code: grpc.StatusCode,
        details: str = "for a reason",
        times: float = math.inf,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Abort all ``Score`` calls, or the first ones."""

        def script(number: int, request: pb.ScoreRequest, context: Any) -> None:
            if number < times:
                context.set_trailing_metadata(metadata)
                context.abort(code, details)

        self.script = script

    def hold(self, problem_id: str = "", times: float = math.inf) -> Held:
        """Hold ``Score`` calls, the first ones or those that begin with a problem."""
        held = Held()

        def script(number: int, request: pb.ScoreRequest, context: Any) -> None:
            if number < times and request.rollouts[0].problem_id.startswith(problem_id):
                context.add_callback(held.over.set)
                held.started.set()
                held.over.wait(10)

        self.script = script
        return held

    def reply(
        self, request: pb.ScoreRequest, digest: str = "sha256:0", only: Any = None
    ) -> pb.ScoreResponse:
        """Return a reply in which each score's answer is its rollout's problem id."""
        scores = [
            only or Score(Status.OK, reward=1.0, answer=r.problem_id) for r in request.rollouts
        ]
        columns = ScoreColumns.of(scores)
        identity = replace(IDENTITY, dataset_digest=digest)
        return pb.ScoreResponse.FromString(encode_score_response(columns, identity))


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    """A running scripted server."""
    servicer = ScriptedServer()
    with servicer.running() as servicer.address:
        yield servicer


PROBLEMS = [
    DUCKS,
    {"problem_id": "bare", "data_source": "toy", "ground_truth": "5", "nodes": []},
    {"problem_id": "open", "nodes": [{"node_id": "a", "expressions": ["x=55"]}]},
]


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small dataset on disk."""
    return write_rows(tmp_path_factory.mktemp("dataset") / "problems.jsonl", PROBLEMS)


@pytest.fixture(scope="session")
def real_server(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real server with two workers."""
    with served(tmp_path_factory.mktemp("server"), dataset, "--workers", "2") as address:
        yield address
