"""The settings of a sampling run, and the choice of the model that is asked next for a problem.

The paper takes the union of N = 5 correct rollouts over its models (section 3.2).  Here the
models take turns, so that each contributes.  A model that gives two wrong answers in a row gives
way to the others.  No more requests are in flight than correct rollouts are missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Annotated

from pydantic import Field, model_validator

from consensuspr.data import Problem
from consensuspr.scoring.types import AnswerRule
from consensuspr.settings import Settings

Count = Annotated[int, Field(ge=1, le=10_000)]


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
        2.0, description="Temperature of models for which the models file has no other."
    )
    top_p: float | None = Field(None, description="Top-p of such models; else the server's.")
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
        False, description="Put the model's thinking into the response, in `<think>` marks."
    )
    max_cost: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="Spend no more, in US dollars, in all runs together.",
    )
    max_requests: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Ask for no more replies in all runs together."
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

    def rule_of(self, problem: Problem) -> str:
        """Return the rule that finds the answer to a problem."""
        return str(self.answer_rule or problem.answer_rule or AnswerRule.AUTO)


# A model that was wrong so often in a row gives way to the others.
GIVE_WAY_AFTER = 2


class DrawResult(Enum):
    """The result of one draw."""

    CORRECT = auto()
    WRONG = auto()  # undecided, cut at the limit of tokens and empty ones too
    REFUSED = auto()  # by the server, for good: the model is out for this problem
    LOST = auto()  # no reply: the model is out for this run


@dataclass(frozen=True, slots=True)
class Draw:
    """One rollout of a problem: the number of the model, and of its rollout (from 0)."""

    model: int
    index: int


@dataclass(slots=True)
class _ModelDraws:
    """The draws of one model; ``is_lost``: a later run may ask it again."""

    settled: set[int] = field(default_factory=set)
    in_flight: set[int] = field(default_factory=set)
    correct: int = 0
    wrong_in_a_row: int = 0
    is_refused: bool = False
    is_lost: bool = False

    @property
    def used(self) -> int:
        return len(self.settled) + len(self.in_flight)


class ProblemPlan:
    """The draws for one problem: pure bookkeeping.

    Args:
        models: how many there are.
        attempts_each: draws of one model.
        target: correct rollouts that are enough; None: every draw is made.
        turn: number of the model that begins, taken modulo the number of models.
    """

    def __init__(self, models: int, attempts_each: int, target: int | None, turn: int = 0) -> None:
        self._models = [_ModelDraws() for _ in range(models)]
        self._attempts_each = attempts_each
        self._target = target
        self._turn = turn

    @property
    def at_least(self) -> int:
        """Draws still to make if every one is correct."""
        return self.at_most if self._target is None else min(self.at_most, self._missing)

    @property
    def at_most(self) -> int:
        """Draws still to make if none is correct."""
        return sum(map(self.left_of, range(len(self._models))))

    @property
    def is_short(self) -> bool:
        """Whether a later run could bring rollouts that are missing: a model was lost."""
        left = (draws.is_lost and draws.used < self._attempts_each for draws in self._models)
        return self._missing > 0 and any(left)

    @property
    def _missing(self) -> int:
        """Correct rollouts that are missing; 1 if every draw is made."""
        if self._target is None:
            return 1
        return max(0, self._target - sum(draws.correct for draws in self._models))

    def left_of(self, model: int) -> int:
        """Return how many draws of one model may still be made."""
        draws = self._models[model]
        if draws.is_refused or draws.is_lost or not self._missing:
            return 0
        return max(0, self._attempts_each - draws.used)

    def take(self) -> Draw | None:
        """Return the next draw to make now; None if none is needed or allowed."""
        able = [model for model in range(len(self._models)) if self.left_of(model)]
        in_flight = sum(len(draws.in_flight) for draws in self._models)
        if not able or (self._target is not None and in_flight >= self._missing):
            return None
        model = min(able, key=self._rank)
        draws = self._models[model]
        taken = draws.settled | draws.in_flight
        index = next(index for index in range(len(taken) + 1) if index not in taken)
        draws.in_flight.add(index)
        return Draw(model, index)

    def settle(self, draw: Draw, result: DrawResult) -> None:
        """Record the result of a draw, of this run or an earlier one."""
        draws = self._models[draw.model]
        draws.in_flight.discard(draw.index)
        if result is DrawResult.LOST:
            draws.is_lost = True
            return
        draws.settled.add(draw.index)
        if result is DrawResult.REFUSED:
            draws.is_refused = True
        elif result is DrawResult.WRONG:
            draws.wrong_in_a_row += 1
        else:
            draws.correct += 1
            draws.wrong_in_a_row = 0

    def leave_out(self, model: int) -> None:
        """Do not ask a model again, because it does not answer."""
        self._models[model].is_lost = True

    def _rank(self, model: int) -> tuple[int, int, int, int]:
        """Order the models: the least is asked next."""
        draws = self._models[model]
        behind = 0 if self._target is None else draws.wrong_in_a_row // GIVE_WAY_AFTER
        contributed = draws.correct + len(draws.in_flight)
        turn = (model - self._turn) % len(self._models)
        return behind, contributed, draws.used, turn
