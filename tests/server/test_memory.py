"""What a worker takes of memory, whatever a client sends within the limits."""

from __future__ import annotations

import asyncio
import gc
import gzip
import http.client
import os
import socket
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from consensuspr.client import RewardClient
from consensuspr.errors import InvalidRequest
from consensuspr.scoring.scorer import MAX_EXPLAINED_BYTES
from consensuspr.server import memory
from consensuspr.server.memory import (
    FIELD_BYTES,
    GZIP_MAGIC,
    REQUEST_OVERHEAD_BYTES,
    SMALL_TURN_S,
    WINDOW_BYTES,
    _Turns,
    charge,
    field_table,
    unpacked,
    unpacked_bytes,
)
from consensuspr.v1 import ADMIN_SERVICE_NAME, PROTOCOL_VERSION, SERVICE_NAME
from consensuspr.v1 import scoring_pb2 as pb
from reliability.chaos import begun_request, open_calls
from tests.processes import wait_for
from tests.server.conftest import RIGHT, request_of
from tests.servers import ServeProcess, free_port, serve_command

if TYPE_CHECKING:
    from tests.server.conftest import Serve

MIB = 1 << 20
MB = 10**6
SIZE = 16 * MIB
BOUND = 300 * MB
# What stays: caches that fill, code that is touched for the first time.
STAYS = 100 * MB
Code = grpc.StatusCode


def varint(number: int) -> bytes:
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    return bytes([*data, number])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def rollout(*fields: bytes) -> bytes:
    return field(8, b"".join(fields))


