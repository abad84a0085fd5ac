"""The settings of a sampling run, and which model is asked next for one problem.

The paper takes the union of N = 5 correct rollouts over its models (section 3.2).  Here the
models take turns, so that each contributes.  A model that gives two wrong answers in a row gives
way to the others.  No more requests are in flight than correct rollouts are missing.
"""

from __future__ import annotations

from dataclasses import dataclass
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


GIVE_WAY_AFTER = 2


class DrawResult(Enum):
    """What became of one draw."""

    CORRECT = auto()
    WRONG = auto()  # undecided, cut at the limit of tokens and empty ones too
    REFUSED = auto()  # by the server, for good: the model is out for this problem
    LOST = auto()  # no reply: the model is out for this run


@dataclass(frozen=True, slots=True)
class Draw:
    """One rollout of a problem: the number of the model, and of its rollout (from 0)."""

    model: int
    index: int


class ProblemPlan:
    """The draws for one problem: pure bookkeeping.

    Args:
        models: how many there are.
        attempts_each: draws of one model.
        target: correct rollouts that are enough; None: every draw is made.
        turn: number of the model that begins, taken modulo the number of models.
    """

    def __init__(self, models: int, attempts_each: int, target: int | None, turn: int = 0) -> None:
        self._models = range(models)
        self._attempts_each = attempts_each
        self._target = target
        self._turn = turn
        self._in_flight: list[set[int]] = [set() for _ in self._models]
        self._settled: list[set[int]] = [set() for _ in self._models]
        self._correct = [0] * models
        self._wrong_in_a_row = [0] * models
        self._refused: set[int] = set()
        self._lost: set[int] = set()

    @property
    def at_least(self) -> int:
        """Draws still to make if every one is correct."""
        if self._target is None:
            return self.at_most
        return min(self.at_most, self._target - sum(self._correct))

    @property
    def at_most(self) -> int:
        """Draws still to make if none is correct."""
        return sum(map(self.left_of, self._models))

    @property
    def is_short(self) -> bool:
        """Whether a later run could bring rollouts that are missing: a model was lost."""
        return not self._has_enough() and any(
            self._used(model) < self._attempts_each for model in self._lost
        )

    def left_of(self, model: int) -> int:
        """Return how many draws of one model may still be made."""
        if model in self._refused | self._lost or self._has_enough():
            return 0
        return max(0, self._attempts_each - self._used(model))

    def take(self) -> Draw | None:
        """Return the next draw to make now; None where none is needed or allowed."""
        able = [model for model in self._models if self.left_of(model)]
        if not able or self._has_enough(sum(map(len, self._in_flight))):
            return None
        model = min(able, key=self._rank)
        taken = self._settled[model] | self._in_flight[model]
        index = next(index for index in range(len(taken) + 1) if index not in taken)
        self._in_flight[model].add(index)
        return Draw(model, index)

    def settle(self, draw: Draw, result: DrawResult) -> None:
        """Record what became of a draw, of this run or an earlier one."""
        model, index = draw.model, draw.index
        self._in_flight[model].discard(index)
        if result is DrawResult.LOST:
            self._lost.add(model)
            return
        self._settled[model].add(index)
        if result is DrawResult.REFUSED:
            self._refused.add(model)
        elif result is DrawResult.WRONG:
            self._wrong_in_a_row[model] += 1
        else:
            self._correct[model] += 1
            self._wrong_in_a_row[model] = 0

    def leave_out(self, model: int) -> None:
        """Do not ask a model again, because it does not answer."""
        self._lost.add(model)

    def _used(self, model: int) -> int:
        return len(self._settled[model]) + len(self._in_flight[model])

    def _has_enough(self, hoped_for: int = 0) -> bool:
        return self._target is not None and sum(self._correct) + hoped_for >= self._target

    def _rank(self, model: int) -> tuple[int, int, int, int]:
        """Order the models: the least is asked next."""
        behind = self._wrong_in_a_row[model] // GIVE_WAY_AFTER if self._target is not None else 0
        contributed = self._correct[model] + len(self._in_flight[model])
        turn = (model - self._turn) % len(self._models)
        return behind, contributed, self._used(model), turn
