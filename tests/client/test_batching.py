"""From concurrent calls with one rollout each to few requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.client import AsyncRewardClient, RewardSpec, Rollout, Score, Status
from consensuspr.client.batching import Batcher
from consensuspr.client.interface import Deadline, ScoredBatch
from consensuspr.errors import DeadlineExceeded, InvalidRequest, Unavailable
from consensuspr.scoring.types import AnswerRule, Identity, ScoreOptions

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

IDENTITY = Identity("d", "sha256:0", "1", "1", RewardSpec.linear(), 0, AnswerRule.AUTO, "0.1")


def sizes(server: ScriptedServer) -> list[int]:
    return [len(request.rollouts) for request in server.requests]


async def test_calls_of_one_moment_are_one_request(scripted: ScriptedServer) -> None:
    async with AsyncRewardClient(scripted.address) as client:
        scores = await asyncio.gather(
            *(client.score_one(Rollout(str(i), "text")) for i in range(64))
        )
    assert [score.answer for score in scores] == [str(i) for i in range(64)]
    assert sizes(scripted) == [64]


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


async def test_each_caller_has_its_own_deadline(scripted: ScriptedServer) -> None:
    held = scripted.hold()
    async with AsyncRewardClient(scripted.address) as client:
        patient = asyncio.create_task(client.score_one(Rollout("p", "text"), timeout_s=10))
        start = time.monotonic()
        with pytest.raises(DeadlineExceeded, match=r"not done within timeout_s=0.3"):
            await client.score_one(Rollout("q", "text"), timeout_s=0.3)
        assert time.monotonic() - start < 9
        held.over.set()
        assert (await patient).status is Status.OK
    assert sizes(scripted) == [2]


async def test_deadlines_pass_one_by_one_of_those_sent_and_those_that_wait() -> None:
    never, passed = asyncio.Event(), []

    async def wait(items: Sequence[str], options: ScoreOptions, deadline: Deadline) -> ScoredBatch:
        await never.wait()
        raise AssertionError("nobody waits any more")

    batcher = Batcher(wait, len, max_in_flight=1)

    async def score(timeout_s: float) -> None:
        with pytest.raises(DeadlineExceeded):
            await batcher.submit("p", ScoreOptions(), Deadline.after(timeout_s))
        passed.append(timeout_s)

    sent = [asyncio.create_task(score(timeout_s)) for timeout_s in (0.5, 0.3)]
    await asyncio.sleep(0.05)
    waiting = [asyncio.create_task(score(timeout_s)) for timeout_s in (0.4, 0.1, 0.2)]
    await asyncio.wait_for(asyncio.gather(*sent, *waiting), 10)
    assert passed == [0.1, 0.2, 0.3, 0.4, 0.5]


async def test_a_request_that_nobody_waits_for_is_cancelled(scripted: ScriptedServer) -> None:
    held = scripted.hold()
    async with AsyncRewardClient(scripted.address) as client:
        tasks = [asyncio.create_task(client.score_one(Rollout(str(i), "text"))) for i in range(3)]
        await asyncio.to_thread(held.started.wait, 10)
        for task in tasks:
            task.cancel()
        assert await asyncio.to_thread(held.over.wait, 10)
        await asyncio.gather(*tasks, return_exceptions=True)


@given(st.data())
def test_every_caller_gets_its_own_score(data: st.DataObject) -> None:
    """Whatever arrives when, with requests that take their time or fail."""
    arrivals = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), max_size=40))
    failing = data.draw(st.sets(st.integers(0, 10)))
    max_in_flight = data.draw(st.integers(1, 3))
    calls = 0
    running = [0, 0]

    async def score_batch(
        items: Sequence[str], options: ScoreOptions, deadline: Deadline
    ) -> ScoredBatch:
        nonlocal calls
        number, calls = calls, calls + 1
        running[options.epoch] += 1
        assert running[options.epoch] <= max_in_flight
        for _ in range(number % 4):
            await asyncio.sleep(0)
        running[options.epoch] -= 1
        if number in failing:
            raise Unavailable(f"request {number}")
        scores = [Score(Status.OK, answer=f"{item}/{options.epoch}") for item in items]
        return ScoredBatch(scores, IDENTITY)

    async def main() -> None:
        batcher = Batcher(score_batch, len, max_in_flight)
        tasks = []
        for number, (turns, epoch) in enumerate(arrivals):
            for _ in range(turns):
                await asyncio.sleep(0)
            call = batcher.submit(str(number), ScoreOptions(epoch=epoch), Deadline.after(10))
            tasks.append(asyncio.create_task(call))
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for number, (result, (_, epoch)) in enumerate(zip(results, arrivals, strict=True)):
            if not isinstance(result, Unavailable):
                assert not isinstance(result, BaseException), result
                assert (result[0].answer, result[1]) == (f"{number}/{epoch}", IDENTITY)
        if not failing:
            assert not any(isinstance(result, Unavailable) for result in results)

    asyncio.run(main())
