"""The commands as a person types them, from start to end, on the sample and on small files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from consensusbench.cli import main
from tests.commands import Run, logging_as_it_was
from tests.rows import write_rows


@pytest.fixture(scope="module")
def sample(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sample's dataset, and its rollouts with their scores."""
    folder = repository / "examples/sample"
    scored = tmp_path_factory.mktemp("sample") / "scored.jsonl"
    rollouts, dataset = folder / "rollouts.jsonl", folder / "dataset.jsonl"
    with logging_as_it_was():
        files = [str(rollouts), "--dataset", str(dataset), "--scored-output", str(scored)]
        code = main(["evaluate", *files, "--by", "none"])
    assert code == 0
    return dataset, scored


def test_the_sample_is_evaluated(run: Run, sample: tuple[Path, Path], tmp_path: Path) -> None:
    dataset, scored = sample
    latex = tmp_path / "tables.tex"
    code, out, err = run("evaluate", scored, "--dataset", dataset, "--k", "1,3", "--latex", latex)
    assert code == 0
    lines = out.splitlines()
    titles = [
        "Answers and nodes, groups of a model (in %)",
        "Answers and nodes (in %)",
        "Other ways to count NCR (in %)",
        "NCR against Acc (in %)",
        "NCR against Acc, without the nodes that state the final answer (in %)",
        "Tokens per node, and length",
    ]
    assert [line.strip() for line in lines if line.strip() in titles] == titles
    assert "pass@3" in out and "NCR without final nodes" in out
    everything = next(line for line in lines if line.startswith("all "))
    assert everything.split()[1:3] == ["420", "60"]
    assert any(line.startswith("sample-terse · medium") for line in lines)
    assert any(line.startswith("sample-latex · sample/geometry") for line in lines)
    assert f"written: {latex}" in out
    text = latex.read_text()
    assert text.count(r"\begin{table}") == text.count(r"\bottomrule") == 6
    assert r"\textbf{all} & \textbf{420} & \textbf{60}" in text
    assert "420/420 rollouts" in err
    arguments = ["--dataset", dataset, "--by", "none", "--no-progress", "--json"]
    code, out, err = run("evaluate", scored, *arguments)
    result = json.loads(out)
    acc = result["overall"]["figures"]["acc"]
    assert (code, err, result["breakdowns"], result["num_stored"]) == (0, "", [], 420)
    assert (
        f"{100 * acc['value']:.1f} ({100 * acc['low']:.1f}–{100 * acc['high']:.1f})" in everything
    )


def test_two_models_of_one_file_are_compared(run: Run, sample: tuple[Path, Path]) -> None:
    dataset, scored = sample
    arguments = ["compare", scored, "--dataset", dataset, "--by", "difficulty"]
    arguments += ["--baseline", "sample-markdown", "--candidate", "sample-terse"]
    code, out, _ = run(*arguments)
    assert code == 0
    assert "baseline sample-markdown, candidate sample-terse" in out
    assert "all: 60 problems" in out and "easy: 5 problems" in out and "hard: 5 problems" in out
    result = json.loads(run(*arguments, "--json")[1])
    acc = result["overall"]["differences"][0]
    assert acc["delta"]["low"] > 0 and acc["p_value"] < 0.01
    assert acc["wins"] + acc["ties"] + acc["losses"] == 60
    assert f"{100 * acc['baseline']:.1f}" in out


def test_two_files_are_compared(run: Run, tmp_path: Path) -> None:
    dataset = write_rows(tmp_path / "d.jsonl", [problem("p1"), problem("p2"), problem("p3")])
    before = write_rows(
        tmp_path / "before.jsonl", [answer("p1", 4), answer("p2", 4), answer("p3", 5)]
    )
    after = write_rows(tmp_path / "after.jsonl", [answer("p1", 5), answer("p2", 5)])
    code, out, _ = run("compare", before, after, "--dataset", dataset, "--json")
    result = json.loads(out)
    assert code == 0
    assert (result["baseline"], result["candidate"]) == (str(before), str(after))
    assert result["left_out"]["baseline"] == [1, ["p3"]]
    acc = result["overall"]["differences"][0]
    assert (acc["delta"]["value"], acc["wins"], acc["p_value"]) == (1.0, 2, 0.5)
    _, table, _ = run("compare", before, after, "--dataset", dataset)
    assert "1 problems that only the baseline answered are left out: p3" in table


