"""One snapshot a node: made once, shared, made anew when the dataset changes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from consensuspr.errors import InputError
from consensuspr.ray.node import KEEP_S, open_datasets
from consensuspr.scoring import DatasetIndex
from consensuspr.server import ServerConfig

OPEN = """
import sys
from consensuspr.ray.node import open_datasets
from consensuspr.server import ServerConfig
print(open_datasets(ServerConfig(datasets={"default": sys.argv[1]}))["default"].digest)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where snapshots are kept."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path / f"consensuspr-ray-{os.getuid()}"


def open_one(path: Path) -> DatasetIndex:
    return open_datasets(ServerConfig(datasets={"default": path}))["default"]


def test_processes_that_start_together_make_one(folder: Path, problems: Path) -> None:
    command = [sys.executable, "-c", OPEN, str(problems)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    digests = {process.communicate(timeout=60)[0].strip() for process in processes}
    assert digests == {DatasetIndex.load(problems).digest}
    [snapshot] = folder.glob("*.index")
    made = snapshot.stat().st_ino
    assert open_one(problems).digest in digests
    assert snapshot.stat().st_ino == made, "it was made once"


def test_a_changed_file_is_loaded_anew(
    tmp_path: Path, problems: Path, other_problems: Path
) -> None:
    path = tmp_path / "problems.jsonl"
    path.write_bytes(problems.read_bytes())
    before = open_one(path)
    path.write_bytes(other_problems.read_bytes())
    after = open_one(path)
    assert before.digest != after.digest == DatasetIndex.load(other_problems).digest


def test_what_nobody_opens_for_a_day_is_removed(
    folder: Path, problems: Path, other_problems: Path
) -> None:
    mapped = open_one(problems)
    [old] = folder.glob("*.index")
    os.utime(old, (0, time.time() - KEEP_S - 60))
    open_one(other_problems)
    assert not old.exists()
    assert len(mapped.problem_ids()) == 50, "who has it open keeps it"
    assert open_one(problems).digest == mapped.digest


def test_a_dataset_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.jsonl: no such file"):
        open_one(tmp_path / "missing.jsonl")
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n")
    with pytest.raises(InputError, match=r"bad\.jsonl:1: "):
        open_one(bad)
