"""How one request ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from consensuspr.scoring.types import Score

# Not gRPC's: the reply came and cannot be one of a reward server.
BAD_REPLY = "BAD_REPLY"
OK = "OK"
DEADLINE = "DEADLINE_EXCEEDED"


@dataclass(frozen=True, slots=True)
class Reply:
    """The scores that came back.

    Attributes:
        positions: of the rollouts in the pool, in the order of the scores.
        num_bytes: of their responses.
        statuses: how many scores have which status.
        digest: of the dataset that they were computed with.
        score: reads the score at a place of ``positions``.
    """

    positions: Sequence[int]
    num_bytes: int
    statuses: Mapping[str, int]
    digest: str
    score: Callable[[int], Score]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one request ended.

    Attributes:
        code: gRPC code of its end, ``OK``, or :data:`BAD_REPLY`.
        message: one sentence where it is not OK.
        shed: the server refused it for load.
        failed_attempts: codes of the attempts that failed, in order.
        retries: attempts beyond the first.
        retry_after_s: the server's hint with a refusal.
        reply: where it is OK.
    """

    code: str
    message: str = ""
    shed: bool = False
    failed_attempts: tuple[str, ...] = ()
    retries: int = 0
    retry_after_s: float | None = None
    reply: Reply | None = None
