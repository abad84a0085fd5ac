"""The journal, and answers that a busy machine left undecided."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import pytest

from consensusbench import verify_patiently
from consensusbench.store import Journal
from consensuspr.errors import DataError, InputError
from consensuspr.scoring.answers import AnswerVerifier
from consensuspr.scoring.answers.verifier import Verdict, undecided


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "j"


def test_records_come_back_from_disk_in_order(path: Path) -> None:
    records = {"b": {"text": "line\u2028end\n"}, "a": {"text": "x" * 3_000_000}}
    more = {"c": {"text": "\ud800"}}
    for part in (records, more):
        with Journal(path, "rollouts") as journal:
            for key, record in part.items():
                journal.append(key, record)
    with Journal(path, "rollouts") as journal:
        assert list(journal.items()) == [*records.items(), *more.items()]
        assert len(journal) == 3 and "a" in journal and "d" not in journal
        assert journal.get("c") == more["c"] and journal.get("d") is None
    assert os.listdir(path.parent) == ["j"]


def test_a_journal_without_records_leaves_no_file(path: Path) -> None:
    with Journal(path, "rollouts") as journal:
        assert path.exists()
        journal.append("a", {})
    with Journal(path, "rollouts") as journal:
        journal.clear()
    assert not path.exists()


def test_a_file_of_another_kind_is_rejected(path: Path) -> None:
    path.write_bytes(b"my notes\n" * 999)
    with pytest.raises(DataError, match="is no journal of rollouts"):
        Journal(path, "rollouts")
    assert path.read_bytes() == b"my notes\n" * 999
    with Journal(path.with_name("other"), "nodes") as journal:
        journal.append("a", {})
    with pytest.raises(DataError, match="is no journal of rollouts"):
        Journal(path.with_name("other"), "rollouts")
    with pytest.raises(InputError, match=r"none/j: cannot be opened: unable to open"):
        Journal(path.parent / "none" / "j", "rollouts")


def test_answers_that_a_busy_machine_left_undecided_are_checked_once_more() -> None:
    asked: list[list[str]] = []

    class Busy:
        def verify_batch(self, _: list[str], texts: list[str], rule: str) -> list[Verdict]:
            asked.append(texts)
            methods = {"a": "load", "b": "budget", "c": "killed"}
            is_first = len(asked) == 1
            return [undecided(None, methods[text] if is_first else "again") for text in texts]

    verify_patiently(cast("AnswerVerifier", Busy()), list("123"), list("abc"), "auto")
    assert asked == [["a", "b", "c"], ["a", "c"]]
