"""The three clients give equal scores, on rollouts of every kind."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from consensuspr.client import (
    AsyncRewardClient,
    GuardBudget,
    InlineNode,
    LocalClient,
    RewardClient,
    RewardSpec,
    Rollout,
    ScoredBatch,
    Status,
)
from consensuspr.errors import DeadlineExceeded, InputError, InvalidRequest

CODE = "```python\nleft = 16 - 3 - 4\nprint(left * 2)\n```\n#### 18"
# All products of the problem's numbers, less one of them: two steps deep.
NUMBERS = (2, 3, 4, 9, 16)
LISTED = "\n".join(
    [f"{a} * {b} - {c} = {a * b - c}" for a, b, c in product(range(1, 24), NUMBERS, NUMBERS)]
    + ["16 - 3 - 4 = 9", "#### 18"]
)
RIGHT = "16 - 3 - 4 = 9 eggs are left, so 9 * 2 = $18. #### 18"

ROLLOUTS = [
    Rollout("ducks", RIGHT, num_tokens=30),
    Rollout("ducks", RIGHT.encode(), num_tokens=30, data_source="mine", rollout_id="r1"),
    Rollout("ducks", "Answer: 18"),
    Rollout("ducks", "it is \\boxed{19}", num_tokens=5),
    Rollout("ducks", ""),
    Rollout("ducks", b""),
    Rollout("ducks", "\0" * 50 + RIGHT),
    Rollout("ducks", b"\xff\xfe" + RIGHT.encode() + b"\xc3"),
    Rollout("ducks", "\ud800 " + RIGHT + " \udfff"),
    Rollout("ducks", "\ud83d\ude00 " + RIGHT),
    Rollout("ducks", "🦆 " + RIGHT),
    Rollout("ducks", RIGHT, num_tokens=0),
    Rollout("ducks", RIGHT, num_tokens=-4),
    Rollout("ducks", RIGHT, num_tokens=1 << 40),
    Rollout("ducks", RIGHT, ground_truth="19"),
    Rollout("ducks", RIGHT, ground_truth=""),
    Rollout("ducks", RIGHT, nodes=[]),
    Rollout("ducks", RIGHT, nodes=[["9*2=18"], ["x=777"]]),
    Rollout("ducks", RIGHT, nodes=[InlineNode(["y=4"], "n", ["9*2=18"])]),
    Rollout("ducks", RIGHT, nodes=[["x=1"]] * 65),
    Rollout("ducks", RIGHT, nodes=[["x" * 5000]]),
    Rollout("ducks", RIGHT, nodes=[[]]),
    Rollout("bare", "#### 5"),
    Rollout("open", "x = 55"),
    Rollout("nobody", RIGHT),
    Rollout("nobody", RIGHT, ground_truth="18"),
    Rollout("nobody", RIGHT, ground_truth="18", nodes=[["9*2=18"]]),
    Rollout("", RIGHT),
    Rollout("ducks", RIGHT),
    Rollout("ducks", RIGHT, nodes=[["9*2=18"], ["y=4"]], budget=GuardBudget(1, 9)),
    Rollout("ducks", RIGHT, nodes=[["9*2=18"], ["y=4"]], budget=GuardBudget(1, 9, 30)),
    Rollout("ducks", RIGHT, nodes=[["9*2=18"]], budget=GuardBudget(0, 9)),
    Rollout("ducks", RIGHT, nodes=[InlineNode(["9*2=18"], weight=float("nan"), is_final=True)]),
    Rollout("ducks", LISTED),
    Rollout("ducks", CODE),
    Rollout("ducks", "🦆 16-3-4=9, so 9*2=18</think>" + RIGHT),
    Rollout("ducks", b"\x80 hm</think>\xa6" + RIGHT.encode()),
]

OVERSIZE = [
    Rollout("ducks", "x" * (16 * 1024 * 1024 + 1)),
    Rollout("ducks", "é" * (8 * 1024 * 1024 + 1)),
    Rollout("ducks", "x" * (100 * 1000 * 1000)),
]

REWARDS = [
    RewardSpec.linear(0.5),
    RewardSpec.linear(0.3),
    RewardSpec.maximum(),
    RewardSpec.curriculum(1),
    RewardSpec.outcome(),
    RewardSpec.linear(guard=False, statements=False),
    RewardSpec.maximum(final_nodes=False),
    RewardSpec.linear(after_think=True),
]


@pytest.fixture(scope="module")
def local(dataset: Path) -> Iterator[LocalClient]:
    with LocalClient(dataset=dataset) as client:
        yield client


def of_both_remote_clients(
    address: str, rollouts: list[Rollout], reward: RewardSpec, epoch: int, **options: bool
) -> list[ScoredBatch]:
    async def asynchronous() -> ScoredBatch:
        async with AsyncRewardClient(address) as client:
            return await client.score(rollouts, reward, epoch, **options)  # type: ignore[arg-type]

    with RewardClient(address) as client:
        synchronous = client.score(rollouts, reward, epoch, **options)  # type: ignore[arg-type]
    return [synchronous, asyncio.run(asynchronous())]


@pytest.mark.parametrize("reward", REWARDS, ids=lambda reward: reward.kind)
@pytest.mark.parametrize("epoch", [0, 1])
def test_equal_scores_and_identity(
    local: LocalClient, real_server: str, reward: RewardSpec, epoch: int
) -> None:
    here = local.score(ROLLOUTS, reward, epoch)
    for there in of_both_remote_clients(real_server, ROLLOUTS, reward, epoch):
        assert list(there) == list(here)
        assert there.identity == here.identity
    seen = {score.status for score in here}
    assert seen >= set(Status) - {Status.OVERSIZE, Status.ANSWER_UNDECIDED, Status.INTERNAL}


def test_responses_above_the_limit(local: LocalClient, real_server: str) -> None:
    here = local.score(OVERSIZE)
    assert {score.status for score in here} == {Status.OVERSIZE}
    for there in of_both_remote_clients(real_server, OVERSIZE, RewardSpec.linear(), 0):
        assert list(there) == list(here)


@pytest.mark.parametrize("at", [0, 7, 16, 21, 22])
def test_equal_explanations(local: LocalClient, real_server: str, at: int) -> None:
    here = local.explain(ROLLOUTS[at])
    with RewardClient(real_server) as client:
        there = client.explain(ROLLOUTS[at])
    assert there.score == here.score
    assert there.nodes == here.nodes
    assert there.normal_form == here.normal_form
    assert there.identity == here.identity

    async def asynchronous() -> object:
        async with AsyncRewardClient(real_server) as client:
            return await client.explain(ROLLOUTS[at])

    assert asyncio.run(asynchronous()) == there


def test_the_local_client_has_several_datasets_deadlines_and_an_end(dataset: Path) -> None:
    with LocalClient(dataset={"a": dataset, "b": dataset}, timeout_s=20) as client:
        assert [info.name for info in client.server_info().datasets] == ["a", "b"]
        assert client.score([], dataset="b").identity.dataset == "b"
        with pytest.raises(
            InvalidRequest, match="dataset is required, because there are several: a, b"
        ):
            client.score([])
        with pytest.raises(DeadlineExceeded):
            client.score([Rollout("ducks", RIGHT)] * 100, dataset="a", timeout_s=1e-9)
    client.close()
    with pytest.raises(RuntimeError, match="the client is closed"):
        client.score([], dataset="a")
    with pytest.raises(InputError, match="timeout_s must be a positive number"):
        LocalClient(dataset=dataset, timeout_s=0)


def test_without_a_dataset_rollouts_bring_their_nodes() -> None:
    inline = Rollout("ducks", RIGHT, ground_truth="18", nodes=[["9*2=18"], ["x=777"]])
    with LocalClient() as client:
        scores = client.score([inline, Rollout("ducks", RIGHT)], reward="max")
        assert (scores[0].ncr, scores[0].reward) == (0.5, 1.0)
        assert scores[1].status is Status.UNKNOWN_PROBLEM
        assert client.server_info().datasets[0].num_problems == 0


@pytest.mark.parametrize(
    ("rollout", "sentence"),
    [
        ("ducks", "rollouts[1] must be a Rollout, got str"),
        (Rollout("ducks", None), "rollouts[1].response must be str or bytes, got NoneType"),  # type: ignore[arg-type]
        (Rollout("ducks", RIGHT, nodes=3), "rollouts[1].nodes must be a sequence or None, got int"),  # type: ignore[arg-type]
        (
            Rollout("ducks", RIGHT, nodes=[InlineNode(["x=1"], derived=None)]),  # type: ignore[arg-type]
            "rollouts[1] has a field of a wrong type: ",
        ),
    ],
)
def test_both_name_the_rollout_and_its_field_of_a_wrong_type(
    local: LocalClient, real_server: str, rollout: Rollout, sentence: str
) -> None:
    batch = [Rollout("ducks", RIGHT), rollout]
    with RewardClient(real_server) as remote:
        for client in (local, remote):
            with pytest.raises(InputError, match=re.escape(sentence)):
                client.score(batch)
