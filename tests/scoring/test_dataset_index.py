"""The dataset index: loading, digests, look-up, snapshots, matchers, large and prepared sets."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import mmap
import random
import tempfile
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.client import RewardClient, Rollout
from consensuspr.core import EXPANSION_VERSION, NORMAL_FORM_VERSION, Matcher, derive_forms
from consensuspr.data import NODE_TYPES, Node, Problem, ReadReport, read_problems
from consensuspr.errors import DataError, InputError
from consensuspr.scoring import AnswerRule, DatasetIndex, MatcherCache
from consensuspr.scoring.dataset_index import (
    Entry,
    IndexInfo,
    is_prepared_output,
    pack,
    prepare_dataset,
    read_head,
    read_nodes,
    read_patterns,
)
from consensuspr.scoring.derive import DeriveReport
from tests.commands import run_python
from tests.rows import write_rows
from tests.servers import served

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


def assert_same(one: DatasetIndex, other: DatasetIndex) -> None:
    """Both say and match the same; what they are called is their own affair."""
    facts = [(i.digest, i.info, i.answer_rule, i.problem_ids()) for i in (one, other)]
    assert facts[0] == facts[1]
    for problem_id in one.problem_ids():
        assert entry_of(one, problem_id).nodes == entry_of(other, problem_id).nodes


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
    assert (info.num_empty_expressions, info.num_single_digit_expressions) == (3, 1)
    assert info.num_unmatchable_nodes == 1
    assert "first: '$$' of node 'gone' of problem 'weak' has an empty normal form" in caplog.text
    matcher = entry_of(index, "weak").matcher
    assert matcher.match("x = 123, x = 456, $$ $$") == [False, True, True]


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
    ("no derived forms and an absent key", drop_derived),
    ("blank ground truth and an absent one", change(3, ground_truth=" ")),
]

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


def test_the_digest_is_that_of_the_content_in_any_format(tmp_path: Path) -> None:
    names = ("a.jsonl", "a.jsonl.gz", "a.parquet")
    digests = {load(tmp_path, ROWS, name=name).digest for name in names}
    assert len(digests) == 1
    assert digests.pop().startswith("sha256:")


def test_the_digest_follows_the_documented_recipe(tmp_path: Path) -> None:
    rows = [{"problem_id": 'q"\u00e9\n', "nodes": [{"node_id": "k", "expressions": ["\\pi"]}]}]
    text = (
        f'["consensuspr dataset",2,"{NORMAL_FORM_VERSION}",null]\n'
        '["q\\"\u00e9\\n",null,[["k",["\\\\pi"],[],false,null]],null]\n'
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
            entry = entry_of(one, key)
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
    (line,) = [text for text in caplog.messages if "derived" in text and "without stored" in text]
    assert f"derived {len(derive_forms('x=48/2'))} forms for 1 nodes" in line
    assert entry.matcher.match("48 / 2 = x, 9 * 2 = y") == [True, False, False]


def test_the_three_policies_and_their_digests(tmp_path: Path) -> None:
    nodes = [{"expressions": ["x=48/2"]}, {"expressions": ["y=9*2"], "derived": ["y=2*9"]}]
    rows = [{"problem_id": "p", "nodes": nodes}]
    found = {}
    for policy in ("missing", "stored", "off"):
        index = load(tmp_path, rows, derive=policy)
        entry = entry_of(index, "p")
        found[index.digest] = entry.matcher.spans("48/2=x and y=2*9")
    assert list(found.values()) == [[(0, 6), (11, 16)], [None, (11, 16)], [None, None]]


def test_stored_forms_make_statements(tmp_path: Path) -> None:
    nodes = [{"expressions": ["x=y"], "derived": ["48/2=24"]}]
    entry = entry_of(load(tmp_path, [{"problem_id": "p", "nodes": nodes}]), "p")
    texts = ("48/2 = 24", "24 = 48 / 2")  # as it is written, and as a statement alone
    assert [entry.matcher.match(text) for text in texts] == [[True], [True]]


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
    assert entry_of(one, "sum").matcher is entry_of(two, "sum").matcher
    assert (cache.stats().misses, cache.stats().hits) == (1, 1)


def test_datasets_of_different_content_share_no_matcher(tmp_path: Path) -> None:
    cache = MatcherCache()
    other = change_node(expressions=["8=4+4"], derived=[])(copy.deepcopy(ROWS))
    for rows, expected in ((ROWS, [True, False]), (other, [False, False])):
        entry = entry_of(load(tmp_path, rows, cache=cache), "sum")
        assert entry.matcher.match("2+3=5") == expected


# --- snapshots


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    load(tmp_path, [{**ROWS[0], "answer_rule": "boxed"}, *ROWS[1:]]).save(tmp_path / "snapshot")
    return tmp_path / "snapshot"


def test_a_snapshot_gives_back_the_index(tmp_path: Path, snapshot: Path) -> None:
    opened = DatasetIndex.open(snapshot, name="other")
    assert (opened.name, opened.answer_rule) == ("other", AnswerRule.BOXED)
    assert_same(opened, DatasetIndex.load(tmp_path / "set.jsonl", derive="stored"))
    assert entry_of(opened, "sum").matcher.match("3+2=5") == [True, False]
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
    digest = DatasetIndex.open(snapshot).digest
    assert run_python("-c", code, snapshot) == (0, f"{digest} [True, False]\n", "")


def test_any_changed_byte_is_noticed(snapshot: Path) -> None:
    whole = snapshot.read_bytes()
    rng = random.Random(5)
    for at in [0, 8, 12, 16, len(whole) - 1, *rng.sample(range(len(whole)), 40)]:
        changed = bytearray(whole)
        changed[at] ^= 0x41
        snapshot.write_bytes(changed)
        with pytest.raises(DataError, match="snapshot"):
            DatasetIndex.open(snapshot)


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


def paper_row(number: int) -> dict[str, Any]:
    """A row of the paper's shape: 7 nodes of about 6 patterns, 15 characters each."""

    def node(at: int) -> dict[str, Any]:
        patterns = [f"x_{{{at}}} = {number + 6 * at + k}/2" for k in range(6)]
        shown = {"label": "an intermediate value", "type": "equation", "support": 16}
        split = {"expressions": patterns[:2], "derived": patterns[2:], "is_final": at == 6}
        return {"node_id": f"n{at}", **shown, **split}

    return {
        "problem_id": f"größe-{number}" if number % 5 == 0 else f"p{number}",
        "data_source": "math",
        "problem": "Find the value of $x$ such that … " * 8,
        "ground_truth": str(number),
        "nodes": [node(at) for at in range(7)],
        "metadata": {"level": 3},
    }


