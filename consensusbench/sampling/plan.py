"""What a sampling run is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from consensusbench.llm import ModelSettings, digest
from consensusbench.problems.sources import with_prompt
from consensuspr.data import Problem, Row
from consensuspr.errors import InputError
from consensuspr.scoring.types import AnswerRule

# Section 3.2 of the paper, stage 1.
PER_PROBLEM = 5
MINIMUM = 3
TEMPERATURE = 2.0
MAX_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class SampleSettings:
    """How many rollouts of what kind.

    Attributes:
        models: who is asked.
        per_problem: correct rollouts a problem, over all models.
        minimum: a problem with fewer is reported; construction leaves it out.
        max_attempts: rollouts that one model writes for one problem at most.
        samples: where not None, exactly so many rollouts a problem from each model, right or
            wrong, and the three numbers above do not count.
        rule: how the final answer is found; None: the dataset's own, else ``auto``.
        seed: sent with each request, plus the number of the attempt; None sends none.
    """

    models: tuple[ModelSettings, ...]
    per_problem: int = PER_PROBLEM
    minimum: int = MINIMUM
    max_attempts: int = MAX_ATTEMPTS
    samples: int | None = None
    rule: AnswerRule | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if not self.models:
            raise InputError("no model is named")
        for name, low in (("per_problem", 1), ("minimum", 1), ("max_attempts", 1), ("samples", 1)):
            value = getattr(self, name)
            if value is not None and not low <= value <= 10_000:
                raise InputError(f"{name} must be from {low} to 10,000, got {value}")
        if self.samples is None and self.minimum > self.per_problem:
            raise InputError(
                f"minimum must be at most per_problem={self.per_problem}, got {self.minimum}"
            )
        if self.samples is None and self.max_attempts * len(self.models) < self.per_problem:
            raise InputError(
                f"max_attempts={self.max_attempts} of {len(self.models)} models cannot give "
                f"per_problem={self.per_problem} rollouts"
            )

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
        return str(self.rule or problem.answer_rule or AnswerRule.AUTO)

    def identity(self) -> Row:
        """Return what must not change between runs on one journal, by name."""
        return {"prompt": digest(with_prompt("")), "seed": self.seed}

    def provenance(self) -> Row:
        """Return what a dataset that is built from the rollouts records about them."""
        kind: Row = (
            {
                "mode": "correct",
                "per_problem": self.per_problem,
                "minimum": self.minimum,
                "max_attempts": self.max_attempts,
            }
            if self.samples is None
            else {"mode": "samples", "samples": self.samples}
        )
        return {
            **kind,
            "answer_rule": None if self.rule is None else self.rule.value,
            "seed": self.seed,
            "prompt": with_prompt("{problem}"),
            "models": [model.provenance() for model in self.models],
        }


# MERGED Which model is asked next for a rollout of one problem: pure bookkeeping.
#
# The paper takes the union of N = 5 correct rollouts over its models (section 3.2).  Here the
# models take turns, so that each contributes; where N is no multiple of their number, the problem
# decides who is first.  A model that gives two wrong answers in a row gives way to the others,
# and is asked again only where they cannot fill the rest.  No more rollouts are in flight than
# are missing: none is paid for that is not needed.

GIVE_WAY_AFTER = 2


class Result(Enum):
    """What became of one attempt."""

    CORRECT = auto()
    WRONG = auto()  # undecided, cut at the limit of tokens and empty ones too
    REFUSED = auto()  # by the server, for good: the model is out for this problem
    LOST = auto()  # no reply: the model is out for this run


@dataclass(frozen=True, slots=True)
class Attempt:
    """A rollout to draw: of which model, and the how manieth of it (from 0)."""

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
    """The attempts at one problem.

    Args:
        models: how many there are.
        attempts_each: attempts that one model has.
        target: correct rollouts that are enough; None: every attempt is made.
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
        """Attempts that were taken and not settled."""
        return sum(len(seat.in_flight) for seat in self._seats)

    @property
    def at_least(self) -> int:
        """Attempts still to make if every one is correct."""
        open_ones = self.at_most
        return open_ones if self._target is None else min(open_ones, self._target - self.correct)

    @property
    def at_most(self) -> int:
        """Attempts still to make if none is correct."""
        return sum(self.left_of(model) for model in range(len(self._seats)))

    @property
    def is_short(self) -> bool:
        """Whether a later run could bring rollouts that are missing: a model was lost."""
        if self._target is not None and self.correct >= self._target:
            return False
        return any(seat.lost and seat.used < self._attempts_each for seat in self._seats)

    def left_of(self, model: int) -> int:
        """Return how many attempts of one model may still be made."""
        seat = self._seats[model]
        enough = self._target is not None and self.correct >= self._target
        out = seat.refused or seat.lost or enough
        return 0 if out else max(0, self._attempts_each - seat.used)

    def take(self) -> Attempt | None:
        """Return the next attempt to make now; None where none is needed or allowed."""
        if self._target is not None and self.correct + self.in_flight >= self._target:
            return None
        able = [model for model in range(len(self._seats)) if self.left_of(model)]
        if not able:
            return None
        model = min(able, key=self._rank)
        seat = self._seats[model]
        taken = seat.settled | seat.in_flight
        index = next(index for index in range(len(taken) + 1) if index not in taken)
        seat.in_flight.add(index)
        return Attempt(model, index)

    def settle(self, attempt: Attempt, result: Result) -> None:
        """Record what became of an attempt, of this run or an earlier one."""
        seat = self._seats[attempt.model]
        seat.in_flight.discard(attempt.index)
        if result is Result.LOST:
            seat.lost = True
            return
        seat.settled.add(attempt.index)
        match result:
            case Result.CORRECT:
                seat.correct += 1
                seat.wrong_in_a_row = 0
            case Result.WRONG:
                seat.wrong_in_a_row += 1
            case Result.REFUSED:
                seat.refused = True

    def leave_out(self, model: int) -> None:
        """Ask a model no more, since it does not answer anybody."""
        self._seats[model].lost = True

    def _rank(self, model: int) -> tuple[int, int, int, int]:
        """Order the models: the least is asked next."""
        seat = self._seats[model]
        behind = seat.wrong_in_a_row // GIVE_WAY_AFTER if self._target is not None else 0
        contributed = seat.correct + len(seat.in_flight)
        return behind, contributed, seat.used, (model - self._turn) % len(self._seats)
