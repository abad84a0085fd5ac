"""The course of an RPC without a network: order, bounds, retries, deadlines."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from functools import partial

import grpc
import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.client.pipeline import Attempt, Deadline, PendingRequest, Pipeline, RetryPolicy
from consensuspr.client.transport import RpcFailure
from consensuspr.errors import (
    DeadlineExceeded,
    InputError,
    InvalidRequest,
    Overloaded,
    RewardServiceError,
    Unavailable,
)
from consensuspr.v1 import scoring_pb2 as pb

Code = grpc.StatusCode
GONE = RpcFailure(Code.UNAVAILABLE, "gone")
LATE = RpcFailure(Code.DEADLINE_EXCEEDED, "upstream took too long")


class Course:
    """A pipeline over numbered requests, its clock, and what was delivered."""

    def __init__(
        self,
        num_jobs: int,
        *,
        max_in_flight: int = 3,
        timeout_s: float = 10.0,
        jitter: float = 1.0,
        policy: RetryPolicy | None = None,
    ) -> None:
        self.now = 0.0
        self.drawn = 0
        self.delivered: list[int] = []
        self.pipeline: Pipeline[Message] = Pipeline(
            self._jobs(num_jobs),
            context="Score at here",
            deadline=Deadline.after(timeout_s, clock=lambda: self.now),
            policy=policy or RetryPolicy(),
            max_in_flight=max_in_flight,
            uniform=lambda low, high: low + jitter * (high - low),
        )

    def _jobs(self, number: int) -> Iterator[PendingRequest[Message]]:
        for epoch in range(number):
            self.drawn += 1
            yield PendingRequest(
                pb.ScoreRequest(epoch=epoch).SerializeToString(), partial(self._deliver, epoch)
            )

    def _deliver(self, epoch: int, reply: Message) -> None:
        self.delivered.append(epoch)

    def due(self) -> list[int]:
        self.attempts = self.pipeline.due()
        return [epoch_of(attempt) for attempt in self.attempts]


def epoch_of(attempt: Attempt[Message]) -> int:
    return pb.ScoreRequest.FromString(attempt.pending.request).epoch


REPLY = pb.ScoreResponse()


def test_requests_go_out_in_order_and_a_bounded_number_at_a_time() -> None:
    course = Course(5, max_in_flight=2)
    assert course.due() == [0, 1]
    first, second = course.attempts
    assert course.due() == []
    assert course.drawn == 2, "requests are built when their turn comes"
    course.pipeline.succeeded(second, REPLY)
    assert course.due() == [2]
    course.pipeline.succeeded(first, REPLY)
    assert course.due() == [3]
    assert course.delivered == [1, 0]
    assert not course.pipeline.done


def test_a_call_without_requests_is_done_at_once() -> None:
    course = Course(0)
    assert course.due() == []
    assert course.pipeline.done


def test_a_failed_attempt_waits_and_is_repeated_with_what_is_left_of_the_timeout() -> None:
    course = Course(1, timeout_s=10.0)
    assert course.due() == [0]
    course.now = 1.0
    course.pipeline.failed(course.attempts[0], GONE)
    assert course.due() == []
    assert course.pipeline.wait_s() == pytest.approx(0.1)
    course.now = 1.1
    assert course.due() == [0]
    assert course.attempts[0].number == 2
    assert course.attempts[0].timeout_s == pytest.approx(8.9)
    course.pipeline.succeeded(course.attempts[0], REPLY)
    assert course.pipeline.done


def test_what_waits_to_be_repeated_counts_as_in_flight() -> None:
    course = Course(9, max_in_flight=1)
    course.due()
    course.pipeline.failed(course.attempts[0], GONE)
    assert course.due() == [], "an overloaded server is not sent the next request instead"


@pytest.mark.parametrize(
    ("now", "failure", "error", "sentence"),
    [
        (
            0.0,
            RpcFailure(Code.NOT_FOUND, "no such dataset"),
            InvalidRequest,
            r"Score at here: no such dataset \(NOT_FOUND\)",
        ),
        (0.95, GONE, Unavailable, "no time left of timeout_s=1"),  # none is planned past the end
        (0.0, RpcFailure(Code.RESOURCE_EXHAUSTED, "full", 2.0), Overloaded, "full"),
        # gRPC noticed the deadline first, which reads the same; or it is not the caller's.
        (1.001, LATE, DeadlineExceeded, "not done within timeout_s=1"),
        (0.5, LATE, DeadlineExceeded, "upstream took too long"),
    ],
)
def test_what_ends_a_call_at_once(
    now: float, failure: RpcFailure, error: type[RewardServiceError], sentence: str
) -> None:
    course = Course(3, timeout_s=1.0)
    course.due()
    course.now = now
    with pytest.raises(error, match=sentence) as caught:
        course.pipeline.failed(course.attempts[0], failure)
    if isinstance(caught.value, Overloaded):
        assert caught.value.retry_after_s == 2.0


def test_a_deadline_that_passes_during_a_repetition_tells_why_there_was_one() -> None:
    course = Course(1, timeout_s=1.0)
    course.due()
    course.pipeline.failed(course.attempts[0], GONE)
    course.now = 0.5
    course.due()
    course.now = 1.0
    with pytest.raises(Unavailable, match="no time left of timeout_s=1: gone"):
        course.due()


def test_a_failure_that_was_overcome_is_not_blamed() -> None:
    course = Course(2, max_in_flight=1, timeout_s=1.0)
    course.due()
    course.pipeline.failed(course.attempts[0], GONE)
    course.now = 0.5
    course.due()
    course.pipeline.succeeded(course.attempts[0], REPLY)
    course.due()
    course.now = 1.0
    with pytest.raises(DeadlineExceeded):
        course.due()


def test_the_deadline_ends_the_call_whatever_is_in_flight() -> None:
    course = Course(2, max_in_flight=1, timeout_s=1.0)
    course.due()
    assert course.pipeline.wait_s() == pytest.approx(1.0)
    course.now = 1.0
    with pytest.raises(DeadlineExceeded, match="not done within timeout_s=1"):
        course.due()


def test_the_last_failure_tells_how_many_attempts_there_were() -> None:
    course = Course(1, policy=RetryPolicy(max_attempts=2))
    course.due()
    course.pipeline.failed(course.attempts[0], GONE)
    course.now = 5.0
    course.due()
    with pytest.raises(Unavailable, match="2 attempts: gone"):
        course.pipeline.failed(course.attempts[0], GONE)


@given(st.integers(0, 30), st.integers(1, 6), st.integers(0, 2**32), st.floats(0, 0.6))
def test_every_request_is_delivered_once_whatever_fails_on_the_way(
    num_jobs: int, max_in_flight: int, seed: int, failing: float
) -> None:
    rng = random.Random(seed)
    course = Course(num_jobs, max_in_flight=max_in_flight, timeout_s=1e9, jitter=rng.random())
    in_flight: list[Attempt[Message]] = []
    for _ in range(10_000):
        in_flight += course.pipeline.due()
        assert len(in_flight) <= max_in_flight
        if course.pipeline.done:
            break
        if not in_flight:
            course.now += course.pipeline.wait_s()
            continue
        attempt = in_flight.pop(rng.randrange(len(in_flight)))
        if rng.random() < failing:
            course.pipeline.failed(attempt, GONE)
        else:
            course.pipeline.succeeded(attempt, REPLY)
    assert sorted(course.delivered) == list(range(num_jobs))


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


def test_what_is_not_repeated() -> None:
    failure = RpcFailure(Code.INVALID_ARGUMENT, "no", retry_after_s=1.0)
    assert RetryPolicy().delay_s(1, failure, most) is None
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
