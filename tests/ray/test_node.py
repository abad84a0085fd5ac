"""Ray or one sentence, and the datasets of a node."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from consensuspr.cli import main
from consensuspr.errors import InputError
from consensuspr.ray.serve import open_datasets
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
    assert "pip install 'consensuspr[ray]'" in capsys.readouterr().err
    assert not output.exists()


def test_ray_is_imported_by_nobody_who_does_not_use_it() -> None:
    program = (
        "import sys\n"
        "import consensuspr.ray, consensuspr.ray.serve, consensuspr.ray.serve\n"
        "import consensuspr.ray.data, consensuspr.cli.score\n"
        "assert 'ray' not in sys.modules, sorted(m for m in sys.modules if m.startswith('ray'))\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_datasets_are_loaded_or_the_fault_is_named(problems: Path, tmp_path: Path) -> None:
    index = open_datasets(ServerConfig(datasets={"default": problems}))["default"]
    assert index.digest == DatasetIndex.load(problems).digest
    for content, sentence in ((None, r"bad\.jsonl: no such file"), ("{}\n", r"bad\.jsonl:1: ")):
        bad = tmp_path / "bad.jsonl"
        if content is not None:
            bad.write_text(content)
        with pytest.raises(InputError, match=sentence):
            open_datasets(ServerConfig(datasets={"default": bad}))