def repeated(part: bytes, size: int = SIZE) -> bytes:
    return part * (size // len(part))


DUCKS_ID = field(1, b"ducks")
EMPTY_ROLLOUTS = repeated(b"\x42\0")
# The numbers of requests sent at a time, by as many connections as follow.
ATTACKS: dict[str, tuple[bytes, int, int]] = {
    "rollouts without a field": (EMPTY_ROLLOUTS, 1, 1),
    "again and again": (EMPTY_ROLLOUTS, 24, 3),
    "nodes without a field": (rollout(field(5, repeated(b"\x0a\0"))), 4, 1),
    "lists of nodes": (rollout(repeated(b"\x2a\0")), 4, 1),
    "empty expressions": (rollout(field(5, field(1, repeated(b"\x12\0")))), 4, 1),
    "budgets": (rollout(field(5, repeated(b"\x12\0"))), 1, 1),
    "options": (repeated(b"\x1a\0"), 4, 1),
    "fields that nobody knows": (repeated(b"\xfa\x01\0"), 4, 1),
    "groups that nobody knows": (repeated(b"\x7b\x7c"), 1, 1),
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
    "spans": (
        b"\x38\1" + rollout(field(2, b"1 "), field(5, field(1, field(2, b"1")) * 30)) * 2700,
        8,
        1,
    ),
    "spans of a response": (
        b"\x38\1" + rollout(DUCKS_ID, field(2, repeated(b"1+1=2 ", SIZE - 100))),
        8,
        4,
    ),
    "one response": (rollout(DUCKS_ID, field(2, repeated(b"1+1=2 ", SIZE - 100))), 32, 4),
    "names": (
        b"".join(rollout(field(n, b"%04d" % at * 2000)) for at in range(999) for n in (1, 7)),
        16,
        2,
    ),
}


# One of each kind; the others run with --full.
QUICK = {
    "again and again", "nodes without a field", "nodes of all rollouts", "one response",
    "spans of a response",
    "elements", "wide characters", "/grpc.health.v1.Health/Check",
}  # fmt: skip


def each(attacks: Iterable[str]) -> list[Any]:
    return [
        pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in attacks
    ]


class Worker:
    """The one worker of a server, and its memory.

    Attributes:
        base: bytes that it has when it has served a first request.
    """

    def __init__(self, server: ServeProcess) -> None:
        self.server = server
        pids = server.worker_pids()
        assert len(pids) == 1, pids
        self.pid = pids[0]
        with grpc.insecure_channel(server.address) as channel:
            request = request_of(RIGHT, protocol_version=PROTOCOL_VERSION)
            _call(channel, "Score")(request.SerializeToString())
        self.base = self.now()

    def now(self) -> int:
        return self._status("VmRSS")

    def peak(self) -> int:
        return self._status("VmHWM")

    def _status(self, name: str) -> int:
        assert self.server.worker_pids() == [self.pid], self.server.log.read_text()
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024

    def check(self) -> None:
        """Demand that it stayed within the bound, and comes back from where it was."""
        assert self.peak() - self.base < BOUND
        wait_for(lambda: self.now() - self.base < STAYS)


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


@pytest.fixture
def worker(dataset_file: Path, tmp_path: Path) -> Iterator[Worker]:
    """A worker that nothing was sent to."""
    command = serve_command(dataset_file, "--workers", "1")
    with closing(ServeProcess(tmp_path, command)) as server:
        yield Worker(server.wait_until_listening())


def request_bytes(raw: bytes) -> bytes:
    """Return a request of this protocol's version."""
    return b"\x08" + bytes([PROTOCOL_VERSION]) + raw


@pytest.mark.parametrize("attack", each(ATTACKS))
def test_a_worker_stays_within_its_bound(worker: Worker, attack: str) -> None:
    raw, times, connections = ATTACKS[attack]
    assert len(raw) <= 17 * MIB
    ends = send(worker.server.address, request_bytes(raw), times, connections)
    assert set(ends) <= {Code.OK, Code.INVALID_ARGUMENT, Code.RESOURCE_EXHAUSTED}
    worker.check()


@pytest.mark.parametrize("size", [SIZE - 100, MAX_EXPLAINED_BYTES])
def test_a_worker_that_explains_stays_within_its_bound(worker: Worker, size: int) -> None:
    raw = request_bytes(field(7, DUCKS_ID + field(2, repeated(b"1+1=2 ", size))))
    ends = send(worker.server.address, raw, 8, 2, "Explain")
    assert set(ends) <= {Code.OK, Code.RESOURCE_EXHAUSTED}
    assert Code.OK in ends
    worker.check()


@pytest.mark.parametrize("kind", ["begun", "whole", "watching"])
def test_calls_that_do_not_end_are_bounded(worker: Worker, kind: str) -> None:
    """Others are answered meanwhile, and afterwards their room is free."""
    with ExitStack() as stack:
        for connection in open_calls(int(worker.server.address.split(":")[1]), kind, 500, 100):
            stack.enter_context(connection)
        with RewardClient(worker.server.address, timeout_s=60) as client:
            client.server_info()
        assert worker.peak() - worker.base < BOUND
    wait_for(lambda: send(worker.server.address, request_bytes(b"")) == [Code.OK])


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
    assert send(worker.server.address, request_bytes(b"")) == [Code.RESOURCE_EXHAUSTED]
    for call in calls:
        call.cancel()
    wait_for(lambda: send(worker.server.address, request_bytes(b"")) == [Code.OK])
    for channel in channels:
        channel.close()
    worker.check()


SMALL_CALLS = {
    "/grpc.health.v1.Health/Check": Code.RESOURCE_EXHAUSTED,
    "/grpc.health.v1.Health/Watch": Code.RESOURCE_EXHAUSTED,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Code.RESOURCE_EXHAUSTED,
    f"/{ADMIN_SERVICE_NAME}/ListDatasets": Code.RESOURCE_EXHAUSTED,
    f"/{ADMIN_SERVICE_NAME}/PutDataset": Code.RESOURCE_EXHAUSTED,
    "/of.nobody/AtAll": Code.UNIMPLEMENTED,
}


@pytest.mark.parametrize("method", each(SMALL_CALLS))
def test_what_needs_few_bytes_is_received_one_at_a_time(worker: Worker, method: str) -> None:
    """A probe is answered meanwhile."""
    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.insecure_channel(worker.server.address, options=options) for _ in range(3)]
    raw = field(1, bytes(16 * MIB))
    calls = [channel.stream_stream(method, None, None) for channel in channels for _ in range(10)]
    ends = [call(iter([raw]), timeout=100) for call in calls]
    with grpc.insecure_channel(worker.server.address) as channel:
        probe = health_pb2_grpc.HealthStub(channel).Check
        assert probe(health_pb2.HealthCheckRequest(), timeout=60).status == 1
    found = {end.code() for end in ends}
    for channel in channels:
        channel.close()
    # Not all of it arrived in a turn where the machine was busy.
    assert found <= {SMALL_CALLS[method], Code.INVALID_ARGUMENT, Code.OK}
    assert worker.peak() - worker.base < 100 * MIB


