"""Limits that requests in flight cannot run past together."""

from __future__ import annotations

import asyncio

import pytest

from consensusbench.llm import Budget, BudgetSpent, Spent
from consensuspr.errors import InputError


async def test_a_request_waits_while_others_may_give_some_back() -> None:
    budget = Budget(max_cost=1.0)
    await budget.reserve(Spent(0.6, 1, 10))
    waiting = asyncio.ensure_future(budget.reserve(Spent(0.6, 1, 10)))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    budget.settle(Spent(0.6, 1, 10), Spent(0.4, 1, 5))
    await waiting
    assert (budget.spent.cost, budget.in_flight) == (0.4, 1)


@pytest.mark.parametrize(
    ("budget", "sentence"),
    [
        (Budget(max_cost=0.5), r"the limit of \$0.5 leaves no further request: \$0.0000 is spent"),
        (Budget(max_requests=0), "the limit of 0 requests is reached"),
        (Budget(max_tokens=9), "the limit of 9 tokens leaves no further request: 0 are spent"),
    ],
)
async def test_what_can_never_fit_is_refused_at_once(budget: Budget, sentence: str) -> None:
    with pytest.raises(BudgetSpent, match=sentence):
        await budget.reserve(Spent(0.6, 1, 10))


async def test_a_limit_that_is_met_exactly_is_not_exceeded() -> None:
    budget = Budget(max_cost=0.3, max_requests=3, max_tokens=30)
    for _ in range(3):
        await budget.reserve(Spent(0.1, 1, 10))
        budget.settle(Spent(0.1, 1, 10), Spent(0.1, 1, 10))
    with pytest.raises(BudgetSpent):
        await budget.reserve(Spent(0.1, 1, 10))


async def test_what_earlier_runs_spent_counts() -> None:
    budget = Budget(max_requests=5)
    budget.charge_earlier(Spent(1.0, 5, 100))
    with pytest.raises(BudgetSpent):
        await budget.reserve(Spent(0, 1, 1))


@pytest.mark.parametrize("limit", [-1.0, float("nan"), float("inf")])
def test_a_limit_is_a_number(limit: float) -> None:
    with pytest.raises(InputError, match="max_cost must be 0 or more"):
        Budget(max_cost=limit)
