"""What a scoring call returns, and putting it together from the replies to its requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from consensuspr.errors import IncompatibleServer, InputError, ServerFault
from consensuspr.scoring.types import Identity, Score
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire.replies import decode_explain_response, decode_identity, decode_score

if TYPE_CHECKING:
    from consensuspr.scoring.explain import Explanation


class ScoredBatch(list[Score]):
    """The scores of a batch in the order of its rollouts; a list, and one thing more.

    Attributes:
        identity: the dataset's digest, versions and reward that all of them were computed
            under; what a replay needs to get the same scores bit for bit.
    """

    identity: Identity

    def __init__(self, scores: Iterable[Score], identity: Identity) -> None:
        super().__init__(scores)
        self.identity = identity


class Assembly:
    """The scores of one call while its replies come in, in any order.

    Args:
        num_rollouts: of the call.

    Attributes:
        num_scored: rollouts that have their score.
        changed: whether replies came under different identities.
    """

    def __init__(self, num_rollouts: int) -> None:
        self._scores: list[Score | None] = [None] * num_rollouts
        self._identity: Identity | None = None
        self.num_scored = 0
        self.changed = False

    def put(self, position: int, score: Score) -> None:
        """Take the score of one rollout."""
        self._scores[position] = score
        self.num_scored += 1

    def put_reply(self, positions: Sequence[int], reply: pb.ScoreResponse) -> None:
        """Take the reply to the rollouts at ``positions``.

        Raises:
            ServerFault: it holds another number of scores, or was computed under another
                identity than an earlier reply of the same call.
            IncompatibleServer: it holds a value that this protocol version does not know.
        """
        if len(reply.scores) != len(positions):
            raise ServerFault(
                f"the server replied with {len(reply.scores)} scores to {len(positions)} rollouts"
            )
        try:
            identity = decode_identity(reply.identity)
            scores = list(map(decode_score, reply.scores))
        except InputError as error:
            raise IncompatibleServer(f"the server's reply cannot be read: {error}") from None
        if self._identity is None:
            self._identity = identity
        elif identity != self._identity:
            self.changed = True
            raise ServerFault(
                "the server changed during the call: some rollouts were scored under"
                f" {self._identity}, others under {identity}"
            )
        for position, score in zip(positions, scores, strict=True):
            self.put(position, score)

    def result(self) -> ScoredBatch:
        """Return the batch; every rollout has its score by now."""
        assert self._identity is not None, "a call sends at least one request"
        scores = [score for score in self._scores if score is not None]
        assert len(scores) == len(self._scores), "every rollout is put once"
        return ScoredBatch(scores, self._identity)


def read_explanation(reply: pb.ExplainResponse) -> Explanation:
    """Return the explanation of a reply.

    Raises:
        IncompatibleServer: it holds a value that this protocol version does not know.
    """
    try:
        return decode_explain_response(reply)
    except InputError as error:
        raise IncompatibleServer(f"the server's reply cannot be read: {error}") from None
