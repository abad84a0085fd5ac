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
    told = ordinary_page.sample("p11-sound")
    marked = [(piece["nodes"], piece["text"]) for piece in told["text"] if piece.get("nodes")]
    assert marked == [([0], "11 * 2 = 22"), ([1], "11 * 3 = 33"), ([2], "22 + 33 = 55")]
    assert [node["label"] for node in told["nodes"]] == ["twice", "thrice", "together"]
    assert told["problem"]["text"] == ordinary_problems()[0]["problem"]
    assert told["answer"]["ground_truth"] == "55"


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
        told = hostile_page.sample(name)
        assert shown in "".join(piece.get("text", "") for piece in told["text"])
    assert (
        "owned" not in hostile_page.html and "onerror" not in hostile_page.html.split("</head>")[0]
    )


def test_the_sections_are_in_order(ordinary_page: Written) -> None:
    names = [section["title"] for section in ordinary_page.report["sections"]]
    assert names == ["Results", "Distributions", "Rewards", "Reward hacking", "Diagnosis"]
    # 12 rollouts of 6 problems, half right
    assert ordinary_page.rows("results", "Answers and nodes")[1][:4] == ["plain", 12, 6, 0.5]


def test_statuses_are_loud(tmp_path: Path) -> None:
    rollouts = [*ordinary_rollouts(), rollout(99, "lost", "text")]
    page = write_page(tmp_path, ordinary_problems(), rollouts)
    [warning] = page.written.warnings
    assert warning.startswith("1 rollouts have status UNKNOWN_PROBLEM: the dataset does not have")
    assert page.report["warnings"] == [warning]
    assert page.sample("p99-lost")["sample"]["status"] == "UNKNOWN_PROBLEM"


def test_the_head_warns_of_attacks_that_pay_better_than_being_wrong(tmp_path: Path) -> None:
    # No row says which rollouts are wrong: the page has judged them.
    texts = [("wrong", response(11, nodes=0, right=False)), ("sound", response(11))]
    guessable = problem(11, problem="What are 11 times 2, 11 times 3, and both together?")
    page = write_page(tmp_path, [guessable], [rollout(11, name, text) for name, text in texts])
    [warning] = page.report["warnings"]
    assert "% NCR on odd; wrong rollouts score 0.0 %" in warning


def test_the_facts_count_problems_and_the_results_what_they_are_over(tmp_path: Path) -> None:
    rollouts = [*ordinary_rollouts(), rollout(99, "lost", "text", ground_truth="7")]
    problems = [problem(number) for number in range(11, 20)]
    page = write_page(tmp_path, problems, rollouts, probes=False)
    facts = dict(page.report["facts"])
    assert facts["Problems of the dataset"] == "9"
    assert facts["Problems with rollouts"] == "7, of them 1 without nodes"
    assert facts["Nodes"] == "18 of 6 problems with rollouts (3.0 a problem)"
    [table] = [t for t in page.section("results")["tables"] if t["caption"] == "Answers and nodes"]
    headings = [column["heading"] for column in table["columns"]]
    overall = page.rows("results", "Answers and nodes")[0]
    # NCR is over the 24 rollouts with nodes.
    assert (overall[0], overall[1], overall[headings.index("With NCR")]) == ("all", 25, 24)
    assert "Reward hacking" not in [section["title"] for section in page.report["sections"]]


def test_without_tokens_there_is_a_line_and_no_chart(
    tmp_path: Path, ordinary_page: Written
) -> None:
    def charts(page: Written) -> list[str]:
        return [chart["name"] for chart in page.section("distributions")["charts"]]

    assert "tpn" in charts(ordinary_page)
    rows = [row | {"num_tokens": None} for row in ordinary_rollouts()]
    page = write_page(tmp_path, ordinary_problems(), rollouts=rows, probes=False)
    assert "tpn" not in charts(page)
    line = "Tokens per node: No rollout has both a length in tokens and a matched node."
    assert page.section("distributions")["notes"] == [line]


def test_thresholds_are_sentences(ordinary_page: Written) -> None:
    notes = ordinary_page.section("diagnosis")["notes"]
    almost = "Almost correct: a wrong answer with an NCR of 0.75 or more and 2 nodes"
    assert any(note.startswith(almost) for note in notes)


def test_models_stand_in_one_order_everywhere(tmp_path: Path) -> None:
    models = ["zeta", "Beta", "alpha", ""]
    rows = [
        rollout(number, f"{at}", response(number), model=model)
        for at, model in enumerate(models)
        for number in range(11, 12 + at)
    ]
    page = write_page(tmp_path, ordinary_problems(), rows, probes=False)
    ordered = ["Beta", "alpha", "zeta", "(none)"]
    assert [row[0] for row in page.rows("results", "Answers and nodes")][:5] == ["all", *ordered]
    classes = dict.fromkeys(row[0] for row in page.rows("diagnosis", "Classes"))
    assert list(classes) == [*ordered, "all"]


def test_a_page_tells_no_folder(tmp_path: Path, ordinary_page: Written) -> None:
    for told, shown in ((str(tmp_path), tmp_path.name), ("maker/model", "maker/model")):
        made = ScoredSet({}, [scored()], tokenizer=told, num_tokenized=3)
        facts = dict(facts_of(made, evaluate(made, dataset="/x/d.jsonl"), "abc"))
        assert facts["Tokens"] == f"3 rollouts counted by {shown}"
    assert str(ordinary_page.path.parent) not in str(ordinary_page.documents)


def test_a_problem_without_nodes_and_an_empty_response_are_shown(tmp_path: Path) -> None:
    page = write_page(
        tmp_path,
        [problem(11, nodes=[]), problem(12)],
        [rollout(11, "nodeless", response(11)), rollout(12, "empty", "", num_tokens=None)],
        probes=False,
    )
    assert page.sample("p11-nodeless")["nodes"] == []
    assert page.sample("p11-nodeless")["sample"]["status"] == "NO_NODES"
    assert page.sample("p12-empty")["characters"] == 0


def test_files_are_runs_that_can_be_compared(tmp_path: Path) -> None:
    from consensusbench.evaluation.scored import score_files
    from consensusbench.report.page import prepare, write_pages
    from tests.rows import write_rows

    dataset = Path(write_rows(tmp_path / "problems.jsonl", ordinary_problems()))
    rows = ordinary_rollouts()
    files = [write_rows(tmp_path / f"{at}.jsonl", rows[at::2]) for at in range(2)]
    scored_set = score_files(files, dataset, spans=True)
    report, sources = prepare(scored_set, dataset, probes=False)
    output = tmp_path / "r.html"
    page = Written(output, write_pages(sources, dataset, output, "", report))
    assert [run["name"] for run in page.documents["state"]["runs"]] == ["0.jsonl", "1.jsonl"]
    assert Counter(one["run"] for one in page.samples) == {0: 12, 1: 12}
