"""Tokens, TLS and where a server may listen: the rules, and real servers that keep them."""

from __future__ import annotations

import base64
import json
import logging
import re
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from consensuspr.cli import main
from consensuspr.client import Access, RewardClient, Rollout
from consensuspr.credentials import Scope, add_token, read_tokens, write_token
from consensuspr.errors import AccessDenied, InputError, RewardServiceError
from consensuspr.server import security
from consensuspr.server.config import load_config
from consensuspr.server.security import Gate, check_exposure
from tests.certificates import Authority, Pair
from tests.processes import wait_for
from tests.servers import ANY_PORT, ServeProcess

if TYPE_CHECKING:
    from tests.server.conftest import Serve, ServeReal

ROLLOUTS = [Rollout("ducks", "16 - 3 - 4 = 9 eggs are left, so 9 * 2 = 18. #### 18")]
A, B, C = ("token-" + letter * 20 for letter in "abc")


def bearer(token: str) -> str:
    return f"Bearer {token}"


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """A file with a token of each scope: A may read, B score, C administer."""
    path = tmp_path / "tokens"
    path.write_text(f"# of the tests\n{A} read\n\n{B}  # score\n{C} admin\n")
    return path


def test_a_line_is_a_token_and_its_scope(tokens: Path) -> None:
    found = read_tokens(tokens)
    assert [(each.text, each.scope) for each in found] == [
        (A, Scope.READ),
        (B, Scope.SCORE),
        (C, Scope.ADMIN),
    ]
    assert A not in repr(found)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "holds no token; `consensuspr token "),
        ("# nothing\n\n", "holds no token"),
        (f"{A} write\n", "line 1: must be TOKEN or TOKEN SCOPE, one of read, score, admin"),
        (f"{A} read score\n", "line 1: must be TOKEN or TOKEN SCOPE"),
        (f"{A}\nshort\n", "line 2: a token has 16 to 1024 characters, this one has 5"),
        (f"{'x' * 1025}\n", "a token has 16 to 1024 characters, this one has 1025"),
        ('{"token":"aaaaaaaaaaaaaaaa"}\n', "a token is made of letters, digits and"),
        ("x" * 2_000_000, "more than 1048576 bytes"),
        (f"{A} read\n{A} admin\n", "a token is listed with two scopes"),
    ],
)
def test_a_bad_file_is_one_sentence_without_its_tokens(
    text: str, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        Gate(path)
    assert sentence in str(refused.value)
    assert "aaaa" not in str(refused.value)
    path.unlink()
    with pytest.raises(InputError, match="tokens: no such file or directory"):
        Gate(path)


def test_new_tokens_are_added_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    add_token(path, Scope.SCORE)
    path.write_text(path.read_text().rstrip("\n"))  # an editor may leave it so
    add_token(path, Scope.ADMIN)
    assert [each.scope for each in read_tokens(path)] == [Scope.SCORE, Scope.ADMIN]
    assert len({each.text for each in read_tokens(path)}) == 2
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("no tokens here")
    with pytest.raises(InputError, match="line 1: must be TOKEN or TOKEN SCOPE"):
        add_token(path, Scope.SCORE)
    write_token(path, A)
    assert [each.text for each in read_tokens(path)] == [A]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("scope", "shown", "refused"),
    [
        (Scope.READ, bearer(A), None),
        (Scope.SCORE, bearer(B), None),
        (Scope.SCORE, f"bearer  {B} ", None),
        (Scope.SCORE, "Basic " + base64.b64encode(f"x:{B}".encode()).decode(), None),
        (Scope.ADMIN, bearer(C).encode(), None),
        (Scope.SCORE, bearer(A), "needs a token of scope score; its token has scope read"),
        (Scope.ADMIN, bearer(B), "needs a token of scope admin; its token has scope score"),
        (Scope.READ, None, "the call has none"),
        (Scope.READ, "Bearer ", "the call has none"),
        (Scope.READ, "Basic " + base64.b64encode(A.encode()).decode(), "the call has none"),
        (Scope.READ, "Negotiate " + A, "the call has none"),
        (Scope.READ, bearer(A[:-1]), "does not know the token"),
        (Scope.READ, bearer("\ud800"), "does not know the token"),
        (Scope.READ, bearer("x" * 1_000_000), "does not know the token"),
    ],
)
def test_who_may_do_what(
    tokens: Path, scope: Scope, shown: str | bytes | None, refused: str | None
) -> None:
    found = Gate(tokens).denial(scope, shown, peer="ipv4:127.0.0.1:1")
    if refused is None:
        assert found is None
    else:
        assert found is not None
        assert refused in found.sentence
        assert found.known == ("has scope" in refused)
        assert not any(token in found.sentence for token in (A[:-1], B, C))


