"""What the pages of a report hold: figures, warnings, every rollout, nothing of folders."""

from __future__ import annotations

import pytest

pytest.importorskip("duckdb", reason="the extra consensusbench is not installed")
pytest.importorskip("sklearn", reason="the extra consensusbench is not installed")

from collections import Counter
from pathlib import Path

from consensusbench.evaluation.metrics import evaluate
from consensusbench.evaluation.scored import ScoredSet
from consensusbench.report.page import facts_of
from tests.consensusbench.report.conftest import (
    HOSTILE,
    Written,
    ordinary_problems,
    ordinary_rollouts,
    problem,
    response,
    rollout,
    scored,
    write_page,
)


def test_every_rollout_is_there_with_what_it_is_filtered_by(ordinary_page: Written) -> None:
    samples = ordinary_page.samples
    assert len(samples) == ordinary_page.written.samples == 24
    kinds = Counter((one["model"], one["acc"], one["diagnosis"]) for one in samples)
    assert kinds == {
        ("plain", 1.0, "sound"): 6,
        ("plain", 0.0, "almost correct"): 6,
        ("terse", 1.0, "direct answer"): 6,
        ("terse", 0.0, "wrong"): 6,
    }
    assert {round(one["ncr"], 3) for one in samples} == {1.0, 0.667, 0.0}
    assert {path for path in ordinary_page.documents if path.startswith("sample/")} == {
        f"sample/{one['run']}/{one['key']}" for one in samples
    }


def test_hits_are_marked_where_they_are(ordinary_page: Written) -> None:
    details = ordinary_page.sample("p11-sound")
    marked = [(piece["nodes"], piece["text"]) for piece in details["text"] if piece.get("nodes")]
    assert marked == [([0], "11 * 2 = 22"), ([1], "11 * 3 = 33"), ([2], "22 + 33 = 55")]
    assert [node["label"] for node in details["nodes"]] == ["twice", "thrice", "together"]
    assert details["problem"]["text"] == ordinary_problems()[0]["problem"]
    assert (details["answer"]["found"], details["answer"]["truth"]) == ("55", "55")


def test_rollouts_of_a_problem_stand_side_by_side(ordinary_page: Written) -> None:
    models = {
        "plain": (("sound", "almost"), [(1, 1), (1, 1), (1, 0)]),
        "terse": (("direct", "wrong"), [(0, 0)] * 3),
    }
    for model, (names, reached) in models.items():
        group = ordinary_page.documents[f'group/0?[["model","{model}"],["problem","p11"]]']
        assert {row["rollout_id"] for row in group["rows"]} == {f"p11-{name}" for name in names}
        assert [(node["by_right"], node["by_wrong"]) for node in group["nodes"]] == reached


def test_hostile_texts_are_all_there_and_none_in_the_markup(hostile_page: Written) -> None:
    texts = {one["rollout_id"]: one for one in hostile_page.samples}
    for at, text in enumerate(HOSTILE):
        shown = text.replace("\ud800", "\ufffd")
        name = next(name for name in texts if name.startswith(f"p17-bad-{at} "))
        details = hostile_page.sample(name)
        assert shown in "".join(piece.get("text", "") for piece in details["text"])
    assert (
        "owned" not in hostile_page.html and "onerror" not in hostile_page.html.split("</head>")[0]
    )


def test_the_sections_are_in_order(ordinary_page: Written) -> None:
    names = [section["title"] for section in ordinary_page.report["sections"]]
    assert names == ["Results", "Distributions", "Rewards", "Reward hacking", "Diagnosis"]
    # 12 rollouts of 6 problems, half right
    assert ordinary_page.rows("results", "Answers and nodes")[1][:4] == ["plain", 12, 6, 0.5]


@pytest.fixture(scope="module")
def odd_page(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Two files without lengths in tokens, with rollouts of every unusual kind."""
    question = "What are 18 times 2, 18 times 3, and both together?"
    guessable = problem(18, problem=question, data_source="guessed")
    problems = [*ordinary_problems(), problem(17, nodes=[]), guessable, problem(19)]
    first = [
        *ordinary_rollouts(),
        rollout(99, "lost", "text", ground_truth="7"),
        rollout(17, "nodeless", response(17)),
        rollout(12, "empty", ""),
    ]
    second = [
        rollout(18, "sound", response(18)),
        rollout(18, "wrong", response(18, nodes=0, right=False)),
    ]
    files = [[row | {"num_tokens": None} for row in rows] for rows in (first, second)]
    return write_page(tmp_path_factory.mktemp("odd"), problems, *files)


def test_warnings_are_at_the_top(odd_page: Written) -> None:
    warnings = odd_page.report["warnings"]
    assert odd_page.written.warnings == tuple(warnings)
    for beginning in (
        "2 rollouts have status NO_NODES: their problem has no nodes",
        "No rollout has a length in tokens",
        "attack `",
    ):
        assert [one for one in warnings if one.startswith(beginning)], beginning


def test_facts_count_problems_and_the_results_name_their_populations(odd_page: Written) -> None:
    facts = dict(odd_page.report["facts"])
    assert facts["Problems of the dataset"] == "9"
    assert facts["Problems with rollouts"] == "9, of them 2 without nodes"
    assert facts["Nodes"] == "21 of 7 problems with rollouts (3.0 a problem)"
    results = odd_page.section("results")["tables"]
    [table] = [t for t in results if t["caption"] == "Answers and nodes"]
    headings = [column["heading"] for column in table["columns"]]
    overall = odd_page.rows("results", "Answers and nodes")[0]
    assert (overall[0], overall[1], overall[headings.index("With NCR")]) == ("all", 29, 27)


def test_without_tokens_there_is_a_line_and_no_chart(
    odd_page: Written, ordinary_page: Written
) -> None:
    tpn = [
        "tpn" in [chart["name"] for chart in page.section("distributions")["charts"]]
        for page in (odd_page, ordinary_page)
    ]
    assert tpn == [False, True]
    line = "Tokens per node: No rollout has both a length in tokens and a matched node."
    assert odd_page.section("distributions")["notes"] == [line]


def test_unusual_rollouts_are_shown(odd_page: Written) -> None:
    assert odd_page.sample("p99-lost")["sample"]["status"] == "NO_NODES"
    nodeless = odd_page.sample("p17-nodeless")
    assert (nodeless["nodes"], nodeless["sample"]["status"]) == ([], "NO_NODES")
    assert odd_page.sample("p12-empty")["characters"] == 0


def test_files_are_runs_that_can_be_compared(odd_page: Written) -> None:
    names = [run["name"] for run in odd_page.documents["state"]["runs"]]
    assert names == ["rollouts-0.jsonl", "rollouts-1.jsonl"]
    assert Counter(one["run"] for one in odd_page.samples) == {0: 27, 1: 2}


def test_a_page_tells_no_folder(tmp_path: Path, ordinary_page: Written) -> None:
    for details, shown in ((str(tmp_path), tmp_path.name), ("maker/model", "maker/model")):
        made = ScoredSet({}, [scored()], tokenizer=details, num_tokenized=3)
        facts = dict(facts_of(made, evaluate(made, dataset="/x/d.jsonl"), "abc"))
        assert facts["Tokens"] == f"3 rollouts counted by {shown}"
    assert str(ordinary_page.path.parent) not in str(ordinary_page.documents)
