"""From the rollouts of a call to its requests: what fits, in pieces, built when needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from consensuspr.client.pipeline import Job
from consensuspr.client.results import Assembly
from consensuspr.errors import InputError
from consensuspr.scoring.limits import exceeds
from consensuspr.scoring.types import Rollout, Score, Status
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire.info import ServerInfo
from consensuspr.wire.options import ScoreOptions
from consensuspr.wire.pieces import PIECE_BYTES, PIECE_ROLLOUTS, cut
from consensuspr.wire.requests import encode_rollout_field, join_score_request

# Tags, lengths and the request's own fields, well above what they can take.
_ENVELOPE_BYTES = 64 * 1024

# How often a call is scored anew because the server changed under it: once for an update or a
# restart, once more for bad luck.  Past that, servers of different content share an address.
MAX_CHANGES = 2

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server takes, as far as a client has to know.

    Attributes:
        max_response_bytes: of one response.
        max_message_bytes: of one request.
        max_rollouts: in one request.
    """

    max_response_bytes: int
    max_message_bytes: int
    max_rollouts: int

    @classmethod
    def of(cls, info: ServerInfo) -> Limits:
        """Return the limits that a server announced."""
        return cls(info.max_response_bytes, info.max_message_bytes, info.max_rollouts)


class _Piece(NamedTuple):
    """One rollout as it will be sent, with its place in the batch."""

    position: int
    encoded: bytes


class ScorePlan:
    """The requests of one scoring call.

    A rollout that no request can carry is scored OVERSIZE here, without being sent; all
    others go out.  At least one request is made, also for an empty batch: it brings the
    identity, and an unknown dataset is an error whatever the batch holds.

    Args:
        rollouts: the batch, in order.
        options: how to score it.
        limits: of the server.
        progress: called after each reply with the number of rollouts scored and of all.
        encoded: of all rollouts, what :func:`encode_checked` returned, where that is known.
    """

    def __init__(
        self,
        rollouts: Sequence[Rollout],
        options: ScoreOptions,
        limits: Limits,
        progress: Progress | None = None,
        encoded: Sequence[bytes] | None = None,
    ) -> None:
        self._rollouts = rollouts
        self._encoded = encoded
        self._options = options
        self._limits = limits
        self._progress = progress
        self._changes = 0
        self.assembly = Assembly(len(rollouts))

    def jobs(self) -> Iterator[Job[pb.ScoreResponse]]:
        """Yield the requests in order, each built when it is asked for."""
        max_bytes = min(PIECE_BYTES, self._limits.max_message_bytes - _ENVELOPE_BYTES)
        max_rollouts = min(PIECE_ROLLOUTS, self._limits.max_rollouts)
        for piece in cut(self._pieces(), lambda p: len(p.encoded), max_bytes, max_rollouts):
            yield self._job(piece)

    def start_over(self) -> bool:
        """Forget all scores where the call failed because the server changed in its midst.

        Scores of one call are all of one identity, and those that there are belong to an older
        one; scoring is a pure function, so that all of them can be had again.

        Returns:
            Whether the call is to be made again.
        """
        if not self.assembly.changed or self._changes == MAX_CHANGES:
            return False
        self._changes += 1
        self.assembly = Assembly(len(self._rollouts))
        return True

    def _job(self, piece: list[_Piece]) -> Job[pb.ScoreResponse]:
        request = join_score_request((p.encoded for p in piece), self._options)
        positions = [p.position for p in piece]

        def deliver(reply: pb.ScoreResponse) -> None:
            self.assembly.put_reply(positions, reply)
            if self._progress is not None:
                self._progress(self.assembly.num_scored, len(self._rollouts))

        return Job(request, deliver)

    def _pieces(self) -> Iterator[_Piece]:
        for position, rollout in enumerate(self._rollouts):
            fault = self._oversize(rollout)
            if fault is None:
                encoded = (
                    encode_checked(position, rollout)
                    if self._encoded is None
                    else self._encoded[position]
                )
                if len(encoded) + _ENVELOPE_BYTES <= self._limits.max_message_bytes:
                    yield _Piece(position, encoded)
                    continue
                fault = (
                    f"the rollout has {len(encoded)} bytes; a request holds at most"
                    f" {self._limits.max_message_bytes}"
                )
            self.assembly.put(position, Score(Status.OVERSIZE, message=fault))

    def _oversize(self, rollout: Rollout) -> str | None:
        """Return why the response is too large, in the words of the scorer; else None."""
        if not isinstance(rollout.response, str | bytes):
            return None  # of no size; encoding will say what is wrong
        limit = self._limits.max_response_bytes
        size = exceeds(rollout.response, limit)
        return None if size is None else f"the response has {size} bytes; the limit is {limit}"


def encode_checked(position: int, rollout: Rollout) -> bytes:
    """Return the rollout at a position of its batch as it stands in a request.

    Raises:
        InputError: a field has a wrong type.
    """
    try:
        return encode_rollout_field(rollout)
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"rollouts[{position}] has a field of a wrong type: {error}") from None
