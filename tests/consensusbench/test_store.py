"""The journal: no record is lost, one process uses it, other files are rejected."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from consensusbench.store import Journal
from consensuspr.errors import DataError, InputError


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


def test_a_killed_process_leaves_neither_lock_nor_loss(path: Path) -> None:
    code = (
        "from consensusbench.store import Journal\n"
        f"journal = Journal({str(path)!r}, 'rollouts')\n"
        "for number in range(10**9):\n"
        "    journal.append(str(number), {'n': number}); print(number, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 20:
            break
    os.kill(process.pid, signal.SIGKILL)
    printed = [int(line), *map(int, process.stdout.read().split())]
    process.wait()
    process.stdout.close()
    with Journal(path, "rollouts") as journal:
        found = [record["n"] for _, record in journal.items()]
    # One more may have been written and not printed.
    assert found[: printed[-1] + 1] == list(range(printed[-1] + 1))
    assert len(found) <= printed[-1] + 2
