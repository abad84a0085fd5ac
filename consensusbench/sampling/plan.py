"""The settings of a sampling run, and the choice of the model that is asked next for a problem.

The paper takes the union of N = 5 correct rollouts over its models (section 3.2).  Here the
models take turns, so that each contributes.  A model that gives two wrong answers in a row gives
way to the others.  Each round asks for as many rollouts as correct ones are missing.
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
    """Numbers and limits of a sampling run; the defaults are those of the paper."""

    per_problem: Count = Field(5, description="Correct rollouts of each problem, over all models.")
    minimum: Count = Field(
        3, description="Fewest correct rollouts of a problem; `build` leaves out those with fewer."
    )
    max_attempts: Count = Field(10, description="Most rollouts of one problem by one model.")
    samples: Count | None = Field(
        None,
        description="Rollouts of each problem by each model, correct or not; for pass@k.",
    )
    temperature: float = Field(2.0, description="Temperature, unless the models file sets one.")
    top_p: float | None = Field(
        None, description="Top-p, unless the models file sets one. Default: the server's."
    )
    max_tokens: int | None = Field(
        None,
        description="Tokens of the longest reply, with reasoning. Default: the server's limit.",
    )
    concurrency: int = Field(16, description="Requests to a model in flight at a time.")
    seed: int | None = Field(
        None, description="Seed of the requests; the number of the rollout is added."
    )
    answer_rule: AnswerRule | None = Field(
        None,
        description="Rule that finds the final answer. Default: the dataset's rule, else auto.",
    )
    only_correct: bool = Field(False, description="Leave wrong rollouts out of the output.")
    with_reasoning: bool = Field(
        False, description="Put the reasoning of the model into the response, in `<think>` marks."
    )
    max_cost: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="US dollars to spend at most, in all runs together.",
    )
    max_requests: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Requests to send at most, in all runs together."
    )
    grace: float = Field(30.0, ge=0, description="Seconds to wait for open requests after Ctrl-C.")

    @model_validator(mode="after")
    def _fits_together(self) -> SampleSettings:
        if "minimum" not in self.model_fields_set:
            object.__setattr__(self, "minimum", min(self.minimum, self.per_problem))
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
    REFUSED = auto()  # by the server: the model is out for this problem
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
        self._results: list[dict[int, DrawResult]] = [{} for _ in range(models)]
        self._wrong_in_a_row = [0] * models
        self._lost: set[int] = set()
        self._attempts_each = attempts_each
        self._target = target
        self._turn = turn

    @property
    def is_short(self) -> bool:
        """Whether a later run could bring rollouts that are missing: a model was lost."""
        correct = sum(map(self._correct_of, range(len(self._results))))
        has_enough = self._target is not None and correct >= self._target
        return not has_enough and any(
            len(self._results[model]) < self._attempts_each for model in self._lost
        )

    def _correct_of(self, model: int) -> int:
        return list(self._results[model].values()).count(DrawResult.CORRECT)

    def next_draws(self) -> list[Draw]:
        """Return the draws to make now, at once: as many as correct rollouts are missing."""
        free = {
            model: [index for index in range(self._attempts_each) if index not in results]
            for model, results in enumerate(self._results)
            if model not in self._lost and DrawResult.REFUSED not in results.values()
        }
        if self._target is None:
            return [Draw(model, index) for model, indices in free.items() for index in indices]
        draws: list[Draw] = []
        contributed = [self._correct_of(model) for model in range(len(self._results))]
        for _ in range(self._target - sum(contributed)):
            able = [model for model, indices in free.items() if indices]
            if not able:
                break
            model = min(
                able,
                key=lambda model: (
                    self._wrong_in_a_row[model] // GIVE_WAY_AFTER,
                    contributed[model],
                    self._attempts_each - len(free[model]),
                    (model - self._turn) % len(self._results),
                ),
            )
            contributed[model] += 1
            draws.append(Draw(model, free[model].pop(0)))
        return draws

    def settle(self, draw: Draw, result: DrawResult) -> None:
        """Record the result of a draw, of this run or an earlier one."""
        if result is DrawResult.LOST:
            self._lost.add(draw.model)
            return
        self._results[draw.model][draw.index] = result
        self._wrong_in_a_row[draw.model] += 1
        if result is DrawResult.CORRECT:
            self._wrong_in_a_row[draw.model] = 0

    def leave_out(self, model: int) -> None:
        """Do not ask a model again, because it does not answer."""
        self._lost.add(model)
