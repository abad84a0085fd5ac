"""Limits that requests in flight cannot run past together, and those a minute."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.llm import Budget, BudgetSpent, Spent
from consensusbench.llm.limits import Pace
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


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_requests_are_spaced_evenly() -> None:
    pace = Pace(120, None, clock := Clock())
    assert [pace.book(9999) for _ in range(4)] == [0.0, 0.5, 1.0, 1.5]
    clock.now += 10
    # What was not used is not saved up.
    assert [pace.book(1), pace.book(1)] == [0.0, 0.5]


def test_tokens_hold_up_the_next_request_and_are_put_right() -> None:
    pace = Pace(None, 6000, Clock())  # 100 a second
    assert [pace.book(200), pace.book(100)] == [0.0, 2.0]
    pace.correct(200, 500)  # the first took 500
    assert pace.book(100) == 6.0


def test_a_hint_to_wait_holds_all() -> None:
    pace = Pace(None, None, clock := Clock())
    assert pace.book(5) == 0.0
    pace.hold(3.0)
    pace.hold(1.0)
    assert pace.book(5) == 3.0
    clock.now += 4
    assert pace.book(5) == 0.0


@given(
    st.lists(st.tuples(st.floats(0, 5), st.integers(1, 500)), min_size=1, max_size=60),
    st.integers(1, 600),
)
def test_no_minute_holds_more_requests_than_allowed(
    arrivals: list[tuple[float, int]], limit: int
) -> None:
    pace = Pace(limit, None, clock := Clock())
    starts = []
    for wait, tokens in arrivals:
        clock.now += wait
        starts.append(clock.now + pace.book(tokens))
    for first in starts:
        assert sum(first <= start < first + 60 - 1e-6 for start in starts) <= limit
