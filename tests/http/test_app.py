"""The HTTP endpoint of a server: codes, limits, load, and its end."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from consensuspr.client import RewardClient, Rollout
from consensuspr.http import app
from tests.certificates import Authority
from tests.http.conftest import request
from tests.processes import wait_for
from tests.servers import Gate, served

if TYPE_CHECKING:
    from pathlib import Path

    from tests.http.conftest import InProcessServer, Serve

HALF = "16 - 3 - 4 = 9 eggs are left. Answer: 18"
HEAD = b"POST /slime HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
REQUEST = {"prompt": "How much?", "response": HALF, "label": "ducks"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "code"),
    [
        ("GET", "/slime", {}, 405),
        ("POST", "/get_reward?" + "x" * 2000, {}, 404),
        ("POST", "/slime?dataset=other", {}, 404),
        ("POST", f"/slime?expect_digest=sha256:{'0' * 64}", {}, 412),
        ("POST", "/slime", {"Content-Type": "text/plain"}, 415),
        ("POST", "/slime", {"Host": "evil.example"}, 400),
        ("GET", "/health", {}, 200),
    ],
)
def test_codes(
    server: InProcessServer, method: str, path: str, headers: dict[str, str], code: int
) -> None:
    assert server.post(path, REQUEST, method, headers=headers).code == code


def test_a_token_of_scope_score_is_wanted_and_tls_spoken(start: Serve, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    reads, scores = "reads-" + "r" * 20, "scores-" + "s" * 20
    tokens.write_text(f"{reads} read\n{scores}\n")
    authority = Authority(tmp_path)
    pair = authority.sign("server")
    server = start(token_file=tokens, tls_cert=pair.cert, tls_key=pair.key)
    context = ssl.create_default_context(cafile=str(authority.cert))

    def code(shown: str | None) -> int:
        headers = {} if shown is None else {"Authorization": shown}
        return server.post("/slime", REQUEST, headers=headers, context=context).code

    # As `requests` sends what stands in ~/.netrc or in the URL.
    basic = "Basic " + base64.b64encode(f"token:{scores}".encode()).decode()
    assert [code(f"Bearer {scores}"), code(basic)] == [200, 200]
    assert [code(None), code("Bearer nobody-" + "n" * 20)] == [401, 401]
    assert code(f"Bearer {reads}") == 403
    with pytest.raises((http.client.HTTPException, OSError)):
        server.post("/slime", REQUEST)  # without TLS


def test_a_full_queue_says_when_to_come_back(start: Serve) -> None:
    small = {"max_response_bytes": 1000, "max_message_bytes": 1000, "http_max_body_bytes": 5000}
    server = start(queue_limit_bytes=5000, **small)
    gate = Gate(server)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(server.post, "/slime", REQUEST)
        assert gate.entered.acquire(timeout=60)
        refused = server.post("/slime", REQUEST)
        gate.open.set()
        assert first.result(60).code == 200
    assert (refused.code, int(refused.headers["retry-after"]) >= 1) == (503, True)


def test_bodies_are_bounded(start: Serve) -> None:
    sizes = {"max_response_bytes": 1000, "max_message_bytes": 1000, "queue_limit_bytes": 50_000}
    server = start(http_max_body_bytes=40_000, **sizes)
    large = REQUEST | {"prompt": "x" * 20_000}
    assert server.post("/slime", large | {"response": "x" * 20_000}).code == 413
    assert (
        server.post("/slime", large | {"response": "x" * 1001}).body["unscorable"][0]["status"]
        == "OVERSIZE"
    )
    host, port = server.http_address.split(":")
    with socket.create_connection((host, int(port))) as slow:
        slow.sendall(
            HEAD + b"Content-Length: 39000\r\n\r\n" + b"x" * 38_000
        )  # the rest never comes
        wait_for(lambda: server.post("/slime", large).code == 503)
    wait_for(lambda: server.post("/slime", large).code == 200)


def test_a_body_that_comes_too_slowly(
    server: InProcessServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "RECEIVE_S", 0.1)
    host, port = server.http_address.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as slow:
        slow.sendall(HEAD + b"Content-Length: 99\r\n\r\n{")
        assert slow.recv(4096).startswith(b"HTTP/1.1 504 ")


def test_work_that_takes_too_long_is_given_up(
    start: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "SCORE_S", 1.0)
    server = start()
    gate = Gate(server)
    body = {"query": [HALF] * 1000, "prompts": [""] * 1000, "labels": ["ducks"] * 1000}
    with ThreadPoolExecutor() as pool:
        reply = pool.submit(server.post, "/openrlhf", body)
        assert gate.entered.acquire(timeout=60)
        time.sleep(1.0)
        gate.open.set()
        assert reply.result(60).code == 504
    assert len(server.scorer.pieces) == 1, "the rest of the work is not done"


def test_work_ends_when_the_sender_disconnects(start: Serve) -> None:
    server = start()
    gate = Gate(server)
    body = {"query": [HALF] * 1000, "prompts": [""] * 1000, "labels": ["ducks"] * 1000}
    host, port = server.http_address.split(":")
    connection = http.client.HTTPConnection(host, int(port))
    connection.request(
        "POST", "/openrlhf", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    assert gate.entered.acquire(timeout=60)
    connection.close()
    wait_for(lambda: server.metric("requests_total", method="openrlhf", code="CANCELLED") == 1)
    gate.open.set()
    wait_for(lambda: server.metric("queue_requests") == 0)
    assert len(server.scorer.pieces) == 1, "the rest of the work is not done"


def test_draining_finishes_what_is_admitted(start: Serve) -> None:
    server = start()
    gate = Gate(server)
    with ThreadPoolExecutor() as pool:
        admitted = pool.submit(server.post, "/slime", REQUEST)
        assert gate.entered.acquire(timeout=60)
        draining = server.start_draining(20)
        wait_for(lambda: server.post("/health", b"", "GET").code == 503)
        wait_for(lambda: server.service.draining)
        reply = server.post("/slime", REQUEST)
        assert (reply.code, reply.headers["retry-after"]) == (503, "1")
        gate.open.set()
        assert admitted.result(60).body["reward"] == 0.75
        assert draining.result(60) == 0
    with pytest.raises(ConnectionRefusedError):
        server.post("/health", b"", "GET")


def test_serve_listens_on_both(dataset_file: Path, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with served(
        tmp_path, dataset_file, "--workers", "2", "--http-address", address
    ) as grpc_address:
        for _ in range(4):  # on either worker
            assert request(address, "/slime", REQUEST).body["reward"] == 0.75
        with RewardClient(grpc_address) as client:
            assert client.score([Rollout("ducks", HALF)])[0].reward == 0.75
