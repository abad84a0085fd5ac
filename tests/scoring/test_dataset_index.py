"""The dataset index: loading, digests, look-up, matchers, prepared datasets."""

from __future__ import annotations

import copy
import hashlib
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.core import EXPANSION_VERSION, NORMAL_FORM_VERSION, derive_forms, match_batch
from consensuspr.data import Node, parse_problem
from consensuspr.errors import DataError, InputError
from consensuspr.scoring import DatasetIndex, MatcherCache
from consensuspr.scoring.dataset_index import (
    Entry,
    IndexInfo,
    derive_dataset,
    pack,
)
from tests.rows import write_rows

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


def load(folder: Path, rows: Rows, name: str = "set.jsonl", **kwargs: Any) -> DatasetIndex:
    kwargs.setdefault("derive", "stored")
    return DatasetIndex.load(write_rows(folder / name, rows), **kwargs)


def entry_of(index: DatasetIndex, problem_id: str) -> Entry:
    entry = index.entry(problem_id)
    assert entry is not None
    return entry


def assert_same(first: DatasetIndex, second: DatasetIndex) -> None:
    """Check that two indexes have the same problems and digest."""
    facts = [(i.digest, i.info, i.answer_rule, i.problem_ids()) for i in (first, second)]
    assert facts[0] == facts[1]
    for problem_id in first.problem_ids():
        assert entry_of(first, problem_id).nodes == entry_of(second, problem_id).nodes


def test_entries_give_what_the_rows_say(tmp_path: Path) -> None:
    index = load(tmp_path, ROWS)
    entry = entry_of(index, "sum")
    assert (entry.ground_truth, entry.data_source, entry.num_nodes) == ("5", "arithmetic", 2)
    assert entry.nodes == (
        Node("a", ("2+3=5", "5 = 2+3"), "the sum", "equation", ("3+2=5",), 4),
        Node("b", ("x=55",), derived=(), is_final=True),
    )
    assert entry.matcher.match("so 3 + 2 = 5") == [True, False]
    assert entry.matcher.match("hence $x = 55$.") == [False, True]
    assert entry_of(index, "größe").matcher.match("m = 77") == [True]


def test_unknown_ids_have_no_entry(tmp_path: Path) -> None:
    index = load(tmp_path, ROWS)
    for problem_id in ("", "su", "summ", "zzz", "\ud800", "a" * 10_000):
        assert index.entry(problem_id) is None
        assert problem_id not in index
    assert "bare" in index
    assert len(index) == 4
    assert index.problem_ids() == ["bare", "größe", "open", "sum"]


def test_counts(tmp_path: Path) -> None:
    budget = {"statements": 12, "numbers": 30}
    assert load(tmp_path, [{**ROWS[0], "budget": budget}, *ROWS[1:]]).info == IndexInfo(
        num_problems=4,
        num_nodes=4,
        num_expressions=5,
        num_derived=1,
        num_without_nodes=1,
        num_without_ground_truth=1,
        num_with_budgets=1,
    )


# --- the digest


def change(at: int, **keys: Any) -> Callable[[Rows], Rows]:
    """Return a function that sets keys of one row."""
    return lambda rows: [row | keys if at == n else row for n, row in enumerate(rows)]


def change_node(**keys: Any) -> Callable[[Rows], Rows]:
    """Return a function that sets keys of the first node of the first row."""
    return lambda rows: change(0, nodes=[rows[0]["nodes"][0] | keys, *rows[0]["nodes"][1:]])(rows)


def reverse_keys(rows: Rows) -> Rows:
    return [dict(reversed(row.items())) for row in rows]


def drop_derived(rows: Rows) -> Rows:
    for row in rows:
        for node in row["nodes"]:
            if not node.get("derived"):
                node.pop("derived", None)
    return rows