def test_agreement_with_people(run: Run, sample: tuple[Path, Path], tmp_path: Path) -> None:
    dataset, _ = sample
    kept = [json.loads(line) for line in dataset.read_text(encoding="utf-8").splitlines()[:4]]
    for row in kept:
        row["nodes"] = [*row["nodes"][:1], {"expressions": ["e^{i\\pi}=-1"], "label": "Euler"}]
    human = write_rows(tmp_path / "human.jsonl", kept)
    code, out, _ = run("agreement", dataset, human)
    assert code == 0
    assert "Recall" in out and "50.0" in out
    assert "56 problems not in the reference, left out" in out
    assert "reference nodes without a partner (4; --json has all):" in out and ": Euler" in out
    result = json.loads(run("agreement", dataset, human, "--json")[1])
    assert (result["num_pairs"], result["num_theirs"], result["recall"]["value"]) == (4, 8, 0.5)


def test_a_hostile_name_does_not_reach_the_terminal(run: Run, tmp_path: Path) -> None:
    dataset = write_rows(tmp_path / "d.jsonl", [problem("p1")])
    named = answer("p1", 5) | {"model": "\x1b[2Jevil", "data_source": "\x1b]0;x\x07"}
    rollouts = write_rows(tmp_path / "r.jsonl", [named, answer("p1", 4)])
    _, out, _ = run("evaluate", rollouts, "--dataset", dataset)
    assert "\x1b" not in out and r"\x1b[2Jevil" in out


def problem(problem_id: str) -> dict[str, Any]:
    node = {"expressions": ["2+3=5"], "derived": []}
    return {"problem_id": problem_id, "ground_truth": "5", "nodes": [node]}


def answer(problem_id: str, value: int) -> dict[str, Any]:
    return {"problem_id": problem_id, "response": f"2+3=5\nAnswer: {value}"}


def test_another_dataset_is_not_a_result(run: Run, tmp_path: Path) -> None:
    dataset = write_rows(tmp_path / "d.jsonl", [problem("p1")])
    rollouts = write_rows(tmp_path / "r.jsonl", [answer("q1", 5), answer("q2", 5)])
    code, table, err = run("evaluate", rollouts, "--dataset", dataset, "--no-progress")
    assert code == 0 and "warning: none of 2 rollouts could be scored" in err
    assert "UNKNOWN_PROBLEM 2  (first: problem 'q1' is not in the dataset)" in table


@pytest.mark.parametrize(("with_nodes", "warns"), [(0, True), (1, True), (2, False)])
def test_a_dataset_without_the_nodes_is_named(
    run: Run, tmp_path: Path, with_nodes: int, warns: bool
) -> None:
    listed = [problem(f"p{n}") | ({} if n < with_nodes else {"nodes": []}) for n in range(3)]
    dataset = write_rows(tmp_path / "d.jsonl", listed)
    answers = [answer(name, 5) for name in ("q9", "p0", "p1", "p2")]
    rollouts = write_rows(tmp_path / "r.jsonl", answers)
    code, _, err = run("evaluate", rollouts, "--dataset", dataset, "--no-progress")
    warning = f"warning: 3 of 4 rollouts have a problem in {dataset}, and {with_nodes} a problem"
    assert (code, err.startswith(warning)) == (0, warns)


def test_a_bad_row_stops_before_anything_is_written(run: Run, tmp_path: Path) -> None:
    dataset = write_rows(tmp_path / "d.jsonl", [problem("p1")])
    rollouts = write_rows(tmp_path / "r.jsonl", [answer("p1", 5), {"problem_id": "p1"}])
    output = tmp_path / "scored.jsonl"
    code, _, err = run("evaluate", rollouts, "--dataset", dataset, "--scored-output", output)
    assert code == 2 and "r.jsonl:2: response is missing" in err and not output.exists()
    arguments = ["evaluate", rollouts, "--dataset", dataset, "--on-error", "skip"]
    code, out, _ = run(*arguments, "--scored-output", output)
    assert code == 0 and "1 bad row skipped" in out and output.exists()
