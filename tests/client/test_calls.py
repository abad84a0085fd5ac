"""Calls without a network: order, bounds, repetitions, deadlines, requests that fit."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.client import Rollout, Score, Status
from consensuspr.client.calls import Attempt, Deadline, PendingRequest, Pipeline, ScorePlan
from consensuspr.client.interface import ScoredBatch
from consensuspr.client.retries import RetryPolicy, RpcFailure
from consensuspr.client.servers import Balancer
from consensuspr.errors import (
    DeadlineExceeded,
    InputError,
    InvalidRequest,
    Overloaded,
    RewardServiceError,
    Unavailable,
)
from consensuspr.scoring.types import ScoreColumns, ScoreOptions
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire.codec import encode_score_response
from consensuspr.wire.server_info import ServerInfo
from tests.client.conftest import IDENTITY

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
        num_servers: int = 1,
    ) -> None:
        self.now = 0.0
        self.drawn = 0
        self.delivered: list[int] = []
        self.pipeline: Pipeline[Message] = Pipeline(
            self._jobs(num_jobs),
            context="Score at here",
            deadline=Deadline.after(timeout_s, self._clock),
            policy=policy or RetryPolicy(),
            max_in_flight=max_in_flight,
            balancer=Balancer([f"host{number}:1" for number in range(num_servers)], self._clock),
            uniform=lambda low, high: low + jitter * (high - low),
        )

    def _clock(self) -> float:
        return self.now

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


MIB = 1 << 20


def limits(response_bytes: int, message_bytes: int, rollouts: int) -> ServerInfo:
    return ServerInfo(
        server_version="0",
        protocol_version=1,
        normal_form_version="1",
        answer_version="1",
        core_backend="native",
        datasets=(),
        max_response_bytes=response_bytes,
        max_message_bytes=message_bytes,
        max_rollouts=rollouts,
        max_inline_nodes=0,
        max_expressions_per_node=0,
        max_expression_bytes=0,
        max_inline_bytes=0,
    )


USUAL = limits(16 * MIB, 64 * MIB, 4096)


def plan_of(rollouts: list[Rollout], limits: ServerInfo = USUAL) -> ScorePlan:
    return ScorePlan(rollouts, ScoreOptions(epoch=3), limits)


def requests_of(plan: ScorePlan) -> list[pb.ScoreRequest]:
    return [pb.ScoreRequest.FromString(pending.request) for pending in plan.requests()]


def carry_out(plan: ScorePlan) -> tuple[list[pb.ScoreRequest], ScoredBatch]:
    """Return the requests of a plan, and what it makes of the replies."""
    requests = []
    for pending in plan.requests():
        request = pb.ScoreRequest.FromString(pending.request)
        requests.append(request)
        scores = [Score(Status.OK, answer=rollout.problem_id) for rollout in request.rollouts]
        pending.deliver(encode_score_response(ScoreColumns.of(scores), IDENTITY))
    return requests, plan.result()


@pytest.mark.parametrize(
    ("number", "response", "limits", "sizes"),
    [
        (600, "short", USUAL, [256, 256, 88]),
        (7, "x" * 300_000, USUAL, [3, 3, 1]),  # about a mebibyte each
        (25, "x", limits(16 * MIB, 64 * MIB, 10), [10, 10, 5]),  # what the server takes
        (0, "", USUAL, [0]),  # brings the identity
    ],
)
def test_how_a_batch_is_cut(
    number: int, response: str, limits: ServerInfo, sizes: list[int]
) -> None:
    requests = requests_of(plan_of([Rollout(str(i), response) for i in range(number)], limits))
    assert [len(request.rollouts) for request in requests] == sizes
    sent = [rollout.problem_id for request in requests for rollout in request.rollouts]
    assert sent == [str(i) for i in range(number)]
    assert all(request.epoch == 3 for request in requests)


@pytest.mark.parametrize(
    ("response", "size"),
    [
        ("x" * 101, 101),
        (b"\xff" * 101, 101),
        ("é" * 51, 102),
        ("∑" * 34, 102),
        ("\ud800" * 34, 102),
    ],
)
def test_a_response_above_the_limit_is_oversize_without_being_sent(
    response: str | bytes, size: int
) -> None:
    plan = plan_of([Rollout("p", response), Rollout("q", "fits")], limits(100, MIB, 10))
    [request], [oversize, scored] = carry_out(plan)
    assert [rollout.problem_id for rollout in request.rollouts] == ["q"]
    assert scored.answer == "q"
    assert oversize.status is Status.OVERSIZE
    assert oversize.message == f"the response has {size} bytes; the limit is 100"


@pytest.mark.parametrize("response", ["x" * 100, b"\xff" * 100, "é" * 50, "∑" * 33])
def test_a_response_at_the_limit_is_sent(response: str | bytes) -> None:
    [request] = requests_of(plan_of([Rollout("p", response)], limits(100, MIB, 10)))
    assert len(request.rollouts) == 1


def test_a_rollout_that_no_request_can_carry_is_oversize_too() -> None:
    plan = plan_of([Rollout("p", "short", ground_truth="y" * MIB)], limits(MIB, MIB, 10))
    [request], [score] = carry_out(plan)
    assert len(request.rollouts) == 0, "the request that brings the identity is still sent"
    assert score.status is Status.OVERSIZE
    assert f"a request holds at most {MIB}" in score.message


@given(
    st.lists(st.integers(0, 3000), max_size=60),
    st.integers(70_000, 80_000),
    st.integers(1, 20),
)
def test_no_request_is_larger_than_the_server_takes(
    sizes: list[int], max_message_bytes: int, max_rollouts: int
) -> None:
    rollouts = [Rollout(f"problem {i}", "∑" * size) for i, size in enumerate(sizes)]
    plan = plan_of(rollouts, limits(max_message_bytes, max_message_bytes, max_rollouts))
    for request in requests_of(plan):
        assert request.ByteSize() <= max_message_bytes
        assert len(request.rollouts) <= max_rollouts


@pytest.mark.parametrize(
    "rollout",
    [
        Rollout("p", None),  # type: ignore[arg-type]
        Rollout("p", 3),  # type: ignore[arg-type]
        Rollout(7, "text"),  # type: ignore[arg-type]
        Rollout("p", "text", ground_truth=18),  # type: ignore[arg-type]
        Rollout("p", "text", num_tokens="many"),  # type: ignore[arg-type]
    ],
)
def test_a_field_of_a_wrong_type_names_its_rollout(rollout: Any) -> None:
    with pytest.raises(InputError, match=r"rollouts\[1\]"):
        requests_of(plan_of([Rollout("p", "fine"), rollout]))
