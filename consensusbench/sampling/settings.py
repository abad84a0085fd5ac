"""What a sampling run is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from consensusbench.export.prompt import with_prompt
from consensusbench.models import ModelSettings, digest
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
