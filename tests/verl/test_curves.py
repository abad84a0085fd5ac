"""Curves of a score log in W&B itself, which verl's environment has."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.score_logs import write_log

pytest.importorskip("wandb", reason="W&B is not installed")

BLOCK = 32768


def test_a_log_is_a_run_of_wandb_without_a_network(tmp_path: Path) -> None:
    run = tmp_path / "mine"
    write_log(
        run,
        [{"time": step, "step": step, "reward": step / 4, "status": "OK"} for step in (1, 2, 3)],
    )
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path)}
    curves = [sys.executable, "-m", "consensuspr.cli", "curves", str(run), "--wandb", "project"]
    done = subprocess.run(curves, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [file] = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    assert history_of(file) == [(step, step / 4) for step in (1, 2, 3)]


def history_of(file: Path) -> list[tuple[int, float]]:
    """Return steps and rewards as W&B would send them."""
    from wandb.proto.wandb_internal_pb2 import Record

    found = []
    for data in records_of(file.read_bytes()):
        record = Record.FromString(data)
        if record.WhichOneof("record_type") == "history":
            items = {
                ".".join(one.nested_key) or one.key: json.loads(one.value_json)
                for one in record.history.item
            }
            found.append((record.history.step.num, items["score_log/reward"]))
    return found


def records_of(log: bytes) -> Iterator[bytes]:
    """Yield the records of a LevelDB log: pieces of checksum, length and kind in blocks."""
    at, record = 7, b""  # behind W&B's own header
    while at + 7 <= len(log):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        size, kind = struct.unpack_from("<HB", log, at + 4)
        record += log[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last piece
            yield record
            record = b""
