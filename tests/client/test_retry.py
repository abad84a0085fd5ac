"""When an attempt is repeated, and after how long."""

from __future__ import annotations

import math

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.client.pipeline import Deadline, RetryPolicy
from consensuspr.client.transport import RpcFailure
from consensuspr.errors import InputError

GONE = RpcFailure(grpc.StatusCode.UNAVAILABLE, "gone")


def most(low: float, high: float) -> float:
    assert low == 0.0
    return high


@pytest.mark.parametrize(
    ("attempts", "ceiling"), [(1, 0.1), (2, 0.2), (3, 0.4), (6, 3.2), (7, 5.0), (10_000, 5.0)]
)
def test_the_wait_doubles_up_to_its_bound(attempts: int, ceiling: float) -> None:
    assert RetryPolicy().delay_s(attempts, GONE, most) == pytest.approx(ceiling)


@given(st.integers(1, 100), st.floats(0, 1), st.none() | st.floats(0, 10))
def test_the_wait_is_jitter_after_the_hint(
    attempts: int, share: float, hint_s: float | None
) -> None:
    failure = RpcFailure(grpc.StatusCode.UNAVAILABLE, "", hint_s)
    policy = RetryPolicy(initial_backoff_s=0.5, max_backoff_s=4.0)
    delay_s = policy.delay_s(attempts, failure, lambda low, high: low + share * (high - low))
    assert delay_s is not None
    assert (hint_s or 0.0) <= delay_s <= (hint_s or 0.0) + 4.0


def test_a_failure_that_is_not_transient_is_not_repeated() -> None:
    failure = RpcFailure(grpc.StatusCode.INVALID_ARGUMENT, "no", retry_after_s=1.0)
    assert RetryPolicy().delay_s(1, failure, most) is None


def test_attempts_can_be_bounded() -> None:
    policy = RetryPolicy(max_attempts=2)
    assert policy.delay_s(1, GONE, most) is not None
    assert policy.delay_s(2, GONE, most) is None


@pytest.mark.parametrize(
    "arguments",
    [{"initial_backoff_s": 0}, {"initial_backoff_s": 9, "max_backoff_s": 5}, {"max_attempts": 0}],
)
def test_a_policy_without_sense_is_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(InputError):
        RetryPolicy(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout_s", [0, -1, math.nan, math.inf])
def test_a_timeout_must_be_a_positive_time(timeout_s: float) -> None:
    with pytest.raises(InputError, match="timeout_s must be a positive number of seconds, got"):
        Deadline.after(timeout_s)


def test_remaining_time_runs_down() -> None:
    now = [100.0]
    deadline = Deadline.after(2.5, clock=lambda: now[0])
    now[0] = 101.0
    assert deadline.remaining_s() == pytest.approx(1.5)
    assert "timeout_s=2.5" in str(deadline.error("Score"))