def write_many(path: Path, count: int) -> Path:
    """Write so many of them, in no order."""
    return write_rows(path, (paper_row(number * 7 % count) for number in range(count)))


def test_a_problem_of_the_papers_shape_takes_less_than_2_kb(tmp_path: Path) -> None:
    index = DatasetIndex.load(write_many(tmp_path / "set.jsonl", 300))
    assert index.nbytes / 300 < 2000


ANY_TEXTS = st.text(max_size=6) | st.sampled_from(
    ['"', "\\frac{1}{2}", "\n", "\ud800", "\0\x1f\x7f"]
)
ANY_NODES = st.builds(
    Node,
    node_id=ANY_TEXTS,
    expressions=st.lists(ANY_TEXTS, min_size=1, max_size=3).map(tuple),
    label=ANY_TEXTS,
    type=st.sampled_from(NODE_TYPES),
    derived=st.none() | st.lists(ANY_TEXTS, max_size=3).map(tuple),
    support=st.none() | st.integers(0, 2**40),
    is_final=st.booleans(),
    weight=st.none() | st.floats(0, 1e6),
)
ANY_BUDGETS = st.none() | st.tuples(
    st.integers(1, 2**32 - 1), st.integers(1, 2**32 - 1), st.integers(0, 2**31 - 1)
)
ANY_PROBLEMS = st.builds(
    Problem,
    problem_id=ANY_TEXTS,
    ground_truth=st.none() | ANY_TEXTS,
    nodes=st.lists(ANY_NODES, max_size=4).map(tuple),
    data_source=ANY_TEXTS,
    budget=ANY_BUDGETS,
)


