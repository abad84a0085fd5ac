"""From rollouts to requests that fit, and from concurrent calls to few requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.client import AsyncRewardClient, RewardSpec, Rollout, Score, Status
from consensuspr.client.batching import Batcher, ScorePlan, encode_checked
from consensuspr.client.interface import ScoredBatch
from consensuspr.client.pipeline import Deadline
from consensuspr.errors import DeadlineExceeded, InputError, InvalidRequest, Unavailable
from consensuspr.scoring.types import ScoreOptions
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire.codec import encode_score_response
from consensuspr.wire.server_info import ServerInfo
from tests.client.conftest import IDENTITY

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer


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
        pending.deliver(encode_score_response(scores, IDENTITY))
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


def sizes(server: ScriptedServer) -> list[int]:
    return [len(request.rollouts) for request in server.requests]


async def test_calls_of_one_moment_are_one_request(scripted: ScriptedServer) -> None:
    async with AsyncRewardClient(scripted.address) as client:
        scores = await asyncio.gather(
            *(client.score_one(Rollout(str(i), "text")) for i in range(64))
        )
    assert [score.answer for score in scores] == [str(i) for i in range(64)]
    assert sizes(scripted) == [64]


async def test_calls_that_come_while_all_requests_are_out_wait_for_the_next(
    scripted: ScriptedServer,
) -> None:
    held = scripted.hold(times=2)
    async with AsyncRewardClient(scripted.address, max_in_flight=2) as client:
        tasks = []
        for i in range(40):
            tasks.append(asyncio.create_task(client.score_one(Rollout(str(i), "text"))))
            await asyncio.sleep(0.005)
        held.over.set()
        scores = await asyncio.gather(*tasks)
    assert [score.answer for score in scores] == [str(i) for i in range(40)]
    assert sizes(scripted)[:2] == [1, 1]
    assert sum(sizes(scripted)) == 40
    assert len(sizes(scripted)) <= 4


async def test_large_rollouts_are_not_piled_into_one_request(scripted: ScriptedServer) -> None:
    async with AsyncRewardClient(scripted.address) as client:
        await asyncio.gather(*(client.score_one(Rollout(str(i), "x" * 400_000)) for i in range(7)))
    assert sorted(sizes(scripted)) == [1, 2, 2, 2]


async def test_different_options_are_different_requests(scripted: ScriptedServer) -> None:
    rollout = Rollout("p", "text")
    async with AsyncRewardClient(scripted.address) as client:
        await asyncio.gather(
            client.score_one(rollout, RewardSpec.linear(0.5), epoch=0),
            client.score_one(rollout, RewardSpec.linear(0.5), epoch=1),
            client.score_one(rollout, RewardSpec.maximum(), epoch=0),
            client.score_one(rollout, RewardSpec.linear(0.5), epoch=0),
        )
    assert sorted(sizes(scripted)) == [1, 1, 2]


async def test_one_slow_request_does_not_hold_up_the_others(scripted: ScriptedServer) -> None:
    held = scripted.hold("slow")
    async with AsyncRewardClient(scripted.address) as client:
        slow = asyncio.create_task(client.score_one(Rollout("slow", "text")))
        await asyncio.sleep(0.1)
        score = await asyncio.wait_for(client.score_one(Rollout("fast", "text")), 5)
        assert score.answer == "fast"
        assert not slow.done()
        held.over.set()
        await slow


async def test_a_failed_request_fails_exactly_those_that_it_carried(
    scripted: ScriptedServer,
) -> None:
    scripted.fail(grpc.StatusCode.INVALID_ARGUMENT, times=1)
    async with AsyncRewardClient(scripted.address) as client:
        results = await asyncio.gather(
            *(client.score_one(Rollout(str(i), "text")) for i in range(3)), return_exceptions=True
        )
        assert [type(result) for result in results] == [InvalidRequest] * 3
        assert (await client.score_one(Rollout("later", "text"))).answer == "later"


async def test_a_rollout_of_a_wrong_type_fails_alone(scripted: ScriptedServer) -> None:
    async with AsyncRewardClient(scripted.address) as client:
        good, bad = await asyncio.gather(
            client.score_one(Rollout("p", "text")),
            client.score_one(Rollout("q", 3)),  # type: ignore[arg-type]
            return_exceptions=True,
        )
    assert isinstance(good, Score)
    assert isinstance(bad, InputError)


async def test_each_caller_has_its_own_deadline(scripted: ScriptedServer) -> None:
    held = scripted.hold()
    async with AsyncRewardClient(scripted.address) as client:
        patient = asyncio.create_task(client.score_one(Rollout("p", "text"), timeout_s=10))
        start = time.monotonic()
        with pytest.raises(DeadlineExceeded, match=r"not done within timeout_s=0.3"):
            await client.score_one(Rollout("q", "text"), timeout_s=0.3)
        assert time.monotonic() - start < 2
        held.over.set()
        assert (await patient).status is Status.OK
    assert sizes(scripted) == [2]


async def test_a_request_that_nobody_waits_for_is_cancelled(scripted: ScriptedServer) -> None:
    held = scripted.hold()
    async with AsyncRewardClient(scripted.address) as client:
        tasks = [asyncio.create_task(client.score_one(Rollout(str(i), "text"))) for i in range(3)]
        await asyncio.to_thread(held.started.wait, 10)
        for task in tasks:
            task.cancel()
        assert await asyncio.to_thread(held.over.wait, 10)
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_closing_fails_whoever_waits(scripted: ScriptedServer) -> None:
    scripted.hold()
    client = AsyncRewardClient(scripted.address, max_in_flight=1)
    tasks = [asyncio.create_task(client.score_one(Rollout("out", "text")))]
    await asyncio.sleep(0.2)
    tasks.append(asyncio.create_task(client.score_one(Rollout("queued", "text"))))
    await asyncio.sleep(0.05)
    await client.close()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [Unavailable, Unavailable]


async def test_queues_of_past_options_are_not_kept(scripted: ScriptedServer) -> None:
    async with AsyncRewardClient(scripted.address) as client:
        for epoch in range(5):
            await client.score_one(Rollout("p", "text"), epoch=epoch)
        await asyncio.sleep(0)
        assert client._batcher._queues == {}


@given(st.data())
def test_every_caller_gets_its_own_score(data: st.DataObject) -> None:
    """Whatever arrives when, with requests that take their time or fail."""
    arrivals = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), max_size=40))
    failing = data.draw(st.sets(st.integers(0, 10)))
    max_in_flight = data.draw(st.integers(1, 3))
    calls = 0
    running = [0, 0]

    async def score_batch(
        rollouts: Sequence[Rollout],
        encoded: Sequence[bytes],
        options: ScoreOptions,
        deadline: Deadline,
    ) -> list[Score]:
        nonlocal calls
        number, calls = calls, calls + 1
        running[options.epoch] += 1
        assert running[options.epoch] <= max_in_flight
        for _ in range(number % 4):
            await asyncio.sleep(0)
        running[options.epoch] -= 1
        assert list(encoded) == [encode_checked(0, rollout) for rollout in rollouts]
        if number in failing:
            raise Unavailable(f"request {number}")
        return [Score(Status.OK, answer=f"{r.problem_id}/{options.epoch}") for r in rollouts]

    async def main() -> None:
        batcher = Batcher(score_batch, max_in_flight)
        tasks = []
        for number, (turns, epoch) in enumerate(arrivals):
            for _ in range(turns):
                await asyncio.sleep(0)
            call = batcher.submit(
                Rollout(str(number), "x"), ScoreOptions(epoch=epoch), Deadline.after(10)
            )
            tasks.append(asyncio.create_task(call))
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for number, (result, (_, epoch)) in enumerate(zip(results, arrivals, strict=True)):
            assert isinstance(result, Unavailable) or (
                isinstance(result, Score) and result.answer == f"{number}/{epoch}"
            )
        if not failing:
            assert all(isinstance(result, Score) for result in results)

    asyncio.run(main())
