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
        code = main(
            ["evaluate", str(rollouts), "--dataset", str(dataset), "--scored-output", str(scored)]
        )
    assert code == 0
    return dataset, scored


def test_the_sample_is_evaluated(run: Run, sample: tuple[Path, Path], tmp_path: Path) -> None:
    dataset, scored = sample
    csv, latex = tmp_path / "figures.csv", tmp_path / "tables.tex"
    code, out, err = run(
        "evaluate", scored, "--dataset", dataset, "--k", "1,3", "--csv", csv, "--latex", latex
    )  # fmt: skip
    assert code == 0
    lines = out.splitlines()
    titles = [
        "Answers and nodes",
        "NCR against Acc",
        "NCR against Acc, without the nodes that state the final answer",
        "Tokens per node, and length",
    ]
    assert [line.strip() for line in lines if line.strip() in titles] == titles
    assert "pass@3 %" in out and "NCR w/o final %" in out
    everything = next(line for line in lines if line.startswith("all "))
    assert everything.split()[1:3] == ["300", "50"]
    assert any(line.startswith("sample-terse · medium") for line in lines)
    assert any(line.startswith("sample-latex · sample/geometry") for line in lines)
    assert f"written: {csv}" in out and f"written: {latex}" in out
    assert csv.read_text().count("\n") == 1 + 1 + 5 + 25 + 15
    assert r"\toprule" in latex.read_text()
    assert "300/300 rollouts" in err


def test_what_is_printed_is_what_json_says(run: Run, sample: tuple[Path, Path]) -> None:
    dataset, scored = sample
    arguments = ["evaluate", scored, "--dataset", dataset, "--by", "source", "--no-progress"]
    code, out, err = run(*arguments, "--json")
    said = json.loads(out)
    assert (code, err) == (0, "")
    assert [one["by"] for one in said["breakdowns"]] == [["source"]]
    assert said["num_stored"] == 300
    acc = said["overall"]["acc"]
    _, table, _ = run(*arguments)
    shown = f"{100 * acc['value']:.1f} ({100 * acc['low']:.1f}–{100 * acc['high']:.1f})"
    assert shown in table


def test_intervals_follow_the_confidence(run: Run, sample: tuple[Path, Path]) -> None:
    dataset, scored = sample
    widths = []
    for confidence in (0.5, 0.99):
        arguments = ["evaluate", scored, "--dataset", dataset, "--by", "none", "--json"]
        _, out, _ = run(*arguments, "--confidence", confidence)
        acc = json.loads(out)["overall"]["acc"]
        widths.append(acc["high"] - acc["low"])
    assert 0 < 3 * widths[0] < widths[1]


def test_two_models_of_one_file_are_compared(run: Run, sample: tuple[Path, Path]) -> None:
    dataset, scored = sample
    arguments = ["compare", scored, "--dataset", dataset, "--by", "difficulty"]
    arguments += ["--baseline", "sample-markdown", "--candidate", "sample-terse"]
    code, out, _ = run(*arguments)
    assert code == 0
    assert "baseline sample-markdown, candidate sample-terse" in out
    assert "all: 50 problems" in out and "easy: 5 problems" in out and "hard: 2 problems" in out
    said = json.loads(run(*arguments, "--json")[1])
    acc = said["overall"]["differences"][0]
    assert acc["delta"]["low"] > 0 and acc["p_value"] < 0.01
    assert acc["wins"] + acc["ties"] + acc["losses"] == 50
    assert f"{100 * acc['baseline']:.1f}" in out


def test_two_files_are_compared(run: Run, tmp_path: Path) -> None:
    dataset = write_rows(tmp_path / "d.jsonl", [problem("p1"), problem("p2"), problem("p3")])
    before = write_rows(
        tmp_path / "before.jsonl", [answer("p1", 4), answer("p2", 4), answer("p3", 5)]
    )
    after = write_rows(tmp_path / "after.jsonl", [answer("p1", 5), answer("p2", 5)])
    code, out, _ = run("compare", before, after, "--dataset", dataset, "--json")
    said = json.loads(out)
    assert code == 0
    assert (said["baseline"], said["candidate"]) == (str(before), str(after))
    assert said["only_baseline"] == ["p3"]
    acc = said["overall"]["differences"][0]
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
    assert "46 problems have no human annotation and are left out" in out
    assert "human nodes without a partner (4; --json has all):" in out and ": Euler" in out
    said = json.loads(run("agreement", dataset, human, "--json")[1])
    assert (said["num_pairs"], said["num_theirs"], said["recall"]["value"]) == (4, 8, 0.5)


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


@pytest.mark.parametrize(
    ("options", "code"), [((), "written"), (("--code", "computed"), "computed")]
)
def test_code_is_an_option(run: Run, tmp_path: Path, options: tuple[str, ...], code: str) -> None:
    dataset = write_rows(tmp_path / "d.jsonl", [problem("p1")])
    rollouts = write_rows(tmp_path / "r.jsonl", [answer("p1", 5) | {"model": "m"}])
    arguments = (rollouts, "--dataset", dataset, *options)
    reward = json.loads(run("evaluate", *arguments, "--json")[1])["identity"]["reward"]
    assert (reward["code"], reward["unanswered"]) == (code, "ncr")


