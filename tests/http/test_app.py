"""The HTTP face: codes, limits, load and the end of a server."""

from __future__ import annotations

import base64
import dataclasses
import http.client
import json
import socket
import ssl
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from consensuspr.client import RewardClient
from consensuspr.scoring import AnswerStatus, AnswerVerifier, Rollout, Score, Verdict
from consensuspr.server.service import Draining
from tests.certificates import Authority
from tests.http.conftest import DUCKS, Reply, request
from tests.processes import wait_for
from tests.servers import Gate

if TYPE_CHECKING:
    from tests.http.conftest import InProcessServer, Serve

HALF = "16 - 3 - 4 = 9 eggs are left. Answer: 18"

HEAD = b"POST /slime HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
JSON = {"Content-Type": "application/json"}
REQUEST = {"prompt": DUCKS, "response": HALF, "label": "18"}


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/slime", 405),
        ("PUT", "/openrlhf", 405),
        ("POST", "/", 404),
        ("POST", "/slime/", 404),
        ("POST", "/get_reward?" + "x" * 2000, 404),
    ],
)
def test_elsewhere_is_told_where_to_go(
    server: InProcessServer, method: str, path: str, code: int
) -> None:
    reply = server.post(path, b"{}", method)
    assert reply.code == code
    assert reply.body["error"].endswith("there are POST /openrlhf, POST /slime, GET /health")
    assert len(reply.body["error"]) < 200


