"""What the server makes of each problem: known, with nodes, with the same ground truth?

Each problem is asked for once, as a rollout without a ground truth: only then does the status
of an unknown problem differ from that of a known one without nodes.  Its response is the row's
ground truth in a box, so that Acc tells whether the server has the same; nothing is decided
from that alone, since a long or unbalanced truth does not survive a box.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from consensuspr.client.local import LocalClient
from consensuspr.client.sync import RewardClient
from consensuspr.client.training import VALIDATION_SPLITS, RewardSettings
from consensuspr.doctor.census import Side, Tally
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import AnswerRule, OnUndecided, Rollout, Score, Status

# In one call: its answer is waited for, and inline nodes may make it large.
BATCH = 512

_LONGEST_TRUTH = 200


@dataclass(slots=True)
class Question:
    """A problem to ask for.

    Attributes:
        side: whose row it is.
        rollout: of the row; what is asked is made from it.
        place: file and row, for examples.
        split: what the row says.
    """

    side: Side
    rollout: Rollout
    place: str
    split: str | None = None

    @property
    def truth(self) -> str:
        """The row's own ground truth, empty where it has none."""
        return (self.rollout.ground_truth or "").strip()

    def as_asked(self) -> Rollout:
        """Return the rollout to score."""
        return Rollout(
            problem_id=self.rollout.problem_id,
            response=f"\\boxed{{{self.truth}}}" if _fits_a_box(self.truth) else "",
            nodes=self.rollout.nodes,
        )


@dataclass(slots=True)
class Answers:
    """What the server said about the problems of one side.

    Attributes:
        asked: problems.
        known: of them in the dataset; those with inline nodes are not asked for.
        inline: of them with nodes in the row.
        with_nodes: of them with nodes, wherever from.
        unscorable: without reward, by reason.
        other_truth: whose ground truth in the row is not the server's.
        never_rewarded: all of ``unscorable``.
    """

    asked: int = 0
    known: int = 0
    inline: int = 0
    with_nodes: int = 0
    unscorable: dict[str, Tally] = field(default_factory=dict)
    other_truth: Tally = field(default_factory=Tally)

    @property
    def never_rewarded(self) -> int:
        """Return how many problems have no reward."""
        return sum(tally.count for tally in self.unscorable.values())


class Questioner:
    """Asks the server, some hundred problems at a time.

    Args:
        client: of the server, or of its dataset.
        dataset: name there.
        settings: of the reward, which says what a problem needs.
    """

    def __init__(
        self,
        client: RewardClient | LocalClient,
        dataset: str | None,
        settings: RewardSettings,
    ) -> None:
        self._client = client
        self._dataset = dataset
        self._settings = settings
        self._waiting: list[Question] = []
        self.answers = {side: Answers() for side in Side}

    def ask(self, question: Question) -> None:
        """Take a question; it is asked with others.

        Raises:
            RewardServiceError: the server failed.
        """
        self._waiting.append(question)
        if len(self._waiting) >= BATCH:
            self.finish()

    def finish(self) -> None:
        """Ask what is still waiting.

        Raises:
            RewardServiceError: the server failed.
        """
        if not self._waiting:
            return
        scores = self._client.score(
            [question.as_asked() for question in self._waiting],
            RewardSpec.outcome(),
            dataset=self._dataset,
            answer_rule=AnswerRule.AUTO,
            on_undecided=OnUndecided.MASK,
        )
        for question, score in zip(self._waiting, scores, strict=True):
            self._count(question, score)
        self._waiting.clear()

    def _count(self, question: Question, score: Score) -> None:
        answers = self.answers[question.side]
        answers.asked += 1
        example = f"{question.rollout.problem_id!r}, {question.place}"
        if question.rollout.nodes is not None:
            answers.inline += 1
        elif score.status is not Status.UNKNOWN_PROBLEM:
            answers.known += 1
        answers.with_nodes += bool(score.num_nodes)
        # Masked, an undecided answer has no reward: 0 is a verdict.
        if score.reward == 0 and _fits_a_box(question.truth):
            answers.other_truth.add(example)
        reason = self._why_unscorable(question, score)
        if reason is not None:
            answers.unscorable.setdefault(reason, Tally()).add(example)

    def _why_unscorable(self, question: Question, score: Score) -> str | None:
        """Return why a sample of the problem would have no reward; None where it has one."""
        if score.status is Status.INVALID_NODES:
            return f"with inline nodes that the server refuses: {score.message}"
        if score.status in (Status.OVERSIZE, Status.INTERNAL):
            return f"with status {score.status}: {score.message}"
        acc = 0.0 if question.truth or score.acc is not None else math.nan
        if (
            self._settings.validate_by_acc
            and question.split in VALIDATION_SPLITS
            and not math.isnan(acc)
        ):
            return None
        ncr = 0.0 if score.num_nodes else math.nan
        rewards = [self._settings.spec.compute([acc], [ncr], epoch)[0] for epoch in self._epochs()]
        if not any(math.isnan(reward) for reward in rewards):
            return None
        if score.status is Status.UNKNOWN_PROBLEM and not question.truth:
            return "unknown to the server, and without ground truth"
        if score.status is Status.UNKNOWN_PROBLEM:
            return "unknown to the server"
        return "without ground truth" if score.num_nodes else "without nodes"

    def _epochs(self) -> Iterator[int]:
        """Yield an epoch of each stage of the reward."""
        settings = self._settings
        if settings.reward != "curriculum":
            yield 0
        elif settings.epoch is not None:
            yield settings.epoch
        else:
            yield from {0, settings.switch_epoch}


def _fits_a_box(truth: str) -> bool:
    """Tell whether a ground truth in ``\\boxed{…}`` is read as it stands."""
    if not truth or len(truth) > _LONGEST_TRUTH or not truth.isprintable() or "boxed" in truth:
        return False
    depth = 0
    for character in truth:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0