def test_what_is_compressed_is_bounded_by_what_it_becomes(worker: Worker) -> None:
    bombs = [repeated(b"\x42\0"), rollout(field(2, bytes(SIZE - 100))), bytes(1 << 30)]
    ends = [
        send(worker.server.address, gzip.compress(bomb, 1), 16, 2, compression=None)
        for bomb in bombs
    ]
    # It takes longer to unpack than to receive: what waits for that has its bytes already.
    slow = zlib.compressobj(1, zlib.DEFLATED, 31, strategy=zlib.Z_HUFFMAN_ONLY)
    letters = bytes(range(32, 232)) + bytes(56)
    slow_bomb = rollout(field(2, os.urandom(SIZE - 100).translate(letters)))
    packed = slow.compress(request_bytes(slow_bomb)) + slow.flush()
    found = send(worker.server.address, packed, 32, 8, compression=None)
    assert set(found) <= {Code.OK, Code.RESOURCE_EXHAUSTED}
    # By the number of its fields, by the room that there is, and by what it becomes.
    assert Code.INVALID_ARGUMENT in ends[0]
    assert set(ends[0]) <= {Code.INVALID_ARGUMENT, Code.RESOURCE_EXHAUSTED}
    assert set(ends[1]) <= {Code.FAILED_PRECONDITION, Code.RESOURCE_EXHAUSTED, Code.OK}
    assert set(ends[2]) == {Code.RESOURCE_EXHAUSTED}
    worker.check()


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


@pytest.mark.parametrize("body", each(BODIES))
def test_a_worker_stays_within_its_bound_by_http(
    dataset_file: Path, tmp_path: Path, body: str
) -> None:
    port = free_port()
    path, raw = BODIES[body]

    def post(at: int) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=100)
        with closing(connection):
            headers = {"Content-Type": "application/json"}
            try:
                connection.request("POST", f"/{path}?on_unscorable=0", raw, headers)
                return connection.getresponse().status
            except ConnectionError:  # refused before all of it was sent
                return 0

    options = ("--workers", "1", "--http-address", f"127.0.0.1:{port}")
    with closing(ServeProcess(tmp_path, serve_command(dataset_file, *options))) as server:
        worker = Worker(server.wait_until_listening())
        with ThreadPoolExecutor(6) as pool:
            assert set(pool.map(post, range(6))) <= {200, 400, 503, 0}
        worker.check()


def test_an_ordinary_request_may_be_compressed(serve: Serve) -> None:
    server = serve()
    for request in (request_of(RIGHT, b"x" * 50_000), request_of(RIGHT)):
        reply = server.stub.Score(request, compression=grpc.Compression.Gzip)
        assert next(iter(reply.statuses)) == pb.STATUS_OK
    with pytest.raises(grpc.RpcError) as caught:
        server.stub.Score(request_of(b"x" * 50_000), compression=grpc.Compression.Deflate)
    assert caught.value.code() is Code.UNIMPLEMENTED


