"""Without Ray: one sentence that says how to get it, and nothing that imports it by accident."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from consensuspr.cli import main
from consensuspr.errors import InputError
from consensuspr.ray import start_server


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


@pytest.mark.usefixtures("no_ray")
def test_the_actor_says_how_to_get_ray(problems: Path) -> None:
    with pytest.raises(InputError, match=r"install it with: pip install 'consensuspr\[ray\]'"):
        start_server(problems)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--address", "127.0.0.1:1"], "--address and --timeout are for a server"),
        (["--timeout", "3"], "--address and --timeout are for a server"),
    ],
)
def test_options_of_a_server_are_refused(
    more: list[str],
    message: str,
    problems: Path,
    rollouts_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--dataset", str(problems), "--output", str(tmp_path / "o"), "--engine", "ray"]
    assert main(["score", str(rollouts_file), *arguments, *more]) == 2
    assert message in capsys.readouterr().err


def test_ray_is_imported_by_nobody_who_does_not_use_it() -> None:
    program = (
        "import sys\n"
        "import consensuspr.ray, consensuspr.ray.serve, consensuspr.ray.serve\n"
        "import consensuspr.ray.data, consensuspr.cli.score\n"
        "assert 'ray' not in sys.modules, sorted(m for m in sys.modules if m.startswith('ray'))\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
