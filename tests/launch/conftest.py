"""Files that a launch needs, and a training that says what it was given."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from consensuspr.launch.plan import Plan, make_plan
from consensuspr.launch.request import Request
from tests.rows import read_rows

# Stands in verl's place: writes down its arguments, asks the server for its health as a reward
# worker would, then does as its environment says.
TRAINER = """
    import json, os, signal, sys, time
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    key = "+reward.reward_kwargs.address="
    [address] = [a.removeprefix(key) for a in sys.argv if a.startswith(key)]

    def serving():
        with grpc.insecure_channel(address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            try:
                return stub.Check(health_pb2.HealthCheckRequest(), timeout=20).status == 1
            except grpc.RpcError:
                return False

    def note(**facts):
        with open(os.environ["TRAINER_NOTES"], "a") as notes:
            notes.write(json.dumps(facts) + "\\n")

    note(
        pid=os.getpid(),
        address=address,
        serving=serving(),
        arguments=sys.argv[1:],
        ray=os.environ.get("RAY_ADDRESS"),
    )
    act = os.environ.get("TRAINER_ACT", "end")
    if act == "stubborn":
        signal.signal(signal.SIGTERM, lambda *_: note(ignored="SIGTERM"))
        signal.signal(signal.SIGINT, lambda *_: note(ignored="SIGINT"))
    if act == "outlive a server":
        while serving():
            time.sleep(0.05)
        note(serving=False)
        while not serving():
            time.sleep(0.05)
        note(serving=True)
    if act in ("wait", "stubborn"):
        note(waiting=True)
        try:
            for _ in range(1200):
                time.sleep(0.1)
        except KeyboardInterrupt:
            note(interrupted=True, serving=serving())
            raise
    sys.exit(int(os.environ.get("TRAINER_CODE", "0")))
"""


@dataclass(slots=True)
class Trainer:
    """A fake verl.

    Attributes:
        notes: file of what it wrote down.
        environment: of a launcher whose training it is to be.
    """

    notes: Path
    environment: dict[str, str]

    def noted(self) -> list[dict[str, Any]]:
        """Return what it has written down so far."""
        if not self.notes.exists():
            return []
        return read_rows(self.notes)


@pytest.fixture(autouse=True)
def _signals_of_a_terminal() -> Iterator[None]:
    """Have what is started here end by signals, also where the tests run under ``nohup``."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def trainer(tmp_path: Path) -> Trainer:
    """A package ``verl`` whose ``trainer.main_ppo`` is the fake."""
    package = tmp_path / "fake" / "verl" / "trainer"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "main_ppo.py").write_text(textwrap.dedent(TRAINER))
    notes = tmp_path / "notes.jsonl"
    path = os.pathsep.join([str(tmp_path / "fake"), *sys.path])
    return Trainer(notes, {**os.environ, "PYTHONPATH": path, "TRAINER_NOTES": str(notes)})


@pytest.fixture
def plan_for(tmp_path: Path) -> Callable[..., Plan]:
    """Return the plan of a request whose files exist, with some of it changed."""
    for name in ("train.parquet", "val.parquet", "problems.jsonl"):
        (tmp_path / name).touch()

    def make(
        overrides: Sequence[str] = (), environment: Mapping[str, str] | None = None, **changes: Any
    ) -> Plan:
        fields = {
            "algorithm": "grpo",
            "model": "4b",
            "reward": "linear",
            "train_files": (str(tmp_path / "train.parquet"),),
            "val_files": (str(tmp_path / "val.parquet"),),
            "dataset": tmp_path / "problems.jsonl",
            "log_dir": tmp_path / "logs",
            **changes,
        }
        return make_plan(Request(**fields), overrides, environment or {})

    return make
