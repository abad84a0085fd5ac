"""The memory of a worker, whatever a client sends within the limits."""

from __future__ import annotations

import gc
import gzip
import http.client
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from consensuspr.client import RewardClient
from consensuspr.server import grpc_server
from consensuspr.server.grpc_server import Reception
from consensuspr.v1 import ADMIN_SERVICE_NAME, PROTOCOL_VERSION, SERVICE_NAME
from reliability.frames import begun_request, field, open_calls
from tests.processes import wait_for
from tests.server.conftest import RIGHT, request_of
from tests.servers import ServeProcess, free_port, serve_command

if TYPE_CHECKING:
    from tests.server.conftest import Serve

MIB = 1 << 20
MB = 10**6
SIZE = 16 * MIB
BOUND = 300 * MB
Code = grpc.StatusCode


def rollout(*fields: bytes) -> bytes:
    return field(8, b"".join(fields))


def repeated(part: bytes, size: int = SIZE) -> bytes:
    return part * (size // len(part))


DUCKS_ID = field(1, b"ducks")
EMPTY_ROLLOUTS = repeated(b"\x42\0")
# The numbers of requests sent at a time, by as many connections as follow.
ATTACKS: dict[str, tuple[bytes, int, int]] = {
    "rollouts without a field": (EMPTY_ROLLOUTS, 1, 1),
    "nodes without a field": (rollout(field(5, repeated(b"\x0a\0"))), 4, 1),
    "as many small rollouts as there may be": (
        rollout(DUCKS_ID, field(2, b"#### 18")) * 4096,
        64,
        2,
    ),
    "nodes of all rollouts": (
        b"".join(
            rollout(
                field(2, b"x"),
                field(5, b"".join(field(1, field(2, b"x%d+%d=y" % (n, k))) for k in range(32))),
            )
            for n in range(2400)
        ),
        6,
        1,
    ),
    "spans of a response": (
        b"\x38\1" + rollout(DUCKS_ID, field(2, repeated(b"1+1=2 ", SIZE - 100))),
        8,
        4,
    ),
}


class Worker:
    """The one worker of a server, and its memory.

    Attributes:
        base: bytes that it had at first.
        http_port: where it listens for HTTP.
    """

    def __init__(self, server: ServeProcess, http_port: int) -> None:
        self.server = server
        self.http_port = http_port
        pids = server.worker_pids()
        assert len(pids) == 1, pids
        self.pid = pids[0]
        with grpc.insecure_channel(server.address) as channel:
            request = request_of(RIGHT, protocol_version=PROTOCOL_VERSION)
            _call(channel, "Score")(request.SerializeToString())
        self.begin()

    def begin(self) -> None:
        """Measure from the present memory on."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")  # the peak
        self.base = self._status("VmRSS")

    def peak(self) -> int:
        return self._status("VmHWM")

    def _status(self, name: str) -> int:
        assert self.server.worker_pids() == [self.pid], self.server.log.read_text()
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024

    def check(self, attack: str) -> None:
        """Demand that it stayed within the bound."""
        assert self.peak() - self.base < BOUND, attack


def _call(channel: grpc.Channel, method: str) -> Any:
    return channel.unary_unary(
        f"/{SERVICE_NAME}/{method}", request_serializer=None, response_deserializer=None
    )


def send(
    address: str,
    raw: bytes,
    times: int = 1,
    connections: int = 1,
    method: str = "Score",
    **how: Any,
) -> list[Code]:
    """Send a request so often at the same time; return how each ended."""
    options = [
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    channels = [grpc.insecure_channel(address, options=options) for _ in range(connections)]
    calls = [_call(channels[at % connections], method) for at in range(times)]
    ends = [call.future(raw, timeout=100, **how) for call in calls]
    codes = [end.code() for end in ends]
    for channel in channels:
        channel.close()
    return codes


@pytest.fixture(scope="module")
def shared(dataset_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """The worker of a server that also listens for HTTP."""
    options = ("--workers", "1", "--http-address", f"127.0.0.1:{free_port()}")
    folder = tmp_path_factory.mktemp("memory")
    with closing(ServeProcess(folder, serve_command(dataset_file, *options))) as server:
        yield Worker(server.wait_until_listening(), int(options[-1].rpartition(":")[2]))


@pytest.fixture
def worker(shared: Worker) -> Worker:
    """The same, its peak forgotten."""
    shared.begin()
    return shared


def request_bytes(raw: bytes) -> bytes:
    """Return a request of this protocol's version."""
    return b"\x08" + bytes([PROTOCOL_VERSION]) + raw


def test_a_worker_stays_within_its_bound(worker: Worker) -> None:
    for attack, (raw, times, connections) in ATTACKS.items():
        assert len(raw) <= 17 * MIB
        ends = send(worker.server.address, request_bytes(raw), times, connections)
        assert set(ends) <= {Code.OK, Code.INVALID_ARGUMENT, Code.RESOURCE_EXHAUSTED}, attack
        worker.check(attack)
    bomb = gzip.compress(bytes(1 << 30), 1)
    assert set(send(worker.server.address, bomb, 16, 2)) == {Code.INVALID_ARGUMENT}
    explained = request_bytes(field(7, DUCKS_ID + field(2, repeated(b"1+1=2 ", SIZE - 100))))
    ends = send(worker.server.address, explained, 8, 2, "Explain")
    assert {Code.OK} <= set(ends) <= {Code.OK, Code.RESOURCE_EXHAUSTED}
    worker.check("explain")


@pytest.mark.slow
def test_calls_that_do_not_end_are_bounded(worker: Worker) -> None:
    """Other clients get answers meanwhile, and scores afterwards."""
    port = int(worker.server.address.split(":")[1])
    for kind in ("begun", "whole", "watching"):
        with ExitStack() as stack:
            for connection in open_calls(port, kind, 300, 100):
                stack.enter_context(connection)
            with RewardClient(worker.server.address, timeout_s=60) as client:
                client.server_info()
            worker.check(kind)
        wait_for(lambda: send(worker.server.address, request_bytes(b"")) == [Code.OK])


@pytest.mark.slow
def test_replies_that_are_not_taken_are_bounded(worker: Worker) -> None:
    raw = request_bytes(field(7, DUCKS_ID + field(2, repeated(b"x", 2 * MIB))))
    options = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.http2.bdp_probe", 0),  # takes no more than 64 KiB on its own
    ]
    channels = [grpc.insecure_channel(worker.server.address, options) for _ in range(4)]
    # What is not iterated over is not read.
    methods = [channel.unary_stream(f"/{SERVICE_NAME}/Explain", None, None) for channel in channels]
    calls: list[Any] = []
    for at in range(120):
        calls.append(methods[at % len(methods)](raw, timeout=300))
        calls[-1].initial_metadata()  # it comes with the reply, or the end
    assert worker.peak() - worker.base < BOUND
    assert send(worker.server.address, raw, method="Explain") == [Code.RESOURCE_EXHAUSTED]
    assert send(worker.server.address, request_bytes(b"")) == [Code.OK]
    for call in calls:
        call.cancel()
    wait_for(lambda: send(worker.server.address, raw, method="Explain") == [Code.OK])
    for channel in channels:
        channel.close()


