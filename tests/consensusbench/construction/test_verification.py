"""Which rollouts count as correct."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from consensusbench.construction import SelectionSettings, build
from consensusbench.construction.selection import VerifyingJudge
from consensuspr.errors import InputError
from consensuspr.scoring.answers import AnswerStatus, AnswerVerifier, Verdict
from consensuspr.scoring.scorer import MAX_REPEATS
from tests.consensusbench.construction.conftest import job, many, write_rows


class BusyVerifier(AnswerVerifier):
    """Leaves the answer ``slow`` open so often before it decides."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left = times
        self.batches: list[list[str]] = []

    def verify_batch(
        self,
        ground_truths: Sequence[str],
        responses: Sequence[str | bytes],
        rule: str = "auto",
        deadline: float | None = None,
    ) -> list[Verdict]:
        self.batches.append([str(one) for one in responses])
        verdicts = []
        for response in responses:
            if response == "slow" and self.left > 0:
                self.left -= 1
                verdicts.append(Verdict(None, "x", AnswerStatus.UNDECIDED, "load"))
            elif response == "endless":
                verdicts.append(Verdict(None, "x", AnswerStatus.UNDECIDED, "budget"))
            else:
                right = response != "wrong"
                verdicts.append(Verdict(right, "x", AnswerStatus.DECIDED, "canonical"))
        return verdicts


def test_an_answer_that_a_busy_machine_left_open_is_asked_again() -> None:
    verifier = BusyVerifier(2)
    texts = ["right", "slow", "wrong", "endless"]
    assert VerifyingJudge(verifier).judge(["1"] * 4, texts, "auto") == [True, True, False, None]
    assert verifier.batches == [texts, ["slow"], ["slow"]]


def test_it_is_not_asked_for_ever() -> None:
    verifier = BusyVerifier(100)
    assert VerifyingJudge(verifier).judge(["1"], ["slow"], "auto") == [None]
    assert len(verifier.batches) == 1 + MAX_REPEATS


@pytest.mark.parametrize(
    ("own", "asked", "correct"),
    [
        (None, None, 5),
        ("boxed", None, 5),
        ("gsm8k", None, 0),  # no "####"
        ("gsm8k", "auto", 5),
        (None, "gsm8k", 0),  # no "####"
    ],
)
def test_the_rule_is_the_one_asked_for_else_the_problem_s_own(
    tmp_path: Path, own: str | None, asked: str | None, correct: int
) -> None:
    problems, rollouts = many(1)
    problems[0]["answer_rule"] = own
    asked_for = job(
        tmp_path,
        write_rows(tmp_path / "r.jsonl", rollouts),
        problems=write_rows(tmp_path / "p.jsonl", problems),
        selection=SelectionSettings(answer_rule=asked),
    )
    if correct:
        counts = build(asked_for).rollouts
        assert counts is not None and counts.correct == correct
    else:
        with pytest.raises(InputError, match="0 of 6 distinct rollouts are correct"):
            build(asked_for)
