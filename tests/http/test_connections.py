"""Senders that keep the server waiting, that are too many, or that are web pages."""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psutil
import pytest

from consensuspr.client import RewardClient, Rollout
from consensuspr.http import connections, json_body
from tests.http.conftest import DUCKS, request
from tests.processes import wait_for
from tests.servers import Gate

if TYPE_CHECKING:
    from tests.http.conftest import InProcessServer, Serve, ServeReal

REQUEST = {"prompt": DUCKS, "response": "16 - 3 - 4 = 9 eggs are left. Answer: 18", "label": "18"}
HEAD = b"POST /slime HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connect(address: str) -> socket.socket:
    host, port = address.split(":")
    return socket.create_connection((host, int(port)), timeout=60)


@contextlib.contextmanager
def connected(address: str, number: int) -> Iterator[list[socket.socket]]:
    """Open connections that stay open."""
    with contextlib.ExitStack() as closing:
        yield [closing.enter_context(connect(address)) for _ in range(number)]


def is_closed(connection: socket.socket) -> bool:
    """Say whether the server has ended a connection that it has sent nothing on."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def dribble(connection: socket.socket, what: bytes) -> None:
    """Send a byte now and then until the server ends it."""
    with contextlib.suppress(OSError):
        for byte in what * 1000:
            connection.sendall(bytes([byte]))
            time.sleep(0.02)


@pytest.mark.parametrize("before", [b"", HEALTH], ids=["at first", "after a request"])
@pytest.mark.parametrize("start", [b"", b"POST /sl"], ids=["nothing", "a part"])
def test_a_header_that_does_not_come_ends_the_connection(
    server: InProcessServer, monkeypatch: pytest.MonkeyPatch, before: bytes, start: bytes
) -> None:
    monkeypatch.setattr(connections, "HEADER_S", 2)
    with connect(server.http_address) as slow:
        slow.sendall(before)
        said = b""
        while before and b"SERVING" not in said:
            came = slow.recv(4096)
            assert came, said
            said += came
        slow.sendall(start)
        if before and not start:  # idle, which it may be for longer
            time.sleep(4)
            assert not is_closed(slow)
            return
        sender = threading.Thread(target=dribble, args=(slow, b"x-a: b\r\n" if start else b""))
        sender.start()
        with contextlib.suppress(ConnectionError):
            assert slow.recv(4096) == b""
        sender.join()


def test_a_body_that_comes_too_slowly(
    server: InProcessServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_body, "RECEIVE_S", 0.3)
    with connect(server.http_address) as slow:
        slow.sendall(HEAD + b"Content-Length: 99999\r\n\r\n")
        sender = threading.Thread(target=dribble, args=(slow, b"x"))
        sender.start()
        assert slow.recv(4096).startswith(b"HTTP/1.1 504 ")
        slow.close()
        sender.join()


def test_a_reply_that_nobody_takes_ends_the_connection(
    server: InProcessServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "TAKE_S", 0.3)
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, port = server.http_address.split(":")
        deaf.connect((host, int(port)))
        deaf.settimeout(30)
        with pytest.raises(ConnectionError):
            while True:
                deaf.sendall(HEALTH)
    assert server.post("/health", b"", "GET").code == 200


@pytest.mark.parametrize(
    "sent", [b"", b"GET", HEAD, HEAD + b"Content-Length: 9\r\n\r\n{"],
    ids=["nothing", "a word", "a part of a header", "a part of a body"],
)  # fmt: skip
def test_who_only_holds_connections_does_not_keep_others_out(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "KEEP_S", 0.1)
    server = serve(max_connections=20)
    with connected(server.http_address, 100) as idle:
        for connection in idle:
            connection.sendall(sent)
        for _ in range(3):
            assert server.post("/slime", REQUEST).body["reward"] == 0.75
        assert sum(map(is_closed, idle)) >= 80


def test_a_thousand_idle_connections(server: InProcessServer) -> None:
    with connected(server.http_address, 1000) as idle:
        assert server.post("/slime", REQUEST).body["reward"] == 0.75
        assert not any(map(is_closed, idle)), "it has places for them"


def test_who_waits_for_a_reply_is_not_closed_for_another(serve: Serve) -> None:
    server = serve(max_connections=2, max_concurrent_requests=2)
    gate = Gate(server)
    with ThreadPoolExecutor(4) as pool:
        replies = [pool.submit(server.post, "/slime", REQUEST) for _ in range(4)]
        for _ in range(2):
            assert gate.entered.acquire(timeout=60)
        assert not gate.entered.acquire(timeout=0.3), "the others wait to be accepted"
        gate.open.set()
        assert [reply.result(60).body["reward"] for reply in replies] == [0.75] * 4


@pytest.mark.parametrize(
    "junk",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # of TLS
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nx: " + b"y" * 300_000,
        HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffffffff\r\n{}",
    ],
)
def test_junk_behind_a_request(server: InProcessServer, junk: bytes) -> None:
    with connect(server.http_address) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(HEALTH + junk * 3)
        received = b""
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65536):
                received += part
    assert received.count(b" 200 OK") <= 1
    assert server.post("/slime", REQUEST).body["reward"] == 0.75


def test_a_request_with_two_ends_is_the_last_of_its_connection(server: InProcessServer) -> None:
    """To a proxy that goes by its length, what follows would be of another caller."""
    two_ends = HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    with connect(server.http_address) as connection:
        connection.sendall(two_ends + HEALTH)
        received = b""
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65536):
                received += part
    assert received.startswith(b"HTTP/1.1 400 ")
    assert received.count(b"HTTP/1.1 ") == 1


def test_requests_one_behind_the_other(server: InProcessServer) -> None:
    with connect(server.http_address) as connection:
        connection.sendall(HEALTH * 500)
        received = b""
        while received.count(b"HTTP/1.1 200 OK") < 500:
            received += connection.recv(65536)


LOOPBACK = ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "127.1.2.3", "[::1]:80"]
ELSEWHERE = ["evil.example", "evil.example:50052", "127.0.0.1.evil.example", "localhost.evil",
             "10.0.0.1", "[::2]", "[", "a b", "0.0.0.0", "localhost@evil.example"]  # fmt: skip


@pytest.mark.parametrize(
    ("host", "allowed", "code"),
    [
        *((host, (), 200) for host in LOOPBACK),
        *((host, (), 421) for host in ELSEWHERE),
        ("Rewards.Example:80", ("rewards.example",), 200),
        ("evil.example", ("rewards.example",), 421),
    ],
)
def test_a_loopback_address_is_asked_by_its_names_alone(
    serve: Serve, host: str, allowed: Sequence[str], code: int
) -> None:
    server = serve(http_allowed_hosts=allowed)
    for path, method, body in (("/health", "GET", b""), ("/slime", "POST", REQUEST)):
        reply = request(server.http_address, path, body, method, {"Host": host})
        assert reply.code == code
        if code == 421:
            assert repr(host) in reply.body["error"]
            assert "http_allowed_hosts" in reply.body["error"]


@pytest.mark.parametrize(
    ("origin", "code"),
    [
        ("http://evil.example", 403),
        ("http://localhost:8000", 403),
        ("null", 403),
        ("", 403),
        ("https://rewards.example", 200),
    ],
)
def test_web_pages_are_not_answered(serve: Serve, origin: str, code: int) -> None:
    server = serve(http_allowed_hosts=["rewards.example"])
    reply = request(server.http_address, "/slime", REQUEST, headers={"Origin": origin})
    assert reply.code == code
    assert not [name for name in reply.headers if name.startswith("access-control")]
    preflight = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    reply = request(server.http_address, "/slime", b"", "OPTIONS", preflight)
    assert reply.code == (403 if code == 403 else 405)
    assert not [name for name in reply.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("headers", "code", "said"),
    [
        ({"Content-Type": "application/json; charset=utf-8"}, 200, ""),
        ({"Content-Type": "Application/JSON", "Content-Encoding": "identity"}, 200, ""),
        ({"Content-Type": ""}, 415, "this one has none"),
        ({"Content-Type": "text/plain"}, 415, "this one with 'text/plain'"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415, "form-urlencoded"),
        ({"Content-Type": "text/plain; application/json"}, 415, "text/plain"),
        ({"Content-Type": "x" * 5000}, 415, "'" + "x" * 80 + "'"),
        ({"Content-Encoding": "gzip"}, 415, "Content-Encoding: gzip"),
    ],
)
def test_a_body_is_sent_as_json(
    server: InProcessServer, headers: dict[str, str], code: int, said: str
) -> None:
    reply = request(server.http_address, "/slime", REQUEST, headers=headers)
    assert reply.code == code
    if said:
        assert said in reply.body["error"]
        assert len(reply.body["error"]) < 200


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs prlimit")
@pytest.mark.parametrize("face", ["http_address", "address"])
def test_without_descriptors_it_neither_ends_nor_fills_the_log(
    serve_real: ServeReal, face: str
) -> None:
    server = serve_real().wait_until_listening()
    [worker] = server.worker_pids()
    held = psutil.Process(worker).num_fds()
    before = resource.prlimit(worker, resource.RLIMIT_NOFILE)
    resource.prlimit(worker, resource.RLIMIT_NOFILE, (held + 10, before[1]))
    with connected(getattr(server, face), 60):
        wait_for(lambda: psutil.Process(worker).num_fds() == held + 10)
        time.sleep(2)
    # Without them there is a queue to work off, and gRPC waits a second between two tries.
    wait_for(lambda: psutil.Process(worker).num_fds() < held + 8)
    assert server.post("/slime", REQUEST).body["reward"] == 0.75
    with RewardClient(server.address) as client:
        assert client.score([Rollout("ducks", REQUEST["response"])])[0].reward == 0.75
    assert server.worker_pids() == [worker]
    assert server.log.stat().st_size < 10_000