@pytest.mark.parametrize(
    ("peer", "local"),
    [
        ("ipv4:127.0.0.1:4711", True),
        ("ipv6:%5B::1%5D:4711", True),
        ("unix:/run/x", True),
        ("ipv4:10.0.0.1:4711", False),
        ("ipv4:127.0.0.1.evil.example:1", False),
        ("", False),
    ],
)
def test_without_tokens_only_this_machine_administers(peer: str, local: bool) -> None:
    gate = Gate(None)
    assert gate.denial(Scope.SCORE, None, peer) is None
    refused = gate.denial(Scope.ADMIN, None, peer)
    assert (refused is None) == local


def test_tokens_rotate_with_their_file(
    tokens: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(tokens)

    def allowed(token: str) -> bool:
        return gate.denial(Scope.READ, bearer(token)) is None

    monkeypatch.setattr(security, "LOOK_S", 60)
    tokens.write_text(f"{A}x\n")
    assert allowed(A), "a known token, so the file is looked at only after a while"
    assert allowed(A + "x"), "an unknown token, so the file is looked at immediately"
    assert not allowed(A)
    monkeypatch.setattr(security, "LOOK_S", 0)
    for broken in ("", "half a li", None):
        if broken is None:
            tokens.unlink()
        else:
            tokens.write_text(broken)
        with caplog.at_level(logging.ERROR):
            caplog.clear()
            assert [allowed(A + "x"), allowed(A), allowed(A + "x")] == [True, False, True]
        [record] = caplog.records
        assert record.message.endswith("still using the previous content")
    tokens.write_text(f"{B}\n")
    assert [allowed(B), allowed(A + "x")] == [True, False]


# Where it may listen


@pytest.mark.parametrize("name", ["address", "http_address", "metrics_address"])
def test_beyond_loopback_somebody_must_say_who_may_call(
    name: str, tokens: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given: dict[str, Any] = {"datasets": {"default": "x"}, name: "0.0.0.0:1"}
    with pytest.raises(InputError) as refused:
        check_exposure(load_config(overrides=given))
    assert str(refused.value).startswith(f"other machines can reach {name} 0.0.0.0:1")
    assert "--token-file" in str(refused.value)
    check_exposure(load_config(overrides=given | {"token_file": tokens}))
    assert "sent unencrypted" in caplog.messages[-1]
    check_exposure(load_config(overrides=given | {"tls_cert": "c", "tls_key": "k"}))
    assert "whoever can reach it may use it" in caplog.messages[-1]
    check_exposure(load_config(overrides=given | {"insecure": True}))
    caplog.clear()
    both = {"token_file": tokens, "tls_cert": "c", "tls_key": "k"}
    tokens.chmod(0o600)
    check_exposure(load_config(overrides=given | both))
    assert caplog.messages == []
    tokens.chmod(0o644)
    check_exposure(load_config(overrides=given | both))
    assert "every user of this machine can read or change" in caplog.messages[-1]


def test_a_page_beyond_loopback_wants_to_know_who_asks(tokens: Path) -> None:
    """TLS alone hides texts from the wire, and from nobody who asks."""
    given: dict[str, Any] = {"datasets": {"default": "x"}, "web": "0.0.0.0:1", "score_log": "x"}
    tls = {"tls_cert": "c", "tls_key": "k"}
    for nothing in ({}, tls):
        with pytest.raises(InputError, match=r"can reach web 0\.0\.0\.0:1.* --token-file"):
            check_exposure(load_config(overrides=given | nothing))
    for enough in ({"token_file": tokens}, tls | {"tls_client_ca": "a"}, {"insecure": True}):
        check_exposure(load_config(overrides=given | enough))


def test_a_server_refuses_before_it_loads_or_listens(serve_real: ServeReal, tmp_path: Path) -> None:
    for settings, reason in (
        ({"address": "0.0.0.0:0"}, "other machines can reach address 0.0.0.0:0"),
        ({"tls_cert": str(tmp_path), "tls_key": str(tmp_path)}, f"{tmp_path}: is a directory"),
    ):
        server = serve_real(**settings)
        assert server.process.wait(60) == 2
        assert reason in server.log.read_text()


# Servers


def test_calls_need_the_scope_of_what_they_do(serve: Serve, tokens: Path) -> None:
    server = serve(token_file=tokens)
    for access, sentence in (
        (None, "the call has none"),
        (Access(token=A), "needs a token of scope score"),
    ):
        with RewardClient(server.address, access=access) as client:
            with pytest.raises(AccessDenied, match=sentence):
                client.score(ROLLOUTS)
            with pytest.raises(AccessDenied, match=sentence):
                client.explain(ROLLOUTS[0])
    with RewardClient(server.address, access=Access(token=A)) as client:
        assert client.server_info().datasets
    with RewardClient(server.address, access=Access(token=B)) as client:
        assert client.score(ROLLOUTS)[0].acc == 1.0
    health = health_pb2_grpc.HealthStub(server.channel)
    assert health.Check(health_pb2.HealthCheckRequest()).status == 1, "probes have no token"
    for method in ("ServerInfo", "Explain"):
        assert server.metric("requests_total", method=method, code="UNAUTHENTICATED") == 1
    assert server.metric("requests_total", method="Score", code="PERMISSION_DENIED") == 1
    for path in (
        "/no.Such/Method",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ):
        with pytest.raises(grpc.RpcError) as refused:
            server.channel.unary_unary(path, None, None)(b"x")
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert server.metric("requests_total", method="other", code="UNAUTHENTICATED") == 2


@contextmanager
def scoring(score: Callable[[], object]) -> Iterator[Callable[[int], None]]:
    """Score in a thread, over and over; yield a wait for so many more, and demand no failure."""
    stop = threading.Event()
    done: list[None] = []
    failed: list[Exception] = []

    def work() -> None:
        while not stop.is_set() and not failed:
            try:
                score()
                done.append(None)
            except Exception as error:
                failed.append(error)

    def some(number: int) -> None:
        goal = len(done) + number
        wait_for(lambda: bool(failed) or len(done) >= goal, most_s=60)
        assert failed == []

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield some
    finally:
        stop.set()
        thread.join()
    assert failed == []


def test_certificates_rotate_while_clients_score(serve_real: ServeReal, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    first, second = authority.sign("first"), authority.sign("second")
    place = Pair(tmp_path / "server.pem", tmp_path / "server.key")
    first.put_in_place_of(place)
    write_token(tmp_path / "token", A)
    server = serve_real(
        tls_cert=str(place.cert), tls_key=str(place.key), token_file=str(tmp_path / "token")
    ).wait_until_listening()
    access = Access(token=A, tls_ca=authority.cert)

    def score_anew() -> None:
        with RewardClient(server.address, access=access) as client:
            assert client.score(ROLLOUTS)[0].acc == 1.0

    with (
        RewardClient(server.address, access=access) as lasting,
        scoring(lambda: lasting.score(ROLLOUTS)) as some,
        scoring(score_anew) as new_ones,
    ):
        assert shown_by(server.address) == "first"
        some(3)
        second.put_in_place_of(place)
        wait_for(lambda: shown_by(server.address) == "second", most_s=60)
        new_ones(3)
        # A certificate without its key, and none at all.
        first.cert.rename(place.cert)
        assert shown_by(server.address) == "second"
        place.key.unlink()
        assert shown_by(server.address) == "second"
        some(3)
        new_ones(3)
    log = server.log.read_text()
    assert "server.pem changed; using the new content" in log
    assert "key values mismatch; still using the previous content" in log
    assert A not in log
    words = [
        word
        for process in psutil.process_iter(["cmdline"])
        for word in process.info["cmdline"] or ()
    ]
    assert not any(A in word for word in words)


def shown_by(address: str) -> str:
    """Return the name in the certificate that a server shows now."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((host, int(port)), 30) as plain,
        context.wrap_socket(plain) as tls,
    ):
        raw = tls.getpeercert(binary_form=True)
    assert raw is not None
    # The name that it is issued to stands in it as text.
    return next(name for name in ("first", "second") if name.encode() in raw)


def test_a_client_without_a_certificate_is_refused(serve: Serve, tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    pair, own, other = authority.sign("server"), authority.sign("client"), stranger.sign("other")
    server = serve(tls_cert=pair.cert, tls_key=pair.key, tls_client_ca=authority.cert)
    with RewardClient(
        server.address, access=Access(None, authority.cert, own.cert, own.key)
    ) as good:
        assert good.score(ROLLOUTS)[0].acc == 1.0
    for access, sentence in (
        (Access(tls_ca=authority.cert), "client's certificate"),
        (Access(None, authority.cert, other.cert, other.key), "client's certificate"),
        (Access(), "it may require TLS"),
    ):
        with (
            RewardClient(server.address, timeout_s=2, access=access) as client,
            pytest.raises(RewardServiceError, match=sentence),
        ):
            client.score(ROLLOUTS)


@pytest.mark.parametrize(
    "names", ["DNS:*.server.svc", "URI:spiffe://a/b,IP:10.1.2.3,DNS:a.svc", "email:a@b.c,IP:::2"]
)
def test_the_images_health_check_takes_the_servers_own_certificate(
    names: str,
    serve: Serve,
    tmp_path: Path,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (repository / "deploy/docker/Dockerfile").read_text(encoding="utf-8")
    [check] = re.findall(r'^HEALTHCHECK [^\[]*\["consensuspr", (.*?)\]$', text, re.M | re.S)
    authority = Authority(tmp_path)
    # Neither names 127.0.0.1.
    pair, other = authority.sign("server", names), authority.sign("other", names)
    for client_ca in (None, authority.cert):
        server = serve(tls_cert=pair.cert, tls_key=pair.key, tls_client_ca=client_ca)
        port = server.address.rpartition(":")[2]
        words = json.loads(f"[{check}]".replace("50051", port))
        for shown, code, says in (
            (pair, 0, "SERVING"),
            (other, 1, "certificate verify failed"),
            (None, 1, "it may require TLS"),
        ):
            monkeypatch.setenv("CONSENSUSPR_TLS_CERT", str(shown.cert) if shown else "")
            monkeypatch.setenv("CONSENSUSPR_TLS_KEY", str(shown.key) if shown else "")
            assert main(words) == code
            printed = capsys.readouterr()
            assert says in (printed.err if code else printed.out)


def test_tls_that_does_not_fit_is_one_sentence_and_not_repeated(
    serve: Serve, tmp_path: Path
) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    pair, elsewhere = authority.sign("server"), authority.sign("elsewhere", "DNS:other.example")
    plain, good = serve(), serve(tls_cert=pair.cert, tls_key=pair.key)
    misnamed = serve(tls_cert=elsewhere.cert, tls_key=elsewhere.key)
    for server, ca, sentence in (
        (plain, authority.cert, "the server does not speak TLS"),
        (good, stranger.cert, "not signed by a trusted authority"),
        (misnamed, authority.cert, "is for another name than this address has"),
    ):
        # Not within an hour of retries: at once.
        with (
            RewardClient(server.address, timeout_s=3600, access=Access(tls_ca=ca)) as client,
            pytest.raises(AccessDenied) as error,
        ):
            client.score(ROLLOUTS)
        assert sentence in str(error.value)
        assert "\n" not in str(error.value)


@pytest.fixture
def secured(serve_real: ServeReal, tokens: Path, tmp_path: Path) -> tuple[ServeProcess, Authority]:
    """A server with tokens and TLS, and who signed its certificate; it has metrics."""
    authority = Authority(tmp_path)
    pair = authority.sign("server")
    tls = {"tls_cert": str(pair.cert), "tls_key": str(pair.key)}
    server = serve_real(metrics_address=ANY_PORT, token_file=str(tokens), **tls)
    return server.wait_until_listening(), authority


def test_metrics_want_a_token_and_healthz_none(secured: tuple[ServeProcess, Authority]) -> None:
    server, authority = secured
    url = server.log.read_text().partition("metrics on ")[2].split()[0]
    assert url.startswith("https://127.0.0.1:")
    context = ssl.create_default_context(cafile=str(authority.cert))

    def get(path: str, token: str | None = None) -> tuple[int, str]:
        asked = urllib.request.Request(url.replace("/metrics", path))
        if token is not None:
            asked.add_header("Authorization", bearer(token))
        try:
            with urllib.request.urlopen(asked, timeout=60, context=context) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                assert error.headers["WWW-Authenticate"] == "Bearer"
                return error.code, error.read().decode()

    assert get("/healthz") == (200, "SERVING\n")
    assert get("/metrics")[0] == 401
    code, text = get("/metrics", "token-" + "z" * 20)
    assert (code, "does not know the token" in text) == (401, True)
    code, text = get("/metrics", A)
    assert (code, "consensuspr_worker_restarts_total" in text) == (200, True)
    # Silent callers, or one that speaks plainly, lock no probe out.
    host, _, port = url.removeprefix("https://").partition("/")[0].rpartition(":")
    with ExitStack() as stack:
        callers = [
            stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(40)
        ]
        with suppress(OSError):  # a newer caller has taken its place
            callers[0].sendall(b"GET /metrics HTTP/1.1\r\n\r\n")

        def is_serving() -> bool:
            try:
                return get("/healthz")[0] == 200
            except OSError:
                return False

        wait_for(is_serving, most_s=5)
