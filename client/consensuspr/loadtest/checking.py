"""Whether the scores that came back are right: the same rollouts through the in-process scorer.

Equal input has one right score, so that everything but the wording has to be equal, bit for
bit.  What a busy machine left undecided is not wrong: of such a rollout the nodes are compared
and nothing that hangs on its answer; but it is counted, because a server that decides nothing
is of no use.  A rollout that ended INTERNAL is a failure of the server
and is counted as one elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from consensuspr.client import LocalClient, Rollout, Score, Status
from consensuspr.loadtest.orders import Sample
from consensuspr.scoring.limits import Limits
from consensuspr.wire.info import ServerInfo
from consensuspr.wire.options import ScoreOptions

# Not among them: the sentence of a status and the way in which an answer was decided, which
# say how and not what.
_OF_NODES: tuple[str, ...] = ("ncr", "num_nodes", "num_matched", "matched", "tpn")
_ALL: tuple[str, ...] = ("status", "reward", "acc", *_OF_NODES, "answer")

# Answers that need computer algebra wait for one process; a check is no race.
_ANSWER_BUDGET_S = 10.0


@dataclass(frozen=True, slots=True)
class Difference:
    """One score that is not the right one.

    Attributes:
        rollout: which, as a person would find it again.
        field: the first that differs.
        served: what the server said.
        right: what it should have said.
    """

    rollout: str
    field: str
    served: str
    right: str

    def __str__(self) -> str:
        return (
            f"{self.rollout}: the server says {self.field}={self.served},"
            f" the in-process scorer {self.field}={self.right}"
        )


@dataclass(frozen=True, slots=True)
class Checked:
    """What the comparison found.

    Attributes:
        compared: scores that were compared.
        wrong: of which were not right.
        undecided: of which only the nodes were compared.
        unanswered: of which the server left an answer undecided that the scorer here decided.
        skipped: scores without a value to compare, because they ended INTERNAL.
        first: the first difference in the order of the pool; None where there is none.
    """

    compared: int = 0
    wrong: int = 0
    undecided: int = 0
    unanswered: int = 0
    skipped: int = 0
    first: Difference | None = None

    @property
    def unanswered_share(self) -> float:
        """Share of the compared scores whose answer only the scorer here decided, in [0, 1]."""
        return self.unanswered / self.compared if self.compared else 0.0

    def __str__(self) -> str:
        if self.wrong:
            found = f"{self.wrong:,} WRONG"
        else:
            found = "no difference" if self.undecided else "all equal"
        parts = f"{self.compared - self.undecided:,} in full, {self.undecided:,} nodes only; "
        return (
            f"{self.compared:,} scores compared with the in-process scorer:"
            f" {parts if self.undecided else ''}{found}"
        )


def check_samples(
    samples: Sequence[Sample],
    rollouts: Sequence[Rollout],
    dataset: str,
    server: ServerInfo,
    options: ScoreOptions,
) -> Checked:
    """Compare scores with those of the in-process scorer.

    Args:
        samples: scores that came back.
        rollouts: the pool that their positions are of.
        dataset: path of the dataset with the content that the server has.
        server: whose limits on one rollout hold here too.
        options: how the server was to score; its name of the dataset is not used here.

    Raises:
        DataError: the dataset cannot be read.
    """
    limits = Limits(
        max_response_bytes=server.max_response_bytes,
        max_inline_nodes=server.max_inline_nodes,
        max_expressions_per_node=server.max_expressions_per_node,
        max_expression_bytes=server.max_expression_bytes,
        max_inline_bytes=server.max_inline_bytes,
    )
    with LocalClient(dataset, answer_budget_s=_ANSWER_BUDGET_S, limits=limits) as local:
        positions = sorted({sample.position for sample in samples})
        scored = local.score(
            [rollouts[position] for position in positions],
            options.reward,
            options.epoch,
            answer_rule=options.answer_rule,
            on_undecided=options.on_undecided,
            include_spans=options.include_spans,
        )
    right = dict(zip(positions, scored, strict=True))
    compared = wrong = undecided = unanswered = skipped = 0
    first: Difference | None = None
    for sample in sorted(samples, key=lambda sample: sample.position):
        served, truth = sample.score, right[sample.position]
        if Status.INTERNAL in (served.status, truth.status):
            skipped += 1
            continue
        compared += 1
        fields = _ALL
        if _is_undecided(served) or _is_undecided(truth):
            undecided += 1
            unanswered += not _is_undecided(truth)
            fields = _OF_NODES
        differing = next((f for f in fields if getattr(served, f) != getattr(truth, f)), None)
        if differing is None:
            continue
        wrong += 1
        if first is None:
            first = Difference(
                _named(sample.position, rollouts[sample.position]),
                differing,
                _shown(getattr(served, differing)),
                _shown(getattr(truth, differing)),
            )
    return Checked(compared, wrong, undecided, unanswered, skipped, first)


def _is_undecided(score: Score) -> bool:
    return score.undecided_by_load or score.status is Status.ANSWER_UNDECIDED


def _named(position: int, rollout: Rollout) -> str:
    name = f", rollout_id {rollout.rollout_id!r}" if rollout.rollout_id else ""
    return f"rollout {position + 1} of those sent{name}, problem {rollout.problem_id!r}"


def _shown(value: object) -> str:
    return str(value) if isinstance(value, Status) else repr(value)
