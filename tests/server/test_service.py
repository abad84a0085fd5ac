"""Every status code that the server sends, over gRPC; health and reflection; draining."""

from __future__ import annotations

import errno
import logging
import math
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from consensuspr.client import RewardClient
from consensuspr.scoring.types import Rollout
from consensuspr.v1 import PROTOCOL_VERSION, RUN_KEY, SERVICE_NAME
from consensuspr.v1 import scoring_pb2 as pb
from tests.processes import wait_for
from tests.server.conftest import RIGHT, request_of
from tests.servers import Gate, InProcessServer

if TYPE_CHECKING:
    from tests.server.conftest import Serve


Code = grpc.StatusCode
MIB = 1 << 20


def failure(
    code: grpc.StatusCode, method: Callable[..., object], *request: object, **options: float
) -> Any:
    """Return the failure of a call that must fail with a code."""
    with pytest.raises(grpc.RpcError) as caught:
        method(*request, **options)
    assert caught.value.code() is code
    return caught.value


def raw_call(server: InProcessServer, method: str) -> Any:
    return server.channel.unary_unary(
        f"/{SERVICE_NAME}/{method}", request_serializer=None, response_deserializer=None
    )


def request_count(server: InProcessServer, method: str, code: str) -> float:
    return server.metric("requests_total", method=method, code=code) or 0


def given_up(server: InProcessServer) -> float:
    """Return how many requests the server knows to be waited for no longer.

    A caller whose time is over leaves, which may be heard of before the server's own clock says so.
    """
    return sum(request_count(server, "Score", end) for end in ("DEADLINE_EXCEEDED", "CANCELLED"))


def queued(server: InProcessServer, unit: str = "requests") -> float:
    """Return how many requests, or bytes of them, are unfinished."""
    value = server.metric(f"queue_{unit}")
    assert value is not None
    return value


def test_ok_score(serve: Serve) -> None:
    server = serve()
    reply = server.stub.Score(request_of(RIGHT, b"no idea", include_spans=True))
    assert list(reply.statuses) == [pb.STATUS_OK, pb.STATUS_OK]
    assert list(reply.accs) == list(reply.ncrs) == list(reply.rewards) == [1.0, 0.0]
    assert (list(reply.channels), list(reply.num_channels)) == ([1, 1, 0, 0], [2, 2])
    first, second = reply.spans
    assert (first.nodes[0].span.start, first.nodes[0].span.end) == (0, 14)
    assert not second.nodes[0].HasField("span")
    assert reply.identity.dataset == "default"
    assert reply.identity.dataset_digest.startswith("sha256:")
    assert reply.identity.reward.alpha == 0.5
    assert request_count(server, "Score", "OK") == 1


def test_ok_explain_and_server_info(serve: Serve) -> None:
    server = serve()
    rollout = pb.Rollout(problem_id="ducks", response=RIGHT)
    reply = server.stub.Explain(
        pb.ExplainRequest(protocol_version=PROTOCOL_VERSION, rollout=rollout)
    )
    assert [node.node_id for node in reply.nodes] == ["left", "money"]
    assert reply.nodes[1].expression == "9*2=18"
    assert reply.nodes[1].is_final
    assert "16-3-4=9" in reply.normal_form
    info = server.stub.ServerInfo(pb.ServerInfoRequest(protocol_version=99))
    assert [dataset.name for dataset in info.datasets] == ["default"]
    assert (info.max_message_bytes, info.max_response_bytes) == (17 * MIB, 16 * MIB)
    assert info.protocol_version == PROTOCOL_VERSION