def test_a_token_of_scope_score_is_wanted_and_tls_spoken(serve: Serve, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    reads, scores = "reads-" + "r" * 20, "scores-" + "s" * 20
    tokens.write_text(f"{reads} read\n{scores}\n")
    authority = Authority(tmp_path)
    pair = authority.sign("server")
    server = serve(token_file=tokens, tls_cert=pair.cert, tls_key=pair.key)
    context = ssl.create_default_context(cafile=str(authority.cert))

    def ask(path: str, shown: str | None = None, method: str = "POST") -> Reply:
        headers = {} if shown is None else {"Authorization": shown}
        return request(server.http_address, path, REQUEST, method, headers, context)

    assert ask("/health", method="GET").code == 200
    # As `requests` sends what stands in ~/.netrc or in the URL.
    basic = "Basic " + base64.b64encode(f"token:{scores}".encode()).decode()
    for good in (f"Bearer {scores}", basic):
        assert ask("/slime", good).code == 200
    for shown in (None, "Bearer nobody-" + "n" * 20):
        refused = ask("/slime", shown)
        assert (refused.code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert "token" in refused.body["error"]
    refused = ask("/slime", f"Bearer {reads}")
    assert refused.code == 403
    assert "needs a token of scope score" in refused.body["error"]
    assert server.metric("requests_total", method="slime", code="UNAUTHENTICATED") == 2
    with pytest.raises((http.client.HTTPException, OSError)):
        server.post("/slime", REQUEST)  # plainly


def test_health(server: InProcessServer) -> None:
    reply = server.post("/health", b"", "GET")
    assert (reply.code, reply.body) == (200, {"status": "SERVING"})


def test_both_faces_share_scorer_and_metrics(server: InProcessServer) -> None:
    assert server.post("/slime", REQUEST).body["reward"] == 0.75
    with RewardClient(server.address) as client:
        assert client.score([Rollout("ducks", HALF)])[0].reward == 0.75
    server.post("/slime", REQUEST | {"prompt": "hello"})
    server.post("/slime", b"no JSON")
    assert server.sizes() == [1, 1, 1]
    assert server.metric("rollouts_total", status="OK", data_source="toy", run="unknown") == 2
    assert (
        server.metric("rollouts_total", status="NO_NODES", data_source="unknown", run="unknown")
        == 1
    )
    for code in ("OK", "UNSCORABLE", "INVALID_ARGUMENT"):
        assert server.metric("requests_total", method="slime", code=code) == 1
    assert server.metric("requests_total", method="Score", code="OK") == 1
    assert server.metric("queue_bytes") == 0


def test_overload_says_when_to_come_back(serve: Serve) -> None:
    server = serve(
        max_response_bytes=1000,
        max_message_bytes=1000,
        http_max_body_bytes=5000,
        queue_limit_bytes=5000,
    )
    gate = Gate(server)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(server.post, "/slime", REQUEST)
        assert gate.entered.acquire(timeout=60)
        refused = server.post("/slime", REQUEST)
        gate.open.set()
        assert first.result(60).code == 200
    assert refused.code == 503
    assert int(refused.headers["retry-after"]) >= 1
    assert "would exceed the limit of 5000" in refused.body["error"]
    wait_for(lambda: server.post("/slime", REQUEST).code == 200)


@pytest.mark.parametrize("chunked", [False, True])  # it need not say how large it is
def test_a_body_that_is_too_large(serve: Serve, chunked: bool) -> None:
    server = serve(http_max_body_bytes=1000)
    host, port = server.http_address.split(":")

    def send(request: dict[str, str]) -> tuple[int, Any]:
        body = json.dumps(request).encode()
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        if chunked:
            connection.request(
                "POST", "/slime", iter([body[:200], body[200:]]), JSON, encode_chunked=True
            )
        else:
            connection.request("POST", "/slime", body, JSON)
        response = connection.getresponse()
        code, said = response.status, json.loads(response.read())
        connection.close()
        return code, said

    code, said = send(REQUEST | {"response": "x" * 1000})
    assert code == 413
    assert said["error"].startswith("a body has at most 1000 bytes, this one is ")
    assert send(REQUEST)[0] == 200


def test_bodies_under_way_are_bounded_together(serve: Serve) -> None:
    """Slow senders cannot fill the memory before the admission sees their requests."""
    server = serve(
        max_response_bytes=1000,
        max_message_bytes=1000,
        http_max_body_bytes=50_000,
        queue_limit_bytes=50_000,
    )
    host, port = server.http_address.split(":")
    head = HEAD + b"Content-Length: 45000\r\n\r\n"
    with socket.create_connection((host, int(port))) as slow:
        slow.sendall(head + b"x" * 44_000)  # the rest never comes

        def refused() -> bool:
            reply = server.post("/slime", REQUEST | {"prompt": "x" * 20_000})
            return reply.code == 503 and "exceed the limit" in reply.body["error"]

        wait_for(refused)
    wait_for(lambda: server.post("/slime", REQUEST | {"prompt": "x" * 20_000}).code == 422)


def test_who_leaves_is_not_worked_for(server: InProcessServer) -> None:
    gate = Gate(server)
    rollouts = 1000
    body = {"query": [DUCKS + HALF] * rollouts, "prompts": [DUCKS] * rollouts}
    host, port = server.http_address.split(":")
    connection = http.client.HTTPConnection(host, int(port))
    connection.request("POST", "/openrlhf", json.dumps(body).encode(), JSON)
    assert gate.entered.acquire(timeout=60)
    connection.close()
    wait_for(lambda: server.metric("requests_total", method="openrlhf", code="CANCELLED") == 1)
    gate.open.set()
    wait_for(lambda: server.metric("queue_requests") == 0)
    assert server.sizes() == [256], "the rest of its work is not done"


def test_a_defect_is_told_by_its_id_alone(
    server: InProcessServer, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(rollouts: Sequence[Rollout]) -> None:
        raise RuntimeError("secret of the server")

    server.scorer.hook = fail
    reply = server.post("/slime?on_unscorable=0", REQUEST)
    assert reply.code == 500
    assert "secret" not in json.dumps(reply.body)
    incident = reply.body["error"].split()[-1]
    assert incident in caplog.text
    assert "secret of the server" in caplog.text
    assert server.metric("requests_total", method="slime", code="INTERNAL") == 1


def test_draining_finishes_what_is_admitted(server: InProcessServer) -> None:
    gate = Gate(server)
    with ThreadPoolExecutor() as pool:
        admitted = pool.submit(server.post, "/slime", REQUEST)
        assert gate.entered.acquire(timeout=60)
        draining = server.start_draining(Draining(0.3, 20))
        wait_for(lambda: server.post("/health", b"", "GET").code == 503)

        def refused() -> bool:
            reply = server.post("/slime?rewrd=x", REQUEST)
            assert reply.code == 400  # still there
            return server.built.service.draining

        wait_for(refused)
        reply = server.post("/slime", REQUEST)
        assert (reply.code, reply.body) == (503, {"error": "the server is shutting down"})
        assert reply.headers["retry-after"] == "1"
        gate.open.set()
        assert admitted.result(60).body["reward"] == 0.75
        assert draining.result(60) == 0
    with pytest.raises(ConnectionRefusedError):
        server.post("/health", b"", "GET")


def test_a_drain_that_takes_too_long_drops_what_is_left(serve: Serve) -> None:
    server = serve(max_concurrent_requests=1)
    gate = Gate(server)
    with ThreadPoolExecutor() as pool:
        running = pool.submit(server.post, "/slime", REQUEST)
        assert gate.entered.acquire(timeout=60)
        queued = pool.submit(server.post, "/slime", REQUEST)
        wait_for(lambda: server.built.service.admission.unfinished_requests == 2)
        assert server.start_draining(Draining(0, 0.2)).result(60) == 2
        for reply in (queued.result(60), running.result(60)):
            assert (reply.code, reply.body) == (503, {"error": "the server is shutting down"})
        gate.open.set()


def test_a_body_that_never_comes_does_not_keep_the_server(server: InProcessServer) -> None:
    host, port = server.http_address.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as slow:
        slow.sendall(HEAD + b"Content-Length: 99\r\n\r\n{")
        time.sleep(1)
        assert server.start_draining(Draining(0, 1)).result(60) == 0
        assert slow.recv(4096).startswith(b"HTTP/1.1 503 ")


def test_an_answer_that_others_kept_from_being_checked_is_asked_for_again(
    server: InProcessServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked, busy_times = AnswerVerifier.verify_batch, list[int](), 1

    def busy(self: AnswerVerifier, truths: list[str], *how: Any) -> list[Verdict]:
        asked.append(len(truths))
        verdicts = real(self, truths, *how)
        if len(asked) <= busy_times:
            verdicts[0] = Verdict(None, "x", AnswerStatus.UNDECIDED, "load")
        return verdicts

    monkeypatch.setattr(AnswerVerifier, "verify_batch", busy)
    body = {"query": [DUCKS + HALF] * 3, "prompts": [DUCKS] * 3}
    assert server.post("/openrlhf", body).body["rewards"] == [0.75] * 3
    assert asked == [3, 1], "only that one is asked for again"

    busy_times = 100  # more often than it is asked
    reply = server.post("/openrlhf", body)
    assert reply.code == 503, "and not for ever, and never as a wrong answer"
    assert reply.headers["retry-after"] == "2"
    assert "too busy for 1 of 3 rollouts" in reply.body["error"]


def test_many_clients_at_once(server: InProcessServer) -> None:
    """As slime does it: a request for each rollout, many at a time, on kept connections."""
    host, port = server.http_address.split(":")

    def client(number: int) -> list[float]:
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        rewards = []
        for _ in range(20):
            connection.request("POST", "/slime?reply=number", json.dumps(REQUEST), JSON)
            rewards.append(json.loads(connection.getresponse().read()))
        connection.close()
        return rewards

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(client, range(16))) == [[0.75] * 20] * 16


def test_fields_of_the_request_are_those_that_are_read() -> None:
    """A renamed field of Score would be a silent None in the reply."""
    names = {field.name for field in dataclasses.fields(Score)}
    assert {"reward", "acc", "ncr", "num_nodes", "num_matched", "message"} <= names