Change = Callable[[Rows], Rows]
SAME_DIGEST: list[tuple[str, Change]] = [
    ("row order", lambda rows: rows[::-1]), ("key order", reverse_keys),
    ("problem text", change(0, problem="second")), ("data source", change(0, data_source="second")),
    ("split", change(0, split="test")), ("metadata", change(0, metadata={})),
    ("unknown key", change(0, url="u")), ("label", change_node(label="second")),
    ("type", change_node(type="value")), ("support", change_node(support=99)),
    ("no derived forms and an absent key", drop_derived),
    ("blank ground truth and an absent one", change(3, ground_truth=" ")),
]  # fmt: skip

OTHER_DIGEST: list[tuple[str, Change]] = [
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
    ("final", change_node(is_final=True)),
    ("weight", change_node(weight=0.5)),
    ("rare expressions", change_node(rare=["2+3=5"])),
    ("budget", change(0, budget={"statements": 12, "numbers": 30})),
    ("its length", change(0, budget={"statements": 12, "numbers": 30, "length": 99})),
]


@pytest.mark.parametrize(
    ("apply", "same"),
    [
        pytest.param(apply, same, id=name)
        for same, table in ((True, SAME_DIGEST), (False, OTHER_DIGEST))
        for name, apply in table
    ],
)
def test_the_digest_is_over_what_decides_a_score(tmp_path: Path, apply: Change, same: bool) -> None:
    before = load(tmp_path, ROWS).digest
    assert (load(tmp_path, apply(copy.deepcopy(ROWS))).digest == before) is same


RARE: Rows = [
    {
        "problem_id": "p",
        "nodes": [
            {"expressions": ["x+y=8", "x+y=9", "x+y=7"], "rare": ["x+y=9", "x+y=8"], "derived": []},
            {"expressions": ["3*4=12"], "derived": []},
        ],
    }
]


def test_rare_expressions_are_a_set_and_survive_every_format(tmp_path: Path) -> None:
    digest = load(tmp_path, RARE).digest
    [row] = RARE
    again = [row["nodes"][0] | {"rare": ["x+y=8", "x+y=9", "x+y=8"]}, row["nodes"][1]]
    assert load(tmp_path, [row | {"nodes": again}]).digest == digest
    load(tmp_path, RARE).save(tmp_path / "set.index")
    prepared = DatasetIndex.open(tmp_path / "set.index")
    for index in (prepared, load(tmp_path, RARE, name="set.parquet")):
        entry = entry_of(index, "p")
        assert index.digest == digest
        assert [node.rare for node in entry.nodes] == [("x+y=8", "x+y=9"), ()]
        assert entry.matcher.match("a+b=9") == [True, False]
        assert entry.matcher.match("a+b=7") == [False, False]


def test_thousands_of_rare_expressions_are_read_in_linear_time() -> None:
    texts = ["x" * 1000 + str(number) for number in range(4096)]
    node = {"expressions": texts, "rare": texts[::-1]}
    nodes = [node | {"node_id": str(number)} for number in range(4)]
    started = time.process_time()
    pack(parse_problem({"problem_id": "p", "nodes": nodes}))
    assert time.process_time() - started < 1


def test_the_digest_is_that_of_the_content_in_any_format(tmp_path: Path) -> None:
    names = ("a.jsonl", "a.jsonl.gz", "a.parquet")
    digests = {load(tmp_path, ROWS, name=name).digest for name in names}
    assert len(digests) == 1
    assert digests.pop().startswith("sha256:")


def test_the_digest_follows_the_documented_recipe(tmp_path: Path) -> None:
    rows = [{"problem_id": 'q"\u00e9\n', "nodes": [{"node_id": "k", "expressions": ["\\pi"]}]}]
    text = (
        f'["consensuspr dataset",3,"{NORMAL_FORM_VERSION}",null]\n'
        '["q\\"\u00e9\\n",null,[["k",["\\\\pi"],[],false,null,null]],null,null]\n'
    )
    expected = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    assert load(tmp_path, rows).digest == expected


