"""Files to scored rollouts: scored here, by a server, or before; and what is refused."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from consensusbench.evaluation import scored as scored_module
from consensusbench.evaluation.scored import (
    ScoredSet,
    count_rollouts,
    difficulty_of,
    open_tokenizer,
    reasons_itself,
    score_files,
)
from consensuspr.client import LocalClient, Rollout, ScoredBatch
from consensuspr.client.files import Connection
from consensuspr.data import read_rollouts
from consensuspr.errors import DataError, InputError, ServerFault
from consensuspr.scoring.types import Status
from tests.consensusbench.conftest import WriteDataset
from tests.rows import read_rows, write_rows
from tests.servers import served

PROBLEMS: list[dict[str, Any]] = [
    {
        "problem_id": "p1",
        "data_source": "sums",
        "ground_truth": "9",
        "metadata": {"level": 1},
        "nodes": [
            {"node_id": "a", "label": "total", "expressions": ["4*12=48"], "derived": []},
            {"node_id": "b", "expressions": ["48-39=9"], "derived": [], "is_final": True},
        ],
    },
    {"problem_id": "p2", "data_source": "bare", "ground_truth": "7", "nodes": []},
    {"problem_id": "p3", "nodes": [{"expressions": ["c^2=25"], "derived": []}]},
]
ROLLOUTS: list[dict[str, Any]] = [
    {
        "problem_id": "p1",
        "rollout_id": "right",
        "model": "A",
        "response": "4 × 12 = 48, so 48 - 39 = 9.\nAnswer: 9",
        "num_tokens": 20,
    },
    {"problem_id": "p1", "rollout_id": "half", "response": "4·12 = 48. Answer: 8", "num_tokens": 0},
    {"problem_id": "p2", "rollout_id": "bare", "response": "Answer: 7", "data_source": "own"},
    {"problem_id": "p3", "response": "c² = 25"},
    {"problem_id": "p9", "rollout_id": "lost", "response": "Answer: 1"},
    {"problem_id": "p9", "rollout_id": "brought", "response": "Answer: 1", "ground_truth": "1"},
]


@pytest.fixture
def dataset(write_dataset: WriteDataset) -> Path:
    """Three problems, one without nodes and one without a ground truth."""
    return write_dataset(*PROBLEMS, name="problems.jsonl")


@pytest.fixture
def rollouts(write_dataset: WriteDataset) -> Path:
    """Six rollouts, two of a problem that the dataset does not have."""
    return write_dataset(*ROLLOUTS, name="rollouts.jsonl")


def without_place(scored: ScoredSet) -> list[Any]:
    return [(r.problem_id, r.status, r.acc, r.matched, r.spans, r.answer) for r in scored.rollouts]


def test_rollouts_are_scored_and_their_texts_forgotten(dataset: Path, rollouts: Path) -> None:
    counts: list[int] = []
    scored = score_files([rollouts], dataset, progress=counts.append)
    right, half, bare, no_truth, lost, brought = scored.rollouts
    assert (right.acc, right.matched, right.ncr, right.tpn) == (1.0, (True, True), 1.0, 10.0)
    assert (right.model, right.data_source, right.answer) == ("A", "sums", "9")
    assert (half.acc, half.ncr, half.num_tokens, half.tpn) == (0.0, 0.5, None, None)
    assert (bare.status, bare.acc, bare.ncr, bare.data_source) == (
        Status.NO_NODES,
        1.0,
        None,
        "own",
    )
    assert (no_truth.status, no_truth.acc, no_truth.ncr) == (Status.NO_GROUND_TRUTH, None, 1.0)
    assert (lost.status, lost.acc, lost.ncr, lost.data_source) == (
        Status.UNKNOWN_PROBLEM,
        None,
        None,
        "",
    )
    assert (brought.status, brought.acc, brought.facts) == (Status.NO_NODES, 1.0, None)
    assert no_truth.rollout_id == "rollouts.jsonl:4"
    assert [r.num_chars for r in scored.rollouts] == [len(row["response"]) for row in ROLLOUTS]
    assert scored.statuses == Counter(r.status for r in scored.rollouts)
    assert "p9" in scored.messages[Status.UNKNOWN_PROBLEM]
    assert scored.identity is not None and scored.num_stored == 0
    assert counts[-1] == 6 and counts == sorted(counts)


def test_what_patterns_alone_find_is_told_where_it_is_asked_for(
    write_dataset: WriteDataset, tmp_path: Path
) -> None:
    nodes = [{"expressions": ["48-39=9"]}, {"expressions": ["2*3=6"]}]
    dataset = write_dataset({"problem_id": "p", "ground_truth": "9", "nodes": nodes})
    rows = [
        {"problem_id": "p", "response": "48 pens - 39 pens on the desk = 9, and 2*3=6"},
        {"problem_id": "p", "response": "9", "nodes": [["9"], ["8"]]},  # its own
        {"problem_id": "q", "response": "2*3=6"},
    ]
    rollouts = write_dataset(*rows, name="rollouts.jsonl")
    output = tmp_path / "scored.jsonl"
    scored = score_files([rollouts], dataset, plain=True, scored_output=output)
    assert (scored.rollouts[0].matched, scored.rollouts[0].plain) == ((True, True), (False, True))
    assert [one.plain for one in scored.rollouts[1:]] == [None, None]
    # Of rollouts that bring their scores too: patterns are looked for here.
    again = score_files([output], dataset, plain=True)
    assert (again.num_stored, again.rollouts[0].plain) == (3, (False, True))
    assert score_files([rollouts], dataset).rollouts[0].plain is None


def test_facts_are_those_of_the_dataset(dataset: Path, rollouts: Path) -> None:
    scored = score_files([rollouts], dataset)
    facts = scored.problems["p1"]
    assert (facts.difficulty, facts.ground_truth) == ("easy", "9")
    assert facts.is_final == (False, True)
    assert list(scored.problems) == ["p1", "p2", "p3"]
    right, half = scored.rollouts[:2]
    assert right.ncr_without_final == half.ncr_without_final == 1.0
    assert scored.rollouts[2].ncr_without_final is None


def test_spans_come_where_they_are_asked_for(dataset: Path, rollouts: Path) -> None:
    scored = score_files([rollouts], dataset, spans=True)
    assert scored.rollouts[0].spans == ((0, 11), (16, 27))
    assert scored.rollouts[1].spans == ((0, 9), None)
    assert score_files([rollouts], dataset).rollouts[0].spans is None


@pytest.mark.parametrize("name", ["scored.jsonl", "scored.jsonl.gz", "scored.parquet"])
def test_what_was_scored_once_is_not_scored_again(
    dataset: Path, rollouts: Path, tmp_path: Path, name: str
) -> None:
    output = tmp_path / name
    first = score_files([rollouts], dataset, spans=True, scored_output=output)
    again = score_files([output], dataset, spans=True)
    assert without_place(again) == without_place(first)
    assert again.num_stored == 6 and again.identity is None
    second = tmp_path / f"again-{name}"
    score_files([output], dataset, spans=True, scored_output=second)
    assert list(read_rollouts(second)) == list(read_rollouts(output))
    # Asked for more than is stored, those that have nodes are scored again.
    plain = tmp_path / "plain.jsonl"
    score_files([rollouts], dataset, scored_output=plain)
    assert score_files([plain], dataset, spans=True).num_stored == 3
    written = next(iter(read_rollouts(plain)))
    assert {"extracted_answer", "answer_method", "status"} <= written.keys()


def test_a_server_gives_the_same(dataset: Path, rollouts: Path, tmp_path: Path) -> None:
    here = score_files([rollouts], dataset, spans=True)
    with served(tmp_path, f"small={dataset}", "--workers", "1") as address:
        there = score_files([rollouts], dataset, spans=True, address=address)
    assert there.rollouts == here.rollouts
    assert there.identity is not None and there.identity.dataset == "small"


SCORED = {
    "problem_id": "p1",
    "rollout_id": "r",
    "response": "x",
    "acc": 1.0,
    "ncr": 0.5,
    "matched": [True, False],
    "status": "OK",
}


@pytest.mark.parametrize(
    ("response", "own"),
    [
        ("The provided values give x = 3, which was already known.", True),
        ("```\nx = 3\n```", True),
        ("As the Cheat Sheet says, x = 3.", False),
        ("This has already been solved: 3.", False),
        ("I use the provided answer.", False),
        ("```Python\nprint(3)\n```", False),
        ("x\nEXECUTE CODE!", False),
    ],
)
def test_who_reasons_itself(response: str, own: bool) -> None:
    assert reasons_itself(response) is own


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"matched": [True]}, "scored OK with 1 nodes, and its problem has 2"),
        (
            {"status": "NO_NODES", "matched": []},
            "scored NO_NODES with 0 nodes, and its problem has 2",
        ),
        ({"status": "UNKNOWN_PROBLEM", "matched": [], "acc": None}, "its problem has 2"),
        ({"problem_id": "p7"}, "its problem has 0 in this dataset"),
        ({"status": "FINE"}, "status 'FINE' is not a status"),
        ({"acc": 0.5}, "acc must be 0, 1 or null, got '0.5'"),
        ({"acc": True}, "acc must be 0, 1 or null"),
        ({"matched": [1, 0]}, "matched must be a list of true and false"),
        ({"spans": [[0, 1]]}, "spans must hold"),
        ({"spans": [[0, 1], [2, 3]]}, "spans must hold"),
        ({"spans": [[0, 2], None]}, "inside the response"),
        (
            {"status": "INTERNAL", "matched": [], "acc": 0.0},
            "acc must be null under status INTERNAL, got 0.0",
        ),
        ({"status": "OVERSIZE", "matched": [], "acc": 0}, "acc must be null under status OVERSIZE"),
        ({"status": "NO_GROUND_TRUTH", "acc": 0}, "acc must be null under status NO_GROUND_TRUTH"),
    ],
)
def test_scores_of_another_dataset_are_refused(
    dataset: Path, write_dataset: WriteDataset, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(DataError) as caught:
        score_files([write_dataset(SCORED | changes, name="old.jsonl")], dataset)
    assert "old.jsonl: rollout 'r'" in str(caught.value) and sentence in str(caught.value)


def test_stored_statuses_are_kept_and_no_failure_becomes_a_zero(
    dataset: Path, write_dataset: WriteDataset
) -> None:
    nothing: dict[str, Any] = {"acc": None, "ncr": None, "matched": []}
    rows = [
        SCORED | {"status": "INTERNAL", **nothing},
        SCORED | {"status": "OVERSIZE", **nothing},
        SCORED | {"status": "ANSWER_UNDECIDED", "acc": 0.0},
        SCORED | {"status": "ANSWER_UNDECIDED", "acc": 0.0, "answer_method": "load"},
        SCORED | {"status": "NO_GROUND_TRUTH", "acc": None},
    ]
    scored = score_files([write_dataset(*rows, name="scored.jsonl")], dataset)
    assert [r.acc for r in scored.rollouts] == [None, None, 0.0, 0.0, None]
    assert [r.ncr for r in scored.rollouts] == [None, None, 0.5, 0.5, 0.5]
    assert [r.undecided for r in scored.rollouts] == [False, False, True, True, False]
    assert [r.undecided_by_load for r in scored.rollouts] == [False] * 3 + [True, False]


def test_a_server_that_changes_in_between_ends_the_run(
    dataset: Path, rollouts: Path, write_dataset: WriteDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = write_dataset(*ROLLOUTS[:1], name="second.jsonl")
    with LocalClient(dataset) as client:
        real = client.score

        def changing(rollouts: list[Rollout], **options: Any) -> ScoredBatch:
            batch = real(rollouts, **options)
            batch.identity = replace(batch.identity, dataset_digest=f"of {len(rollouts)}")
            return batch

        monkeypatch.setattr(client, "score", changing)
        connection = Connection(client, None, client.data_source)
        monkeypatch.setattr(scored_module, "connect", lambda *given: nullcontext(connection))
        with pytest.raises(ServerFault, match="changed after 6 rollouts"):
            score_files([rollouts, second], dataset)


def test_rows_of_a_changed_file_are_refused(dataset: Path, rollouts: Path) -> None:
    scored = score_files([rollouts], dataset)
    assert [row["response"] for _, row in scored.rows()] == [one["response"] for one in ROLLOUTS]
    for rows in (ROLLOUTS[:2], [ROLLOUTS[1], *ROLLOUTS]):
        write_rows(rollouts, rows)
        with pytest.raises(DataError, match="has changed since its rollouts were scored"):
            list(scored.rows())


def test_bad_rows_stop_or_are_skipped_and_counted(
    dataset: Path, rollouts: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = rollouts.read_text(encoding="utf-8").splitlines(keepends=True)
    rollouts.write_text("".join([lines[0], "nonsense\n", *lines[1:]]), encoding="utf-8")
    with pytest.raises(DataError, match=r"rollouts\.jsonl:2"):
        count_rollouts([rollouts])
    scored = score_files([rollouts], dataset, on_error="skip")
    assert (len(scored.rollouts), scored.skipped_rows) == (6, 1)
    warned = len(caplog.records)
    assert len(list(scored.rows())) == 6
    assert len(caplog.records) == warned  # named once


def test_files_that_would_count_twice_are_refused(
    dataset: Path, rollouts: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link.jsonl"
    link.symlink_to(rollouts)
    with pytest.raises(InputError, match="given twice"):
        score_files([rollouts, link], dataset)
    with pytest.raises(InputError, match="at least one file"):
        score_files([], dataset)
    with pytest.raises(InputError, match="is an input of this command"):
        score_files([rollouts], dataset, scored_output=link)


@pytest.mark.parametrize(
    ("metadata", "difficulty"),
    [
        ({"difficulty": "hard"}, "hard"),
        ({"difficulty": " Easy "}, "easy"),
        ({"difficulty": "olympiad", "level": 5}, "hard"),
        ({"level": 1}, "easy"),
        ({"level": 3.0}, "medium"),
        ({"level": "4"}, "medium"),
        ({"level": "Level 5"}, "hard"),
        ({"level": 6}, None),
        ({"level": 2.5}, None),
        ({"level": True}, None),
        ({}, None),
    ],
)
def test_difficulty_is_read_from_the_metadata(
    metadata: dict[str, Any], difficulty: str | None
) -> None:
    assert difficulty_of(metadata) == difficulty


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """A tokenizer of words, which says to cut at 3, to fill up, and to mark the beginning."""
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {word: at for at, word in enumerate(["[UNK]", "[BOS]", "so", "x", "is"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[BOS] $A", special_tokens=[("[BOS]", 1)]
    )
    made.enable_truncation(3)
    made.enable_padding(length=50)
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return path


def test_all_tokens_count_and_no_others(tokenizer: Path) -> None:
    count = open_tokenizer(str(tokenizer))
    assert count(["so x is so x is", "x", "", "unheard of"]) == [6, 1, 0, 2]
    assert open_tokenizer(str(tokenizer.parent))(["so x"]) == [2]


def test_a_tokenizer_counts_where_rollouts_do_not_say(tokenizer: Path, tmp_path: Path) -> None:
    dataset, rollouts, output = (tmp_path / f"{name}.jsonl" for name in ("d", "r", "o"))
    node = {"expressions": ["x=15"], "derived": []}
    dataset.write_text(json.dumps({"problem_id": "p", "ground_truth": "15", "nodes": [node]}))
    rows = [{"problem_id": "p", "response": "so x=15", "num_tokens": n} for n in (9, None, 0)]
    write_rows(rollouts, rows)
    scored = score_files([rollouts], dataset, tokenizer=str(tokenizer), scored_output=output)
    assert [r.num_tokens for r in scored.rollouts] == [9, 4, 4]
    assert (scored.tokenizer, scored.num_tokenized) == (str(tokenizer), 2)
    written = read_rows(output)
    assert [(row["num_tokens"], row["tpn"]) for row in written] == [(9, 9.0), (4, 4.0), (4, 4.0)]


def test_a_tokenizer_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "no" / "tokenizer.json"
    with pytest.raises(InputError, match="cannot be loaded"):
        open_tokenizer(str(missing))
    broken = tmp_path / "tokenizer.json"
    broken.write_text("{}")
    with pytest.raises(InputError, match="cannot be loaded"):
        open_tokenizer(str(broken))
