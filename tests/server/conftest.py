"""Servers in this process and as processes, on a small dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from consensuspr.scoring import DatasetIndex
from consensuspr.server.config import ServerConfig
from consensuspr.v1 import PROTOCOL_VERSION
from consensuspr.v1 import scoring_pb2 as pb
from tests.rows import DUCKS, DUCKS_SOLVED, write_rows
from tests.servers import ANY_PORT, InProcessServer, ServeProcess, run_with

PROBLEMS = [
    DUCKS,
    {"problem_id": "bare", "data_source": "plain", "ground_truth": "5", "nodes": []},
]
RIGHT = DUCKS_SOLVED.encode()

Serve = Callable[..., InProcessServer]
ServeReal = Callable[..., ServeProcess]


@pytest.fixture(scope="session")
def dataset_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small dataset on disk."""
    return write_rows(tmp_path_factory.mktemp("dataset") / "problems.jsonl", PROBLEMS)


@pytest.fixture(scope="session")
def index(dataset_file: Path) -> DatasetIndex:
    """The same, loaded."""
    return DatasetIndex.load(dataset_file)


@pytest.fixture
def serve(index: DatasetIndex) -> Iterator[Serve]:
    """Start servers in this process; settings as keywords, ``names`` for several datasets."""
    with ExitStack() as servers:

        def start(names: Sequence[str] = ("default",), **settings: Any) -> InProcessServer:
            config = ServerConfig(datasets=dict.fromkeys(names, Path("unused")), **settings)
            server = InProcessServer(config, dict.fromkeys(names, index))
            return servers.enter_context(closing(server))

        yield start


@pytest.fixture
def serve_real(dataset_file: Path, tmp_path: Path) -> Iterator[ServeReal]:
    """Start ``run()`` as a process; settings as keywords."""
    usual = {"datasets": {"default": str(dataset_file)}, "address": ANY_PORT, "workers": 1}
    with ExitStack() as servers:

        def start(prelude: str = "", slow: bool = False, **settings: Any) -> ServeProcess:
            server = ServeProcess(tmp_path, run_with(usual | settings, prelude), slow)
            return servers.enter_context(closing(server))

        yield start


def request_of(*responses: bytes, **fields: Any) -> pb.ScoreRequest:
    """Return a request with a rollout of the same problem for each response."""
    rollouts = [pb.Rollout(problem_id="ducks", response=response) for response in responses]
    return pb.ScoreRequest(rollouts=rollouts, **{"protocol_version": PROTOCOL_VERSION, **fields})
