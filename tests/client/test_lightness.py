"""A client of a server is light, and says so where it cannot be used."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

HEAVY = ("pyarrow", "sympy", "math_verify", "pydantic", "prometheus_client", "consensuspr.server")


def run(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("names", "absent"),
    [
        ("RewardClient, AsyncRewardClient, RewardSpec, Rollout", (*HEAVY, "consensuspr.core")),
        ("LocalClient, RewardSpec, Rollout", (*HEAVY, "grpc")),
    ],
)
def test_importing_a_client_imports_little(names: str, absent: tuple[str, ...]) -> None:
    program = (
        f"import sys; from consensuspr.client import {names};"
        f"print([name for name in {absent!r} if name in sys.modules])"
    )
    assert run(program) == "[]"


def test_scoring_by_a_server_imports_little(scripted: ScriptedServer) -> None:
    program = (
        "import sys; from consensuspr.client import RewardClient, Rollout\n"
        "with RewardClient(sys.argv[1]) as client: client.score([Rollout('p', 'text')])\n"
        f"print([name for name in {(*HEAVY, 'consensuspr.core')!r} if name in sys.modules])"
    )
    assert run(program, scripted.address) == "[]"


def test_a_used_client_raises_in_a_fork(scripted: ScriptedServer) -> None:
    program = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")
signal.alarm(20)  # a call that hangs ends the program
from consensuspr.client import RewardClient, Rollout
unused = RewardClient(sys.argv[1])
used = RewardClient(sys.argv[1])
used.server_info()
child = os.fork()
if child == 0:
    try:
        used.score([])
    except RuntimeError as error:
        print(error, flush=True)
    used.close()
    os._exit(0)
os.waitpid(child, 0)
used.server_info()
print("the parent's client goes on")
"""
    message = run(program, scripted.address)
    assert "cannot be used in its child" in message
    assert "make a client in each process" in message
    assert "the parent's client goes on" in message