TEXTS = st.text(max_size=8) | st.sampled_from(["\ud800", "\n", '"', "\0\x1f"])
NODES = st.lists(
    st.fixed_dictionaries({"expressions": st.lists(TEXTS, min_size=1, max_size=3)}),
    max_size=3,
)
PROBLEMS = st.dictionaries(TEXTS.filter(bool), st.tuples(TEXTS, NODES), min_size=1, max_size=6)


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
        for first in (index, opened):
            entry = entry_of(first, key)
            assert entry.ground_truth == (truth if truth.strip() else None)
            found = [list(node.expressions) for node in entry.nodes]
            assert found == [node["expressions"] for node in nodes]


# --- derived forms


def test_missing_forms_are_derived_at_load_and_only_these(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [
        {
            "problem_id": "p",
            "nodes": [
                {"node_id": "none", "expressions": ["x=48/2"]},
                {"node_id": "stored", "expressions": ["y=9*2"], "derived": ["y=2*9"]},
                {"node_id": "empty", "expressions": ["z=16-3"], "derived": []},
            ],
        }
    ]
    with caplog.at_level(logging.INFO):
        entry = entry_of(load(tmp_path, rows, derive="missing"), "p")
    derived = {node.node_id: node.derived for node in entry.nodes}
    assert derived["none"] == tuple(derive_forms("x=48/2"))
    assert "48/2=x" in (derived["none"] or ())
    assert derived["stored"] == ("y=2*9",)
    assert derived["empty"] == ()
    assert f" ({len(derive_forms('x=48/2'))} made now) from" in caplog.text
    found = match_batch([entry.matcher], ["48 / 2 = x, 9 * 2 = y"], statements=False)
    assert found.matched(0).tolist() == [True, False, False]


def test_the_three_policies_and_their_digests(tmp_path: Path) -> None:
    nodes = [{"expressions": ["x=48/2"]}, {"expressions": ["y=9*2"], "derived": ["y=2*9"]}]
    rows = [{"problem_id": "p", "nodes": nodes}]
    found = {}
    for policy in ("missing", "stored", "off"):
        index = load(tmp_path, rows, derive=policy)
        entry = entry_of(index, "p")
        found[index.digest] = entry.matcher.spans("48/2=x and y=2*9", statements=False)
    assert list(found.values()) == [[(0, 6), (11, 16)], [None, (11, 16)], [None, None]]


# --- matchers


def test_matchers_are_compiled_when_first_asked_for_and_shared(tmp_path: Path) -> None:
    cache = MatcherCache()
    first = load(tmp_path, ROWS, cache=cache)
    second = load(tmp_path, ROWS, cache=cache)
    assert len(cache) == 0
    assert entry_of(first, "sum").matcher is entry_of(second, "sum").matcher
    assert (cache.misses, cache.hits) == (1, 1)


# --- prepared datasets


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    rows = [{**ROWS[0], "answer_rule": "boxed"}, *ROWS[1:]]
    derive_dataset(write_rows(tmp_path / "set.jsonl", rows), tmp_path / "set.index")
    return tmp_path / "set.index"


def test_a_prepared_dataset_loads_as_the_dataset_does(tmp_path: Path, prepared: Path) -> None:
    first, second = (DatasetIndex.load(tmp_path / name) for name in ("set.index", "set.jsonl"))
    assert_same(first, second)
    assert entry_of(first, "sum").matcher.match("3+2=5") == [True, False]


def test_the_reports_say_what_was_done(tmp_path: Path, prepared: Path) -> None:
    seen: list[int] = []
    source = write_rows(tmp_path / "many.jsonl", [{"problem_id": f"p{n}"} for n in range(600)])
    read, _ = derive_dataset(source, tmp_path / "many.index", progress=seen.append)
    assert (read.rows, read.skipped, seen[-1]) == (600, 0, 600)
    _, derived = derive_dataset(tmp_path / "set.jsonl", prepared, again=True)
    assert derived.nodes == 4
    entry = entry_of(DatasetIndex.load(prepared), "sum")
    assert entry.nodes[1].derived == tuple(derive_forms("x=55"))


def test_a_mapped_index_outlives_its_replacement(tmp_path: Path, prepared: Path) -> None:
    opened = DatasetIndex.open(prepared)
    load(tmp_path, ROWS[2:]).save(prepared)
    assert entry_of(opened, "sum").matcher.match("2+3=5") == [True, False]
    assert "sum" not in DatasetIndex.open(prepared)


def test_a_changed_or_missing_byte_changes_no_score(prepared: Path) -> None:
    whole = prepared.read_bytes()
    facts = facts_of(prepared)
    rng = random.Random(5)
    for at in rng.sample(range(len(whole)), 150):
        changed = bytearray(whole)
        changed[at] ^= 0x41
        for content in (bytes(changed), whole[:at]):
            prepared.write_bytes(content)
            try:
                found = facts_of(prepared)
            except DataError as error:
                assert str(error).startswith(f"{prepared}: ")
            else:
                assert found == facts


def facts_of(path: Path) -> list[Any]:
    """Return all that decides a score."""
    index = DatasetIndex.open(path)
    entries = [entry_of(index, problem_id) for problem_id in ("sum", "größe", "bare", "open")]
    return [(e.ground_truth, e.budget, e.matcher.num_patterns, e.num_nodes) for e in entries]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"ARROW1\0\0", "is not an index of a dataset, or damaged; make it again"),
        (b"", "is not an index of a dataset, or damaged"),
    ],
)
def test_what_is_not_an_index_is_rejected(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "set.index"
    path.write_bytes(content)
    for read in (DatasetIndex.open, DatasetIndex.load) if content else (DatasetIndex.open,):
        with pytest.raises(DataError) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}: {reason}")


