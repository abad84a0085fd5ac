"""The bar's rates and the report's sentences."""

from __future__ import annotations

import io
from collections import Counter

import pytest
from rich.console import Console

from consensusbench.cli.sample import Rates, print_estimate, print_report
from consensusbench.sampling import ModelCount, SampleEstimate, SampleReport


def test_rates_are_those_of_the_last_half_minute() -> None:
    now = 0.0
    rates = Rates(lambda: now)
    assert rates.update(100, 5000) == (0.0, 0.0)  # of an earlier run
    for _ in range(100):
        now += 1.0
        last = rates.update(100 + 2 * int(now), 5000 + 300 * int(now))
    assert last == pytest.approx((2.0, 300.0))
    now += 60.0
    assert rates.update(300, 35000) == (0.0, 0.0)


def printed(report: SampleReport, samples: bool = False) -> str:
    stream = io.StringIO()
    print_report(Console(file=stream, width=120), report, "r.jsonl", samples)
    return stream.getvalue()


def test_a_report_says_what_became_of_all_problems() -> None:
    report = SampleReport(
        written=12,
        problems=Counter({"complete": 2, "enough": 1, "few": 1, "not asked": 1}),
        models={"a": ModelCount(rollouts=8, correct=6, cut=1, cost=1.5), "b": ModelCount()},
        few={"p7": 1},
        not_asked={"p9": "no ground truth"},
    )
    shown = printed(report)
    assert "6 (75.0 %)" in shown and "$1.50" in shown and "r.jsonl: 12 rows" in shown
    assert (
        "2 problems complete, 1 with fewer rollouts, but enough, 1 with too few correct rollouts "
        "(first: 'p7'), 1 not asked (first: 'p9', no ground truth)"
    ) in shown
    assert "1 with samples missing (first: 'p7')" in printed(report, samples=True)


@pytest.mark.parametrize(
    ("estimate", "sentence"),
    [
        (
            SampleEstimate(most_tokens=None, most_cost=None),
            "no bound, since a model has no max_tokens",
        ),
        (
            SampleEstimate(most_tokens=5000, most_cost=None),
            "at most 5,000; cost: no bound, since a",
        ),
        (
            SampleEstimate(most_tokens=5000, most_cost=2.5),
            "tokens: at most 5,000; cost: at most $2.50",
        ),
    ],
)
def test_an_estimate_says_what_cannot_be_bounded(estimate: SampleEstimate, sentence: str) -> None:
    stream = io.StringIO()
    print_estimate(Console(file=stream, width=120), estimate)
    assert sentence in stream.getvalue()
