"""Settings of a server and where it listens: sources, which wins, what is said of wrong ones."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.server.config import Address, claim, load_config, parse_datasets

DATASETS = {"datasets": {"default": "problems.jsonl"}}


@pytest.fixture
def toml(tmp_path: Path) -> Any:
    def write(text: str) -> Path:
        path = tmp_path / "serve.toml"
        path.write_text(text)
        return path

    return write


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(toml: Any) -> None:
    file = toml('workers = 1\ngrace_s = 1\nmax_rollouts = 11\n[datasets]\nmath = "math.jsonl"\n')
    environment = {"CONSENSUSPR_GRACE_S": "2", "CONSENSUSPR_MAX_ROLLOUTS": "22", "HOME": "/"}
    config = load_config(
        file=file, environment=environment, overrides={"max_rollouts": 33, "address": None}
    )
    assert (config.workers, config.grace_s, config.max_rollouts) == (1, 2.0, 33)
    assert config.address == "127.0.0.1:50051"
    assert config.datasets == {"math": file.parent / "math.jsonl"}


def test_datasets_of_the_environment() -> None:
    config = load_config(
        environment={
            "CONSENSUSPR_HTTP_ADDRESS": "",
            "CONSENSUSPR_DATASETS": "a=/x.jsonl,b=/y=z.parquet",
        }
    )
    assert config.datasets == {"a": Path("/x.jsonl"), "b": Path("/y=z.parquet")}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["math=a.jsonl", "b.jsonl"], {"math": Path("a.jsonl"), "default": Path("b.jsonl")}),
        (["./x=y/a.jsonl"], {"default": Path("./x=y/a.jsonl")}),
        (["a", "b"], r"two datasets have the name 'default' \(a and b\); give each a name"),
        (["=a"], "dataset must be PATH or NAME=PATH, got '=a'"),
        (["a="], "dataset must be PATH or NAME=PATH, got 'a='"),
    ],
)
def test_datasets_of_the_command_line(
    arguments: list[str], expected: dict[str, Path] | str
) -> None:
    if isinstance(expected, dict):
        assert parse_datasets(arguments) == expected
    else:
        with pytest.raises(InputError, match=expected):
            parse_datasets(arguments)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("worker = 3", "unknown setting 'worker' in .*serve.toml; did you mean 'workers'?"),
        ("workers = [3", ".*serve.toml is not valid TOML: "),
        ("workers = 0", r"workers \(in .*serve.toml\): must be at least 1, got 0"),
        ("datasets = 'a.jsonl'", r"datasets \(in .*\): must be a table, got"),
        ("address = 'here'", r"address \(in .*\): address must be HOST:PORT, got 'here'"),
        ("log_format = 'xml'", r"log_format \(in .*\): .*'text' or 'json', got 'xml'"),
        ("workers = 1000000000", r"workers \(in .*\): must be at most 4096, got 1000000000"),
        ("grace_s = 1e308", r"grace_s \(in .*\): must be at most 86400, got 1e\+308"),
        ("tls_cert = 'c'", "tls_cert needs tls_key, which is not set"),
        ("tls_client_ca = 'a'", "tls_client_ca needs tls_cert and tls_key"),
        ("trace_endpoint = 'http://a'", "trace_endpoint .*must be http://HOST:PORT or https://H"),
        (
            "max_message_bytes = '1GiB'",
            r"queue_limit_bytes \(100663296\) must be at least max_message_bytes \(1073741824\)",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(toml: Any, text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        load_config(file=toml(text), overrides=None if "datasets" in text else DATASETS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("variable", ["CONSENSUSPR_WORKER", "CONSENSUSPR_GRACE"])
def test_a_misspelt_variable_is_refused(variable: str) -> None:
    with pytest.raises(InputError, match=f"environment: {variable}; did you mean CONSENSUSPR_"):
        load_config(environment={variable: "3"}, overrides=DATASETS)


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
        ("host:٣", "address must be HOST:PORT"),
        ("::1:80", "address must be HOST:PORT"),
        ("host:65536", "port must be at most 65535, got 65536"),
        ("unix:/run/reward.sock", "is a unix socket; use HOST:PORT"),
    ],
)
def test_what_is_no_address_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Address.parse(text)


def test_a_port_is_claimed_once() -> None:
    with claim(Address("127.0.0.1", 0)) as claimed:
        address = Address.of(claimed)
        assert address.port > 0
        with pytest.raises(ConsensusPRError, match=f"{address} is in use by another process"):
            claim(address)


def test_a_port_whose_listener_closed_connections_is_claimed_at_once() -> None:
    with claim(Address("127.0.0.1", 0)) as claimed:
        address = Address.of(claimed)
        with claim(address, shared=True) as listening:
            listening.listen()
            with socket.create_connection((address.host, address.port)) as client:
                listening.accept()[0].close()
                assert client.recv(1) == b""  # the connection is in TIME_WAIT from here on
    claim(address).close()


@pytest.mark.parametrize("option", [socket.SO_REUSEADDR, socket.SO_REUSEPORT])
def test_a_port_that_somebody_listens_on_is_not_claimed(option: int) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, option, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ConsensusPRError, match="is in use by another process"):
            claim(Address("127.0.0.1", other.getsockname()[1]))


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
