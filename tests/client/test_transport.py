"""What a client shows and whom it trusts, and what it does to its process."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from consensuspr.client import Access, RewardClient
from consensuspr.client.transport import Connector
from consensuspr.credentials import write_token
from consensuspr.errors import InputError
from tests.certificates import Authority

A, B = ("token-" + letter * 20 for letter in "ab")
VARIABLES = ("TOKEN", "TOKEN_FILE", "TLS", "TLS_CA", "TLS_CERT", "TLS_KEY")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that says nothing of access."""
    for name in VARIABLES:
        monkeypatch.delenv(f"CONSENSUSPR_{name}", raising=False)


def shown(access: Access) -> str | None:
    metadata = Connector(access).metadata()
    return None if metadata is None else str(metadata[0][1]).removeprefix("Bearer ")


def test_what_is_given_wins_over_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert shown(Access()) is None
    write_token(tmp_path / "file", A)
    monkeypatch.setenv("CONSENSUSPR_TOKEN", B)
    assert shown(Access()) == B
    monkeypatch.setenv("CONSENSUSPR_TOKEN_FILE", str(tmp_path / "file"))
    assert shown(Access()) == A, "a file has precedence, since it can rotate"
    assert shown(Access(token=B)) == B
    monkeypatch.setenv("CONSENSUSPR_TOKEN_FILE", "")
    assert shown(Access(tmp_path / "file")) == A
    monkeypatch.setenv("CONSENSUSPR_TLS", "1")
    assert (Access().tls, Access(tls=False).tls) == (True, False)
    ca = Authority(tmp_path).cert
    monkeypatch.setenv("CONSENSUSPR_TLS", "")
    monkeypatch.setenv("CONSENSUSPR_TLS_CA", str(ca))
    assert (Access().tls, Access().tls_ca) == (True, ca)


def test_the_token_follows_its_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_token(file, A)
    connector = Connector(Access(file))
    seen = [connector.metadata()]
    write_token(file, B)
    seen.append(connector.metadata())
    for broken in ("", "short"):
        file.write_text(broken)
        seen.append(connector.metadata())
    file.unlink()
    seen.append(connector.metadata())
    tokens = [one and str(one[0][1]).removeprefix("Bearer ") for one in seen]
    assert tokens == [A, B, B, B, B]


def test_what_cannot_be_used_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    pair, text = authority.sign("own"), tmp_path / "text"
    text.write_text("no certificate")
    for wrong, message in (
        ({"token_file": tmp_path / "none"}, "none: no such file or directory"),
        ({"token_file": text, "token": A}, "give token or token_file, not both"),
        ({"token": "short"}, "a token has 16 to 1024 characters, this one has 5"),
        ({"tls_ca": tmp_path / "none"}, f"tls_ca {tmp_path / 'none'}: no such file or directory"),
        ({"tls_ca": text}, f"tls_ca {text}: "),
        ({"tls_cert": pair.cert}, "tls_cert and tls_key need each other"),
        ({"tls_cert": other.cert, "tls_key": pair.key}, f"tls_key {pair.key}: key values mismatch"),
    ):
        with pytest.raises(InputError) as refused:
            Access(**wrong)
        assert message in str(refused.value)
    monkeypatch.setenv("CONSENSUSPR_TLS", "maybe")
    with pytest.raises(InputError, match="CONSENSUSPR_TLS must be 1 or 0, got 'maybe'"):
        RewardClient("127.0.0.1:1")


def test_a_token_is_in_no_description(tmp_path: Path) -> None:
    write_token(tmp_path / "file", A)
    by_file = Access(tmp_path / "file")
    assert A not in repr(Access(token=A))
    assert A.encode() not in pickle.dumps(by_file), "it goes by its file's name"
