"""Ray or one sentence, and datasets that the processes of a node share."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from consensuspr.cli import main
from consensuspr.errors import InputError
from consensuspr.ray.node import KEEP_S, open_datasets
from consensuspr.scoring import DatasetIndex
from consensuspr.server import ServerConfig


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make imports of Ray fail, installed or not."""
    for module in ("ray", "ray.data", "ray.serve"):
        monkeypatch.setitem(sys.modules, module, None)


@pytest.mark.usefixtures("no_ray")
def test_the_command_says_how_to_get_ray(
    problems: Path, rollouts_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "scored.jsonl"
    arguments = ["--dataset", str(problems), "--output", str(output), "--engine", "ray"]
    assert main(["score", str(rollouts_file), *arguments]) == 2
    said = capsys.readouterr().err
    assert "ray.data cannot be imported" in said
    assert "pip install 'consensuspr[ray]'" in said
    assert not output.exists()


def test_ray_is_imported_by_nobody_who_does_not_use_it() -> None:
    program = (
        "import sys\n"
        "import consensuspr.ray, consensuspr.ray.serve, consensuspr.ray.serve\n"
        "import consensuspr.ray.data, consensuspr.cli.score\n"
        "assert 'ray' not in sys.modules, sorted(m for m in sys.modules if m.startswith('ray'))\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


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
    assert snapshot.stat().st_ino == made, "it is mapped"


def test_what_nobody_opens_for_a_day_is_removed(
    folder: Path, problems: Path, other_problems: Path
) -> None:
    mapped = open_one(problems)
    [old] = folder.glob("*.index")  # of the first dataset
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
