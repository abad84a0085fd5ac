"""``score``: right figures in the file, the table and the JSON; nothing half written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.rows import read_rows, write_rows

if TYPE_CHECKING:
    from tests.cli.conftest import RunningServer
    from tests.commands import Run

# Of the six rollouts: status, acc, ncr and the linear reward.
EXPECTED = [
    ("OK", 1.0, 1.0, 1.0),
    ("OK", 0.0, 0.5, 0.25),
    ("OK", 0.0, 1.0, 0.5),
    ("OK", 0.0, 1.0, 0.5),
    ("NO_NODES", 1.0, None, None),
    ("UNKNOWN_PROBLEM", None, None, None),
]


def test_scores_in_this_process(run: Run, problems: Path, rollouts: Path, tmp_path: Path) -> None:
    output = tmp_path / "scored.jsonl"
    done = run("score", rollouts, "--dataset", problems, "--output", output)
    assert done.code == 0
    scored = read_rows(output)
    assert [(r["status"], r["acc"], r["ncr"], r["reward"]) for r in scored] == EXPECTED
    for before, after in zip(read_rows(rollouts), scored, strict=True):
        assert before.items() <= after.items()  # every column is carried through
    assert scored[0]["tpn"] == 10.0
    assert scored[1]["matched"] == [True, False]
    assert (scored[1]["num_nodes"], scored[1]["num_matched"]) == (2, 1)


def test_the_guard_is_printed_and_can_be_turned_off(
    run: Run, problems: Path, tmp_path: Path
) -> None:
    listed = "\n".join(f"{a} * {b} - {a} = {a * b - a}" for a in range(1, 40) for b in (4, 12, 48))
    rows = [
        {"problem_id": "p1", "response": "4*12 = 48 and 48-39 = 9. Answer: 9"},
        {"problem_id": "p1", "response": f"{listed}\n48-39 = 9. Answer: 9"},
    ]
    output = tmp_path / "out.jsonl"
    command = ("score", write_rows(tmp_path / "in.jsonl", rows), "--dataset", problems)
    done = run(*command, "--output", output)
    assert (
        "the guard lowered the NCR of 1 rollout, 1 of them correct; without it the mean NCR is"
        " 100.0 %"
    ) in done.out
    honest, lists = read_rows(output)
    assert (honest["ncr"], honest["ncr_raw"], honest["guard"]) == (1.0, 1.0, 1.0)
    assert honest["channels"] == ["statement", "statement"]
    assert lists["ncr"] == lists["ncr_raw"] * lists["guard"] < 0.25
    done = run(*command, "--output", output, "--no-guard", "--no-statements", "--json")
    result = json.loads(done.out)
    reward = result["identity"]["reward"]
    assert (reward["guard"], reward["statements"]) == (False, False)
    assert (result["overall"]["guarded"], result["overall"]["ncr_raw"]) == (
        0,
        result["overall"]["ncr"],
    )
    assert read_rows(output)[0]["channels"] == ["pattern", "pattern"]


def test_the_table_groups_by_data_source_and_counts_every_status(
    run: Run, problems: Path, rollouts: Path, tmp_path: Path
) -> None:
    done = run("score", rollouts, "--dataset", problems, "--output", tmp_path / "out.jsonl")
    lines = {line.split("  ")[0]: line for line in done.out.splitlines()}
    assert "50.0 %" in lines["algebra"]
    assert "75.0 %" in lines["algebra"]
    assert "0.625" in lines["algebra"]
    # Neither rollout of p2 names its source; it is the problem's.
    assert lines["geometry"].split()[1] == "2"
    assert lines["(none)"].split()[1] == "1"
    assert lines["OK 4"]
    assert lines["NO_NODES 1"]
    assert lines["UNKNOWN_PROBLEM 1"]
    assert "p9" in lines["UNKNOWN_PROBLEM 1"]
    assert "6 rollouts in" in done.out
    assert "6/6 rollouts" in done.err


@pytest.mark.parametrize(
    ("options", "rewards"),
    [
        (["--alpha", "0"], [1.0, 0.5, 1.0, 1.0]),
        (["--reward", "curriculum", "--epoch", "1"], [1.0, 0.0, 0.0, 0.0]),
        (["--reward", "curriculum", "--epoch", "1", "--switch-epoch", "2"], [1.0, 0.5, 1.0, 1.0]),
    ],
)
def test_rewards(
    run: Run, problems: Path, rollouts: Path, tmp_path: Path, options: list[str],
    rewards: list[float],
) -> None:  # fmt: skip
    output = tmp_path / "out.jsonl"
    assert run("score", rollouts, "--dataset", problems, "--output", output, *options).code == 0
    assert [row["reward"] for row in read_rows(output)[:4]] == rewards


def test_a_server_scores_exactly_the_same(
    run: Run, server: RunningServer, rollouts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here.jsonl", tmp_path / "there.jsonl"
    common = ("--reward", "max", "--spans")
    assert run("score", rollouts, "--dataset", server.dataset, "--output", here, *common).code == 0
    by_path = ("--dataset", server.dataset, "--address", server.address)
    assert run("score", rollouts, *by_path, "--output", there, *common).code == 0
    assert there.read_bytes() == here.read_bytes()
    (tmp_path / "small").mkdir()  # a folder is no dataset, whatever its name
    monkeypatch.chdir(tmp_path)
    by_name = ("--dataset", "small", "--address", server.address)
    assert run("score", rollouts, *by_name, "--output", there, *common).code == 0
    assert there.read_bytes() == here.read_bytes()


def test_spans_point_into_the_response(
    run: Run, problems: Path, rollouts: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"
    run("score", rollouts, "--dataset", problems, "--output", output, "--spans")
    scored = read_rows(output)
    assert [scored[0]["response"][slice(*span)] for span in scored[0]["spans"]] == [
        r"4 \times 12 = 48",
        "48 - 39 = 9",
    ]
    assert scored[1]["spans"][1] is None


def test_a_bad_row_stops_before_anything_is_written(
    run: Run, problems: Path, rollouts: Path, tmp_path: Path
) -> None:
    with rollouts.open("a") as file:
        file.write('{"problem_id": "p1"}\n')
    output = tmp_path / "out.jsonl"
    output.write_text("an older run\n")
    done = run("score", rollouts, "--dataset", problems, "--output", output)
    assert done.code == 2
    missing = "response is missing; the row has problem_id"
    assert done.err == f"consensuspr: error: {rollouts}:7: {missing}\n"
    assert output.read_text() == "an older run\n"
    assert list(tmp_path.glob(".out*")) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give --dataset PATH to score here, or --address HOST:PORT"),
        (["--dataset", "nowhere.jsonl"], "nowhere.jsonl: no such file"),
        (["--dataset", "{problems}", "--alpha", "nan"], "alpha (--alpha): must be"),
        (
            ["--dataset", "{problems}", "--reward", "max", "--alpha", "0.3"],
            "--alpha is for --reward linear, and the reward is max",
        ),
        (["--dataset", "{problems}", "--reward", "curriculum"], "give --epoch"),
        (["--dataset", "{problems}", "--reward", "best"], "'--reward'"),
        (["--dataset", "{problems}", "--timeout", "0"], "(--timeout)"),
        (
            ["--address", "nonsense"],
            "address must be HOST:PORT, such as 'nonsense:50051', got 'nonsense'",
        ),
    ],
)
def test_bad_usage_is_one_sentence(
    run: Run, problems: Path, rollouts: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    filled = [option.format(problems=problems) for option in options]
    done = run("score", rollouts, "--output", tmp_path / "out.jsonl", *filled)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("\n") == 1


def test_an_unreachable_server_is_a_failure_of_the_work(
    run: Run, rollouts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consensuspr.client.files.CONNECT_TIMEOUT_S", 0.5)
    done = run("score", rollouts, "--address", "127.0.0.1:1", "--output", tmp_path / "out.jsonl")
    assert done.code == 1
    assert "127.0.0.1:1" in done.err
    assert done.err.count("\n") == 1


def test_without_a_ground_truth_the_summary_says_what_to_do(run: Run, tmp_path: Path) -> None:
    dataset = [{"problem_id": "p", "nodes": [{"expressions": ["2+7=9"]}]}]
    done = run(
        "score", write_rows(tmp_path / "in.jsonl", [{"problem_id": "p", "response": "2+7=9"}]),
        "--dataset", write_rows(tmp_path / "d.jsonl", dataset), "--output", tmp_path / "o.jsonl",
    )  # fmt: skip
    advice = "problem 'p' has no ground truth; add ground_truth to the rollouts or the dataset"
    assert f"NO_GROUND_TRUTH 1  (first: {advice})" in done.out


def test_not_one_reward_is_a_failure_of_the_work(run: Run, problems: Path, tmp_path: Path) -> None:
    unknown = write_rows(tmp_path / "in.jsonl", [{"problem_id": "p9", "response": "9"}])
    output = tmp_path / "out.jsonl"
    done = run("score", unknown, "--dataset", problems, "--output", output)
    assert done.code == 1
    assert "warning: none of 1 rollout got a reward; " in done.err
    assert [row["status"] for row in read_rows(output)] == ["UNKNOWN_PROBLEM"]
    assert run("score", unknown, "--dataset", problems, "--output", output, "--json").code == 1


def test_the_name_of_a_source_cannot_steer_the_terminal(
    run: Run, problems: Path, tmp_path: Path
) -> None:
    row = {"problem_id": "p1", "response": "9", "data_source": "\x1b[2J[red]"}
    done = run(
        "score", write_rows(tmp_path / "in.jsonl", [row]), "--dataset", problems,
        "--output", tmp_path / "out.jsonl",
    )  # fmt: skip
    assert "\\x1b[2J[red]" in done.out
