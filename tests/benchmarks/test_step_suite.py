"""The whole-step benchmark: its material and its skip."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.harness import verl_python
from benchmarks.measure import Context
from benchmarks.suites import ray_calls, step
from benchmarks.suites.step import make_step
from consensuspr.client import LocalClient, RewardSpec, Rollout

SIZE = 2_000


def real_texts(folder: Path) -> Path:
    """Write files of the names of real rollouts, with texts that are not."""
    (folder / "rollouts").mkdir(parents=True)
    for name in ("math_r1distill_long", "aime24_qwen3_32b", "olympiad_gptoss120b_very_long"):
        text = "\n".join(f"Paragraph {at} of {name} says little.\n" for at in range(200))
        with gzip.open(folder / "rollouts" / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.write(json.dumps({"response": text}) + "\n")
    return folder


@pytest.mark.parametrize("kind", ["generated", "real"])
def test_the_scorer_finds_what_is_written_into_the_texts(kind: str, tmp_path: Path) -> None:
    data = real_texts(tmp_path / "data") if kind == "real" else None
    made = make_step(48, SIZE, 7, data, tmp_path)
    assert made.kind == kind
    assert len(made.rows) == 48
    assert len({row["response"] for row in made.rows}) == 48
    assert 48 * SIZE < made.num_bytes < 48 * SIZE * 1.5
    with LocalClient(made.dataset) as client:
        scores = client.score(
            [Rollout(row["problem_id"], row["response"]) for row in made.rows],
            RewardSpec.linear(0.5),
            answer_rule="boxed" if kind == "generated" else "dapo",
        )
    assert [list(score.matched) for score in scores] == [row["expected"] for row in made.rows]
    made.check("scorer", [score.reward or 0.0 for score in scores])


def test_a_wrong_reward_stops_the_benchmark(tmp_path: Path) -> None:
    made = make_step(8, SIZE, 7, None, tmp_path)
    right = [
        0.5 * row["correct"] + 0.5 * sum(row["expected"]) / len(row["expected"])
        for row in made.rows
    ]
    made.check("right", right)
    with pytest.raises(ValueError, match=r"hasty: rollout 3 gets nan, not"):
        made.check("hasty", [*right[:3], float("nan"), *right[4:]])
    with pytest.raises(ValueError, match="shorter"):
        replace(made, rows=made.rows).check("short", right[:-1])


@pytest.mark.parametrize("suite", [step, ray_calls])
def test_without_verl_the_suite_says_what_to_install(
    suite: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(verl_python.VARIABLE, raising=False)
    monkeypatch.setattr(verl_python, "_DEFAULT", tmp_path / "python")
    result = suite.run(Context(False, 1, 1, None, tmp_path))  # type: ignore[attr-defined]
    assert not result.figures and not result.checks
    assert "make .venv-verl-0.9.1/.installed" in str(result.skipped)


def test_an_interpreter_that_is_named_has_to_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(verl_python.VARIABLE, "/nowhere/python")
    with pytest.raises(FileNotFoundError, match="CONSENSUSPR_VERL_PYTHON names /nowhere/python"):
        verl_python.interpreter()
