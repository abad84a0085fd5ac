"""What a trainer gets for a sample: always the same keys, always finite numbers."""

from __future__ import annotations

from dataclasses import dataclass

from consensuspr.errors import ConsensusPRError
from consensuspr.scoring.types import Score, Status


class UnscorableSample(ConsensusPRError):
    """A sample has no reward, for a reason that will not go away; none was made up for it.

    Attributes:
        status: which reason.
    """

    def __init__(self, status: Status, message: str) -> None:
        self.status = status
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class ScoredSample:
    """The reward of one sample, and how it came about.

    Attributes:
        reward: of the formula, in [0, 1]; or the user's own number (``on_unscorable``).
        score: what the scorer said.
        epoch: of the curriculum, from 0.
        scored_by: ``server`` or ``local``.
    """

    reward: float
    score: Score
    epoch: int
    scored_by: str

    def fields(self, overlong_penalty: float = 0.0) -> dict[str, float | int | str]:
        """Return the keys of every sample, in one order.

        Trainers average them, so that a number has to be there and finite where a value is
        unknown: it is 0 then, and ``status``, ``num_nodes`` and ``num_matched`` tell (acc
        without a verdict; ncr without nodes; tpn without matches or token counts).
        """
        score = self.score
        return {
            "score": self.reward,
            "acc": score.acc or 0.0,
            "ncr": score.ncr or 0.0,
            "num_nodes": score.num_nodes,
            "num_matched": score.num_matched,
            "tpn": score.tpn or 0.0,
            "overlong_penalty": overlong_penalty,
            "status": str(score.status),
        }
