"""The index: what is loaded, what the digest covers, and what a snapshot gives back."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consensuspr.core import NORMAL_FORM_VERSION, Matcher, derive_forms
from consensuspr.data import open_writer, read_problems
from consensuspr.errors import DataError, InputError
from consensuspr.scoring import AnswerRule, DatasetIndex, MatcherCache

Rows = list[dict[str, Any]]

ROWS: Rows = [
    {
        "problem_id": "sum",
        "data_source": "arithmetic",
        "problem": "What is $2+3$?",
        "ground_truth": "5",
        "nodes": [
            {
                "node_id": "a",
                "label": "the sum",
                "type": "equation",
                "expressions": ["2+3=5", "5 = 2+3"],
                "derived": ["3+2=5"],
                "support": 4,
            },
            {"node_id": "b", "expressions": ["x=55"], "derived": [], "is_final": True},
        ],
        "split": "train",
        "metadata": {"level": 1},
    },
    {"problem_id": "größe", "ground_truth": "7", "nodes": [{"expressions": ["m=77"]}]},
    {"problem_id": "bare", "ground_truth": "1", "nodes": []},
    {"problem_id": "open", "nodes": [{"node_id": "a", "expressions": ["y=123"]}]},
]


def write(path: Path, rows: Rows) -> Path:
    with open_writer(path) as out:
        for row in rows:
            out.write(row)
    return path


def load(folder: Path, rows: Rows, name: str = "set.jsonl", **kwargs: Any) -> DatasetIndex:
    kwargs.setdefault("derive", "stored")
    return DatasetIndex.load(write(folder / name, copy.deepcopy(rows)), **kwargs)


def test_entries_give_what_the_rows_say(tmp_path: Path) -> None:
    index = load(tmp_path, ROWS, name="set.jsonl")
    entry = index.entry("sum")
    assert entry is not None
    assert (entry.ground_truth, entry.data_source, entry.num_nodes) == ("5", "arithmetic", 2)
    first, second = entry.nodes
    assert (first.node_id, first.label, first.type, first.support) == (
        "a",
        "the sum",
        "equation",
        4,
    )
    assert (first.expressions, first.derived) == (("2+3=5", "5 = 2+3"), ("3+2=5",))
    assert (first.is_final, second.is_final) == (False, True)
    assert entry.matcher.match("so 3 + 2 = 5") == [True, False]
    assert entry.matcher.match("hence $x = 55$.") == [False, True]
    other = index.entry("größe")
    assert other is not None
    assert other.matcher.match("m = 77") == [True]


def test_unknown_ids_have_no_entry(tmp_path: Path) -> None:
    index = load(tmp_path, ROWS)
    for problem_id in ("", "su", "summ", "zzz", "\ud800", "a" * 10_000):
        assert index.entry(problem_id) is None
        assert problem_id not in index
    assert "bare" in index
    assert len(index) == 4
    assert index.problem_ids() == ["bare", "größe", "open", "sum"]


def test_counts(tmp_path: Path) -> None:
    info = load(tmp_path, ROWS).info
    assert info.num_problems == 4
    assert info.num_nodes == 4
    assert info.num_expressions == 5
    assert info.num_derived == 1
    assert info.num_without_nodes == 1
    assert info.num_without_ground_truth == 1
    assert info.num_skipped == 0


def test_weak_expressions_are_counted_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [
        {
            "problem_id": "weak",
            "nodes": [
                {"node_id": "gone", "expressions": ["$$", " "]},
                {"node_id": "digit", "expressions": ["$7$", "x=123"]},
                {"node_id": "saved", "expressions": [""], "derived": ["x=456"]},
            ],
        }
    ]
    with caplog.at_level(logging.WARNING):
        index = load(tmp_path, rows)
    info = index.info
    assert info.num_empty_expressions == 3
    assert info.num_single_digit_expressions == 1
    assert info.num_unmatchable_nodes == 1
    assert "first: '$$' of node 'gone' of problem 'weak' has an empty normal form" in caplog.text
    entry = index.entry("weak")
    assert entry is not None
    assert entry.matcher.match("x = 123, x = 456, $$ $$") == [False, True, True]


@pytest.mark.parametrize(
    "text", ["", " ", "$$", ".", ",;:", "? .", r"\(\)", "7", "7.", "x", "=", "!"]
)
def test_an_expression_counts_as_empty_exactly_if_it_makes_no_pattern(
    tmp_path: Path, text: str
) -> None:
    info = load(tmp_path, [{"problem_id": "p", "nodes": [{"expressions": [text]}]}]).info
    assert info.num_empty_expressions == (Matcher([[text]]).num_patterns == 0)


def test_bad_rows_are_skipped_on_request_only(tmp_path: Path) -> None:
    rows = [*ROWS, {"problem_id": "sum"}, {"problem_id": 7}]
    with pytest.raises(DataError, match=r"set\.jsonl:5: problem_id 'sum' is already"):
        load(tmp_path, rows)
    index = load(tmp_path, rows, on_error="skip")
    assert (index.info.num_problems, index.info.num_skipped) == (4, 2)
    assert index.digest == load(tmp_path, ROWS).digest


def test_a_dataset_may_name_its_answer_rule(tmp_path: Path) -> None:
    assert load(tmp_path, ROWS).answer_rule is None
    rows = [{**ROWS[0], "answer_rule": "gsm8k"}, *ROWS[1:]]
    assert load(tmp_path, rows).answer_rule is AnswerRule.GSM8K


# --- the digest


def change(at: int, **keys: Any) -> Callable[[Rows], Rows]:
    """Return a function that sets keys of one row."""

    def apply(rows: Rows) -> Rows:
        rows[at].update(keys)
        return rows

    return apply


def change_node(**keys: Any) -> Callable[[Rows], Rows]:
    """Return a function that sets keys of the first node of the first row."""

    def apply(rows: Rows) -> Rows:
        rows[0]["nodes"][0].update(keys)
        return rows

    return apply


def reverse_keys(rows: Rows) -> Rows:
    return [dict(reversed(row.items())) for row in rows]


def drop_derived(rows: Rows) -> Rows:
    for row in rows:
        for node in row["nodes"]:
            if not node.get("derived"):
                node.pop("derived", None)
    return rows


SAME_DIGEST: list[tuple[str, Callable[[Rows], Rows]]] = [
    ("row order", lambda rows: rows[::-1]),
    ("key order", reverse_keys),
    ("problem text", change(0, problem="other")),
    ("data source", change(0, data_source="other")),
    ("split", change(0, split="test")),
    ("metadata", change(0, metadata={})),
    ("unknown key", change(0, url="u")),
    ("label", change_node(label="other")),
    ("type", change_node(type="value")),
    ("support", change_node(support=99)),
    ("final", change_node(is_final=True)),
    ("no derived forms and an absent key", drop_derived),
    ("blank ground truth and an absent one", change(3, ground_truth=" ")),
]

OTHER_DIGEST: list[tuple[str, Callable[[Rows], Rows]]] = [
    ("problem id", change(0, problem_id="sum2")),
    ("ground truth", change(0, ground_truth="6")),
    ("ground truth removed", change(0, ground_truth=None)),
    ("node id", change_node(node_id="c")),
    ("expression", change_node(expressions=["2+3=5", "5=2+3"])),
    ("expression order", change_node(expressions=["5 = 2+3", "2+3=5"])),
    ("expression to derived", change_node(expressions=["2+3=5"], derived=["5 = 2+3", "3+2=5"])),
    ("derived", change_node(derived=["3+2=5", "5=3+2"])),
    ("derived removed", change_node(derived=[])),
    ("node order", lambda rows: [{**rows[0], "nodes": rows[0]["nodes"][::-1]}, *rows[1:]]),
    ("row removed", lambda rows: rows[1:]),
    ("row added", lambda rows: [*rows, {"problem_id": "new"}]),
    ("answer rule", change(0, answer_rule="boxed")),
]


@pytest.mark.parametrize("apply", [a for _, a in SAME_DIGEST], ids=[n for n, _ in SAME_DIGEST])
def test_the_digest_ignores(tmp_path: Path, apply: Callable[[Rows], Rows]) -> None:
    before = load(tmp_path, ROWS).digest
    assert load(tmp_path, apply(copy.deepcopy(ROWS))).digest == before


@pytest.mark.parametrize("apply", [a for _, a in OTHER_DIGEST], ids=[n for n, _ in OTHER_DIGEST])
def test_the_digest_tells_apart(tmp_path: Path, apply: Callable[[Rows], Rows]) -> None:
    before = load(tmp_path, ROWS).digest
    assert load(tmp_path, apply(copy.deepcopy(ROWS))).digest != before


def test_the_digest_is_that_of_the_content_in_any_format(tmp_path: Path) -> None:
    names = ("a.jsonl", "a.jsonl.gz", "a.parquet")
    digests = {load(tmp_path, ROWS, name=name).digest for name in names}
    assert len(digests) == 1
    assert digests.pop().startswith("sha256:")


def test_the_digest_follows_the_documented_recipe(tmp_path: Path) -> None:
    rows = [{"problem_id": 'q"\u00e9\n', "nodes": [{"node_id": "k", "expressions": ["\\pi"]}]}]
    text = (
        f'["consensuspr dataset",1,"{NORMAL_FORM_VERSION}",null]\n'
        '["q\\"\u00e9\\n",null,[["k",["\\\\pi"],[]]]]\n'
    )
    expected = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    assert load(tmp_path, rows).digest == expected


TEXTS = st.text(max_size=8)
NODES = st.lists(
    st.fixed_dictionaries({"expressions": st.lists(TEXTS, min_size=1, max_size=3)}),
    max_size=3,
)
PROBLEMS = st.dictionaries(
    st.text(min_size=1, max_size=6), st.tuples(TEXTS, NODES), min_size=1, max_size=6
)


@settings(max_examples=40, deadline=None)
@given(PROBLEMS, st.randoms())
def test_any_dataset_survives_shuffling_and_a_snapshot(
    tmp_path_factory: pytest.TempPathFactory, problems: dict[str, Any], rng: random.Random
) -> None:
    folder = tmp_path_factory.mktemp("set")
    rows = [
        {"problem_id": key, "ground_truth": truth, "nodes": nodes}
        for key, (truth, nodes) in problems.items()
    ]
    index = load(folder, rows)
    rng.shuffle(rows)
    assert load(folder, rows).digest == index.digest
    index.save(folder / "snapshot")
    opened = DatasetIndex.open(folder / "snapshot")
    assert opened.digest == index.digest
    for key, (truth, nodes) in problems.items():
        for one in (index, opened):
            entry = one.entry(key)
            assert entry is not None
            assert entry.ground_truth == (truth if truth.strip() else None)
            found = [list(node.expressions) for node in entry.nodes]
            assert found == [node["expressions"] for node in nodes]
    opened.close()


# --- derived forms


def test_missing_forms_are_derived_at_load_and_only_these(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [
        {
            "problem_id": "p",
            "nodes": [
                {"node_id": "none", "expressions": ["48/2=24"]},
                {"node_id": "stored", "expressions": ["9*2=18"], "derived": ["2*9=18"]},
                {"node_id": "empty", "expressions": ["16-3=13"], "derived": []},
            ],
        }
    ]
    with caplog.at_level(logging.INFO):
        entry = load(tmp_path, rows, derive="missing").entry("p")
    assert entry is not None
    derived = {node.node_id: node.derived for node in entry.nodes}
    assert derived["none"] == tuple(derive_forms("48/2=24"))
    assert "24=48/2" in (derived["none"] or ())
    assert derived["stored"] == ("2*9=18",)
    assert derived["empty"] == ()
    (line,) = [text for text in caplog.messages if "derived" in text and "without stored" in text]
    assert f"derived {len(derive_forms('48/2=24'))} forms for 1 nodes" in line
    assert entry.matcher.match("24 = 48 / 2") == [True, False, False]


def test_the_three_policies_and_their_digests(tmp_path: Path) -> None:
    rows = [
        {
            "problem_id": "p",
            "nodes": [
                {"node_id": "a", "expressions": ["48/2=24"]},
                {"node_id": "b", "expressions": ["9*2=18"], "derived": ["2*9=18"]},
            ],
        }
    ]
    found = {}
    for policy in ("missing", "stored", "off"):
        index = load(tmp_path, rows, derive=policy)
        entry = index.entry("p")
        assert entry is not None
        found[index.digest] = entry.matcher.match("24=48/2 and 2*9=18")
    assert list(found.values()) == [[True, True], [False, True], [False, False]]


def test_policies_that_make_no_difference_have_one_digest(tmp_path: Path) -> None:
    rows = [{"problem_id": "p", "nodes": [{"expressions": ["x=55"], "derived": []}]}]
    digests = {load(tmp_path, rows, derive=d).digest for d in ("missing", "stored", "off")}
    assert len(digests) == 1


def test_an_unknown_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="derive must be 'missing', 'stored' or 'off', got 'all'"):
        load(tmp_path, ROWS, derive="all")


# --- matchers


def test_matchers_are_compiled_when_first_asked_for_and_shared(tmp_path: Path) -> None:
    cache = MatcherCache()
    one = load(tmp_path, ROWS, cache=cache)
    two = load(tmp_path, ROWS, cache=cache)
    assert cache.stats().entries == 0
    first, second = one.entry("sum"), two.entry("sum")
    assert first is not None
    assert second is not None
    assert first.matcher is second.matcher
    assert (cache.stats().misses, cache.stats().hits) == (1, 1)


def test_datasets_of_different_content_share_no_matcher(tmp_path: Path) -> None:
    cache = MatcherCache()
    other = change_node(expressions=["8=4+4"], derived=[])(copy.deepcopy(ROWS))
    for rows, expected in ((ROWS, [True, False]), (other, [False, False])):
        entry = load(tmp_path, rows, cache=cache).entry("sum")
        assert entry is not None
        assert entry.matcher.match("2+3=5") == expected


# --- snapshots


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    load(tmp_path, [{**ROWS[0], "answer_rule": "boxed"}, *ROWS[1:]]).save(tmp_path / "snapshot")
    return tmp_path / "snapshot"


def test_a_snapshot_gives_back_the_index(tmp_path: Path, snapshot: Path) -> None:
    index = DatasetIndex.load(tmp_path / "set.jsonl", derive="stored")
    opened = DatasetIndex.open(snapshot, name="other")
    assert (opened.name, opened.digest, opened.info) == ("other", index.digest, index.info)
    assert opened.answer_rule is AnswerRule.BOXED
    assert opened.problem_ids() == index.problem_ids()
    one, two = opened.entry("sum"), index.entry("sum")
    assert one is not None
    assert two is not None
    assert one.nodes == two.nodes
    assert one.matcher.match("3+2=5") == [True, False]
    opened.close()


def test_a_mapped_snapshot_outlives_its_replacement(tmp_path: Path, snapshot: Path) -> None:
    opened = DatasetIndex.open(snapshot)
    load(tmp_path, ROWS[2:]).save(snapshot)
    assert "sum" in opened
    assert "sum" not in DatasetIndex.open(snapshot)
    opened.close()


def test_other_processes_open_the_same_snapshot(snapshot: Path) -> None:
    code = (
        "import sys; from consensuspr.scoring import DatasetIndex\n"
        "index = DatasetIndex.open(sys.argv[1])\n"
        "print(index.digest, index.entry('sum').matcher.match('2+3=5'))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code, snapshot], capture_output=True, env=environment, check=True
    )
    digest = DatasetIndex.open(snapshot).digest
    assert done.stdout.decode().strip() == f"{digest} [True, False]"


@pytest.mark.parametrize("keep", [0, 10, 100, -1, -40])
def test_a_snapshot_cut_short_is_refused(snapshot: Path, keep: int) -> None:
    snapshot.write_bytes(snapshot.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"is no snapshot|is a damaged snapshot|cannot be mapped"):
        DatasetIndex.open(snapshot)


def test_any_changed_byte_is_noticed(snapshot: Path) -> None:
    whole = snapshot.read_bytes()
    rng = random.Random(5)
    for at in [0, 8, 12, 16, len(whole) - 1, *rng.sample(range(len(whole)), 40)]:
        changed = bytearray(whole)
        changed[at] ^= 0x41
        snapshot.write_bytes(changed)
        with pytest.raises(DataError, match="snapshot"):
            DatasetIndex.open(snapshot)


def test_a_snapshot_of_another_normal_form_is_refused(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consensuspr.scoring.dataset_index.NORMAL_FORM_VERSION", "next")
    with pytest.raises(DataError) as caught:
        DatasetIndex.open(snapshot)
    assert str(caught.value) == (
        f"{snapshot}: was made for normal form {NORMAL_FORM_VERSION}, this is next; make it anew"
    )


def test_a_dataset_is_no_snapshot_and_a_snapshot_has_no_rows(
    snapshot: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="is no snapshot of a dataset index"):
        DatasetIndex.open(tmp_path / "set.jsonl")
    with pytest.raises(DataError, match="is a prepared dataset, which has no rows; JSONL"):
        list(read_problems(snapshot))
    with pytest.raises(DataError, match="cannot be mapped: No such file or directory"):
        DatasetIndex.open(tmp_path / "absent")


# --- size


def paper_rows(count: int) -> Rows:
    """Rows of the paper's shape: 7 nodes of about 6 patterns, 15 characters each."""
    rng = random.Random(3)

    def node(number: int) -> dict[str, Any]:
        values = [f"{rng.randint(100, 999)}" for _ in range(6)]
        patterns = [f"x_{{{number}}} = {value}/2" for value in values]
        return {
            "node_id": f"n{number}",
            "label": "an intermediate value",
            "type": "equation",
            "expressions": patterns[:2],
            "derived": patterns[2:],
            "support": rng.randint(1, 16),
            "is_final": number == 6,
        }

    return [
        {
            "problem_id": f"problem-{number:07d}",
            "data_source": "math",
            "problem": "Find the value of $x$ such that … " * 8,
            "ground_truth": str(rng.randint(0, 999)),
            "nodes": [node(position) for position in range(7)],
            "metadata": json.loads('{"level": 3}'),
        }
        for number in range(count)
    ]


def test_a_problem_of_the_papers_shape_takes_less_than_2_kb(tmp_path: Path) -> None:
    index = load(tmp_path, paper_rows(300))
    assert index.nbytes / 300 < 2000
