"""What the service is compared with, each in a process: ``python -m benchmarks.children.peers``.

``echo``: an empty gRPC server that takes any request and replies as asked, which is what a service
costs that does nothing.  The first four bytes of a request, little-endian, say how many bytes to
reply with.

``json DATASET``: HTTP with JSON as one would write it in an hour: FastAPI, uvicorn, the scorer in
process; one process, one scoring thread.

:func:`ray_actor`, the same scoring in a Ray actor, is called where Ray is installed.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from pydantic import BaseModel

from benchmarks.measure import WrongAnswerError, fastest
from consensuspr.client import RewardClient
from consensuspr.scoring import AnswerVerifier, DatasetIndex, Rollout, Score, ScoreOptions, Scorer
from consensuspr.scoring.rewards import RewardSpec

ECHO_SERVICE = "benchmarks.Echo"
ECHO_METHOD = f"/{ECHO_SERVICE}/Echo"
ECHO_SIZE_BYTES = 4

REWARD = RewardSpec.linear()
ACTOR = "Ray actor call"
SERVER = "server, RewardClient"
SCORING = "in-process scoring"


async def _echo(request: bytes, _: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
    return bytes(int.from_bytes(request[:ECHO_SIZE_BYTES], "little"))


async def echo() -> None:
    # As the reward server has it; its other options pay for nothing here.
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    handler = grpc.unary_unary_rpc_method_handler(_echo)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(ECHO_SERVICE, {"Echo": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"listening on 127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


def check(name: str, scores: Sequence[Score], expected: Sequence[Score]) -> None:
    """Raise WrongAnswerError where a contender's scores are not the expected ones."""
    if list(scores) != list(expected):
        raise WrongAnswerError(f"{name} does not give the scores of in-process scoring")


class JsonItem(BaseModel):
    """One rollout."""

    problem_id: str
    response: str


class JsonBatch(BaseModel):
    """A request."""

    rollouts: list[JsonItem]


class JsonScore(BaseModel):
    """The score of one rollout."""

    status: str
    reward: float | None
    acc: float | None
    ncr: float | None
    matched: list[bool]


def application(dataset: str) -> Any:
    """Return the FastAPI application that scores against a dataset file."""
    from fastapi import FastAPI

    index = DatasetIndex.load(dataset)
    scorer = Scorer({"default": index}, verifier=AnswerVerifier(workers=1), threads=1)
    app = FastAPI()

    def score(batch: JsonBatch) -> list[JsonScore]:
        rollouts = [Rollout(item.problem_id, item.response) for item in batch.rollouts]
        scores, _ = scorer.score(rollouts)
        return [
            JsonScore(
                status=score.status,
                reward=score.reward,
                acc=score.acc,
                ncr=score.ncr,
                matched=list(score.matched),
            )
            for score in scores
        ]

    app.post("/score", response_model=list[JsonScore])(score)
    return app


def json_server(dataset: str) -> None:
    """Serve on a free port."""
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0))
    app = application(dataset)
    print(f"listening on 127.0.0.1:{listener.getsockname()[1]}", flush=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    server.run(sockets=[listener])


class ScoringActor:
    """A scorer of one thread."""

    def __init__(self, dataset: Path) -> None:
        verifier = AnswerVerifier(workers=1)
        self._scorer = Scorer({"default": DatasetIndex.load(dataset)}, verifier=verifier, threads=1)

    def score(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """Score a batch."""
        return self._scorer.score(rollouts, ScoreOptions(REWARD))[0]


def ray_actor(
    dataset: Path, rollouts: list[Rollout], address: str, rounds: int, counts: Sequence[int]
) -> dict[int, dict[str, float]]:
    """Time the same scoring in a Ray actor and by the reward server at an address.

    Returns the microseconds a rollout of each way, by number of rollouts in a batch.
    """
    import ray

    # Ray's own typing says nothing of an actor's methods.
    runtime: Any = ray
    runtime.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    actor = runtime.remote(ScoringActor).remote(dataset)
    here = ScoringActor(dataset)
    found = {}
    with RewardClient(address) as client:
        for count in counts:
            batch = rollouts[:count]
            ways: dict[str, Callable[[], list[Score]]] = {
                SCORING: partial(here.score, batch),
                SERVER: partial(client.score, batch, REWARD),
                ACTOR: partial(_call, runtime, actor, batch),
            }
            expected = here.score(batch)
            for name, way in ways.items():
                check(name, way(), expected)
            best = fastest(ways, rounds)
            found[count] = {name: seconds / count * 1e6 for name, seconds in best.items()}
    runtime.shutdown()
    return found


def _call(runtime: Any, actor: Any, rollouts: Sequence[Rollout]) -> list[Score]:
    scores: list[Score] = runtime.get(actor.score.remote(rollouts))
    return scores


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["echo"]:
            asyncio.run(echo())
        case ["json", path]:
            json_server(path)
        case _:
            sys.exit(__doc__)