@pytest.mark.parametrize(
    ("settings", "fields", "count", "code", "details"),
    [
        (
            {},
            {"protocol_version": 7},
            1,
            Code.FAILED_PRECONDITION,
            "the client speaks protocol version 7, this server speaks version 2",
        ),
        (
            {"names": ["math", "gsm8k"]},
            {"dataset": "aime"},
            1,
            Code.NOT_FOUND,
            "no dataset is called 'aime'; known datasets: gsm8k, math",
        ),
        (
            {"max_rollouts": 3},
            {},
            4,
            Code.INVALID_ARGUMENT,
            "a request has at most 3 rollouts, got 4",
        ),
    ],
)
def test_a_request_that_is_wrong_as_a_whole(
    serve: Serve,
    settings: dict[str, Any],
    fields: dict[str, Any],
    count: int,
    code: grpc.StatusCode,
    details: str,
) -> None:
    server = serve(**settings)
    error = failure(code, server.stub.Score, request_of(*[RIGHT] * count, **fields))
    assert error.details() == details


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "dataset is required, because there are several: a, b"),
        ({"dataset": "a", "reward": pb.RewardSpec(alpha=1.5)}, "alpha must be .*, got 1.5"),
        ({"dataset": "a", "answer_rule": 42}, "answer_rule must be one of .*, got 42"),
    ],
)
def test_invalid_argument_says_what_is_wrong_in_one_sentence(
    serve: Serve, fields: dict[str, Any], sentence: str
) -> None:
    server = serve(names=["a", "b"])
    error = failure(Code.INVALID_ARGUMENT, server.stub.Score, request_of(RIGHT, **fields))
    assert re.search(sentence, error.details())
    assert "\n" not in error.details()
    rollout = pb.Rollout(problem_id="ducks", response=RIGHT)
    explain = pb.ExplainRequest(protocol_version=PROTOCOL_VERSION, rollout=rollout, **fields)
    failure(Code.INVALID_ARGUMENT, server.stub.Explain, explain)


@pytest.mark.parametrize("method", ["Score", "Explain", "ServerInfo"])
def test_invalid_argument_for_bytes_that_are_no_request(serve: Serve, method: str) -> None:
    server = serve()
    error = failure(Code.INVALID_ARGUMENT, raw_call(server, method), b"<html>")
    assert error.details() == f"the request of 6 bytes is not a consensuspr.v1.{method}Request"
    assert len(server.stub.Score(request_of()).statuses) == 0, "the server goes on"


def test_resource_exhausted_without_a_hint_for_a_message_above_the_limit(serve: Serve) -> None:
    server = serve(max_message_bytes=2 * MIB, max_response_bytes=MIB)
    error = failure(Code.RESOURCE_EXHAUSTED, server.stub.Score, request_of(b"x" * (2 * MIB)))
    assert "retry-after-ms" not in dict(error.trailing_metadata())
    [status] = server.stub.Score(request_of(b"x" * (2 * MIB - 200))).statuses
    assert status == pb.STATUS_OVERSIZE, "the limit on a message is not that on a response"


def test_oversize_is_a_status_of_one_rollout(serve: Serve) -> None:
    server = serve(max_response_bytes=1000)
    reply = server.stub.Score(request_of(b"x" * 1001, RIGHT))
    assert list(reply.statuses) == [pb.STATUS_OVERSIZE, pb.STATUS_OK]
    assert dict(reply.messages) == {0: "the response has 1001 bytes; the limit is 1000"}
    for (large, right), worth in ((reply.accs, 1.0), (reply.ncrs, 1.0), (reply.rewards, 1.0)):
        assert math.isnan(large)
        assert right == worth


def test_resource_exhausted_with_a_hint_while_the_queue_is_full(serve: Serve) -> None:
    server = serve(
        max_response_bytes=MIB,
        max_message_bytes=2 * MIB,
        queue_limit_bytes=6 * MIB,
        max_concurrent_requests=1,
    )
    gate = Gate(server)
    large = request_of(b"x" * 900_000)
    admitted = [server.stub.Score.future(large) for _ in range(2)]
    wait_for(lambda: queued(server, "bytes") > 3_600_000)
    error = failure(Code.RESOURCE_EXHAUSTED, server.stub.Score, large)
    assert f"of {6 * MIB * 3 // 4} bytes are in use" in error.details()
    hint_ms = int(dict(error.trailing_metadata())["retry-after-ms"])
    assert 20 <= hint_ms <= 5000
    assert server.stub.ServerInfo(pb.ServerInfoRequest()).protocol_version == PROTOCOL_VERSION
    gate.open.set()
    assert [len(call.result().statuses) for call in admitted] == [1, 1]
    wait_for(lambda: queued(server, "bytes") == 0)
    assert len(server.stub.Score(large).statuses) == 1


