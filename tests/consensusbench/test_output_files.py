"""Commands check their files and packages before they do any work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

import pytest

from consensusbench import check_outputs
from consensuspr.data import open_writer
from consensuspr.errors import InputError
from tests.commands import Run
from tests.rows import write_rows

PROBLEM = {"problem_id": "p", "ground_truth": "3", "nodes": [{"expressions": ["1+2=3"]}]}
ROLLOUT = {"problem_id": "p", "response": "1+2=3"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with problems and rollouts in it."""
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "p.jsonl", [PROBLEM])
    write_rows(tmp_path / "r.jsonl", [ROLLOUT])
    return tmp_path


def test_an_input_under_another_name_is_an_input(tmp_path: Path) -> None:
    (tmp_path / "in").touch()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    with pytest.raises(InputError, match="link is an input of this command"):
        check_outputs((tmp_path / "link",), (tmp_path / "in",))
    with pytest.raises(InputError, match="is given for two outputs"):
        check_outputs((tmp_path / "link", tmp_path / "sub" / ".." / "in"), ())


@pytest.mark.parametrize(
    ("command", "own_input"),
    [
        ("stats p.jsonl --latex {}", "p.jsonl"),
        ("validate p.jsonl --rollouts r.jsonl --output {}", "r.jsonl"),
        ("evaluate r.jsonl --dataset p.jsonl --scored-output {}", "p.jsonl"),
        ("diagnose r.jsonl --dataset p.jsonl --output {}", "r.jsonl"),
        ("problems m=p.jsonl --limit 5 --output {}", "p.jsonl"),
        ("sample p.jsonl --model m --output {}", "p.jsonl"),
        ("extract r.jsonl --problems p.jsonl --output {}", "p.jsonl"),
        ("refine r.jsonl --output q.jsonl --audit {}", "r.jsonl"),
        ("build r.jsonl --problems p.jsonl --output q.jsonl --candidates {}", "r.jsonl"),
    ],
)
def test_an_impossible_output_is_rejected_at_once(
    command: str, own_input: str, folder: Path, run: Run
) -> None:
    before = {path.name: path.read_text() for path in folder.iterdir()}
    for output, sentence in (
        (own_input, f"{own_input} is an input of this command; choose another output"),
        ("x.csv", "x.csv: rows are written as .jsonl, .jsonl.gz or .parquet, not as .csv"),
        ("no/such/x.jsonl", "no/such does not exist; create it first"),
    ):
        code, _, error = run(*command.format(output).split())
        assert code == 2 and error.splitlines()[-1] == f"consensusbench: error: {sentence}"
    assert {path.name: path.read_text() for path in folder.iterdir()} == before


ROLLOUTS_GIVEN = "is a file of rollouts; give a dataset here"
PROBLEMS_GIVEN = "is a dataset; give a file of rollouts here"


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("validate r", ROLLOUTS_GIVEN),
        ("evaluate r2 --dataset r", ROLLOUTS_GIVEN),
        ("sample r --model m --output q.jsonl", ROLLOUTS_GIVEN),
        ("agreement p r", ROLLOUTS_GIVEN),
        ("evaluate p --dataset r", PROBLEMS_GIVEN),
        ("extract p --output q.jsonl", PROBLEMS_GIVEN),
    ],
)
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_rollouts_given_for_a_dataset_are_named(
    folder: Path, run: Run, command: str, sentence: str, suffix: str
) -> None:
    for name, row in (("p", PROBLEM), ("r", ROLLOUT), ("r2", ROLLOUT)):
        with open_writer(folder / f"{name}{suffix}") as out:
            out.write(row)
    words = [word + suffix if word in ("p", "r", "r2") else word for word in command.split()]
    code, _, err = run(*words)
    assert code == 2 and sentence in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "package"),
    [
        ("evaluate r.jsonl --dataset p.jsonl", "sklearn"),
        ("evaluate r.jsonl --dataset p.jsonl --tokenizer t", "tokenizers"),
        ("compare r.jsonl r2.jsonl --dataset p.jsonl", "scipy"),
        ("agreement p.jsonl p.jsonl", "scipy"),
    ],
)
def test_a_missing_package_is_reported_before_anything_is_scored(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, command: str, package: str
) -> None:
    def score(*_: object, **__: object) -> NoReturn:
        raise AssertionError("scored before the package was missed")

    write_rows(folder / "r2.jsonl", [ROLLOUT])
    monkeypatch.setattr("consensusbench.evaluation.scored.connect", score)
    monkeypatch.setattr("consensusbench.evaluation.agreement.compare_nodes", score)
    for name in (package, *(name for name in sys.modules if name.startswith(f"{package}."))):
        monkeypatch.setitem(sys.modules, name, None)
    code, _, err = run(*command.split())
    error = err.splitlines()[-1]
    assert code == 2 and f"needs the package {package}: pip install" in error