@given(ANY_PROBLEMS)
def test_a_record_is_three_lines_of_compact_json(problem: Problem) -> None:
    nodes = problem.nodes
    # Without a length the record, and so the digest, is that of earlier releases.
    budget = problem.budget and problem.budget[: 3 if problem.budget[2] else 2]
    lines: tuple[list[object], ...] = (
        [problem.ground_truth, problem.data_source, len(nodes), budget],
        [
            problem.problem_id,
            problem.ground_truth,
            [
                [node.node_id, node.expressions, node.derived or [], node.is_final, node.weight]
                for node in nodes
            ],
            budget,
        ],
        [[node.label, node.type, node.support] for node in nodes],
    )
    expected = [json.dumps(line, ensure_ascii=False, separators=(",", ":")) for line in lines]
    record = pack(problem)
    assert record == "\n".join(expected).encode("utf-8", "surrogatepass")
    *head, read = read_head(record)
    assert (head, read) == (lines[0][:-1], problem.budget)
    for node in nodes:
        node.derived = node.derived or ()
    assert read_nodes(record) == nodes
    assert read_patterns(record) == (
        [list(node.expressions) for node in nodes],
        [list(node.derived or ()) for node in nodes],
    )


@dataclass
class Sized:
    """A matcher as the cache sees it."""

    nbytes: int


def sized(nbytes: int) -> Any:
    """Return a function that compiles what the cache takes for a matcher of a size."""
    return lambda: Sized(nbytes)


def fill(cache: MatcherCache, *sizes: int) -> None:
    for key, size in enumerate(sizes):
        cache.get(key, sized(size))


def kept(cache: MatcherCache, keys: range) -> list[int]:
    """Return which keys are kept, without keeping others."""
    return [key for key in keys if key in cache._kept]


def test_a_matcher_is_compiled_once() -> None:
    cache = MatcherCache()
    made = [cache.get("key", lambda: Matcher([["x=5"]])) for _ in range(3)]
    assert made[0] is made[1] is made[2]
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.entries) == (2, 1, 1)
    assert stats.nbytes >= made[0].nbytes


def test_the_number_of_entries_is_bounded_and_the_oldest_goes() -> None:
    cache = MatcherCache(max_entries=3)
    fill(cache, 10, 10, 10)
    cache.get(0, lambda: pytest.fail("0 is kept"))
    cache.get(3, sized(10))
    assert kept(cache, range(4)) == [0, 2, 3]
    assert cache.stats().evictions == 1


@pytest.mark.parametrize("sizes", [[3000] * 50, list(range(100, 5000, 90)), [9000, 1, 9000, 1]])
def test_bytes_are_bounded_at_all_times(sizes: list[int]) -> None:
    cache = MatcherCache(max_bytes=10_000)
    for count in range(1, len(sizes) + 1):
        fill(cache, *sizes[:count])
        stats = cache.stats()
        assert stats.nbytes <= 10_000
        assert stats.nbytes >= sum(sizes[key] for key in kept(cache, range(count)))


@pytest.mark.parametrize(
    ("bounds", "sizes", "left"),
    [
        ({"max_bytes": 10_000}, [100, 20_000], [0]),  # larger than the bound
        ({"max_bytes": 0}, [1, 1], []),
        ({"max_entries": 0}, [1, 1], []),
    ],
)
def test_what_a_bound_has_no_room_for_is_handed_out_and_not_kept(
    bounds: dict[str, int], sizes: list[int], left: list[int]
) -> None:
    cache = MatcherCache(**bounds)
    assert [cache.get(key, sized(size)).nbytes for key, size in enumerate(sizes)] == sizes
    assert kept(cache, range(len(sizes))) == left
    stats = cache.stats()
    assert (stats.entries, stats.evictions) == (len(left), 0)