@pytest.mark.parametrize("text", ["a" * 5_000_000, "\u4e2d" * 1_000_000])
def test_a_long_name_of_a_dataset_gets_a_short_answer(serve: Serve, text: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        serve().stub.Score(request_of(RIGHT, dataset=text))
    assert caught.value.code() is Code.NOT_FOUND
    said = caught.value.details() or ""
    assert said.startswith(f"no dataset is called '{text[:60]}")
    assert said.endswith("there is: default")
    assert len(said) < 200


def test_requests_that_stall_keep_nobody_out(serve: Serve) -> None:
    """Clients that stop in the midst of a message hold the ways in for a bounded time."""
    server = serve()
    host, port = server.address.split(":")
    # Each in its turn of two seconds would take longer than anybody waits.
    held = [stalled(host, int(port)) for _ in range(100)]
    try:
        request = request_of(RIGHT)
        wait_for(lambda: server.built.service.receives_in_turn)
        ends = [server.stub.Score.future(request, timeout=60) for _ in range(4)]
        assert all(len(end.result().statuses) == 1 for end in ends)
    finally:
        for connection in held:
            connection.close()
    wait_for(lambda: not server.built.service.receives_in_turn)


def test_what_has_its_turn_counts_with_what_grpc_has_of_its_body(serve: Serve) -> None:
    server = serve()
    host, port = server.address.split(":")
    admission = server.built.service.admission
    with closing(stalled(host, int(port))):
        wait_for(lambda: server.built.service.receives_in_turn)
        assert not admission.unfinished_bytes
        with closing(stalled(host, int(port))):
            each = REQUEST_OVERHEAD_BYTES + WINDOW_BYTES
            wait_for(lambda: admission.unfinished_bytes == each)


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


@pytest.mark.parametrize(
    ("request_", "fields"),
    [(pb.ScoreRequest(), 0), (request_of(b"abc", b"def", epoch=3), 8)],
)
def test_a_request_is_charged_for_its_bytes_and_fields(
    request_: pb.ScoreRequest, fields: int
) -> None:
    raw = request_.SerializeToString()
    table = field_table(pb.ScoreRequest.DESCRIPTOR)
    assert charge(raw, table, 9) == 2 * len(raw) + FIELD_BYTES * fields + REQUEST_OVERHEAD_BYTES
    assert charge(raw, table, fields) == charge(raw, table, 9)
    if fields:
        with pytest.raises(InvalidRequest, match="a request holds at most"):
            charge(raw, table, fields - 1)


def test_unpacking_is_bounded_and_checked() -> None:
    packed = gzip.compress(b"x" * 1000)
    assert unpacked_bytes(packed) == 1000
    assert unpacked(packed) == b"x" * 1000
    assert unpacked(gzip.compress(b"")) == b""
    lies = [packed[:-4] + size.to_bytes(4, "little") for size in (0, 999, 1001)]
    for broken in (packed[:-9], packed + packed, b"\x1f\x8b nothing", GZIP_MAGIC, *lies):
        with pytest.raises(InvalidRequest, match="gzip"):
            unpacked(broken)


def stalled(host: str, port: int) -> socket.socket:
    """Begin a call, send a part of its message, and no more."""
    connection = socket.create_connection((host, port))
    connection.sendall(begun_request(1_000_000))
    return connection


def test_hosts_have_their_turns_one_after_the_other() -> None:
    """Of a host who came last goes first, so that one which stalls keeps others waiting least."""

    async def order() -> list[str]:
        turns = _Turns()
        await turns.take("a")
        had: list[str] = []

        async def wait(host: str, name: str) -> None:
            await turns.take(host)
            had.append(name)
            turns.give_back()

        names = ["b1", "a1", "a2", "a3", "b2", "a4"]
        tasks = [asyncio.create_task(wait(name[0], name)) for name in names]
        await asyncio.sleep(0)
        tasks[3].cancel()
        await asyncio.wait([tasks[3]])
        turns.give_back()
        await asyncio.gather(*tasks, return_exceptions=True)
        await turns.take("a")  # it is free again
        return had

    assert asyncio.run(order()) == ["b2", "a4", "b1", "a2", "a1"]


def test_memory_goes_back_when_much_of_it_was_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "TRIM_DELAY_S", 1000.0)
    monkeypatch.setattr(memory, "_resident_bytes", lambda: MIB)
    handed_back = threading.Event()

    async def work() -> None:
        trimmer = memory.Trimmer(lambda: False)
        monkeypatch.setattr(trimmer, "_trim", lambda _: handed_back.set())
        monkeypatch.setattr(memory, "_resident_bytes", lambda: 2 * MIB + memory.TRIM_BUSY_BYTES)
        trimmer.plan()
        trimmer.ended(memory.TRIM_ENDED_BYTES - 1)
        assert not handed_back.is_set()
        trimmer.ended(1)
        assert await asyncio.to_thread(handed_back.wait, 60)
        assert trimmer._planned is not None, "and is looked at again"

    asyncio.run(work())


@pytest.mark.parametrize("comes", [True, False])
def test_a_turn_does_not_end_while_the_event_loop_stands_still(comes: bool) -> None:
    async def receive() -> bytes | None:
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[bytes] = loop.create_future()

        class Call:
            async def read(self) -> bytes:
                return await arrived

            def peer(self) -> str:
                return "ipv4:127.0.0.1:1"

        def stand_still() -> None:
            time.sleep(2 * SMALL_TURN_S)
            if comes:  # as gRPC tells it: not before the loop has turned
                loop.call_soon(loop.call_soon, arrived.set_result, b"message")

        loop.call_soon(stand_still)
        return await _Turns().receive(Call(), SMALL_TURN_S)  # type: ignore[arg-type]

    if comes:
        assert asyncio.run(receive()) == b"message"
    else:
        with pytest.raises(TimeoutError):
            asyncio.run(receive())
