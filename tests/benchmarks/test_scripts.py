"""The benchmark scripts on little text: rows for right contenders, an error for wrong ones."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import answers, core, service, texts
from benchmarks.measure import Row, WrongAnswerError
from consensuspr.scoring import AnswerVerifier


def number(row: Row) -> float:
    return float(row.figure.split()[0].rstrip("x%").replace(",", ""))


def test_the_core_is_compared_with_peer_and_memcpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "MEMCPY_BYTES", 1 << 20)
    work = core.generated(2, 4, 2_000)
    assert min(map(number, core.against_peers("few", work))) > 0
    wrong = work._replace(expected=[[not flag for flag in row] for row in work.expected])
    with pytest.raises(WrongAnswerError, match=r"core \(few\) found nodes"):
        next(core.against_peers("few", wrong))


def test_a_batch_through_the_server_is_compared_with_the_floor(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        field = service.Field(tmp_path, 8, stack)
        rows = [*service.batches(field, [8]), service.overlapping(field, 4)]
        assert all(number(row) > 0 for row in rows)
        with pytest.raises(WrongAnswerError, match="hasty does not give the scores"):
            field.check("hasty", [replace(field.expected[0], reward=2.0)])


def test_answers_are_checked_against_their_labels() -> None:
    cases = texts.answers(40, "test")
    with AnswerVerifier() as verifier:
        assert min(map(number, answers.judged("few", cases, verifier))) > 0
        assert number(answers.against_math_verify("few", cases[:4], verifier)) > 1
        wrong = [one._replace(correct=not one.correct) for one in cases]
        with pytest.raises(WrongAnswerError, match=r"few: 0\.0% of the verdicts agree"):
            next(answers.judged("few", wrong, verifier))