def test_another_dataset_is_not_a_result(run: Run, tmp_path: Path) -> None:
    dataset = write_rows(tmp_path / "d.jsonl", [problem("p1")])
    rollouts = write_rows(tmp_path / "r.jsonl", [answer("q1", 5), answer("q2", 5)])
    code, out, err = run("evaluate", rollouts, "--dataset", dataset, "--json", "--no-progress")
    acc = json.loads(out)["overall"]["acc"]
    assert (code, acc["value"], acc["no_interval"]) == (0, None, "no rollout has a value")
    assert "warning: not one of 2 rollouts could be scored" in err
    warning = f"warning: none of the 2 rollouts' problems is in {dataset}: is it the right dataset?"
    assert err.splitlines()[0] == warning
    _, table, _ = run("evaluate", rollouts, "--dataset", dataset)
    assert "UNKNOWN_PROBLEM 2  (the first: problem 'q1' is not in the dataset)" in table


@pytest.mark.parametrize("command", ["evaluate", "diagnose", "compare", "report"])
@pytest.mark.parametrize(
    ("with_nodes", "said"),
    [
        (0, "none of the 8 rollouts' problems has nodes in {}, 6 are listed there without"),
        (1, "only 2 of the 8 rollouts' problems have nodes in {}, 6 are listed there"),
        (2, None),
    ],
)
def test_a_dataset_without_the_nodes_is_told_first(
    run: Run, tmp_path: Path, command: str, with_nodes: int, said: str | None
) -> None:
    listed = [problem(f"p{n}") | ({} if n < with_nodes else {"nodes": []}) for n in range(3)]
    dataset = write_rows(tmp_path / "d.jsonl", listed)
    answers = [answer(name, 5) for name in ("q9", "p0", "p1", "p2")]
    rollouts = write_rows(
        tmp_path / "r.jsonl",
        [one | {"ground_truth": "5", "model": model} for one in answers for model in ("m0", "m1")],
    )
    arguments: list[object] = [command, rollouts, "--dataset", dataset, "--no-progress"]
    if command == "compare":
        arguments += ["--baseline", "m0", "--candidate", "m1"]
    if command == "report":
        pytest.importorskip("duckdb", reason="the extra consensusbench is not installed")
        arguments += ["--output", tmp_path / "r.html", "--no-probes"]
    code, out, err = run(*arguments)
    assert code == 0
    if said is None:
        assert "right dataset" not in err
    else:
        warning = f"warning: {said.format(dataset)}: is it the right dataset?"
        assert err.splitlines()[0] == warning
    if command in ("evaluate", "diagnose"):
        assert "is not in the dataset" not in out and f"'p{with_nodes}' has no nodes" in out


def test_what_acc_and_ncr_are_over_stands_beside_them(run: Run, tmp_path: Path) -> None:
    dataset = write_rows(tmp_path / "d.jsonl", [problem("p1"), problem("p2") | {"nodes": []}])
    rollouts = write_rows(tmp_path / "r.jsonl", [answer(f"p{n}", 5) for n in (1, 1, 2)])
    _, out, _ = run("evaluate", rollouts, "--dataset", dataset, "--by", "none", "--no-progress")
    heading, everything = out.splitlines()[1:3]
    assert heading.split()[:7] == ["Group", "Rollouts", "Problems", "With", "Acc", "With", "NCR"]
    assert everything.split()[:5] == ["all", "3", "2", "3", "2"]
    assert "Acc is over 3 rollouts, NCR over the 2 whose problems have nodes" in out


def test_a_model_that_is_not_there_is_named_with_those_that_are(
    run: Run, sample: tuple[Path, Path]
) -> None:
    dataset, scored = sample
    arguments = ["compare", scored, "--dataset", dataset, "--no-progress"]
    code, _, err = run(*arguments, "--baseline", "nobody", "--candidate", "sample-terse")
    [error] = err.splitlines()  # and nothing was scored before
    assert code == 2 and "no rollout is of model 'nobody'; there are sample-formal" in error


def test_an_unknown_model_is_named_before_a_server_is_asked(run: Run, tmp_path: Path) -> None:
    dataset = write_rows(tmp_path / "d.jsonl", [problem("p1")])
    rollouts = write_rows(tmp_path / "r.jsonl", [answer("p1", 5) | {"model": "A"}])
    arguments = ["compare", rollouts, "--dataset", dataset, "--address", "127.0.0.1:9"]
    code, _, err = run(*arguments, "--baseline", "A", "--candidate", "B")
    assert code == 2 and "no rollout is of model 'B'; there are A" in err


def test_a_bad_row_stops_before_anything_is_written(run: Run, tmp_path: Path) -> None:
    dataset = write_rows(tmp_path / "d.jsonl", [problem("p1")])
    rollouts = write_rows(tmp_path / "r.jsonl", [answer("p1", 5), {"problem_id": "p1"}])
    output = tmp_path / "scored.jsonl"
    code, _, err = run("evaluate", rollouts, "--dataset", dataset, "--scored-output", output)
    assert code == 2 and "r.jsonl:2: response is missing" in err and not output.exists()
    arguments = ["evaluate", rollouts, "--dataset", dataset, "--on-error", "skip"]
    code, out, _ = run(*arguments, "--scored-output", output)
    assert code == 0 and "1 bad row skipped" in out and output.exists()