def test_overloaded_server_serves_every_client_within_its_memory(serve: Serve) -> None:
    """Clients of three runs want ten times what the queue holds; the largest share is bounded."""
    limit = 5 * MIB
    server = serve(
        max_concurrent_requests=1,
        max_message_bytes=2 * MIB,
        max_response_bytes=MIB,
        queue_limit_bytes=limit,
    )
    highest = 0

    def look(rollouts: Sequence[Rollout]) -> None:
        nonlocal highest
        highest = max(highest, server.service.admission.unfinished_bytes)
        time.sleep(0.005)

    server.scorer.hook = look
    texts = [b" " * 600_000 + (RIGHT if at % 3 else b"#### 1") for at in range(12)]
    rollouts = [Rollout("ducks", text) for text in texts]

    def score(run: str) -> list[float | None]:
        with RewardClient(server.address, timeout_s=100, max_in_flight=12, run=run) as client:
            return [score.reward for score in client.score(rollouts)]

    with ThreadPoolExecutor(6) as threads:
        for rewards in threads.map(score, ["a", "a", "a", "b", "b", "c"]):
            assert rewards == [float(at % 3 > 0) for at in range(len(texts))]
    assert request_count(server, "Score", "RESOURCE_EXHAUSTED") > 0
    assert limit / 2 < highest <= limit
    wait_for(lambda: queued(server, "bytes") == 0)


def asked_by(run: str) -> tuple[tuple[str, bytes]]:
    """Return what a client sends beside a request of a training run."""
    return ((RUN_KEY, run.encode()),)


def test_a_run_does_not_wait_behind_all_that_another_has_sent(serve: Serve) -> None:
    server = serve(max_concurrent_requests=1)
    gate = Gate(server)
    big: list[Any] = [
        server.stub.Score.future(request_of(RIGHT), metadata=asked_by("big")) for _ in range(20)
    ]
    assert gate.entered.acquire(timeout=60)
    wait_for(lambda: queued(server) == len(big))
    small: Any = server.stub.Score.future(request_of(RIGHT, RIGHT), metadata=asked_by("small"))
    wait_for(lambda: queued(server) == len(big) + 1)
    gate.open.set()
    assert len(small.result(60).statuses) == 2
    assert all(len(call.result(60).statuses) == 1 for call in big)
    assert [len(piece) for piece in server.scorer.pieces].index(2) <= 2


def test_deadline_exceeded_before_work_begins(serve: Serve) -> None:
    server = serve(max_concurrent_requests=1)
    gate = Gate(server)
    first = server.stub.Score.future(request_of(RIGHT))
    assert gate.entered.acquire(timeout=60)
    failure(Code.DEADLINE_EXCEEDED, server.stub.Score, request_of(b"late"), timeout=1)
    wait_for(lambda: given_up(server) == 1)
    wait_for(lambda: queued(server) == 1)
    gate.open.set()
    assert first.result().statuses[0] == pb.STATUS_OK
    assert server.scorer.pieces == [["ducks"]], "the late request was never worked on"


def test_deadline_exceeded_between_pieces_stops_the_work(serve: Serve) -> None:
    server = serve()
    gate = Gate(server)
    request = request_of(*[b"x" * 600_000] * 20)  # twenty pieces
    failure(Code.DEADLINE_EXCEEDED, server.stub.Score, request, timeout=5)
    assert gate.entered.acquire(timeout=60)
    wait_for(lambda: given_up(server) == 1)
    gate.open.set()
    wait_for(lambda: queued(server) == 0)
    assert len(server.scorer.pieces) == 1


def test_a_caller_that_leaves_stops_the_work(serve: Serve) -> None:
    server = serve(max_concurrent_requests=1)
    gate = Gate(server)
    running: Any = server.stub.Score.future(request_of(*[b"x" * 600_000] * 20))
    assert gate.entered.acquire(timeout=60)
    waiting: Any = server.stub.Score.future(request_of(b"queued"))
    wait_for(lambda: queued(server) == 2)
    waiting.cancel()
    wait_for(lambda: queued(server) == 1)
    running.cancel()
    wait_for(lambda: request_count(server, "Score", "CANCELLED") == 2)
    assert queued(server) == 1, "it counts until its thread is free again"
    gate.open.set()
    wait_for(lambda: queued(server) == 0)
    assert len(server.scorer.pieces) == 1


