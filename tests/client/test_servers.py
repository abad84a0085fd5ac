"""Several servers of one client: which gets what, and that nothing is lost when one goes down."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from consensuspr.client import AsyncRewardClient, RewardClient, Rollout
from consensuspr.client.retries import RpcFailure
from consensuspr.client.servers import REST_S, Balancer, split_addresses
from consensuspr.errors import InputError, Unavailable
from tests.client.conftest import ScriptedServer
from tests.servers import free_port

if TYPE_CHECKING:
    from consensuspr.v1 import scoring_pb2 as pb

Code = grpc.StatusCode
GONE = RpcFailure(Code.UNAVAILABLE, "gone")
FULL = RpcFailure(Code.RESOURCE_EXHAUSTED, "full", retry_after_s=3.0)
OTHER_DATASET = RpcFailure(Code.FAILED_PRECONDITION, "another", digest="sha256:1")
LATE = RpcFailure(Code.DEADLINE_EXCEEDED, "late")


class Clock:
    """Seconds that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def picks(balancer: Balancer, number: int) -> Counter[int]:
    return Counter(balancer.pick() for _ in range(number))


# --- addresses


@pytest.mark.parametrize(
    ("address", "servers"),
    [
        ("host:1", ["host:1"]),
        ("host1:1,host2:1", ["host1:1", "host2:1"]),
        ("host1:1, [::1]:2", ["host1:1", "[::1]:2"]),
        ("dns:///rewards:50051", ["dns:///rewards:50051"]),
        ("dns:///a:1,dns:///b:1", ["dns:///a:1", "dns:///b:1"]),
        ("unix:/run/rewards.sock,host:1", ["unix:/run/rewards.sock", "host:1"]),
        # gRPC's own lists are one target.
        ("ipv4:10.0.0.5:50051,10.0.0.6:50051", ["ipv4:10.0.0.5:50051,10.0.0.6:50051"]),
    ],
)
def test_addresses(address: str, servers: list[str]) -> None:
    assert list(split_addresses(address)) == servers


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("host:1,", "address must be HOST:PORT, such as 'localhost:50051', got ''"),
        ("host:1,other", "address must be HOST:PORT, such as 'other:50051', got 'other'"),
        ("host:", "address must be HOST:PORT, such as 'host:50051', got 'host:'"),
        (":80", "address must be HOST:PORT, such as 'localhost:50051', got ':80'"),
        ("host:port", "address must be HOST:PORT, such as 'host:50051', got 'host:port'"),
        ("host:1/", "address must be HOST:PORT, such as 'host:1', got 'host:1/'"),
        ("::1", "address must be HOST:PORT, such as '[::1]:50051', got '::1'"),
        ("http://a:1", "address must be HOST:PORT, such as 'a:1', got 'http://a:1'"),
        ("http://a/v1", "address must be HOST:PORT, such as 'a:50051', got 'http://a/v1'"),
        ("grpc://a:1", "address must be HOST:PORT, such as 'a:1', got 'grpc://a:1'"),
        (
            "https://a:1",
            "address must be HOST:PORT, such as 'a:1', got 'https://a:1';"
            " for TLS set tls_ca, or CONSENSUSPR_TLS=1",
        ),
        ("dns:///a", "address must be HOST:PORT, such as 'a:50051', got 'dns:///a'"),
        ("host:1,other:70000", "port must be at most 65535, got 70000 in 'other:70000'"),
        ("host:1,b:1,host:1", "host:1 is named twice in 'host:1,b:1,host:1'"),
    ],
)
def test_addresses_that_are_none(address: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        RewardClient(address)
    assert str(caught.value) == sentence


# --- who gets what


def test_requests_go_where_the_fewest_are_on_the_way() -> None:
    balancer = Balancer("abc")
    assert picks(balancer, 9) == {0: 3, 1: 3, 2: 3}
    for _ in range(2):
        balancer.ended(1, b"")
    assert picks(balancer, 2) == {1: 2}


@pytest.mark.parametrize("failure", [GONE, FULL, LATE, OTHER_DATASET])
def test_one_that_fails_or_refuses_rests(failure: RpcFailure) -> None:
    clock = Clock()
    balancer = Balancer("ab", clock)
    bad = balancer.pick()
    elsewhere = balancer.ended(bad, failure)
    assert elsewhere, "the other one is ready"
    assert picks(balancer, 20) == {1 - bad: 20}
    clock.now += failure.retry_after_s or REST_S
    assert balancer.pick() == bad


def test_one_that_was_silent_is_tried_by_one_request_at_a_time() -> None:
    clock = Clock()
    balancer = Balancer("ab", clock)
    silent = balancer.pick()
    for outcome in (LATE, None):  # an abandoned request tells nothing
        balancer.ended(silent, outcome)
        clock.now += REST_S
        assert picks(balancer, 20)[silent] == 1
    balancer.ended(silent, b"")
    assert picks(balancer, 10)[silent] == 10


# --- over the network


@pytest.fixture
def pair() -> Iterator[tuple[ScriptedServer, ScriptedServer]]:
    """Two running scripted servers."""
    with ExitStack() as running:
        servers = ScriptedServer(), ScriptedServer()
        for server in servers:
            server.address = running.enter_context(server.running())
        yield servers


def rollouts(number: int) -> list[Rollout]:
    return [Rollout(f"p{at}", "x" * 600_000) for at in range(number)]


def by_server(pair: tuple[ScriptedServer, ScriptedServer]) -> list[int]:
    return [len(server.requests) for server in pair]


def test_one_batch_is_scored_by_both(pair: tuple[ScriptedServer, ScriptedServer]) -> None:
    arrived = threading.Barrier(2, timeout=20)

    def meet(number: int, request: pb.ScoreRequest, context: Any) -> None:
        if number == 0:
            arrived.wait()  # neither goes on before the other has a request too

    for server in pair:
        server.script = meet
    with RewardClient(",".join(server.address for server in pair)) as client:
        scores = client.score(rollouts(16))
    assert [score.answer for score in scores] == [f"p{at}" for at in range(16)]
    assert min(by_server(pair)) >= 4


async def test_a_refusal_with_a_long_hint_goes_to_the_other_at_once(
    pair: tuple[ScriptedServer, ScriptedServer],
) -> None:
    for code, metadata in (
        (Code.RESOURCE_EXHAUSTED, [("retry-after-ms", "600000")]),
        (Code.FAILED_PRECONDITION, [("dataset-digest", "sha256:1")]),
    ):
        pair[0].fail(code, metadata=metadata)
        address = ",".join(server.address for server in pair)
        async with AsyncRewardClient(address, timeout_s=20) as client:
            for _ in range(4):
                assert (await client.score(rollouts(1)))[0].answer == "p0"
    assert by_server(pair)[1] == 8


def test_an_address_where_nobody_listens_costs_nothing_but_a_moment(
    scripted: ScriptedServer,
) -> None:
    dead = f"127.0.0.1:{free_port()}"
    with RewardClient(f"{dead},{scripted.address}", timeout_s=20) as client:
        for _ in range(10):
            client.score(rollouts(1))
    with (
        RewardClient(f"{dead},127.0.0.1:{free_port()}", timeout_s=0.5) as client,
        pytest.raises(Unavailable, match=r"no server listens.*, the last at 127\.0\.0\.1:\d+"),
    ):
        client.score(rollouts(1))
