"""What a run would ask and cost, without asking: bounds, not guesses.

The least is what it takes if every answer is correct; the most, if none is.  Requests that have
to be repeated (a busy server, a cut connection) come on top.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from consensusbench.models import ModelSettings
from consensusbench.models.tokens import most_tokens
from consensusbench.sampling.records import Records
from consensusbench.sampling.sampler import questions_of, restored_plan, why_not_asked
from consensusbench.sampling.settings import SampleSettings
from consensuspr.data import Problem, Row


@dataclass(slots=True)
class Estimate:
    """Bounds on a run.

    Attributes:
        problems: looked at.
        not_asked: of these, cannot be asked.
        recorded: replies that the journal has already.
        least_requests: if every answer is correct.
        most_requests: if none is.
        most_tokens: of prompts and replies; None where a model has no ``max_tokens``.
        most_cost: US dollars; None where a model has no ``max_tokens`` or no price.
        spent: US dollars that earlier runs paid.
    """

    problems: int = 0
    not_asked: int = 0
    recorded: int = 0
    least_requests: int = 0
    most_requests: int = 0
    most_tokens: int | None = 0
    most_cost: float | None = 0.0
    spent: float = 0.0

    def to_json(self) -> Row:
        """Return it ready for ``json.dumps``."""
        return asdict(self)


async def estimate(
    problems: Iterable[Problem], settings: SampleSettings, records: Records
) -> Estimate:
    """Return what is left to do; recorded replies without a verdict count as correct."""
    total = Estimate(spent=records.earlier.cost)
    for problem in problems:
        total.problems += 1
        if why_not_asked(problem, settings) is not None:
            total.not_asked += 1
            continue
        questions = questions_of(problem, settings)
        plan = await restored_plan(questions, settings, records)
        total.least_requests += plan.at_least
        total.most_requests += plan.at_most
        for number, question in enumerate(questions):
            total.recorded += len(records.indices(question))
            left = plan.left_of(number)
            if left:
                _add(total, question.model, most_tokens(question.messages), left)
    return total


def _add(total: Estimate, model: ModelSettings, prompt: int, requests: int) -> None:
    """Add the most that so many requests can take."""
    if model.max_tokens is None:
        total.most_tokens = total.most_cost = None
        return
    if total.most_tokens is not None:
        total.most_tokens += requests * (prompt + model.max_tokens)
    cost = model.cost(prompt, model.max_tokens)
    if cost is None or total.most_cost is None:
        total.most_cost = None
    else:
        total.most_cost += requests * cost
