"""HTTP with JSON as one would write it in an hour: FastAPI, uvicorn, the scorer in process.

``python -m benchmarks.suites.service.json_server DATASET``; one process, one scoring thread.
"""

from __future__ import annotations

import socket
import sys

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from consensuspr.scoring import AnswerVerifier, DatasetIndex, Rollout, Scorer


class Item(BaseModel):
    """One rollout."""

    problem_id: str
    response: str


class Batch(BaseModel):
    """A request."""

    rollouts: list[Item]


class Scored(BaseModel):
    """The score of one rollout."""

    status: str
    reward: float | None
    acc: float | None
    ncr: float | None
    matched: list[bool]


def application(dataset: str) -> FastAPI:
    """Return the application that scores against a dataset file."""
    index = DatasetIndex.load(dataset)
    scorer = Scorer({"default": index}, verifier=AnswerVerifier(workers=1), threads=1)
    app = FastAPI()

    def score(batch: Batch) -> list[Scored]:
        rollouts = [Rollout(item.problem_id, item.response) for item in batch.rollouts]
        scores, _ = scorer.score(rollouts)
        return [
            Scored(
                status=score.status,
                reward=score.reward,
                acc=score.acc,
                ncr=score.ncr,
                matched=list(score.matched),
            )
            for score in scores
        ]

    app.post("/score", response_model=list[Scored])(score)
    return app


def main() -> None:
    """Serve on a free port."""
    listener = socket.create_server(("127.0.0.1", 0))
    app = application(sys.argv[1])
    print(f"listening on 127.0.0.1:{listener.getsockname()[1]}", flush=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    server.run(sockets=[listener])


if __name__ == "__main__":
    main()
