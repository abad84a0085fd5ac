"""The benchmark scripts on little text: rows for right contenders, an error for wrong ones."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import answers, core, measure, service, texts
from benchmarks.measure import Row, WrongAnswerError
from consensuspr.scoring import AnswerVerifier


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "MEMCPY_BYTES", 1 << 20)


def number(row: Row) -> float:
    return float(row.figure.split()[0].rstrip("x%").replace(",", ""))


def test_the_core_is_compared_with_peer_and_memcpy() -> None:
    work = core.generated(2, 4, 2_000)
    speed, floor, peer = core.against_peers("few", work)
    assert (speed.quantity, peer.quantity) == (
        "normalize + match",
        "core over `re` + `pyahocorasick`",
    )
    assert min(map(number, (speed, floor, peer))) > 0
    wrong = work._replace(expected=[[not flag for flag in row] for row in work.expected])
    with pytest.raises(WrongAnswerError, match=r"core \(few\) found nodes"):
        next(core.against_peers("few", wrong))


def test_a_peer_that_finds_other_nodes_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    work = core.generated(2, 4, 2_000)
    opposite = [[not flag for flag in row] for row in work.expected]
    monkeypatch.setattr(core, "peer", lambda _: lambda: opposite)
    with pytest.raises(WrongAnswerError, match="the peer agrees on"):
        next(core.against_peers("few", work))


def test_more_nodes_leave_the_texts_as_they_are() -> None:
    few = core.generated(1, 4, 2_000)
    many = core.padded(few, 20)
    assert (many.texts, {len(row) for row in many.expected}) == (few.texts, {20})
    assert number(core.spread("nodes", {"7": few, "20": many})) >= 1


def test_a_batch_through_the_server_is_compared_with_the_floor(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        field = service.Field(tmp_path, 8, stack)
        rows = [*service.batches(field, [8]), *service.overlapping(field, 4)]
        assert len(rows) == 3
        assert all(number(row) > 0 for row in rows)
        with pytest.raises(WrongAnswerError, match="hasty does not give the scores"):
            field.check("hasty", [replace(field.expected[0], reward=2.0)])


def test_answers_are_checked_against_their_labels() -> None:
    cases = texts.answers(40, "test")
    with AnswerVerifier() as verifier:
        rows = [*answers.judged("few", cases, verifier)]
        assert [row.quantity for row in rows] == ["decided without SymPy", "an answer, median"]
        assert number(answers.against_math_verify("few", cases[:4], verifier)) > 1
        wrong = [one._replace(correct=not one.correct) for one in cases]
        with pytest.raises(WrongAnswerError, match=r"few: 0\.0% of the verdicts agree"):
            next(answers.judged("few", wrong, verifier))


def test_the_command_prints_one_table_and_fails_with_a_script(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "python"
    rows = f"{measure.HEADER}\n| answers | a | 1 µs |  |"
    program.write_text(
        f"#!/bin/sh\ncase $2 in *answers) echo '{rows}';; *) exit 3;; esac\n", encoding="utf-8"
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setitem(command.SCRIPTS, "verl_step", tmp_path / "missing")
    assert command.main(["answers", "answers", "verl_step"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{rows}\n| answers | a | 1 µs |  |\n"
    assert "run `make .venv-verl-0.9.1/.installed`" in err
    assert command.main(["core"]) == 1
    assert "core ended with code 3" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.main(["nope"])
