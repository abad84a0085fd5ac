"""How a call is cut into requests that the server takes, and what it makes of the replies."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.client import AsyncRewardClient, RewardClient, Rollout, Score, Status
from consensuspr.client.interface import ScoredBatch
from consensuspr.client.rpc import ScorePlan
from consensuspr.errors import InputError
from consensuspr.scoring.types import ScoreColumns, ScoreOptions
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire.codec import encode_score_response
from consensuspr.wire.server_info import ServerInfo
from tests.client.conftest import IDENTITY


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        *(
            ({"timeout_s": timeout_s}, "timeout_s must be a positive number of seconds, got")
            for timeout_s in (0, -1, math.nan, math.inf)
        ),
        ({"max_in_flight": 0}, "max_in_flight must be at least 1, got 0"),
    ],
)
@pytest.mark.parametrize("made", [RewardClient, AsyncRewardClient])
def test_wrong_settings_are_refused(made: Any, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        made("a:1", **settings)


MIB = 1 << 20


def limits(response_bytes: int, message_bytes: int, rollouts: int) -> ServerInfo:
    most = (response_bytes, message_bytes, rollouts)
    return ServerInfo("0", 1, "1", "1", "native", (), *most, 0, 0, 0, 0)


USUAL = limits(16 * MIB, 64 * MIB, 4096)


def plan_of(rollouts: list[Rollout], limits: ServerInfo = USUAL) -> ScorePlan:
    return ScorePlan(rollouts, ScoreOptions(epoch=3), limits)


def requests_of(plan: ScorePlan) -> list[pb.ScoreRequest]:
    return [pb.ScoreRequest.FromString(request) for request, _ in plan.requests()]


def carry_out(plan: ScorePlan) -> tuple[list[pb.ScoreRequest], ScoredBatch]:
    """Return the requests of a plan, and what it makes of the replies."""
    requests = []
    for sent, take in plan.requests():
        request = pb.ScoreRequest.FromString(sent)
        requests.append(request)
        scores = [Score(Status.OK, answer=rollout.problem_id) for rollout in request.rollouts]
        take(encode_score_response(ScoreColumns.of(scores), IDENTITY))
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


def test_a_rollout_that_no_request_can_carry_is_oversize_too() -> None:
    plan = plan_of([Rollout("p", "short", ground_truth="y" * MIB)], limits(MIB, MIB, 10))
    [request], [score] = carry_out(plan)
    assert len(request.rollouts) == 0, "the request that brings the identity is still sent"
    assert score.status is Status.OVERSIZE
    assert f"a request holds at most {MIB}" in score.message


@given(st.lists(st.integers(0, 3000), max_size=60), st.integers(70_000, 80_000), st.integers(1, 20))
def test_no_request_is_larger_than_the_server_takes(
    sizes: list[int], max_message_bytes: int, max_rollouts: int
) -> None:
    rollouts = [Rollout(f"problem {i}", "∑" * size) for i, size in enumerate(sizes)]
    plan = plan_of(rollouts, limits(max_message_bytes, max_message_bytes, max_rollouts))
    for request in requests_of(plan):
        assert request.ByteSize() <= max_message_bytes
        assert len(request.rollouts) <= max_rollouts
