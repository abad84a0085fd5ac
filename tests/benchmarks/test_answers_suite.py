"""The suite of answers: what it reports with and without data, and that it distrusts times."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest

from benchmarks.harness.results import SuiteResult
from benchmarks.measure import Context, WrongAnswerError
from benchmarks.suites import answers
from benchmarks.texts import Answer
from consensuspr.scoring.answers import AnswerVerifier
from consensuspr.scoring.answers import verifier as verifier_module

# One that SymPy has to decide: a function of a letter.
SLOW = {"ground_truth": r"\cos x", "response": r"\boxed{\sin x}", "correct": False}
FAST = {"ground_truth": "7", "response": r"so \boxed{7}.", "correct": True}
WRONG_LABEL = {"ground_truth": "7", "response": "it is 8", "correct": True}

DAPO = """
def compute_score(solution, truth):
    return {{"acc": {verdict}}}
"""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_SIZES", (200, 2_000))
    monkeypatch.setattr(answers, "_TEXTS", 4)
    monkeypatch.setattr(answers, "_BATCH", 8)
    monkeypatch.setattr(answers, "interpreter", lambda: None)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "rollouts"
    folder.mkdir(parents=True)
    for name in (*answers._GSM8K, *answers._MATH, *answers._OTHERS):
        rows = [*[FAST] * 19, SLOW if name in answers._MATH else WRONG_LABEL]
        with gzip.open(folder / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return folder.parent


def run(tmp_path: Path, data: Path | None) -> SuiteResult:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return answers.run(Context(full=False, seed=1, rounds=1, data=data, scratch=scratch))


def figure(result: SuiteResult, name: str, **parameters: str | int) -> float:
    values = [
        figure.value
        for figure in result.figures
        if figure.name == name and parameters.items() <= figure.parameters.items()
    ]
    assert len(values) == 1, (name, parameters)
    return values[0]


@pytest.fixture
def fake_verl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with a verl whose rule accepts a boxed 7, as rule dapo does here."""
    folder = tmp_path / "packages" / "verl" / "utils" / "reward_score"
    folder.mkdir(parents=True)
    (folder.parents[1] / "__init__.py").write_text("raise ImportError('loads for seconds')")
    (folder / "math_dapo.py").write_text(DAPO.format(verdict="'boxed{7}' in solution"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    monkeypatch.setattr(answers, "interpreter", lambda: Path(sys.executable))
    return folder / "math_dapo.py"


@pytest.mark.slow
def test_shares_and_agreement_are_those_of_the_answers(
    tmp_path: Path, data: Path, fake_verl: Path
) -> None:
    assert fake_verl.exists()
    result = run(tmp_path, data)
    checks = {check.target: check.value for check in result.checks}
    assert (checks["answers_gsm8k"], checks["answers_math"]) == (100.0, 95.0)
    assert (checks["answer_median_us"] or 0.0) > 0.0
    assert figure(result, "decided without SymPy", set="math100_qwen25math") == 95.0
    assert figure(result, "agreement with the labels", set="math100_qwen25math") == 100.0
    assert figure(result, "agreement with the labels", set="gsm8k_gpt3") == 95.0
    assert figure(result, "times the speed", against="verl's math_dapo") > 0.0
    assert result.notes == []


@pytest.mark.slow
def test_without_data_no_target_is_checked_and_the_rest_is_measured(tmp_path: Path) -> None:
    result = run(tmp_path, None)
    assert result.checks == []
    assert any("No folder of real rollouts" in note for note in result.notes)
    assert any("math_dapo was not measured" in note for note in result.notes)
    for part in ("extraction", "comparison, cold", "both, cold", "both, warm"):
        assert {x for x, _ in result.series[0].lines[part]} == {200, 2_000}
        assert figure(result, part, **{"response bytes": 2_000}) > 0.0
    assert figure(result, "an answer that needs SymPy", asked="in one batch") > 0.0
    assert figure(result, "agreement with the labels", **{"decided by": "rule auto"}) == 100.0
    assert figure(result, "times the speed", against="math-verify inline") > 0.0
    kinds = [one for one in result.figures if one.name == "hostile answer"]
    assert len(kinds) == len(answers._HOSTILE)
    assert 0.0 < figure(result, "part of the answers in scoring a batch") < 100.0


def test_verl_must_say_the_same_before_it_is_timed(tmp_path: Path, fake_verl: Path) -> None:
    fake_verl.write_text(DAPO.format(verdict="True"))
    cases = [Answer("7", r"\boxed{7}", True), Answer("7", r"\boxed{8}", False)]
    context = Context(full=False, seed=1, rounds=1, data=None, scratch=tmp_path)
    result = SuiteResult(suite="answers", title="")
    differ = pytest.raises(ValueError, match="rule dapo and verl's math_dapo differ")
    with AnswerVerifier() as verifier, differ:
        answers._peers(context, verifier, cases, result)
    assert not any("math_dapo" in str(one.parameters.values()) for one in result.figures)


def test_labels_that_the_verifier_contradicts_stop_the_suite(tmp_path: Path, data: Path) -> None:
    with gzip.open(data / "rollouts" / "gsm8k_gpt3.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in [FAST] * 9 + [WRONG_LABEL])
    with pytest.raises(WrongAnswerError, match=r"gsm8k_gpt3: 90.0% of the verdicts .* than 95%"):
        run(tmp_path, data)


def test_a_cold_decision_remembers_no_ground_truth_of_either_rule() -> None:
    with AnswerVerifier() as verifier:
        for rule in ("auto", "dapo"):
            verifier.verify("7", "Answer: 7", rule)
    assert verifier_module._short_dapo_truth.cache_info().currsize > 0
    verifier_module.forget_memos()
    assert verifier_module._short_dapo_truth.cache_info().currsize == 0