def test_internal_has_an_id_and_no_traceback(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()

    def fail(rollouts: Sequence[Rollout]) -> None:
        raise KeyError("a secret of the server")

    server.scorer.hook = fail
    with caplog.at_level(logging.ERROR, logger="consensuspr.server"):
        error = failure(Code.INTERNAL, server.stub.Score, request_of(RIGHT))
    found = re.fullmatch(
        r"internal error; the server logged it as incident ([0-9a-f]{12})",
        error.details(),
    )
    assert found
    assert "secret" not in str(error.debug_error_string())
    [record] = [r for r in caplog.records if found[1] in r.getMessage()]
    assert record.exc_info
    assert record.exc_info[0] is KeyError


def test_health_and_reflection(serve: Serve) -> None:
    server = serve()
    health = health_pb2_grpc.HealthStub(server.channel)
    serving = health_pb2.HealthCheckResponse.SERVING
    for name in ("", SERVICE_NAME):
        request = health_pb2.HealthCheckRequest(service=name)
        assert health.Check(request).status == serving
        watching = health.Watch(request)
        assert next(watching).status == serving
        watching.cancel()
    unknown = health_pb2.HealthCheckRequest(service="another.Service")
    failure(Code.NOT_FOUND, health.Check, unknown)
    database = ProtoReflectionDescriptorDatabase(server.channel)
    assert set(database.get_services()) >= {SERVICE_NAME, "grpc.health.v1.Health"}
    file = database.FindFileContainingSymbol(SERVICE_NAME)
    [service] = [each for each in file.service if each.name == "ScoringService"]
    assert [method.name for method in service.method] == ["Score", "Explain", "ServerInfo"]


def test_probes_that_send_nothing_hold_up_each_other_alone(serve: Serve) -> None:
    server, ended = serve(), threading.Event()

    def silence() -> Iterator[bytes]:
        ended.wait()
        yield from ()

    with grpc.insecure_channel(
        server.address, options=[("grpc.use_local_subchannel_pool", 1)]
    ) as channel:
        probe = channel.stream_unary("/grpc.health.v1.Health/Check", None, None)
        probes = [probe.future(silence()) for _ in range(20)]
        health = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest()
        failure(Code.DEADLINE_EXCEEDED, health.Check, request, timeout=0.5)
        assert server.stub.ServerInfo(pb.ServerInfoRequest(), timeout=2).datasets
        ended.set()
        assert {each.code() for each in probes} <= {Code.INVALID_ARGUMENT, Code.RESOURCE_EXHAUSTED}


def test_draining_lets_nobody_in_and_finishes_admitted_requests(serve: Serve) -> None:
    server = serve(max_concurrent_requests=1)
    gate = Gate(server)
    admitted = [server.stub.Score.future(request_of(RIGHT)) for _ in range(3)]
    wait_for(lambda: queued(server) == 3)
    drained = server.start_draining(20)
    wait_for(lambda: server.service.draining)
    for method, request in (
        (server.stub.Score, request_of(RIGHT)),
        (server.stub.ServerInfo, pb.ServerInfoRequest()),
    ):
        failure(Code.UNAVAILABLE, method, request)
    host, _, port = server.address.partition(":")

    def nobody_connects() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == errno.ECONNREFUSED

    wait_for(nobody_connects)
    assert not any(call.done() for call in admitted)
    gate.open.set()
    assert [call.result().rewards[0] for call in admitted] == [1.0] * 3
    assert drained.result(60) == 0


def ended(connection: socket.socket) -> bool:
    """Read what the server has to say; return whether it has ended the connection."""
    connection.setblocking(False)
    try:
        while connection.recv(4096):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


def test_connections_have_a_limit(serve: Serve) -> None:
    server = serve(max_connections=3)
    server.stub.Score(request_of(RIGHT))  # one
    host, port = server.address.split(":")
    with ExitStack() as closing:
        callers = [
            closing.enter_context(socket.create_connection((host, int(port)))) for _ in range(10)
        ]
        wait_for(lambda: sum(map(ended, callers)) == 8)
        server.stub.Score(request_of(RIGHT))
