"""Both clients of a server, against a server that misbehaves on purpose."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from consensuspr.client import AsyncRewardClient, RetryPolicy, RewardClient, Rollout, ScoredBatch
from consensuspr.errors import (
    DeadlineExceeded,
    IncompatibleServer,
    InvalidRequest,
    Overloaded,
    RewardServiceError,
    ServerFault,
    Unavailable,
)
from consensuspr.v1 import scoring_pb2 as pb
from tests.processes import wait_for

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

QUICK = RetryPolicy(initial_backoff_s=0.01, max_backoff_s=0.05)
Code = grpc.StatusCode


Call = Callable[..., Any]


def ask(kind: type, address: str, method: str, *arguments: Any, **options: Any) -> Any:
    """Make one call of a client of its own."""

    async def asynchronously() -> Any:
        async with AsyncRewardClient(address, retry=QUICK, max_in_flight=4) as client:
            return await getattr(client, method)(*arguments, **options)

    if kind is AsyncRewardClient:
        return asyncio.run(asynchronously())
    with RewardClient(address, retry=QUICK, max_in_flight=4) as client:
        return getattr(client, method)(*arguments, **options)


@pytest.fixture(params=[RewardClient, AsyncRewardClient])
def call(request: pytest.FixtureRequest) -> Call:
    """Call a method of either client of a server at an address."""
    return partial(ask, request.param)


@pytest.fixture
def score(call: Call, scripted: ScriptedServer) -> Call:
    """Score by the server that follows a script."""
    return partial(call, scripted.address, "score")


def numbered(number: int) -> list[Rollout]:
    return [Rollout(str(i), "text") for i in range(number)]


def answers(batch: ScoredBatch) -> list[str | None]:
    return [score.answer for score in batch]


def test_a_large_batch_keeps_its_order_and_is_pipelined(
    score: Call, scripted: ScriptedServer
) -> None:
    def later_requests_are_faster(number: int, request: pb.ScoreRequest, context: Any) -> None:
        time.sleep(0.2 if number == 0 else 0.02)

    scripted.script = later_requests_are_faster
    seen: list[tuple[int, int]] = []
    batch = score(numbered(2000), progress=lambda done, total: seen.append((done, total)))
    assert answers(batch) == [str(i) for i in range(2000)]
    assert len(scripted.requests) == 8
    assert 2 <= scripted.peak <= 4
    assert [total for _, total in seen] == [2000] * 8
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (2000, 2000)
    assert batch.identity.dataset_digest == "sha256:0"


@pytest.mark.parametrize(
    ("code", "times"),
    [
        (Code.UNAVAILABLE, 3),
        (Code.CANCELLED, 1),  # a request that meets a server at its end
    ],
)
def test_a_transient_failure_is_repeated(
    score: Call, scripted: ScriptedServer, code: grpc.StatusCode, times: int
) -> None:
    scripted.fail(code, times=times)
    assert answers(score(numbered(2))) == ["0", "1"]
    assert len(scripted.requests) == times + 1


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (Code.INVALID_ARGUMENT, InvalidRequest),
        (Code.INTERNAL, ServerFault),
        (Code.RESOURCE_EXHAUSTED, Overloaded),  # without a hint: not for load
        (Code.DEADLINE_EXCEEDED, DeadlineExceeded),
    ],
)
def test_any_other_failure_ends_the_call_at_once(
    score: Call, scripted: ScriptedServer, code: grpc.StatusCode, error: type[RewardServiceError]
) -> None:
    scripted.fail(code)
    with pytest.raises(error, match=f"Score at {scripted.address}.*: for a reason .{code.name}"):
        score(numbered(1))
    assert len(scripted.requests) == 1


def test_one_failed_request_fails_the_call_and_stops_the_others(
    score: Call, scripted: ScriptedServer
) -> None:
    cancelled = threading.Event()

    def fail_second(number: int, request: pb.ScoreRequest, context: Any) -> None:
        if request.rollouts[0].problem_id == "256":
            context.abort(Code.INTERNAL, "broken")
        if request.rollouts[0].problem_id == "0":
            context.add_callback(cancelled.set)
            cancelled.wait(10)

    scripted.script = fail_second
    start = time.monotonic()
    with pytest.raises(ServerFault, match="broken"):
        score(numbered(5000), timeout_s=20)
    assert time.monotonic() - start < 15
    wait_for(cancelled.is_set)
    assert len(scripted.requests) < 20, "not all of them were sent"


def test_the_timeout_covers_the_call_with_all_its_attempts(
    score: Call, scripted: ScriptedServer
) -> None:
    scripted.fail(Code.UNAVAILABLE, "gone")
    start = time.monotonic()
    with pytest.raises(
        Unavailable, match=r": gone \(UNAVAILABLE, .*attempts, no time left of timeout_s=0.6\)"
    ):
        score(numbered(1), timeout_s=0.6)
    assert time.monotonic() - start < 15
    assert len(scripted.requests) > 3


def test_a_server_that_does_not_answer_is_left_at_the_deadline(
    score: Call, scripted: ScriptedServer
) -> None:
    held = scripted.hold()
    with pytest.raises(DeadlineExceeded, match=r"not done within timeout_s=0.5"):
        score(numbered(1), timeout_s=0.5)
    assert held.over.wait(5), "the server learns that nobody waits any more"


@pytest.mark.parametrize(
    ("bend", "error", "sentence"),
    [
        (lambda reply: reply.statuses.pop(), IncompatibleServer, "must have 1 entries"),
        (lambda reply: reply.rewards.pop(), IncompatibleServer, "rewards must have 2 entries"),
        (
            lambda reply: reply.statuses.__setitem__(0, 99),  # of a newer protocol
            IncompatibleServer,
            r"status must be one of .*, got 99",
        ),
    ],
)
def test_a_reply_that_cannot_be_is_not_guessed_at(
    score: Call,
    scripted: ScriptedServer,
    bend: Callable[[pb.ScoreResponse], object],
    error: type[Exception],
    sentence: str,
) -> None:
    def bent(number: int, request: pb.ScoreRequest, context: Any) -> pb.ScoreResponse:
        reply = scripted.reply(request)
        bend(reply)
        return reply

    scripted.script = bent
    with pytest.raises(error, match=sentence):
        score(numbered(2))


def test_a_call_during_which_the_dataset_changes_is_scored_under_the_new_one(
    score: Call, scripted: ScriptedServer
) -> None:
    def change(number: int, request: pb.ScoreRequest, context: Any) -> pb.ScoreResponse:
        return scripted.reply(request, digest=f"sha256:{min(number, 1)}")

    scripted.script = change
    batch = score(numbered(600))
    assert batch.identity.dataset_digest == "sha256:1"
    assert [score.answer for score in batch] == [str(number) for number in range(600)]
    first = scripted.requests[0].rollouts[0].problem_id
    assert sum(request.rollouts[0].problem_id == first for request in scripted.requests) == 2


def test_nobody_at_the_address_is_unavailable(call: Call) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(Unavailable, match=f"ServerInfo at {address}"):
            call(address, "wait_until_ready", 0.5)


def test_an_async_client_belongs_to_its_event_loop(scripted: ScriptedServer) -> None:
    client = AsyncRewardClient(scripted.address)

    async def score_and_leave_open() -> None:
        await client.score_one(Rollout("p", "text"))

    asyncio.run(score_and_leave_open())
    with pytest.raises(RuntimeError, match="another event loop"):
        asyncio.run(score_and_leave_open())
