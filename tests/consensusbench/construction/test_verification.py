"""Which rollouts count as correct."""

from __future__ import annotations

from pathlib import Path

import pytest

from consensusbench.construction import SelectionSettings, build
from consensuspr.errors import InputError
from consensuspr.scoring.types import AnswerRule
from tests.consensusbench.construction.conftest import job, many, write_rows


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
        selection=SelectionSettings(answer_rule=AnswerRule(asked) if asked else None),
    )
    if correct:
        counts = build(asked_for).rollouts
        assert counts is not None and counts.correct == correct
    else:
        with pytest.raises(InputError, match="0 of 6 distinct rollouts are correct"):
            build(asked_for)
