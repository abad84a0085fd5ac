"""No command replaces a file that it reads, or finds out at its end that it cannot write."""

from __future__ import annotations

from pathlib import Path

import pytest

from consensusbench.outputs import check_outputs, check_row_outputs
from consensuspr.errors import InputError
from tests.consensusbench.conftest import Run, write_jsonl

PROBLEM = {"problem_id": "p", "ground_truth": "3", "nodes": [{"expressions": ["1+2=3"]}]}
ROLLOUT = {"problem_id": "p", "response": "1+2=3"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with problems and rollouts in it."""
    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "p.jsonl", [PROBLEM])
    write_jsonl(tmp_path / "r.jsonl", [ROLLOUT])
    return tmp_path


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
        "problems m=p.jsonl --limit 5 --output p.jsonl",
        "problems m=p.jsonl --output q.jsonl --report p.jsonl",
        "sample p.jsonl --model m --output p.jsonl",
        "sample p.jsonl --models r.jsonl --output r.jsonl",
        "extract r.jsonl --output r.jsonl",
        "extract r.jsonl --problems p.jsonl --output p.jsonl",
        "refine r.jsonl --output r.jsonl",
        "refine r.jsonl --output q.jsonl --audit r.jsonl",
        "build r.jsonl --problems p.jsonl --output p.jsonl",
        "build r.jsonl --problems p.jsonl --output q.jsonl --candidates r.jsonl",
    ],
)
def test_a_slip_of_the_hand_costs_no_file(command: str, folder: Path, run: Run) -> None:
    before = {path.name: path.read_text() for path in folder.iterdir()}
    if command.startswith("report"):
        pytest.importorskip("jinja2", reason="the extra consensusbench is not installed")
    code, _, error = run(*command.split())
    assert code == 2 and "is read by this command; write elsewhere" in error
    assert {path.name: path.read_text() for path in folder.iterdir()} == before


ROWS = [
    "problems m=p.jsonl --output {}",
    "sample p.jsonl --model m --output {}",
    "extract r.jsonl --output {}",
    "refine r.jsonl --output {}",
    "build r.jsonl --output {}",
    "build r.jsonl --output q.jsonl --audit {}",
    "build r.jsonl --output q.jsonl --candidates {}",
    "validate p.jsonl --output {}",
    "evaluate r.jsonl --dataset p.jsonl --scored-output {}",
    "diagnose r.jsonl --dataset p.jsonl --output {}",
]


@pytest.mark.parametrize("command", ROWS)
@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("x.csv", "x.csv would hold no csv: rows are written to .jsonl, .jsonl.gz or .parquet"),
        ("no/such/x.jsonl", "no/such does not exist: make it first"),
    ],
)
def test_an_output_that_cannot_be_meant_is_refused_at_once(
    command: str, output: str, sentence: str, folder: Path, run: Run
) -> None:
    code, _, error = run(*command.format(output).split())
    assert code == 2 and error.splitlines()[-1] == f"consensusbench: error: {sentence}"
    assert sorted(path.name for path in folder.iterdir()) == ["p.jsonl", "r.jsonl"]


@pytest.mark.parametrize("name", ["x.TSV", "x.xlsx", "x.html", "x.csv.gz"])
def test_rows_are_no_table_and_no_page(name: str) -> None:
    with pytest.raises(InputError, match="rows are written to"):
        check_row_outputs((name,))
    check_row_outputs((None, "x.jsonl", "x.jsonl.gz", "x.pq", "x.json", "csv", "x.csv.jsonl"))
