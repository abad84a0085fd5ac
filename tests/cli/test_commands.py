"""The boundary of all commands, and the small ones: derive, info, health, serve."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from consensuspr.version import VERSION
from tests.rows import read_rows

PURE_PYTHON = "CONSENSUSPR_PURE_PYTHON"

if TYPE_CHECKING:
    from tests.cli.conftest import RunningServer
    from tests.commands import Run


def test_version(run: Run) -> None:
    assert run("--version").out == f"consensuspr {VERSION}\n"


def test_a_core_that_is_not_compiled_is_one_line() -> None:
    code = (
        "import sys; sys.modules['consensuspr.core.native'] = None;"
        "from consensuspr.cli import main; sys.exit(main(['info']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={name: value for name, value in os.environ.items() if name != PURE_PYTHON},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    [line] = [line for line in done.stderr.splitlines() if "compiled core" in line]
    assert line.startswith("warning: the compiled core of consensuspr is not built; scoring runs")
    assert "RuntimeWarning" not in done.stderr


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``info`` fail as only a defect can."""

    def fail() -> dict[str, object]:
        raise RuntimeError("bolts\x1b[31m loose")

    monkeypatch.setattr("consensuspr.cli.info._installed", fail)


@pytest.mark.usefixtures("broken")
def test_a_defect_is_one_sentence_too(run: Run) -> None:
    done = run("info")
    assert done.code == 1
    assert done.err.startswith("consensuspr: error: internal error, RuntimeError: bolts\\x1b[31m")
    assert done.err.count("\n") == 1


def test_help_does_not_wait_for_heavy_imports() -> None:
    script = (
        "import sys; from consensuspr.cli import main; main(['--help']);"
        "print(sorted({'grpc', 'pyarrow', 'sympy', 'math_verify', 'consensuspr.core'}"
        " & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines()[-1] == "[]"


def test_derive_fills_in_equal_forms(run: Run, problems: Path, tmp_path: Path) -> None:
    output = tmp_path / "derived.jsonl"
    done = run("derive", problems, "--output", output)
    assert done.code == 0
    before, after = read_rows(problems), read_rows(output)
    derived = after[1]["nodes"][0].pop("derived")
    assert "c^2=16+9" in derived
    assert "c^2=9+16" not in derived  # that one is written already
    for row in after:
        for node in row["nodes"]:
            node.pop("derived", None)
    assert after == before
    assert "3 problems written" in done.out


def test_info_of_a_server(run: Run, server: RunningServer) -> None:
    result = json.loads(run("info", "--address", server.address, "--json").out)
    [dataset] = result["datasets"]
    assert (dataset["name"], dataset["num_problems"], dataset["num_nodes"]) == ("small", 3, 3)
    table = run("info", "--address", server.address).out
    assert "small" in table
    assert dataset["digest"][:19] in table


def test_health_of_a_server(run: Run, server: RunningServer) -> None:
    done = run("health", "--address", server.address)
    assert (done.code, done.out) == (0, f"{server.address}: SERVING\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("health --timeout x", "Invalid value for '--timeout': must be a number, got 'x'; see"),
        ("health --timeout 0", "Invalid value for '--timeout': must be at least 0.001, got '0'; s"),
        ("health --address a:1,b:1", "health checks one server, got several addresses: a:1,b:1"),
        ("launch --algorithm ppo", "'--algorithm': 'ppo' is not one of 'grpo', 'dapo'; see"),
    ],
)
def test_an_option_that_does_not_validate(run: Run, arguments: str, says: str) -> None:
    done = run(*arguments.split())
    assert done.code == 2
    assert says in done.err


def test_health_of_nobody(run: Run) -> None:
    with socket.socket() as taken:  # bound and not listening: nobody answers there
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("health", "--address", address)
    assert (done.code, done.err) == (
        1,
        f"consensuspr: error: {address}: no server listens there; check the address, or"
        " start one with consensuspr serve (UNAVAILABLE)\n",
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "no dataset was given"),
        (["--dataset", "nowhere.jsonl"], "nowhere.jsonl: no such file"),
        (["--dataset", "{problems}", "--workers", "0"], "workers"),
        (
            ["--dataset", "{problems}", "--dataset", "{problems}"],
            "two datasets have the name",
        ),
        (["--dataset", "{problems}", "--config", "nowhere.toml"], "cannot read nowhere.toml"),
    ],
)
def test_serve_refuses_bad_settings(
    run: Run, problems: Path, options: list[str], message: str
) -> None:
    done = run("serve", *(option.format(problems=problems) for option in options))
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
