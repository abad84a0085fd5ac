"""``explain``: what is marked is what was found, and the score says how it came about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Rows, Run, RunningServer


def test_marks_hits_names_nodes_and_shows_the_sum(run: Run, problems: Path, rollouts: Path) -> None:
    done = run("explain", rollouts, "--dataset", problems, "--rollout-id", "wrong")
    assert done.code == 0
    assert "⟦₁4·12 = 48₁⟧ and 48 − 39 = 10." in done.out
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert "1 ✓ total 4*12=48" in lines
    assert "2 ✗ rest (final answer) not found: 48-39=9" in lines
    assert "NCR 0.500 = 1 of 2 nodes" in lines
    assert "TPN 10.0 tokens per node" in lines
    assert "Reward 0.250 = 0.5 · Acc + 0.5 · NCR" in lines
    assert any(line.startswith("Acc 0 (answer '10'") for line in lines)


def test_colour_replaces_brackets(run: Run, problems: Path, rollouts: Path) -> None:
    done = run(
        "explain", rollouts, "--dataset", problems, "--rollout-id", "wrong", "--color", "always"
    )
    assert "\x1b[1;7;32m4·12 = 48\x1b[0m" in done.out
    assert "⟦" not in done.out


def test_model_text_cannot_steer_the_terminal(run: Run, problems: Path, rollouts: Path) -> None:
    done = run("explain", rollouts, "--dataset", problems, "--rollout-id", "hostile")
    assert "\x1b" not in done.out
    assert "\\x1b[2J\\x1b]0;owned\\x07 ⟦₁c^2=9+16₁⟧" in done.out


@pytest.mark.parametrize(
    ("rollout_id", "status", "acc", "reward"),
    [
        ("bare", "Status NO_NODES", "Acc 1", "Reward unknown"),
        ("lost", "Status UNKNOWN_PROBLEM", "Acc unknown", "Reward unknown"),
    ],
)
def test_what_cannot_be_scored_says_why(
    run: Run,
    problems: Path,
    rollouts: Path,
    rollout_id: str,
    status: str,
    acc: str,
    reward: str,
) -> None:
    done = run("explain", rollouts, "--dataset", problems, "--rollout-id", rollout_id)
    assert done.code == 0
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    [said] = [line for line in lines if line.startswith(status)]
    assert len(said) > len(status)  # with a reason
    assert any(line.startswith(acc) for line in lines)
    assert any(line.startswith(reward) for line in lines)


def test_a_row_can_be_named_by_its_number(run: Run, problems: Path, rollouts: Path) -> None:
    done = run("explain", rollouts, "--dataset", problems, "--row", "3", "--reward", "max")
    assert "⟦₁c² = 9 + 16₁⟧" in done.out
    assert "max(Acc, NCR)" in done.out


def test_a_long_response_is_shown_around_its_hits(
    run: Run, rows: Rows, problems: Path, tmp_path: Path
) -> None:
    response = "Let us see. " * 1000 + "4*12=48. " + "Is that so? " * 1000
    path = rows.write(tmp_path / "long.jsonl", [{"problem_id": "p1", "response": response}])
    short = run("explain", path, "--dataset", problems, "--row", "1")
    assert "⟦₁4*12=48₁⟧" in short.out
    assert "characters not shown" in short.out
    whole = run("explain", path, "--dataset", problems, "--row", "1", "--full")
    assert "characters not shown" not in whole.out
    assert " ".join(whole.out.split()).count("Is that so?") == 1000


def test_json(run: Run, problems: Path, rollouts: Path) -> None:
    done = run("explain", rollouts, "--dataset", problems, "--rollout-id", "wrong", "--json")
    said = json.loads(done.out)
    assert said["score"]["ncr"] == 0.5
    assert [node["matched"] for node in said["nodes"]] == [True, False]
    assert said["nodes"][0]["span"] == [0, 9]


def test_a_server_explains_the_same(run: Run, server: RunningServer, rollouts: Path) -> None:
    chosen = ("explain", rollouts, "--dataset", server.dataset, "--rollout-id", "right")
    here = run(*chosen)
    there = run(*chosen, "--address", server.address)
    assert (there.code, there.out) == (0, here.out)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give either --rollout-id ID or --row N"),
        (["--rollout-id", "right", "--row", "1"], "give either --rollout-id ID or --row N"),
        (["--rollout-id", "nobody"], "holds no rollout_id 'nobody' among its 6 rollouts"),
        (["--row", "7"], "holds no row 7 among its 6 rollouts"),
        (["--row", "0"], "'--row'"),
    ],
)
def test_bad_usage(
    run: Run, problems: Path, rollouts: Path, options: list[str], message: str
) -> None:
    done = run("explain", rollouts, "--dataset", problems, *options)
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1
