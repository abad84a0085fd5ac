"""``consensuspr doctor`` against a real server, on Parquet files with one thing wrong each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import RunningServer
    from tests.commands import Run

TRUTHS = {"p1": "9", "p2": "25", "p3": "7"}

Write = Callable[..., Path]


def row(problem_id: str, **changes: Any) -> dict[str, Any]:
    """A row as ``consensusbench export`` writes it; changes replace whole columns."""
    return {
        "data_source": "algebra",
        "prompt": [{"role": "user", "content": f"Solve {problem_id}."}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": TRUTHS.get(problem_id, "0")},
        "extra_info": {"problem_id": problem_id, "split": "train", "index": 0},
        **changes,
    }


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write rows as a Parquet file of several row groups."""

    def written(*rows: dict[str, Any], name: str = "train.parquet") -> Path:
        path = tmp_path / name
        pq.write_table(pa.Table.from_pylist(list(rows)), path, row_group_size=2)
        return path

    return written


def lines_of(out: str, level: str) -> list[str]:
    """Return the findings of a level, blanks between columns made one."""
    return [" ".join(line.split()) for line in out.splitlines() if line.startswith(level)]


def test_a_good_set_up(run: Run, server: RunningServer, write: Write) -> None:
    train = write(row("p1"))
    val = write(row("p2"), name="val.parquet")
    done = run(
        "doctor", "--address", server.address, "--dataset", server.dataset,
        "--train-files", train, "--val-files", val,
    )  # fmt: skip
    assert done.code == 0, done.out
    assert [" ".join(line.split()[:3]) for line in done.out.splitlines()[:-1]] == [
        f"ok server {server.address}",
        "ok dataset 'small':",
        "ok dataset --dataset:",
        "ok train rows",
        "ok val rows",
        "ok train problems",
        "ok val problems",
    ]
    assert "ok train problems 1 have a reward, 1 (100.0 %) have nodes" in (lines_of(done.out, "ok"))
    assert done.out.splitlines()[-1] == "7 ok"


def by_index(*contents: str) -> list[dict[str, Any]]:
    """Rows known by their index alone, as verl's own preprocessing writes them."""
    return [
        row(
            "p1",
            data_source="p",
            extra_info={"index": 1, "split": "train"},
            prompt=[{"role": "user", "content": content}],
        )
        for content in contents
    ]


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (
            [row("p1"), row("p9")],
            "FAIL train problems 1 (50.0 %) of 2 have no reward under reward=linear: 1 unknown to"
            " the server (the first: 'p9', train.parquet row 2) →",
        ),
        (
            [row("p9", extra_info={"problem_id": "p9", "nodes": [{"expressions": []}]})],
            "FAIL train problems 1 (100.0 %) of 1 have no reward under reward=linear: 1 with inline"
            " nodes that the server rejects: ",
        ),
        (
            [row("p1", reward_model={"ground_truth": True})],
            "FAIL train rows 1 (100.0 %) of 1 cannot be rewarded, the first: train.parquet row 1:"
            " ground_truth must be a string, got True",
        ),
        (
            [row("p1", prompt=["Solve it."])],
            "FAIL train rows 1 (100.0 %) of 1 cannot be rewarded, the first: train.parquet row 1:"
            " the prompt must be chat messages",
        ),
        (
            by_index("One.", "Another."),
            "FAIL train rows 1 (50.0 %) of 2 cannot be rewarded, the first: train.parquet row 2:"
            " problem id 'p/1', put together from extra_info.index, has come with two prompts",
        ),
    ],
)
def test_one_thing_wrong_in_the_rows(
    run: Run, server: RunningServer, write: Write, rows: list[dict[str, Any]], line: str
) -> None:
    done = run("doctor", "--address", server.address, "--train-files", write(*rows))
    assert done.code == 1
    assert [found for found in lines_of(done.out, "FAIL") if found.startswith(line)], done.out
    assert lines_of(done.out, "warn") == []


def test_files_that_cannot_be_read(run: Run, server: RunningServer, tmp_path: Path) -> None:
    absent, text, other = (tmp_path / name for name in ("no.parquet", "text", "other.parquet"))
    text.write_text("not Parquet")
    pq.write_table(pa.table({"question": ["?"]}), other)
    files = f"{absent},{text},{other},hdfs://far/away.parquet"
    done = run("doctor", "--address", server.address, "--train-files", files)
    assert done.code == 1
    found = "\n".join(lines_of(done.out, "FAIL"))
    assert f"{absent}: does not exist" in found
    assert f"{text}: is not readable Parquet: " in found
    assert f"{other}: has no column 'prompt' (data.prompt_key); its columns are question" in found
    assert "hdfs://far/away.parquet: is not on this machine" in found


def test_no_server(run: Run, write: Write) -> None:
    done = run(
        "doctor", "--address", "127.0.0.1:1", "--timeout", "0.5", "--train-files", write(row("p1"))
    )
    assert done.code == 1
    assert lines_of(done.out, "FAIL")[0].startswith("FAIL server 127.0.0.1:1: ")
    assert lines_of(done.out, "FAIL")[0].endswith(
        "→ start it: consensuspr serve --dataset PATH --address 127.0.0.1:1"
    )
    # The rows are read all the same.
    assert "ok train rows 1 in 1 file, 1 problem" in lines_of(done.out, "ok")
    assert lines_of(done.out, "skip") == [
        "skip train problems there is no server or dataset to ask"
    ]


def test_another_dataset_than_the_file(run: Run, server: RunningServer, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text('{"problem_id": "p1", "ground_truth": "9", "nodes": []}\n')
    done = run("doctor", "--address", server.address, "--dataset", other)
    assert done.code == 1
    (line,) = lines_of(done.out, "FAIL")
    assert line.startswith(f"FAIL dataset --dataset: {other} (sha256:")
    assert "is not the server's 'small'" in line


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--", "python", "train.py"], "must be [NAME=VALUE …] python -m MODULE"),
        (["--config", "x.yaml"], "--config: file not found: x.yaml"),
        (["--config", "x.yaml", "--", "a=1"], "give --config or the training command, not both"),
        (["--dataset", "no/such.jsonl"], "--dataset: file not found: no/such.jsonl"),
    ],
)
def test_bad_usage(run: Run, arguments: list[str], sentence: str) -> None:
    done = run("doctor", *arguments)
    assert done.code == 2
    assert sentence in done.err
    assert done.err.count("\n") == 1


def test_a_run_cannot_be_checked_without_verl(
    run: Run, server: RunningServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "verl").mkdir()  # a clone is no package
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    missing = (
        'FAIL configuration verl is not installed here; install it: pip install "consensuspr[verl]"'
        ', in a checkout pip install ".[verl]" → correct it'
    )
    done = run("doctor", "--no-progress", "--", "trainer.nnodes=1")
    assert (done.code, done.err) == (1, "")
    assert [" ".join(line.split()) for line in done.out.splitlines()] == [missing, "1 FAIL"]
    # A server that is named on the command line is checked all the same.
    done = run("doctor", "--no-progress", "--address", server.address, "--", "trainer.nnodes=1")
    assert lines_of(done.out, "FAIL") == [missing]
    assert len(lines_of(done.out, "ok")) == 2  # server, dataset