SMALL_CALLS = {
    "/grpc.health.v1.Health/Check": Code.RESOURCE_EXHAUSTED,
    "/grpc.health.v1.Health/Watch": Code.RESOURCE_EXHAUSTED,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Code.RESOURCE_EXHAUSTED,
    f"/{ADMIN_SERVICE_NAME}/PutDataset": Code.RESOURCE_EXHAUSTED,
    "/of.nobody/AtAll": Code.UNIMPLEMENTED,
}


def is_serving(worker: Worker) -> bool:
    """Probe a worker, which on a busy machine may reply that it is to be tried again."""
    with grpc.insecure_channel(worker.server.address) as channel:
        call = health_pb2_grpc.HealthStub(channel).Check.future(health_pb2.HealthCheckRequest())
        return call.code() is Code.OK


def test_large_messages_of_small_calls_are_bounded(worker: Worker) -> None:
    """A probe gets its answer meanwhile."""
    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    raw = field(1, bytes(16 * MIB))
    for method, code in SMALL_CALLS.items():
        channels = [grpc.insecure_channel(worker.server.address, options) for _ in range(3)]
        calls = [c.stream_stream(method, None, None) for c in channels for _ in range(10)]
        ends = [call(iter([raw]), timeout=100) for call in calls]
        wait_for(lambda: is_serving(worker))
        assert {end.code() for end in ends} == {code}
        for channel in channels:
            channel.close()
        worker.check(method)


