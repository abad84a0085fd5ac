"""What a sampling run is asked for, and which model is asked next for one problem.

The paper takes the union of N = 5 correct rollouts over its models (section 3.2).  Here the
models take turns, so that each contributes; where N is no multiple of their number, the problem
decides who is first.  A model that gives two wrong answers in a row gives way to the others, and
is asked again only where they cannot fill the rest.  No more rollouts are in flight than are
missing: none is paid for that is not needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Annotated, Self

from pydantic import Field, model_validator

from consensuspr.data import Problem
from consensuspr.scoring.types import AnswerRule
from consensuspr.settings import Settings

Count = Annotated[int, Field(ge=1, le=10_000)]
Limit = Annotated[int, Field(ge=0)]


class SampleSettings(Settings):
    """How many rollouts of what kind, within which limits; the numbers are the paper's."""

    per_problem: Count = Field(5, description="Correct rollouts a problem, over all models.")
    minimum: Count = Field(
        3, description="Problems with fewer correct rollouts are reported; build leaves them out."
    )
    max_attempts: Count = Field(10, description="Rollouts of one problem by one model at most.")
    samples: Count | None = Field(
        None,
        description="Draw exactly so many rollouts a problem from each model, right or wrong "
        "(pass@k).",
    )
    temperature: float = Field(
        2.0, description="Of models of which the models file says no other temperature."
    )
    top_p: float | None = Field(None, description="The same for top-p; else the server's.")
    max_tokens: int | None = Field(
        None,
        description="Longest reply of such models, reasoning included; else the server's limit.",
    )
    concurrency: int = Field(16, description="Requests to such a model in flight at once.")
    seed: int | None = Field(
        None, description="Sent with each request, plus the number of the rollout."
    )
    answer_rule: AnswerRule | None = Field(
        None,
        description="How the final answer is found; where not set, the dataset's own, else auto.",
    )
    only_correct: bool = Field(False, description="Leave wrong rollouts out of the output.")
    with_reasoning: bool = Field(
        False, description="Put what a model thought into the response, in `<think>` marks."
    )
    max_cost: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="Spend no more, in US dollars, in all runs together.",
    )
    max_requests: Limit | None = Field(
        None, description="Send no more requests in all runs together, repeated ones included."
    )
    max_tokens_total: Limit | None = Field(
        None, description="Use no more tokens in all runs together, prompts and replies."
    )
    grace: float = Field(
        30.0, ge=0, description="After Ctrl-C, wait so many seconds for open requests."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> SampleSettings:
        if self.samples is None and self.minimum > self.per_problem:
            raise ValueError(
                f"minimum must be at most per_problem={self.per_problem}, got {self.minimum}"
            )
        return self

    @property
    def attempts_each(self) -> int:
        """How many rollouts one model writes for one problem at most."""
        return self.max_attempts if self.samples is None else self.samples

    @property
    def target(self) -> int | None:
        """Correct rollouts after which a problem is finished; None: it is finished when drawn."""
        return self.per_problem if self.samples is None else None

    def rule_of(self, problem: Problem) -> str:
        """Return the rule that a problem's answers are looked for with."""
        return str(self.answer_rule or problem.answer_rule or AnswerRule.AUTO)


GIVE_WAY_AFTER = 2


class DrawResult(Enum):
    """What became of one draw."""

    CORRECT = auto()
    WRONG = auto()  # undecided, cut at the limit of tokens and empty ones too
    REFUSED = auto()  # by the server, for good: the model is out for this problem
    LOST = auto()  # no reply: the model is out for this run

    @classmethod
    def of(cls, correct: bool | None) -> Self:
        """Return that of a reply that was judged."""
        return cls.CORRECT if correct else cls.WRONG


@dataclass(frozen=True, slots=True)
class Draw:
    """One rollout of a problem: of which model, and the how manieth of it (from 0)."""

    model: int
    index: int


@dataclass(slots=True)
class _Seat:
    """How one model fares with the problem."""

    settled: set[int] = field(default_factory=set)
    in_flight: set[int] = field(default_factory=set)
    correct: int = 0
    wrong_in_a_row: int = 0
    refused: bool = False
    lost: bool = False

    @property
    def used(self) -> int:
        return len(self.settled) + len(self.in_flight)


class ProblemPlan:
    """The draws for one problem: pure bookkeeping.

    Args:
        models: how many there are.
        attempts_each: draws that one model has.
        target: correct rollouts that are enough; None: every draw is made.
        turn: who begins, taken modulo the number of models.
    """

    def __init__(self, models: int, attempts_each: int, target: int | None, turn: int = 0) -> None:
        self._seats = [_Seat() for _ in range(models)]
        self._attempts_each = attempts_each
        self._target = target
        self._turn = turn % models

    @property
    def correct(self) -> int:
        """Correct rollouts so far."""
        return sum(seat.correct for seat in self._seats)

    @property
    def in_flight(self) -> int:
        """Draws that were taken and not settled."""
        return sum(len(seat.in_flight) for seat in self._seats)

    @property
    def at_least(self) -> int:
        """Draws still to make if every one is correct."""
        open_ones = self.at_most
        return open_ones if self._target is None else min(open_ones, self._target - self.correct)

    @property
    def at_most(self) -> int:
        """Draws still to make if none is correct."""
        return sum(self.left_of(model) for model in range(len(self._seats)))

    @property
    def is_short(self) -> bool:
        """Whether a later run could bring rollouts that are missing: a model was lost."""
        if self._has_enough():
            return False
        return any(seat.lost and seat.used < self._attempts_each for seat in self._seats)

    def left_of(self, model: int) -> int:
        """Return how many draws of one model may still be made."""
        seat = self._seats[model]
        out = seat.refused or seat.lost or self._has_enough()
        return 0 if out else max(0, self._attempts_each - seat.used)

    def take(self) -> Draw | None:
        """Return the next draw to make now; None where none is needed or allowed."""
        if self._has_enough(self.in_flight):
            return None
        able = [model for model in range(len(self._seats)) if self.left_of(model)]
        if not able:
            return None
        model = min(able, key=self._rank)
        seat = self._seats[model]
        taken = seat.settled | seat.in_flight
        index = next(index for index in range(len(taken) + 1) if index not in taken)
        seat.in_flight.add(index)
        return Draw(model, index)

    def settle(self, draw: Draw, result: DrawResult) -> None:
        """Record what became of a draw, of this run or an earlier one."""
        seat = self._seats[draw.model]
        seat.in_flight.discard(draw.index)
        if result is DrawResult.LOST:
            seat.lost = True
            return
        seat.settled.add(draw.index)
        match result:
            case DrawResult.CORRECT:
                seat.correct += 1
                seat.wrong_in_a_row = 0
            case DrawResult.WRONG:
                seat.wrong_in_a_row += 1
            case DrawResult.REFUSED:
                seat.refused = True

    def leave_out(self, model: int) -> None:
        """Ask a model no more, since it does not answer anybody."""
        self._seats[model].lost = True

    def _has_enough(self, hoped_for: int = 0) -> bool:
        return self._target is not None and self.correct + hoped_for >= self._target

    def _rank(self, model: int) -> tuple[int, int, int, int]:
        """Order the models: the least is asked next."""
        seat = self._seats[model]
        behind = seat.wrong_in_a_row // GIVE_WAY_AFTER if self._target is not None else 0
        contributed = seat.correct + len(seat.in_flight)
        return behind, contributed, seat.used, (model - self._turn) % len(self._seats)