def test_clearing_forgets_matchers_and_their_bytes() -> None:
    cache = MatcherCache()
    fill(cache, 5, 5)
    cache.clear()
    assert (cache.stats().entries, cache.stats().nbytes) == (0, 0)


def test_a_compile_that_fails_leaves_no_trace() -> None:
    cache = MatcherCache()

    def fail() -> Any:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        cache.get("key", fail)
    assert cache.stats().entries == 0
    assert cache.get("key", lambda: Matcher([["x"]])).num_nodes == 1


def test_threads_share_one_matcher_and_the_books_stay_right() -> None:
    cache = MatcherCache(max_entries=8)
    start = threading.Barrier(8)

    def work(seed: int) -> None:
        start.wait()
        for step in range(400):
            key = (seed * 7 + step * step) % 12
            assert cache.get(key, sized(key)).nbytes == key

    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(work, seed) for seed in range(8)]:
            done.result()
    stats = cache.stats()
    assert stats.hits + stats.misses == 8 * 400
    assert stats.entries == len(kept(cache, range(12))) <= 8
    cache.clear()
    assert cache.stats().nbytes == 0


PREPARED_ROWS: list[dict[str, Any]] = [
    {"problem_id": "b", "ground_truth": "24", "nodes": [{"expressions": ["48/2=24"]}]},
    {"problem_id": "a", "nodes": [{"expressions": ["9*2=18"], "derived": ["18=2*9"]}]},
    {"problem_id": "c", "answer_rule": "boxed"},
]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "set.jsonl", PREPARED_ROWS)


@pytest.fixture
def prepared(dataset: Path, tmp_path: Path) -> Path:
    prepare_dataset(dataset, tmp_path / "set.index")
    return tmp_path / "set.index"


def test_a_prepared_dataset_loads_as_the_dataset_does(dataset: Path, prepared: Path) -> None:
    loaded = DatasetIndex.load(prepared, name="other")
    assert (loaded.name, loaded.problem_ids()) == ("other", ["a", "b", "c"])
    assert_same(loaded, DatasetIndex.load(dataset))
    assert entry_of(loaded, "b").matcher.match("24 = 48 / 2") == [True]
    loaded.close()


def test_the_reports_say_what_was_done(dataset: Path, tmp_path: Path) -> None:
    seen: list[int] = []
    read, derived = prepare_dataset(dataset, tmp_path / "set.index", progress=seen.append)
    assert (read.rows, read.skipped) == (3, 0)
    assert (derived.nodes, derived.forms) == (1, len(derive_forms("48/2=24")))
    assert seen[-1] == 3


def test_forms_are_made_anew_on_request(dataset: Path, tmp_path: Path) -> None:
    prepare_dataset(dataset, tmp_path / "set.index", again=True)
    entry = entry_of(DatasetIndex.load(tmp_path / "set.index"), "a")
    assert entry.nodes[0].derived == tuple(derive_forms("9*2=18"))


LOAD, OPEN = DatasetIndex.load, DatasetIndex.open
CHECKSUM = "is a damaged snapshot: its checksum does not hold"
CUT = "is a damaged snapshot: it is cut short"
WRONG_BYTES = "is a damaged prepared dataset: its first bytes are wrong; make it anew"


@pytest.mark.parametrize(
    ("read", "damage", "reason"),
    [
        *[
            (read, lambda whole, keep=keep: whole[:keep], CHECKSUM)
            for read in (LOAD, OPEN)
            for keep in (100, -1, -33, -40)
        ],
        (OPEN, lambda whole: b"", "is no snapshot of a dataset index"),
        (OPEN, lambda whole: whole[:10], CUT),
        (LOAD, lambda whole: b"", "is empty"),
        (LOAD, lambda whole: b"CPR", WRONG_BYTES),
        (LOAD, lambda whole: b"\0\0", WRONG_BYTES),
        (LOAD, lambda whole: b"\0PRINDEX" + whole[8:], WRONG_BYTES),
        (LOAD, lambda whole: whole[:8], CUT),
        (LOAD, lambda whole: whole[:12], CUT),
        (
            LOAD,
            lambda whole: whole[:8] + b"\1" + whole[9:],
            "is a snapshot of layout 1, layout 5 is read; make it anew",
        ),
    ],
)
def test_a_damaged_or_old_file_is_refused(
    prepared: Path, read: Any, damage: Callable[[bytes], bytes], reason: str
) -> None:
    prepared.write_bytes(damage(prepared.read_bytes()))
    with pytest.raises(DataError) as caught:
        read(prepared)
    assert str(caught.value) == f"{prepared}: {reason}"


