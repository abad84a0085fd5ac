"""Who may ask for the page, and what is made of requests that mean no good."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from consensuspr.client import RewardClient, Rollout
from consensuspr.errors import InputError
from consensuspr.server.config import Address
from consensuspr.server.security import check_page_reach
from consensuspr.web.store import PARAMETERS
from tests.score_logs import wait_until, write_log
from tests.servers import free_port
from tests.watched import DATASET, Reply, Watched, opened, watching


def test_the_page_and_its_headers(page: Watched) -> None:
    for path, kind in (("/", "text/html"), ("/assets/page.css", "text/css")):
        reply = page.ask(path)
        assert reply.code == 200, path
        assert reply.headers["content-type"].startswith(kind)
        csp = reply.headers["content-security-policy"]
        assert "default-src 'none'" in csp
        assert "unsafe" not in csp
        assert reply.headers["x-content-type-options"] == "nosniff"


PATHS = [
    "/assets/../app.py", "/assets/%2e%2e/app.py", "/../../etc/passwd", "/assets//etc/passwd",
    "/assets/page.css/..", "/%00", "/assets/%00", "/api", "/api/", "/api/nothing", "/assets",
    "/api/sample/0/../../state", "/api/sample/0/nobody", "/api/sample/9/x", "/api/sample/-1/x",
    "/api/sample/0x0/x", "/api/sample/99999999999/x", "/api/sample/²/x", "/api/problem/0/nobody",
    "/api/group/0?group=nobody", "/api/dataset/sha256:0", "/api/dataset/..%2f..%2fetc",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_unknown_paths_are_not_found(page: Watched, path: str) -> None:
    reply = raw(page, f"GET {quoted(path)} HTTP/1.1")
    assert reply.code == 404, reply
    assert list(reply.json) == ["error"]
    assert "Traceback" not in reply.body.decode()


def quoted(path: str) -> str:
    return "".join(c if c.isascii() else f"%{b:02X}" for c in path for b in [*c.encode()][:1])


QUERIES = [
    ("limit=0", "limit must be a number from 1 to 500"),
    ("limit=501", "from 1 to 500, got '501'"),
    ("limit=1e9", "got '1e9'"),
    ("limit=²", "limit must be a number"),
    ("offset=-1", "offset must be a number from 0 to 10000000"),
    ("offset=" + "9" * 500, "offset must be a number"),
    ("sort=score;DROP TABLE samples", "sort must be one of"),
    ("sort=key", "sort must be one of"),
    ("desc=2", "desc must be one of 0, 1"),
    ("verdict=maybe", "verdict must be one of right, wrong, unknown"),
    ("kind=x", "kind must be one of suspicious"),
    ("step=a..b", "step must be N, N..M, N.. or ..M"),
    ("ncr=1..0", "got '1..0'"),
    ("ncr=nan", "got 'nan'"),
    ("reward=..", "got '..'"),
    ("node=-1", "node must be a number"),
    ("run=x", "run must be a number"),
    ("nothing=1", "there is no parameter 'nothing'"),
    ("limit=1&limit=2", "limit is given 2 times, the limit is 1"),
    ("&".join(["split=a"] * 101), "split is given 101 times, the limit is 100"),
    ("q=" + "x" * 1025, "q has 1025 characters, the limit is 1024"),
]


@pytest.mark.parametrize(("query", "sentence"), QUERIES, ids=[query[:30] for query, _ in QUERIES])
def test_every_parameter_has_its_limits(page: Watched, query: str, sentence: str) -> None:
    reply = page.ask(f"/api/samples?{quote(query, safe='=&')}")
    assert reply.code == 400, reply
    assert sentence in reply.json["error"]
    assert "\n" not in reply.json["error"]


@pytest.mark.parametrize("value", ["' OR 1=1 --", '"); DROP TABLE samples; --', "\\", "%", "\0"])
def test_no_value_is_taken_for_sql(page: Watched, value: str) -> None:
    total = page.get("samples")["total"]
    for name in (one for one in PARAMETERS if one != "q"):  # texts may hold any of them
        reply = page.ask(f"/api/samples?{name}={quote(value)}")
        assert reply.code in (200, 400), (name, reply)
        if reply.code == 200:
            assert reply.json["total"] == 0, name
    assert page.get("samples")["total"] == total


def test_an_unknown_run_is_named(page: Watched) -> None:
    reply = page.ask("/api/samples?run=7")
    assert (reply.code, reply.json) == (404, {"error": "there is no run 7; there are 0 to 1"})


def test_other_host_names_are_rejected(page: Watched) -> None:
    assert page.ask("/api/state", headers={"Host": "evil.example"}).code == 400


def test_a_review_needs_its_type(page: Watched) -> None:
    [shown] = page.get("datasets")["rows"]
    path = f"/api/dataset/{shown['digest']}/review"
    plain = {"Content-Type": "text/plain"}
    assert page.ask(path, b'{"drop": [["sample-nt-001", 0]]}', plain).code == 415
    as_json = {"Content-Type": "application/json"}
    assert page.ask(path, b"[" * 100_000, as_json).code == 400
    assert page.ask(path, b"x" * ((4 << 20) + 1), as_json).code == 413
    assert page.ask(path).code in (404, 405)


def raw(page: Watched, first_line: str) -> Reply:
    """Send a request as it is: a client would put its path in order."""
    host, _, port = page.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        head = f"{first_line}\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode("latin-1"))
        received = b""
        while piece := connection.recv(65536):
            received += piece
    head_bytes, _, body = received.partition(b"\r\n\r\n")
    return Reply(int(head_bytes.split()[1]), {}, body)


def test_beyond_loopback_it_takes_tokens(runs: list[Path], tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("a-token-of-a-reader read\na-token-of-an-admin admin\n")
    tokens.chmod(0o600)
    dataset = tmp_path / "dataset.jsonl"
    dataset.write_bytes(DATASET.read_bytes())
    # TLS hides the page from the wire, and from nobody who asks.
    with pytest.raises(InputError, match="would read every prompt"):
        check_page_reach("--address", Address.parse("0.0.0.0:0"), known=False)
    with opened(runs[0], dataset=dataset, tokens=tokens) as page:
        assert page.ask("/").code == 200
        for path in ("/api/state", "/samples.csv"):
            reply = page.ask(path)
            assert (reply.code, reply.headers["www-authenticate"]) == (401, "Bearer")
            assert page.ask(path, headers=bearer("wrong-token-of-nobody")).code == 401
            assert page.ask(path, headers=bearer("a-token-of-a-reader")).code == 200

        def known() -> object:
            rows = page.ask("/api/datasets", headers=bearer("a-token-of-a-reader")).json["rows"]
            return rows and rows[0]["reviewable"] and rows[0]["digest"]

        wait_until(known)
        body = json.dumps({"drop": [["sample-nt-001", 0]]}).encode()
        codes = [
            page.ask(
                f"/api/dataset/{known()}/review",
                body,
                bearer(token) | {"Content-Type": "application/json"},
            ).code
            for token in ("a-token-of-a-reader", "a-token-of-an-admin")
        ]
        assert codes == [403, 200]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_download_searches_texts_and_does_not_hold_up_the_end(tmp_path: Path) -> None:
    texts = [f"{'lorem ipsum ' * 300} dolor {number}" for number in range(100)]
    for step in range(4):
        rows = [
            {"time": step, "status": "OK", "step": step, "response": text, "response_size": 3700}
            for text in texts
        ]
        write_log(tmp_path, rows)
    with watching(tmp_path) as page:
        page.wait_read()
        found = page.ask("/samples.csv?q=DOLOR+77").body
        assert len(found.splitlines()) == 1 + 4
        host = page.url.removeprefix("http://")
        stays = socket.create_connection(("127.0.0.1", int(host.split(":")[1])))
        stays.sendall(f"GET /samples.csv?q=none HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert stays.recv(12) == b"HTTP/1.1 200"
    stays.close()


def test_a_server_shows_what_it_scores(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "consensuspr.cli", "serve", "--dataset", str(DATASET)]
    web = f"127.0.0.1:{free_port()}"
    command += ["--score-log", str(tmp_path / "run"), "--web", web, "--workers", "1"]
    command += ["--address", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().removeprefix("listening on ").strip()
            page = Watched(f"http://{web}", 0)
            wait_until(lambda: answers(page))
            assert page.get("state")["runs"][0]["samples"] == 0
            with RewardClient(address, timeout_s=60) as client:
                client.score([Rollout("sample-arith-001", "14 * 118 = 1652. Answer: 111")])
            page.wait_for(lambda state: state["runs"][0]["samples"] == 1)
            [row] = page.get("samples")["rows"]
            assert (row["acc"], row["num_matched"]) == (1, 1)
            page.wait_read()
            shown = page.get(f"sample/0/{row['key']}")
            assert shown["explained"]
            assert shown["problem"]["text"].startswith("A lighthouse")
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0


def answers(page: Watched) -> bool:
    try:
        return page.ask("/api/state").code == 200
    except OSError:
        return False
