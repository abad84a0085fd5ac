"""Datasets prepared ahead: made once, taken wherever a dataset is scored."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from consensuspr.client import RewardClient, Rollout
from consensuspr.core import EXPANSION_VERSION, NORMAL_FORM_VERSION, derive_forms
from consensuspr.data import ReadReport, open_writer
from consensuspr.errors import DataError, InputError
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.dataset_index import is_prepared_output, prepare_dataset
from consensuspr.scoring.derive import DeriveReport

ROWS: list[dict[str, Any]] = [
    {"problem_id": "b", "ground_truth": "24", "nodes": [{"expressions": ["48/2=24"]}]},
    {"problem_id": "a", "nodes": [{"expressions": ["9*2=18"], "derived": ["18=2*9"]}]},
    {"problem_id": "c", "answer_rule": "boxed"},
]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    with open_writer(tmp_path / "set.jsonl") as out:
        for row in ROWS:
            out.write(row)
    return tmp_path / "set.jsonl"


@pytest.fixture
def prepared(dataset: Path, tmp_path: Path) -> Path:
    prepare_dataset(dataset, tmp_path / "set.index")
    return tmp_path / "set.index"


def test_a_prepared_dataset_loads_as_the_dataset_does(dataset: Path, prepared: Path) -> None:
    one, two = DatasetIndex.load(dataset), DatasetIndex.load(prepared, name="other")
    assert (two.name, two.digest, two.info) == ("other", one.digest, one.info)
    assert two.answer_rule == one.answer_rule
    assert two.problem_ids() == ["a", "b", "c"]
    for problem_id in two.problem_ids():
        first, second = one.entry(problem_id), two.entry(problem_id)
        assert first is not None
        assert second is not None
        assert first.nodes == second.nodes
    entry = two.entry("b")
    assert entry is not None
    assert entry.matcher.match("24 = 48 / 2") == [True]
    two.close()


def test_the_reports_say_what_was_done(dataset: Path, tmp_path: Path) -> None:
    seen: list[int] = []
    read, derived = prepare_dataset(dataset, tmp_path / "set.index", progress=seen.append)
    assert (read.rows, read.skipped) == (3, 0)
    assert (derived.nodes, derived.forms) == (1, len(derive_forms("48/2=24")))
    assert seen[-1] == 3


def test_forms_are_made_anew_on_request(dataset: Path, tmp_path: Path) -> None:
    prepare_dataset(dataset, tmp_path / "set.index", again=True)
    entry = DatasetIndex.load(tmp_path / "set.index").entry("a")
    assert entry is not None
    assert entry.nodes[0].derived == tuple(derive_forms("9*2=18"))


@pytest.mark.parametrize("policy", ["stored", "off"])
def test_another_policy_than_it_was_made_with_is_refused(prepared: Path, policy: Any) -> None:
    with pytest.raises(DataError) as caught:
        DatasetIndex.load(prepared, derive=policy)
    assert str(caught.value) == (
        f"{prepared}: was made with derive 'missing', and {policy!r} is asked for"
    )


def test_another_normal_form_is_refused(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consensuspr.scoring.dataset_index.NORMAL_FORM_VERSION", "next")
    with pytest.raises(
        DataError, match=f"for normal form {NORMAL_FORM_VERSION}, this is next; mak"
    ):
        DatasetIndex.load(prepared)


def test_other_derived_forms_are_refused(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consensuspr.scoring.dataset_index.EXPANSION_VERSION", "next")
    with pytest.raises(DataError) as caught:
        DatasetIndex.load(prepared)
    assert str(caught.value) == (
        f"{prepared}: was made for derived forms {EXPANSION_VERSION}, this is next; make it anew"
    )


def test_another_layout_is_refused(prepared: Path) -> None:
    content = bytearray(prepared.read_bytes())
    content[8] = 1
    prepared.write_bytes(content)
    with pytest.raises(
        DataError, match="is a snapshot of layout 1, layout 3 is read; make it anew"
    ):
        DatasetIndex.load(prepared)


@pytest.mark.parametrize("keep", [100, -1, -33])
def test_a_torn_file_is_refused(prepared: Path, keep: int) -> None:
    prepared.write_bytes(prepared.read_bytes()[:keep])
    with pytest.raises(DataError, match="is a damaged snapshot: its checksum does not hold"):
        DatasetIndex.load(prepared)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"CPR", "is a damaged prepared dataset: its first bytes are wrong; make it anew"),
        (b"\0\0", "is a damaged prepared dataset: its first bytes are wrong; make it anew"),
        (b"\0PRINDEX", "is a damaged prepared dataset: its first bytes are wrong; make it anew"),
        (b"CPRINDEX", "is a damaged snapshot: it is cut short"),
        (b"CPRINDEX\3\0\0\0", "is a damaged snapshot: it is cut short"),
    ],
)
def test_a_file_without_its_beginning_is_refused(
    prepared: Path, content: bytes, reason: str
) -> None:
    damaged = content + prepared.read_bytes()[8:] if content == b"\0PRINDEX" else content
    prepared.write_bytes(damaged)
    with pytest.raises(DataError) as caught:
        DatasetIndex.load(prepared)
    assert str(caught.value) == f"{prepared}: {reason}"


def test_rows_are_read_under_any_name(dataset: Path) -> None:
    before = DatasetIndex.load(dataset).digest
    for prefix in (b"", b"\xef\xbb\xbf", b"\n \n"):
        named = dataset.with_name("rows.index")
        named.write_bytes(prefix + dataset.read_bytes())
        assert DatasetIndex.load(named).digest == before


def test_the_dataset_itself_is_never_replaced(dataset: Path) -> None:
    before = dataset.read_bytes()
    with pytest.raises(InputError, match="is the dataset itself, which would be lost"):
        prepare_dataset(dataset, dataset)
    assert dataset.read_bytes() == before


def test_a_bad_row_leaves_nothing_behind(dataset: Path, tmp_path: Path) -> None:
    with dataset.open("a") as stream:
        stream.write('{"problem_id": 5}\n')
    with pytest.raises(DataError, match=":4: problem_id must be a string"):
        prepare_dataset(dataset, tmp_path / "set.index")
    assert [entry.name for entry in tmp_path.iterdir()] == ["set.jsonl"]
    read, _ = prepare_dataset(dataset, tmp_path / "set.index", on_error="skip")
    assert (read.rows, read.skipped) == (3, 1)
    assert DatasetIndex.load(tmp_path / "set.index").info.num_skipped == 1


def test_several_may_prepare_one_file_at_once(dataset: Path, tmp_path: Path) -> None:
    target = tmp_path / "set.index"
    done: list[tuple[ReadReport, DeriveReport]] = []

    def work() -> None:
        for _ in range(5):
            done.append(prepare_dataset(dataset, target))
            DatasetIndex.load(target).close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 20  # none met a file that was not complete
    assert DatasetIndex.load(target).digest == DatasetIndex.load(dataset).digest
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["set.index", "set.jsonl"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.index", True), ("a.INDEX", True), ("index", False), ("a.jsonl", False), ("a.gz", False)],
)
def test_the_suffix_asks_for_a_prepared_dataset(name: str, expected: bool) -> None:
    assert is_prepared_output(name) == expected


def test_the_command_prepares_and_servers_take_it(dataset: Path, tmp_path: Path) -> None:
    prepared = tmp_path / "set.index"
    command = [sys.executable, "-m", "consensuspr.cli"]
    done = subprocess.run(
        [*command, "derive", str(dataset), "--output", str(prepared), "--json"],
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout)["problems"] == 3
    options = ["--dataset", str(prepared), "--workers", "2", "--address", "127.0.0.1:0"]
    server = subprocess.Popen(
        [*command, "serve", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        with RewardClient(address) as client:
            (score,) = client.score([Rollout("b", r"so 24 = 48 / 2 and \boxed{24}")])
        assert score.acc == 1
        assert score.matched == (True,)
    finally:
        server.terminate()
        server.communicate(timeout=60)