@pytest.mark.parametrize("read", [LOAD, OPEN])
@pytest.mark.parametrize(
    ("name", "what", "ours"),
    [
        ("NORMAL_FORM_VERSION", "normal form", NORMAL_FORM_VERSION),
        ("EXPANSION_VERSION", "derived forms", EXPANSION_VERSION),
    ],
)
def test_another_normal_form_and_other_derived_forms_are_refused(
    prepared: Path, monkeypatch: pytest.MonkeyPatch, read: Any, name: str, what: str, ours: str
) -> None:
    monkeypatch.setattr(f"consensuspr.scoring.dataset_index.{name}", "next")
    with pytest.raises(DataError) as caught:
        read(prepared)
    assert str(caught.value) == (
        f"{prepared}: was made for {what} {ours}, this is next; make it anew: "
        f"consensuspr derive DATASET --output {prepared}"
    )


@pytest.mark.parametrize("policy", ["stored", "off"])
def test_another_policy_than_it_was_made_with_is_refused(prepared: Path, policy: Any) -> None:
    with pytest.raises(DataError) as caught:
        LOAD(prepared, derive=policy)
    asked = f"was made with derive 'missing', and {policy!r} is asked for"
    assert str(caught.value) == f"{prepared}: {asked}"


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

    with ThreadPoolExecutor(4) as threads:
        for future in [threads.submit(work) for _ in range(4)]:
            future.result()  # none met a file that was not complete
    assert len(done) == 20
    assert DatasetIndex.load(target).digest == DatasetIndex.load(dataset).digest
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["set.index", "set.jsonl"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.index", True), ("a.INDEX", True), ("index", False), ("a.jsonl", False), ("a.gz", False)],
)
def test_the_suffix_asks_for_a_prepared_dataset(name: str, expected: bool) -> None:
    assert is_prepared_output(name) == expected


