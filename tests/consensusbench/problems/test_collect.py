"""Several sources made into one file, as a person finds it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consensusbench.problems import (
    ProblemCollection,
    ProblemStatus,
    SourceInput,
    collect_problems,
    source_input,
)
from consensuspr.data import read_problems
from consensuspr.errors import DataError, InputError
from tests.consensusbench.problems.conftest import dapo, gsm8k, math500

if TYPE_CHECKING:
    from tests.consensusbench.problems.conftest import WriteRows


def ids(path: Path) -> list[str]:
    return [problem.problem_id for problem in read_problems(path)]


def test_each_problem_is_written_once(write_rows: WriteRows, tmp_path: Path) -> None:
    training = write_rows(
        dapo("1", "Find $x$ if $x = 1$.", "1"),
        dapo("2", r"Find \(x\) if \(x=1\).", "1.0"),
        dapo("3", "Two answers?", "34"),
        dapo("4", "Two  answers?", "35"),
        dapo("5", "Half?", r"\frac{1}{2}"),
        dapo("6", "Half? ", "0.5"),
        dapo("7", "Held out $\\overline{r}_1$.", "9"),
        name="dapo.jsonl",
    )
    test = write_rows(math500(1, r"Held out $\overline{r_1}$", "8"), name="test.jsonl")
    inputs = [source_input("dapo-math-17k", training), source_input("math-500", test)]
    report = collect_problems(ProblemCollection(inputs, tmp_path / "out.jsonl"))
    written = list(read_problems(tmp_path / "out.jsonl"))
    assert {problem.problem.strip() for problem in written} >= {"Half?"}
    assert [problem.problem_id for problem in written][-1] == "math500-algebra-1"
    assert len(written) == report.written == 3
    assert all(problem.nodes == () for problem in written)
    assert report.statuses[0] == {
        ProblemStatus.WRITTEN: 2,
        ProblemStatus.REPEATED: 2,
        ProblemStatus.CONFLICTING: 2,
        ProblemStatus.LEAKED: 1,
    }
    said = report.to_json()
    assert said["conflicting_texts"] == 1
    assert said["conflicts"] == [
        {
            "answers": [
                {"ground_truth": "34", "problem_id": "dapo17k-3"},
                {"ground_truth": "35", "problem_id": "dapo17k-4"},
            ],
            "sources": ["dapo-math-17k"],
        }
    ]
    assert said["leaked"] == [
        {"source": "dapo-math-17k", "test_source": "math-500", "rows": 1, "test_problems": 1}
    ]
    assert said["leaks"] == [
        {
            "problem_id": "dapo17k-7",
            "source": "dapo-math-17k",
            "ground_truth": "9",
            "test_problem_id": "math500-algebra-1",
            "test_source": "math-500",
            "test_ground_truth": "8",
        }
    ]
    first = said["sources"][0]
    assert (first["name"], first["path"], first["hub_id"]) == ("dapo-math-17k", str(training), None)
    assert (first["read"], first["repeated"], first["written"]) == (7, 2, 2)


def test_leaked_problems_may_be_kept(write_rows: WriteRows, tmp_path: Path) -> None:
    inputs = [
        source_input("gsm8k", write_rows(gsm8k("Same?", "1"), name="a")),
        source_input("gsm8k-train", write_rows(gsm8k("Same?", "1"), name="b")),
    ]
    kept = collect_problems(ProblemCollection(inputs, tmp_path / "kept.jsonl", keep_leaked=True))
    assert (len(ids(tmp_path / "kept.jsonl")), len(kept.leaks)) == (2, 1)


def test_files_of_every_format_read_alike(write_rows: WriteRows, tmp_path: Path) -> None:
    rows = [math500(number, f"Find ${number}x$.", str(number)) for number in range(20)]
    plain = write_rows(*rows)
    packed, columns = tmp_path / "rows.jsonl.gz", tmp_path / "rows.parquet"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    pq.write_table(pa.Table.from_pylist(rows), columns)
    written = []
    for place, path in enumerate((plain, packed, columns)):
        output = tmp_path / f"{place}.jsonl"
        collect_problems(ProblemCollection([source_input("math-500", path)], output))
        written.append(output.read_bytes())
    assert written[0] == written[1] == written[2]


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "parquet"])
def test_the_output_is_a_dataset(suffix: str, write_rows: WriteRows, tmp_path: Path) -> None:
    from consensuspr.scoring.dataset_index import DatasetIndex

    path = write_rows(*[math500(number, f"Find ${number}x$.", "1") for number in range(5)])
    output = tmp_path / f"out.{suffix}"
    collect_problems(ProblemCollection([source_input("math-500", path)], output))
    assert DatasetIndex.load(output).info.num_without_nodes == 5
    assert [p.metadata["level"] for p in read_problems(output)] == [3] * 5


def test_a_file_of_this_project_under_any_name(write_rows: WriteRows, tmp_path: Path) -> None:
    row = {"problem_id": "m1", "problem": "Mine?", "ground_truth": "1", "source": "book"}
    report = collect_problems(
        ProblemCollection([source_input("mine", write_rows(row))], tmp_path / "out.jsonl")
    )
    [problem] = read_problems(tmp_path / "out.jsonl")
    assert (problem.problem_id, problem.split, problem.extra) == ("m1", None, {"source": "book"})
    assert report.statuses == [{ProblemStatus.WRITTEN: 1}]


def test_a_limit_is_for_each_source(write_rows: WriteRows, tmp_path: Path) -> None:
    one = write_rows(*[gsm8k(f"{number} apples?", "1") for number in range(9)], name="a")
    other = write_rows(*[math500(number, f"{number} pears?", "1") for number in range(9)], name="b")
    inputs = [source_input("gsm8k", one, limit=4), source_input("math-500", other, limit=4)]
    collect_problems(ProblemCollection(inputs, tmp_path / "out.jsonl"))
    assert len(ids(tmp_path / "out.jsonl")) == 8


def test_bad_rows_stop_or_are_counted(write_rows: WriteRows, tmp_path: Path) -> None:
    path = write_rows(gsm8k("One?", "1"), {"question": "No answer?"}, gsm8k("Two?", "2"))
    output = tmp_path / "out.jsonl"
    with pytest.raises(DataError, match=r"rows\.jsonl:2: has no answer; its keys are question"):
        collect_problems(ProblemCollection([source_input("gsm8k", path)], output))
    assert not output.exists()
    origin = source_input("gsm8k", path)
    collect_problems(ProblemCollection([origin], output, on_error="skip"))
    assert (origin.read.rows, origin.read.skipped, len(ids(output))) == (2, 1, 2)


def own(name: str, **changes: Any) -> dict[str, Any]:
    return {"problem_id": name, "problem": f"{name}?", "ground_truth": "1", **changes}


def test_one_dataset_has_one_answer_rule(write_rows: WriteRows, tmp_path: Path) -> None:
    inputs = [
        source_input("a", write_rows(own("p", answer_rule="dapo"), name="a")),
        source_input("b", write_rows(own("q", answer_rule="boxed"), name="b")),
    ]
    with pytest.raises(InputError, match="answer_rule 'boxed' of b differs from 'dapo' of a"):
        collect_problems(ProblemCollection(inputs, tmp_path / "out.jsonl"))


def test_nothing_left_writes_nothing(write_rows: WriteRows, tmp_path: Path) -> None:
    path = write_rows(own("p"), own("q", problem="p?", ground_truth="2"))
    with pytest.raises(InputError, match="of 2 problems read none is left to be written"):
        collect_problems(ProblemCollection([source_input("a", path)], tmp_path / "out.jsonl"))
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "gsm9k"}, "'gsm9k' is no known source; known are gsm8k, "),
        ({"name": "gsm8k", "limit": 0}, "the limit must be at least 1, got 0"),
    ],
)
def test_a_bad_source_is_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        source_input(**arguments)
    assert sentence in str(caught.value)


def test_no_source_at_all(tmp_path: Path) -> None:
    inputs: list[SourceInput] = []
    with pytest.raises(InputError, match="no source is named"):
        collect_problems(ProblemCollection(inputs, tmp_path / "out.jsonl"))


def test_progress_counts_problems(write_rows: WriteRows, tmp_path: Path) -> None:
    path = write_rows(*[own(f"p{number}") for number in range(5)])
    done: list[int] = []
    collect_problems(
        ProblemCollection([source_input("a", path)], tmp_path / "o.jsonl"), done.append
    )
    assert done == [1, 2, 3, 4, 5]
    assert json.loads((tmp_path / "o.jsonl").read_text().splitlines()[0])["problem_id"] == "p0"