BODIES: dict[str, tuple[str, bytes]] = {
    "elements": ("openrlhf", b'{"query":[' + repeated(b"{},", 15 * MIB) + b"{}]}"),
    "empty texts": (
        "openrlhf",
        b'{"query":[%s""],"prompts":[%s""]}' % (b'"",' * 65_000, b'"",' * 65_000),
    ),
    "wide characters": (
        "slime",
        b'{"prompt":"a","response":"\xf0\x9f\x98\x80' + repeated(b"x", 15 * MIB) + b'"}',
    ),
}


def test_a_worker_stays_within_its_bound_by_http(worker: Worker) -> None:
    def post(path: str, raw: bytes) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", worker.http_port, timeout=100)
        with closing(connection):
            headers = {"Content-Type": "application/json"}
            try:
                connection.request("POST", f"/{path}?on_unscorable=0", raw, headers)
                return connection.getresponse().status
            except ConnectionError:  # refused before all of it was sent
                return 0

    for body, (path, raw) in BODIES.items():
        with ThreadPoolExecutor(4) as pool:
            ends = {*pool.map(post, [path] * 4, [raw] * 4)}
        assert ends <= {200, 400, 413, 503, 0}, body
        worker.check(body)


def test_requests_that_stall_keep_nobody_out(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that has sent a request before takes other turns than new ones."""
    monkeypatch.setattr(
        grpc_server, "Reception", lambda *_: Reception(receive_s=3, short_receive_s=1)
    )
    server = serve()
    server.stub.Score(request_of(RIGHT))
    host, port = server.address.split(":")
    held = [stalled(host, int(port)) for _ in range(100)]
    try:
        assert len(server.stub.Score(request_of(RIGHT), timeout=60).statuses) == 1
        with RewardClient(server.address, timeout_s=60) as other:
            assert other.server_info().max_rollouts
    finally:
        for connection in held:
            connection.close()


def test_a_request_that_is_refused_leaves_nothing(serve: Serve) -> None:
    """What gRPC keeps of a call that was aborted does not have its request."""
    server = serve(max_rollouts=1)
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            with pytest.raises(grpc.RpcError):
                server.stub.Score(request_of(b"x" * 3_000_000, b"y"))
            with pytest.raises(grpc.RpcError):
                server.stub.Score(request_of(b"x" * 3_000_000, dataset="none"))
        # What other tests have left is not looked at.
        wait_for(lambda: not [raw for raw in large_referents() if raw.count(b"x") > 2 * MIB])
    finally:
        gc.enable()


def large_referents() -> Iterator[bytes]:
    for thing in gc.get_objects():
        if not isinstance(thing, dict):
            yield from (it for it in gc.get_referents(thing) if type(it) is bytes)


def stalled(host: str, port: int) -> socket.socket:
    """Begin a call, send a part of its message, and no more."""
    connection = socket.create_connection((host, port))
    connection.sendall(begun_request(1_000_000))
    return connection
