"""Several sources made into one file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from consensusbench.problems.dedup import ProblemStatus, SourcesReport, collect_problems
from consensusbench.problems.sources import SourceInput, source_input
from consensuspr.data import Problem, ReadReport, read_problems
from consensuspr.errors import DataError, InputError
from tests.consensusbench.problems.conftest import dapo, gsm8k, math500

if TYPE_CHECKING:
    from tests.commands import Run
    from tests.consensusbench.conftest import WriteDataset


class CollectBench:
    def __init__(self, folder: Path, write: WriteDataset) -> None:
        self.output = folder / "out.jsonl"
        self._write = write

    def source(self, name: str, *rows: dict[str, Any]) -> SourceInput:
        return source_input(f"{name}={self._write(*rows, name=f'{name}.jsonl')}")

    def collect(self, *inputs: SourceInput, **options: Any) -> SourcesReport:
        return collect_problems(inputs, self.output, **options)

    def written(self) -> list[Problem]:
        return list(read_problems(self.output))


@pytest.fixture
def bench(tmp_path: Path, write_dataset: WriteDataset) -> CollectBench:
    return CollectBench(tmp_path, write_dataset)


def test_the_command_prints_counts_conflicts_and_leaks(bench: CollectBench, run: Run) -> None:
    rows = [dapo(str(n), text, str(n)) for n, text in enumerate(("$x$", "$y$", "$y$", "z"), 1)]
    sources = bench.source("dapo-math-17k", *rows), bench.source("math-500", math500(1, "$z$", "4"))
    named = [f"{origin.name}={origin.path}" for origin in sources]
    code, out, _ = run("problems", *named, "--output", bench.output)
    assert code == 0
    cells = [line.split() for line in out.splitlines()]
    assert [row for row in cells[1:] if len(row) == 6] == [
        ["dapo-math-17k", "4", "0", "2", "1", "1"],
        ["math-500", "1", "0", "0", "0", "1"],
        ["all", "5", "0", "2", "1", "2"],
    ]
    assert "1 text has two answers (left out), for example 2 (dapo17k-2), 3 (dapo17k-3)" in out
    assert "1 row of dapo-math-17k is also in math-500 (left out)" in out
    assert f"{bench.output}: 2 problems" in out


def test_a_file_without_a_name_is_read_too(bench: CollectBench, run: Run) -> None:
    path = bench.source("own", dapo("1", "$x$", "1") | {"data_source": "mine"}).path
    assert run("problems", path, "--output", bench.output)[0] == 0
    assert [problem.data_source for problem in bench.written()] == ["mine"]


def test_each_problem_is_written_once(bench: CollectBench) -> None:
    training = bench.source(
        "dapo-math-17k",
        dapo("1", "Find $x$ if $x = 1$.", "1"),
        dapo("2", r"Find \(x\) if \(x=1\).", "1.0"),
        dapo("3", "Two answers?", "34"),
        dapo("4", "Two  answers?", "35"),
        dapo("5", "Half?", r"\frac{1}{2}"),
        dapo("6", "Half? ", "0.5"),
        dapo("7", "Held out $\\overline{r}_1$.", "9"),
    )
    benchmark = bench.source("math-500", math500(1, r"Held out $\overline{r_1}$", "8"))
    report = bench.collect(training, benchmark)
    written = bench.written()
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
    counts = report.to_json()
    assert counts["conflicting_texts"] == 1
    cases = [(case["problem_id"], case["ground_truth"]) for case in counts["cases"]]
    assert cases == [("dapo17k-3", "34"), ("dapo17k-4", "35"), ("dapo17k-7", "9")]
    assert counts["cases"][0]["text"] == counts["cases"][1]["text"]
    assert counts["cases"][2]["test_problem_id"] == "math500-algebra-1"
    assert counts["leaked"] == [{"source": "dapo-math-17k", "test_source": "math-500", "rows": 1}]
    first = counts["sources"][0]
    assert first["path"] == str(training.path)
    assert (first["read"], first["repeated"], first["written"]) == (7, 2, 2)


def test_bad_rows_stop_or_are_counted(bench: CollectBench) -> None:
    origin = bench.source(
        "gsm8k", gsm8k("One?", "1"), {"question": "No answer?"}, gsm8k("Two?", "2")
    )
    with pytest.raises(DataError, match=r"gsm8k\.jsonl:2: has no answer; its keys are question"):
        bench.collect(replace(origin, read=ReadReport()))
    assert not bench.output.exists()
    bench.collect(origin, on_error="skip")
    assert (origin.read.rows, origin.read.skipped, len(bench.written())) == (2, 1, 2)


def own(name: str, **changes: Any) -> dict[str, Any]:
    return {"problem_id": name, "problem": f"{name}?", "ground_truth": "1", **changes}


@pytest.mark.parametrize(
    ("sources", "sentence"),
    [
        (
            {"a": [own("p", answer_rule="dapo")], "b": [own("q", answer_rule="boxed")]},
            "answer_rule 'boxed' of b differs from 'dapo' of a",
        ),
        (
            {"a": [own("p"), own("q", problem="p?", ground_truth="2")]},
            "all 2 problems were left out, nothing was written",
        ),
    ],
)
def test_sources_that_make_no_dataset_are_one_sentence(
    bench: CollectBench, sources: dict[str, list[dict[str, Any]]], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        bench.collect(*[bench.source(name, *rows) for name, rows in sources.items()])
    assert not bench.output.exists()
