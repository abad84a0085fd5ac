"""``consensuspr curves``: the figures of training by step."""

from __future__ import annotations

from pathlib import Path

import pytest

from consensuspr.cli import main
from tests.score_logs import write_log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A run of 40 steps whose Acc and NCR rise."""
    rows = [
        {
            "time": int(1e15 + step * 1e6),
            "step": step,
            "split": "train",
            "reward": step / 40,
            "acc": float(step > 20),
            "ncr": 0.25 * (step // 10),
            "num_nodes": 4,
            "num_matched": step // 10,
            "num_tokens": 200,
            "tpn": 200 / (step // 10) if step >= 10 else None,
            "status": "OK",
        }
        for step in range(1, 41)
    ]
    write_log(tmp_path, rows)
    return tmp_path


def test_the_table_has_few_lines_and_all_steps(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["curves", str(log), "--points", "4"]) == 0
    _, heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split()[:5] == ["Step", "Samples", "Reward", "Acc", "NCR"]
    assert [line.split()[0] for line in lines] == ["1–10", "11–20", "21–30", "31–40"]
    assert lines[3].split()[1:7] == ["10", "0.887", "100.0", "%", "77.5", "%"]
    assert lines[3].split()[-1] == "0"  # samples that are not OK


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--split", "test"], "has no sample of split 'test', only of train"),
        (["--plot", "curves.txt"], "--plot must end in .png, .svg or .pdf"),
    ],
)
def test_what_cannot_be_shown_is_one_sentence(
    log: Path, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["curves", str(log), *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_a_plot_is_drawn(log: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    path = tmp_path / "curves.png"
    assert main(["curves", str(log), "--plot", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
