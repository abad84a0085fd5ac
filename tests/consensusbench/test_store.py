"""The journal: nothing acknowledged is lost, one process has it, other damage is an error."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.store import Journal
from consensuspr.errors import ConsensusPRError, DataError, InputError

SETTINGS = {"prompt": "p1", "temperature": 2.0}
HEAD = b'{"journal": "rollouts", "version": 1}\n'


def write(path: Path, records: dict[str, Any], **changes: object) -> None:
    with Journal(path, "rollouts", {**SETTINGS, **changes}) as journal:
        for key, record in records.items():
            journal.append(key, record)


def read(path: Path) -> dict[str, Any]:
    with Journal(path, "rollouts", SETTINGS, read_only=True) as journal:
        return {key: journal.get(key) for key in journal}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "j"


def test_records_come_back_from_disk_in_order(path: Path) -> None:
    long = {"text": "x" * 3_000_000}
    write(path, {"b": {"text": "line\u2028end\n"}, "a": long})
    write(path, {"c": {"text": "\ud800"}})
    assert list(read(path).items()) == [
        ("b", {"text": "line\u2028end\n"}),
        ("a", long),
        ("c", {"text": "\ud800"}),
    ]


def test_looking_changes_nothing(path: Path) -> None:
    write(path, {"a": {"n": 1}, "b": {"n": 2}})
    content = path.read_bytes()
    with Journal(path, "rollouts", SETTINGS, read_only=True) as journal:
        assert list(journal.items()) == [("a", {"n": 1}), ("b", {"n": 2})]
        with pytest.raises(ConsensusPRError, match="cannot be written: attempt to write a"):
            journal.append("c", {})
    assert path.read_bytes() == content and os.listdir(path.parent) == ["j"]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], bytes, bytes]:
    """Records, and the two files of a journal that was killed after them."""
    records = {str(number): {"text": "x\ud800" * 600 * number} for number in range(6)}
    path = tmp_path_factory.mktemp("killed") / "j"
    write(path, {})
    with Journal(path, "rollouts", SETTINGS) as journal:
        for key, record in records.items():
            journal.append(key, record)
        return records, path.read_bytes(), Path(f"{path}-wal").read_bytes()


@given(part=st.floats(0, 1))
def test_a_log_cut_anywhere_holds_what_was_whole_and_goes_on(
    killed: tuple[dict[str, Any], bytes, bytes], part: float
) -> None:
    records, content, log = killed
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "j"
        path.write_bytes(content)
        Path(f"{path}-wal").write_bytes(log[: int(part * len(log))])
        with Journal(path, "rollouts", SETTINGS) as journal:
            found = list(journal.items())
            assert found == list(records.items())[: len(found)]
            assert part < 1 or len(found) == len(records)
            journal.append("new", {"text": "after"}, durable=False)
            assert list(journal.items()) == [*found, ("new", {"text": "after"})]


LINES = HEAD + b'{"settings": {"prompt": "p1"}}\n{"key": "a", "record": {"n": 1}}\n'


@given(st.binary(max_size=60).filter(lambda tail: b"\n" not in tail))
def test_a_journal_of_lines_is_converted_but_for_a_torn_end(
    tmp_path_factory: pytest.TempPathFactory, tail: bytes
) -> None:
    path = tmp_path_factory.mktemp("lines") / "j"
    path.write_bytes(LINES + tail)
    write(path, {"b": {"n": 2}})
    assert read(path) == {"a": {"n": 1}, "b": {"n": 2}} and os.listdir(path.parent) == ["j"]
    with pytest.raises(InputError, match='was begun with prompt = "p1"'):
        write(path, {}, prompt="p2")


def test_looking_converts_no_lines(path: Path) -> None:
    path.write_bytes(LINES)
    with Journal(path, "rollouts", SETTINGS, read_only=True) as journal:
        assert list(journal.items()) == [("a", {"n": 1})]
        with pytest.raises(ConsensusPRError, match="cannot be written: attempt to write a"):
            journal.append("c", {})
    with pytest.raises(InputError, match='was begun with prompt = "p1"'):
        Journal(path, "rollouts", {"prompt": "p2"}, read_only=True)
    assert path.read_bytes() == LINES and os.listdir(path.parent) == ["j"]


def test_lines_that_another_run_still_writes_are_left_to_it(path: Path) -> None:
    import fcntl

    path.write_bytes(LINES)
    with path.open("rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="in use by another"):
            write(path, {})
    assert path.read_bytes() == LINES and os.listdir(path.parent) == ["j"]


def test_lines_that_another_run_converts_at_this_moment_are_not_converted_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    def lock(*_: object) -> None:
        monkeypatch.undo()
        write(path, {"b": {"n": 2}})

    path.write_bytes(LINES)
    monkeypatch.setattr(fcntl, "flock", lock)
    write(path, {"c": {"n": 3}})
    assert read(path) == {"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 3}}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (HEAD + b'not json\n{"settings": {}}\n', "j:2: is no line"),
        (HEAD + b'{"what": 1}\n{"settings": {}}\n', "j:2: is no"),
        (LINES + LINES.splitlines(True)[2], "j:4: repeats the key 'a' of an earlier record"),
        (b'{"journal": "nodes", "version": 1}\n', "is no journal of rollouts"),
        (b'{"journal": "rollouts", "version": 9}\n', "has version 9, not 2"),
        (b'{"journal', "is no journal of rollouts"),
        (b"my notes, without a line end", "is no journal of rollouts"),
        (b"my notes\n" * 999, "is no journal of rollouts"),
    ],
)
def test_other_damage_is_an_error_and_the_file_stays(
    path: Path, content: bytes, sentence: str
) -> None:
    path.write_bytes(content)
    with pytest.raises(DataError, match=sentence):
        write(path, {"a": {}})
    assert path.read_bytes() == content and os.listdir(path.parent) == ["j"]


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("UPDATE journal SET kind = 'nodes'", "is no journal of rollouts"),
        ("UPDATE journal SET version = 9", "has version 9, not 2"),
        ("DROP TABLE journal", "is no journal of rollouts"),
        ("DROP TABLE records", "is damaged: no such table: records"),
    ],
)
def test_a_database_of_another_kind_is_refused(path: Path, statement: str, sentence: str) -> None:
    write(path, {"a": {}})
    with sqlite3.connect(path) as database:
        database.execute(statement)
    database.close()
    with pytest.raises(DataError, match=sentence):
        write(path, {"b": {}})


def test_an_empty_file_is_a_new_journal(path: Path) -> None:
    path.touch()
    write(path, {"a": {"n": 1}})
    assert read(path) == {"a": {"n": 1}}


def test_a_changed_setting_is_refused_and_a_new_one_is_kept(path: Path) -> None:
    write(path, {"a": {}})
    with pytest.raises(InputError, match=r"was begun with temperature = 2.0, now it is 1.0"):
        write(path, {}, temperature=1.0)
    write(path, {"b": {}}, seed=3)
    with pytest.raises(InputError, match="was begun with seed = 3, now it is 4"):
        write(path, {}, seed=4)
    write(path, {"c": {}})
    assert list(read(path)) == ["a", "b", "c"]


def test_two_runs_cannot_write_one_journal(path: Path) -> None:
    with Journal(path, "rollouts", SETTINGS), pytest.raises(InputError, match="in use by another"):
        write(path, {})
    write(path, {})


def test_a_killed_process_leaves_neither_lock_nor_loss(path: Path) -> None:
    code = (
        "import sys, time; from consensusbench.llm import Journal\n"
        f"journal = Journal({str(path)!r}, 'rollouts', {SETTINGS!r})\n"
        "for number in range(10**9):\n"
        "    journal.append(str(number), {'n': number}); print(number, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 20:
            break
    os.kill(process.pid, signal.SIGKILL)
    said = [int(line), *map(int, process.stdout.read().split())]
    process.wait()
    process.stdout.close()
    found = [record["n"] for record in read(path).values()]
    # What was said to be written is there; one more may have been on its way to be said.
    assert found[: said[-1] + 1] == list(range(said[-1] + 1)) and len(found) <= said[-1] + 2


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file of this process grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_journal_as_it_was(path: Path) -> None:
    with Journal(path, "rollouts", SETTINGS) as journal:
        journal.append("a", {"n": 1})
        with full_disk(), pytest.raises(ConsensusPRError, match="j: cannot be written: disk I/O"):
            journal.append("b", {"n": 2})
        assert "b" not in journal
        journal.append("b", {"n": 3})
        with pytest.raises(ValueError, match="a record of b already"):
            journal.append("b", {"n": 4})
    assert read(path) == {"a": {"n": 1}, "b": {"n": 3}}


def test_a_folder_that_is_missing_is_named(path: Path) -> None:
    with pytest.raises(InputError, match=r"none/j: cannot be opened: unable to open"):
        write(path.parent / "none" / "j", {})