@pytest.mark.parametrize(
    ("name", "subject", "ours"),
    [
        ("NORMAL_FORM_VERSION", "normal form", NORMAL_FORM_VERSION),
        ("EXPANSION_VERSION", "derived forms", EXPANSION_VERSION),
    ],
)
def test_an_index_of_another_version_is_rejected(
    prepared: Path, monkeypatch: pytest.MonkeyPatch, name: str, subject: str, ours: str
) -> None:
    monkeypatch.setattr(f"consensuspr.scoring.dataset_index.{name}", "next")
    with pytest.raises(DataError) as caught:
        DatasetIndex.load(prepared)
    assert str(caught.value) == (
        f"{prepared}: was made for {subject} {ours}, this version has next; make it again: "
        f"consensuspr derive DATASET --output {prepared}"
    )


def test_another_policy_than_it_was_made_with_is_rejected(prepared: Path) -> None:
    with pytest.raises(DataError, match="was made with derive='missing', but derive='off' is set"):
        DatasetIndex.load(prepared, derive="off")


def test_a_bad_row_or_the_dataset_as_target_changes_nothing(tmp_path: Path) -> None:
    dataset = write_rows(tmp_path / "set.jsonl", [*ROWS, {"problem_id": 5}])
    before = dataset.read_bytes()
    link = tmp_path / "link.index"
    link.symlink_to(dataset)
    with pytest.raises(InputError, match="would replace the dataset itself"):
        derive_dataset(dataset, link)
    link.unlink()
    with pytest.raises(DataError, match=":5: problem_id must be a string"):
        derive_dataset(dataset, tmp_path / "set.index")
    assert [entry.name for entry in tmp_path.iterdir()] == ["set.jsonl"]
    assert dataset.read_bytes() == before


# --- the cache of matchers


@dataclass
class Sized:
    """A matcher as the cache sees it."""

    nbytes: int


def test_the_cache_is_bounded_in_bytes_and_drops_the_oldest() -> None:
    cache: Any = MatcherCache(max_bytes=5000)
    for key, size in enumerate((1000, 1000, 1000)):
        cache.get(key, lambda size=size: Sized(size))
    cache.get(0, lambda: pytest.fail("0 is kept"))
    cache.get(3, lambda: Sized(1000))
    assert cache.get("too large", lambda: Sized(20_000)).nbytes == 20_000
    assert (cache.hits, cache.misses, len(cache)) == (1, 5, 3)
    assert 3000 <= cache.nbytes <= 5000
    made = [cache.get(key, lambda: Sized(1)).nbytes for key in (0, 2, 3, 1)]
    assert made == [1000, 1000, 1000, 1], "1 was not used for the longest"
