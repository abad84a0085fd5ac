"""Schedules: how many requests are due when."""

from __future__ import annotations

import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.errors import InputError
from consensuspr.loadtest.load import Arrivals, Load, LoadShape, due_times

CONSTANT, STEP, RAMP = LoadShape.CONSTANT, LoadShape.STEP, LoadShape.RAMP


def counts(load: Load, arrivals: Arrivals = Arrivals.CONSTANT, seed: int = 0) -> list[int]:
    """Return how many requests are due in each second, the warm-up's first."""
    dues = list(due_times(load, arrivals, seed))
    assert dues == sorted(dues)
    seconds = range(-round(load.warmup_s), round(load.duration_s))
    return [sum(second <= due < second + 1 for due in dues) for second in seconds]


@pytest.mark.parametrize(
    ("shape", "rate", "rate_end", "steps", "duration_s", "warmup_s", "per_second"),
    [
        (CONSTANT, 10, None, 5, 2, 0, [10, 10]),
        (CONSTANT, 10, None, 5, 1, 2, [10, 10, 10]),
        (CONSTANT, 0.5, None, 5, 4, 0, [1, 0, 1, 0]),
        (STEP, 10, 30, 3, 3, 0, [10, 20, 30]),
        (STEP, 30, 10, 3, 3, 1, [30, 30, 20, 10]),
        (STEP, 10, 20, 2, 4, 0, [10, 10, 20, 20]),
        (RAMP, 10, 50, 5, 4, 0, [15, 25, 35, 45]),
        (RAMP, 40, 20, 5, 2, 1, [40, 35, 25]),
    ],
)
def test_constant_arrivals(
    shape: LoadShape,
    rate: float,
    rate_end: float | None,
    steps: int,
    duration_s: float,
    warmup_s: float,
    per_second: list[int],
) -> None:
    load = Load.of(shape, rate, rate_end, steps, duration_s, warmup_s)
    found = counts(load)
    assert sum(found) == sum(per_second)
    assert all(abs(a - b) <= 1 for a, b in zip(found, per_second, strict=True))
    assert load.rate(-0.5) == load.rate(0) == rate
    assert load.rate(duration_s) == (rate if rate_end is None else rate_end)


def test_constant_arrivals_are_evenly_spaced() -> None:
    load = Load.of(CONSTANT, 8, None, 5, 2, 0)
    assert list(due_times(load, Arrivals.CONSTANT, 0)) == [n / 8 for n in range(16)]


@pytest.mark.parametrize(("shape", "end"), [(CONSTANT, None), (STEP, 300.0), (RAMP, 300.0)])
def test_poisson_arrivals_have_the_rate_and_its_spread(shape: LoadShape, end: float | None) -> None:
    load = Load.of(shape, 100, end, 2, 20, 0)
    totals = [sum(1 for _ in due_times(load, Arrivals.POISSON, seed)) for seed in range(60)]
    wanted = load.expected(20)
    assert statistics.mean(totals) == pytest.approx(wanted, abs=4 * (wanted / 60) ** 0.5)
    assert 0.5 < statistics.variance(totals) / wanted < 1.7
    gaps = [b - a for a, b in itertools.pairwise(due_times(load, Arrivals.POISSON, 1))]
    assert statistics.pstdev(gaps) / statistics.mean(gaps) > 0.8  # constant ones have 0


def test_poisson_arrivals_are_those_of_the_seed() -> None:
    load = Load.of(RAMP, 10, 50, 5, 5, 1)
    one, again, other = (list(due_times(load, Arrivals.POISSON, seed)) for seed in (1, 1, 2))
    assert one == again != other


@given(
    st.sampled_from(LoadShape),
    st.floats(0.5, 1000),
    st.floats(0.5, 1000),
    st.floats(0.5, 100),
    st.floats(0, 10),
    st.floats(0, 1),
)
def test_when_is_the_inverse_of_expected(
    shape: LoadShape, rate: float, end: float, duration_s: float, warmup_s: float, share: float
) -> None:
    load = Load.of(shape, rate, None if shape is CONSTANT else end, 4, duration_s, warmup_s)
    at_s = -warmup_s + share * (duration_s + warmup_s)
    found = load.when(load.expected(at_s) * (1 - 1e-12))
    assert found == pytest.approx(at_s, abs=1e-6)


@pytest.mark.parametrize(
    ("shape", "rate", "rate_end", "steps", "says"),
    [
        (CONSTANT, 0, None, 5, "--rate must be above 0 requests a second, got 0"),
        (CONSTANT, float("inf"), None, 5, "--rate must be above 0"),
        (CONSTANT, 5, 6, 5, "--rate-end goes with --load step or ramp"),
        (STEP, 5, None, 5, "--rate-end, which is not given"),
        (RAMP, 5, -1, 5, "--rate-end must be above 0 requests a second, got -1"),
        (STEP, 5, 6, 1, "--steps must be at least 2, got 1"),
    ],
)
def test_a_wrong_load_is_refused(
    shape: LoadShape, rate: float, rate_end: float | None, steps: int, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        Load.of(shape, rate, rate_end, steps, 1, 0)
