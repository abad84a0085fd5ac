"""Addresses, and ports that only one server has."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.server.config import Address, claim


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:50051", "127.0.0.1", 50051),
        ("localhost:0", "localhost", 0),
        ("[::1]:65535", "::1", 65535),
        ("reward-server.internal:1", "reward-server.internal", 1),
    ],
)
def test_addresses_are_read_and_written(text: str, host: str, port: int) -> None:
    assert Address.parse(text) == Address(host, port)
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "address must be HOST:PORT, got ''"),
        ("50051", "address must be HOST:PORT, got '50051'"),
        (":50051", "address must be HOST:PORT"),
        ("host:", "address must be HOST:PORT"),
        ("host:http", "address must be HOST:PORT"),
        ("host:-1", "address must be HOST:PORT"),
        ("host:٣", "address must be HOST:PORT"),
        ("::1:80", "address must be HOST:PORT"),
        ("host:65536", "port must be at most 65535, got 65536"),
        ("unix:/run/reward.sock", "is a unix socket; serve needs HOST:PORT"),
        ("/run/reward.sock", "is a unix socket"),
    ],
)
def test_what_is_no_address_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Address.parse(text)


@pytest.fixture
def port() -> Iterator[int]:
    with closing(claim(Address("127.0.0.1", 0))) as claimed:
        assert claimed.address.port > 0
        yield claimed.address.port


def test_a_port_is_claimed_once(port: int) -> None:
    with pytest.raises(ConsensusPRError, match=f"127.0.0.1:{port} is in use by another process"):
        claim(Address("127.0.0.1", port))


def test_workers_share_a_claimed_port_and_get_all_connections(port: int) -> None:
    workers = [shared_listener(port) for _ in range(2)]
    with pytest.raises(ConsensusPRError, match="is in use by another process"):
        claim(Address("127.0.0.1", port))
    for _ in range(20):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    for worker in workers:
        worker.close()


@pytest.mark.parametrize("options", [[], [socket.SO_REUSEADDR], [socket.SO_REUSEPORT]])
def test_a_port_that_somebody_listens_on_is_not_claimed(options: list[int]) -> None:
    with socket.socket() as other:
        for option in options:
            other.setsockopt(socket.SOL_SOCKET, option, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ConsensusPRError, match="is in use by another process"):
            claim(Address("127.0.0.1", port))


def test_a_port_can_be_claimed_right_after_a_server_with_connections_left() -> None:
    first = claim(Address("127.0.0.1", 0))
    port = first.address.port
    worker = shared_listener(port)
    client = socket.create_connection(("127.0.0.1", port), timeout=5)
    served, _ = worker.accept()
    served.close()  # the server closes first: its side stays in TIME_WAIT
    client.recv(1)
    client.close()
    worker.close()
    first.close()
    claim(Address("127.0.0.1", port)).close()


def test_localhost_is_resolved() -> None:
    with closing(claim(Address("localhost", 0))) as claimed:
        assert claimed.address.host in ("127.0.0.1", "::1")


@pytest.mark.parametrize(
    ("host", "sentence"),
    [
        ("no-such-host.invalid", "cannot resolve host 'no-such-host.invalid' of"),
        ("192.0.2.1", "cannot listen on 192.0.2.1:0: cannot assign requested address"),
    ],
)
def test_a_host_that_is_not_ours_is_bad_input(host: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        claim(Address(host, 0))


def shared_listener(port: int) -> socket.socket:
    worker = socket.socket()
    worker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    worker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    worker.bind(("127.0.0.1", port))
    worker.listen()
    return worker
