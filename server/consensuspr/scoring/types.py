"""The values that cross the scoring boundary: what is asked, and what became of it.

Both the gRPC client and the in-process scorer take :class:`Rollout` and return
:class:`Score`, so that a caller cannot tell one from the other.  Plain slotted
dataclasses without validation on purpose: a batch builds thousands of them while
GPUs wait; the scorer checks what needs checking and answers with a status.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from consensuspr.scoring.rewards import RewardSpec


class Status(StrEnum):
    """What became of one rollout; a failure is a status and never a reward of 0."""

    OK = "OK"
    ANSWER_UNDECIDED = "ANSWER_UNDECIDED"
    NO_NODES = "NO_NODES"
    NO_GROUND_TRUTH = "NO_GROUND_TRUTH"
    UNKNOWN_PROBLEM = "UNKNOWN_PROBLEM"
    INVALID_NODES = "INVALID_NODES"
    OVERSIZE = "OVERSIZE"
    INTERNAL = "INTERNAL"


class AnswerRule(StrEnum):
    """How the final answer is found and compared (``docs/answers.md``)."""

    AUTO = "auto"
    DAPO = "dapo"
    BOXED = "boxed"
    GSM8K = "gsm8k"


class OnUndecided(StrEnum):
    """What an answer that the verifier could not decide does to the reward."""

    COUNT_WRONG = "count_wrong"
    MASK = "mask"


@dataclass(slots=True)
class InlineNode:
    """A consensus node sent with a rollout: patterns only, nothing is derived from it."""

    expressions: Sequence[str]
    node_id: str = ""
    derived: Sequence[str] = ()


@dataclass(slots=True)
class Rollout:
    """One response of a policy to one problem.

    Attributes:
        problem_id: key of the problem in the dataset.
        response: text of the response; UTF-8 if bytes, invalid bytes are tolerated.
        ground_truth: overrides the dataset's; None or blank counts as not given.
        num_tokens: length of the response in tokens, for TPN; 0 or less counts as not given.
        nodes: overrides the dataset's nodes where not None; an element is an
            :class:`InlineNode` or a plain sequence of expressions.
        data_source: label for metrics; does not affect scoring.
        rollout_id: name for logs; does not affect scoring.
    """

    problem_id: str
    response: str | bytes
    ground_truth: str | None = None
    num_tokens: int | None = None
    nodes: Sequence[InlineNode | Sequence[str]] | None = None
    data_source: str | None = None
    rollout_id: str | None = None


@dataclass(slots=True)
class Score:
    """The score of one rollout; None where the status says that a value is unknown.

    Attributes:
        status: what became of the rollout; read it before any number.
        reward: the combined reward, in [0, 1].
        acc: final-answer accuracy, 0.0 or 1.0.
        ncr: Node Coverage Rate in [0, 1] (equation 1 of the paper).
        num_nodes: nodes of the problem, 0 where unknown.
        num_matched: nodes found in the response.
        matched: one bool per node, in node order.
        tpn: tokens per matched node (equation 2); None without tokens or matches.
        spans: for each node the half-open code point span of its first hit in the
            response, None where not matched; None as a whole unless spans were asked for.
        message: one sentence where the status is not OK, else empty.
        answer: the answer taken from the response, None where none was found.
        answer_method: how acc was decided (``docs/answers.md``), empty where it was not.
    """

    status: Status
    reward: float | None = None
    acc: float | None = None
    ncr: float | None = None
    num_nodes: int = 0
    num_matched: int = 0
    matched: tuple[bool, ...] = ()
    tpn: float | None = None
    spans: tuple[tuple[int, int] | None, ...] | None = None
    message: str = ""
    answer: str | None = None
    answer_method: str = ""

    @property
    def undecided_by_load(self) -> bool:
        """Whether a busy machine, not the answer, kept the answer from being checked."""
        return self.answer_method in ("load", "deadline")


@dataclass(slots=True, frozen=True)
class Identity:
    """All that a replay needs to reproduce a batch's rewards bit for bit."""

    dataset: str
    dataset_digest: str
    normal_form_version: str
    answer_version: str
    reward: RewardSpec
    epoch: int
    answer_rule: AnswerRule
    server_version: str
