"""No command replaces a file that it reads by one that it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from consensusbench.cli import main
from consensusbench.output_files import check_outputs
from consensuspr.errors import InputError

PROBLEM = {"problem_id": "p", "ground_truth": "3", "nodes": [{"expressions": ["1+2=3"]}]}
ROLLOUT = {"problem_id": "p", "response": "1+2=3"}


def test_outputs_apart_from_inputs_are_fine(tmp_path: Path) -> None:
    (tmp_path / "in").touch()
    (tmp_path / "old").touch()
    check_outputs((tmp_path / "new", str(tmp_path / "old"), None), (tmp_path / "in", None))


def test_an_input_under_another_name_is_an_input(tmp_path: Path) -> None:
    (tmp_path / "in").touch()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    with pytest.raises(InputError, match="link is read by this command; write elsewhere"):
        check_outputs((tmp_path / "link",), (tmp_path / "in",))
    with pytest.raises(InputError, match="cannot hold two outputs at once"):
        check_outputs((tmp_path / "link", tmp_path / "sub" / ".." / "in"), ())


@pytest.mark.parametrize(
    "command",
    [
        "stats p.jsonl --csv p.jsonl",
        "stats p.jsonl --latex p.jsonl",
        "validate p.jsonl --output p.jsonl",
        "validate p.jsonl --rollouts r.jsonl --output r.jsonl",
        "evaluate r.jsonl --dataset p.jsonl --csv r.jsonl",
        "evaluate r.jsonl --dataset p.jsonl --latex p.jsonl",
        "evaluate r.jsonl --dataset p.jsonl --scored-output p.jsonl",
        "diagnose r.jsonl --dataset p.jsonl --output r.jsonl",
        "report r.jsonl --dataset p.jsonl --output p.jsonl",
    ],
)
def test_a_slip_of_the_hand_costs_no_file(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    before = {"p.jsonl": json.dumps(PROBLEM) + "\n", "r.jsonl": json.dumps(ROLLOUT) + "\n"}
    for name, text in before.items():
        Path(name).write_text(text, encoding="utf-8")
    if command.startswith("report"):
        pytest.importorskip("jinja2", reason="the extra consensusbench is not installed")
    assert main(command.split()) == 2
    assert "is read by this command; write elsewhere" in capsys.readouterr().err
    assert {name: Path(name).read_text(encoding="utf-8") for name in before} == before
