"""The journal: nothing acknowledged is lost, a torn end is cut off, other damage is an error."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.llm import Journal, Message, ModelSettings, ask_key
from consensuspr.errors import ConsensusPRError, DataError, InputError

SETTINGS = {"prompt": "p1", "temperature": 2.0}
TEXTS = st.text(st.characters(codec=None), max_size=40)


def write(path: Path, records: dict[str, Any], **changes: object) -> None:
    with Journal(path, "rollouts", {**SETTINGS, **changes}) as journal:
        for key, record in records.items():
            journal.append(key, record)


def read(path: Path) -> dict[str, Any]:
    with Journal(path, "rollouts", SETTINGS, read_only=True) as journal:
        return {key: journal.get(key) for key in journal}


def test_records_come_back_from_disk_in_order(tmp_path: Path) -> None:
    path = tmp_path / "j"
    long = {"text": "x" * 3_000_000}
    write(path, {"b": {"text": "line\u2028end\n"}, "a": long})
    write(path, {"c": {"text": "\ud800"}})
    assert list(read(path).items()) == [
        ("b", {"text": "line\u2028end\n"}),
        ("a", long),
        ("c", {"text": "\ud800"}),
    ]


def test_visitors_see_what_earlier_runs_wrote(tmp_path: Path) -> None:
    write(tmp_path / "j", {"a": {"n": 1}, "b": {"n": 2}})
    seen: list[tuple[str, Any]] = []
    with Journal(tmp_path / "j", "rollouts", SETTINGS, lambda *record: seen.append(record)) as one:
        one.append("c", {"n": 3})
    assert seen == [("a", {"n": 1}), ("b", {"n": 2})]


@given(st.lists(TEXTS, max_size=6), st.data())
def test_a_journal_cut_anywhere_holds_what_was_whole_and_goes_on(
    texts: list[str], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "j"
        write(path, {str(number): {"text": text} for number, text in enumerate(texts)})
        content = path.read_bytes()
        end = data.draw(st.integers(0, len(content)))
        path.write_bytes(content[:end])
        whole = content[:end].count(b"\n")  # two of them are head and settings
        kept = {str(number): {"text": text} for number, text in enumerate(texts[: whole - 2])}
        expected = kept if whole > 2 else {}
        write(path, {"new": {"text": "after"}})
        assert read(path) == {**expected, "new": {"text": "after"}}


@given(st.binary(min_size=1, max_size=60).filter(lambda tail: b"\n" not in tail))
def test_a_torn_last_line_is_cut_off_whatever_it_holds(tail: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "j"
        write(path, {"a": {"n": 1}})
        content = path.read_bytes()
        path.write_bytes(content + tail)
        assert read(path) == {"a": {"n": 1}}
        assert path.read_bytes() == content + tail  # looking changes nothing
        write(path, {})
        assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'{"journal": "rollouts", "version": 1}\nnot json\n{"settings": {}}\n', "j:2: is no line"),
        (b'{"journal": "rollouts", "version": 1}\n{"what": 1}\n{"settings": {}}\n', "j:2: is no"),
        (b'{"journal": "nodes", "version": 1}\n', "is no journal of rollouts"),
        (b'{"journal": "rollouts", "version": 9}\n', "has version 9, not 1"),
        (b"my notes, without a line end", "is no journal of rollouts"),
    ],
)
def test_other_damage_is_an_error_and_the_file_stays(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    path = tmp_path / "j"
    path.write_bytes(content)
    with pytest.raises(DataError, match=sentence):
        write(path, {"a": {}})
    assert path.read_bytes() == content


def test_a_changed_setting_is_refused_and_a_new_one_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write(path, {"a": {}})
    with pytest.raises(InputError, match=r"was begun with temperature = 2.0, now it is 1.0"):
        write(path, {}, temperature=1.0)
    write(path, {"b": {}}, seed=3)
    with pytest.raises(InputError, match="was begun with seed = 3, now it is 4"):
        write(path, {}, seed=4)
    write(path, {"c": {}})
    assert list(read(path)) == ["a", "b", "c"]


def test_two_runs_cannot_write_one_journal(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal(path, "rollouts", SETTINGS), pytest.raises(InputError, match="in use by another"):
        write(path, {})
    write(path, {})


def test_a_killed_process_leaves_neither_lock_nor_loss(tmp_path: Path) -> None:
    path = tmp_path / "j"
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


def test_a_full_disk_leaves_the_journal_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j"
    real = os.pwrite

    def full(descriptor: int, data: bytes, position: int) -> int:
        if len(data) < 20:
            raise OSError(28, "No space left on device")
        return real(descriptor, data[: len(data) // 2], position)

    with Journal(path, "rollouts", SETTINGS) as journal:
        journal.append("a", {"n": 1})
        before = path.read_bytes()
        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(ConsensusPRError, match=r"cannot be written: No space left on device"):
            journal.append("b", {"n": 2})
        monkeypatch.undo()
        assert path.read_bytes() == before and "b" not in journal
        journal.append("b", {"n": 3})
    assert read(path) == {"a": {"n": 1}, "b": {"n": 3}}


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none/j: cannot be opened: No such file"):
        write(tmp_path / "none" / "j", {})


def test_a_key_stands_for_all_that_decides_the_reply() -> None:
    settings = ModelSettings("m", temperature=1.0)
    hello = [Message("user", "hello")]
    base = ask_key(settings, hello)
    assert base == ask_key(ModelSettings("m", temperature=1.0, concurrency=99, price_in=1), hello)
    assert base == ask_key(settings, hello, temperature=1.0)
    others = [
        ask_key(ModelSettings("m", temperature=2.0), hello),
        ask_key(ModelSettings("n", temperature=1.0), hello),
        ask_key(ModelSettings("m", temperature=1.0, max_tokens=5), hello),
        ask_key(ModelSettings("m", temperature=1.0, extra_body={"top_k": 1}), hello),
        ask_key(settings, [Message("system", "hello")]),
        ask_key(settings, hello, sample=1),
        ask_key(settings, hello, seed=1),
        ask_key(settings, hello, json_schema={"type": "object"}),
        ask_key(settings, hello, temperature=0.0),
    ]
    assert len({base, *others}) == 1 + len(others)


def test_the_line_of_a_record_is_plain_json(tmp_path: Path) -> None:
    write(tmp_path / "j", {"a": {"n": 1}})
    lines = [json.loads(line) for line in (tmp_path / "j").read_text().splitlines()]
    assert lines == [
        {"journal": "rollouts", "version": 1},
        {"settings": SETTINGS},
        {"key": "a", "record": {"n": 1}},
    ]