@pytest.mark.slow
def test_the_command_prepares_and_servers_take_it(dataset: Path, tmp_path: Path) -> None:
    prepared = tmp_path / "set.index"
    derive = ("-m", "consensuspr.cli", "derive", dataset)
    assert run_python(*derive, "--output", prepared, "--json").json["problems"] == 3
    with (
        served(tmp_path, prepared, "--workers", "2") as address,
        RewardClient(address) as client,
    ):
        (score,) = client.score([Rollout("b", r"so 24 = 48 / 2 and \boxed{24}")])
    assert (score.acc, score.matched) == (1, (True,))


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put every dataset together on disk."""
    monkeypatch.setattr("consensuspr.scoring.dataset_index.MAX_MEMORY_BYTES", 1)


def test_on_disk_and_in_memory_make_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_many(tmp_path / "set.jsonl", 300)
    small = DatasetIndex.load(path)
    monkeypatch.setattr("consensuspr.scoring.dataset_index.MAX_MEMORY_BYTES", 1)
    large = DatasetIndex.load(path)
    assert isinstance(small.image.buffer, bytes)
    assert isinstance(large.image.buffer, mmap.mmap)
    assert large.image.buffer[:] == small.image.buffer
    assert large.problem_ids() == small.problem_ids()
    large.save(tmp_path / "large.index")
    small.save(tmp_path / "small.index")
    assert (tmp_path / "large.index").read_bytes() == (tmp_path / "small.index").read_bytes()
    assert entry_of(large, "p299").ground_truth == "299"  # still there after it was written from
    large.close()


@pytest.mark.usefixtures("on_disk")
def test_nothing_stays_in_the_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    index = DatasetIndex.load(write_many(tmp_path / "set.jsonl", 50))
    assert list(folder.iterdir()) == []
    index.close()


@pytest.mark.usefixtures("on_disk")
def test_a_temporary_directory_that_cannot_hold_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_many(tmp_path / "set.jsonl", 50)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(InputError) as caught:
        DatasetIndex.load(path)
    assert str(caught.value) == (
        f"{tmp_path / 'absent'}: cannot hold a large dataset while it is loaded: "
        "No such file or directory"
    )


# A process may write files of so many bytes, as if the disk were full then: in the middle of the
# records (which come at once, or from a buffer when the reading of them begins), and in what is
# made of them.
@pytest.mark.parametrize(
    ("output", "share"),
    [
        ("set.index", 0.5),
        ("other.jsonl", 0.01),
        *(
            pytest.param(output, share, marks=pytest.mark.slow)
            for output, share in [
                ("set.index", 0.0),
                ("set.index", 0.999),
                ("set.index", 1.01),
                ("other.jsonl.gz", 0.01),
                ("other.parquet", 0.01),
            ]
        ),
    ],
)
def test_a_full_disk_is_one_sentence(tmp_path: Path, output: str, share: float) -> None:
    path = write_many(tmp_path / "set.jsonl", 400)
    records = sum(len(record) for record in records_of(path))
    code = (
        "import resource, sys\n"
        "from consensuspr.scoring import dataset_index\n"
        "from consensuspr.cli import main\n"
        "dataset_index.MAX_MEMORY_BYTES = 1\n"
        "limit = int(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))\n"
        "sys.exit(main(sys.argv[2:]))\n"
    )
    limit = str(int(share * records))
    derive = ("-c", code, limit, "derive", path, "--no-progress")
    done = run_python(*derive, "--output", tmp_path / output)
    assert done.code == 2, done.err
    folder = tempfile.gettempdir()
    where = {
        "set.index": f"{folder}: cannot hold a large dataset while it is loaded",
        "other.parquet": f"{folder}: cannot hold the rows of {tmp_path / output} before they are "
        "written",
    }.get(output, f"{tmp_path / output}: cannot be written")
    reason = "File too large"
    if share == 0:  # then no directory can be found that takes anything
        where, reason = where.replace(folder, "the temporary directory"), "No usable temporary dir"
    assert done.err.startswith(f"consensuspr: error: {where}: {reason}")
    assert len(done.err.splitlines()) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["set.jsonl"]


def records_of(path: Path) -> list[bytes]:
    index = DatasetIndex.load(path)
    return [index.image.record(at) for at in range(len(index))]


@pytest.mark.usefixtures("on_disk")
def test_memory_does_not_grow_with_what_problems_hold(tmp_path: Path) -> None:
    sizes = (500, 2500)
    paths = [write_many(tmp_path / f"{count}.jsonl", count) for count in sizes]
    DatasetIndex.load(paths[0]).close()  # what is imported and cached on the way
    peaks = []
    for path in paths:
        tracemalloc.start()
        index = DatasetIndex.load(path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert index.nbytes / len(index) > 1000
        index.close()
    # An id, its line, and where its record lies.
    assert (peaks[1] - peaks[0]) / (sizes[1] - sizes[0]) < 400


def test_a_long_load_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_many(tmp_path / "set.jsonl", 600)
    with caplog.at_level(logging.INFO):
        DatasetIndex.load(path)
    assert not [text for text in caplog.messages if "so far" in text]
    monkeypatch.setattr("consensuspr.scoring.dataset_index.PROGRESS_S", 0.0)
    with caplog.at_level(logging.INFO):
        DatasetIndex.load(path)
    said = [text.partition(" in ")[0] for text in caplog.messages if "so far" in text]
    assert said == [f"{path}: {count} problems read so far" for count in (256, 512)]
    assert f"{path}: all 600 problems read, putting them in order" in caplog.messages
