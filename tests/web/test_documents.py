"""The documents of the page, of real logs and over real HTTP."""

from __future__ import annotations

import csv
import io
import json
import random
import time
import urllib.parse
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consensuspr.client import LocalClient, RewardSpec
from consensuspr.data import read_problems, read_rollouts
from consensuspr.errors import InputError
from consensuspr.score_log import LogReader, ScoreLog, keep_dataset
from consensuspr.score_log.curves import FIGURES, read_curve
from consensuspr.scoring import (
    AnswerVerifier,
    DatasetIndex,
    Rollout,
    ScoreOptions,
    Scorer,
    rollout_from_row,
)
from consensuspr.scoring.marks import words_found
from consensuspr.scoring.types import Sample, SampleKeys, Score, Status, scored_row
from consensuspr.web import store
from consensuspr.web.sources import open_source
from tests.rows import write_rows
from tests.score_logs import log_formulas, part_of, rows_in, sample
from tests.watched import DATASET, SAMPLE, Watched, opened


def rows_of(page: Watched, **query: object) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = page.get("samples", **query)["rows"]
    return rows


def test_state_lists_runs(page: Watched, runs: list[Path]) -> None:
    state = page.get("state")
    assert [run["name"] for run in state["runs"]] == ["stuffing", "honest"]
    for run, folder in zip(state["runs"], runs, strict=True):
        logged = rows_in(folder, "status", "step", "split", "data_source", "problem_id")
        assert run["samples"] == len(logged)
        assert run["statuses"] == Counter(row["status"] for row in logged)
        assert run["steps"] == [1, 12]
        assert set(run["splits"]) == {"train", "test"}
        assert set(run["sources"]) == {row["data_source"] for row in logged}
        assert run["problems"] == len({row["problem_id"] for row in logged})
        assert run["left_out"] == []


@pytest.mark.parametrize("split", [None, "train", "test"])
def test_curves_are_those_of_the_command(
    page: Watched, runs: list[Path], split: str | None
) -> None:
    drawn = page.get("curves", **({} if split is None else {"split": split}))
    for one, folder in zip(drawn["runs"], runs, strict=True):
        curve = read_curve(folder, split)
        assert one["x"] == [point.last_step for point in curve]
        for name in set(FIGURES) - {"failed"}:
            assert one[name] == pytest.approx([getattr(point, name) for point in curve]), name


FILTERS: list[tuple[dict[str, object], Any]] = [
    ({"step": "3..5"}, lambda row: 3 <= row["step"] <= 5),
    ({"step": 4}, lambda row: row["step"] == 4),
    ({"split": "test"}, lambda row: row["split"] == "test"),
    ({"source": "sample/algebra"}, lambda row: row["data_source"] == "sample/algebra"),
    ({"model": ""}, lambda row: True),
    ({"verdict": "right"}, lambda row: row["acc"] == 1),
    ({"verdict": "wrong", "ncr": "0.5.."}, lambda row: row["acc"] == 0 and row["ncr"] >= 0.5),
    ({"kind": "wrong_all"},
     lambda row: row["acc"] == 0 and row["num_matched"] == row["num_nodes"]),
    ({"kind": "right_none"}, lambda row: row["acc"] == 1 and row["num_matched"] == 0),
    ({"kind": "guarded"}, lambda row: row["guard"] < 1),
    ({"verdict": "wrong", "reached": "all"},
     lambda row: row["acc"] == 0 and row["num_matched"] == row["num_nodes"]),
    ({"reached": "half"},
     lambda row: 0.5 <= row["num_matched"] / row["num_nodes"] < 1),
    ({"reward": "..0.25"}, lambda row: row["final_score"] <= 0.25),
    ({"tokens": "100.."}, lambda row: row["num_tokens"] >= 100),
    ({"problem": "sample-nt-001", "node": 0},
     lambda row: row["problem_id"] == "sample-nt-001" and row["channels"][0]),
    ({"status": "INTERNAL"}, lambda row: False),
]  # fmt: skip


@pytest.mark.parametrize(("query", "meant"), FILTERS, ids=[str(query) for query, _ in FILTERS])
def test_filters(page: Watched, runs: list[Path], query: dict[str, object], meant: Any) -> None:
    keys = {row["key"].hex() for row in rows_in(runs[0]) if meant(row)}
    found = page.get("samples", run=0, limit=500, **query)
    assert found["total"] == len(keys)
    assert {row["key"] for row in found["rows"]} <= keys
    assert len(found["rows"]) == min(500, len(keys))


@pytest.mark.parametrize(("sort", "desc"), [("score", 1), ("num_tokens", 0), ("problem", 1)])
def test_pages_hold_each_sample_once_in_order(page: Watched, sort: str, desc: int) -> None:
    rows: list[dict[str, Any]] = []
    while True:
        some = rows_of(page, run=1, sort=sort, desc=desc, offset=len(rows), limit=300)
        rows += some
        if len(some) < 300:
            break
    assert len({row["key"] for row in rows}) == len(rows) == page.get("samples", run=1)["total"]
    values = [row[sort] for row in rows]
    assert values == sorted(values, reverse=bool(desc))
    newest = [row["step"] for row in rows_of(page, run=0, limit=200)]
    assert newest[0] == 12
    assert newest == sorted(newest, reverse=True)


def test_text_is_searched_in_all_responses(page: Watched, runs: list[Path]) -> None:
    meant = {
        r["key"].hex() for r in rows_in(runs[0]) if "recall the facts" in r["response"].lower()
    }
    rows: list[dict[str, Any]] = []
    search = {"searched": 0, "complete": False}
    while not search["complete"]:
        found = page.get(
            "samples", run=0, q="RECALL the facts", limit=50, offset=search["searched"]
        )
        search = found["search"]
        rows += found["rows"]
    assert meant
    assert sorted(row["key"] for row in rows) == sorted(meant)
    assert search["searched"] == search["candidates"] == page.get("samples", run=0)["total"]


def test_a_sample_explains_its_reward(page: Watched, runs: list[Path]) -> None:
    light = rows_of(page, run=0, kind="wrong_all", sort="num_matched", limit=1)[0]
    shown = page.get(f"sample/0/{light['key']}")
    [row] = [row for row in rows_in(runs[0]) if row["key"].hex() == light["key"]]
    assert "".join(piece["text"] for piece in shown["text"]) == row["response"]
    assert shown["explained"]
    assert shown["differs"] is None
    problem = next(p for p in read_problems(DATASET) if p.problem_id == light["problem"])
    assert shown["problem"]["text"] == problem.problem
    assert shown["answer"] == {
        "found": row["answer"], "truth": problem.ground_truth, "why": "It counts as wrong."
    }  # fmt: skip
    assert [node["expressions"] for node in shown["nodes"]] == [
        list(node.expressions) for node in problem.nodes
    ]
    for at, node in enumerate(shown["nodes"]):
        assert node["matched"] == (light["channels"][at] != "-")
        covered = "".join(p["text"] for p in shown["text"] if at in p["nodes"])
        start, end = node["span"] or (0, 0)
        assert covered == row["response"][start:end]
        assert node["words"] == (
            words_found(row["response"], node["span"], node["expression"] or "") or None
        )
    assert sum(term["adds"] for term in shown["terms"]) == pytest.approx(light["score"])
    assert shown["identity"]["reward_spec"]["kind"] == "linear"


def test_the_arithmetic_of_the_guard_is_shown(page: Watched) -> None:
    light = rows_of(page, kind="guarded", sort="guard", desc=0, limit=1)[0]
    figures = page.get(f"sample/{light['run']}/{light['key']}")["guard"]
    factor = min(1, figures["max_statements"] / figures["statements"])
    factor *= min(1, figures["max_numbers"] / figures["numbers"])
    assert factor == pytest.approx(light["guard"])
    assert light["ncr_raw"] * light["guard"] == pytest.approx(light["ncr"])


def test_a_group_stands_side_by_side(page: Watched) -> None:
    light = rows_of(page, run=0, split="train", limit=1)[0]
    group = page.get("group/0", group=light["group"])
    same = page.get("group/0", problem=light["problem"], step=light["step"], split="train")
    assert group["total"] == len(group["rows"]) == 8
    assert {row["key"] for row in same["rows"]} == {row["key"] for row in group["rows"]}
    scores = [row["score"] for row in group["rows"]]
    assert scores == sorted(scores, reverse=True)
    assert group["reward"]["mean"] == pytest.approx(sum(scores) / 8)
    assert group["reward"]["no_gradient"] == (max(scores) - min(scores) < 1e-6)
    for node in group["nodes"]:
        reached = [row for row in group["rows"] if row["channels"][node["number"]] != "-"]
        assert node["by_right"] == sum(row["acc"] == 1 for row in reached)
        assert node["by_wrong"] == sum(row["acc"] == 0 for row in reached)


def test_two_runs_are_compared(page: Watched, runs: list[Path]) -> None:
    logged = [rows_in(run) for run in runs]
    shown = page.get("compare", a=0, b=1, limit=500, split="train")
    train = [[row for row in rows if row["split"] == "train"] for rows in logged]
    for side, rows in zip("ab", train, strict=True):
        assert shown["sides"][side]["samples"] == len(rows)
        acc = sum(row["acc"] for row in rows) / len(rows)
        assert shown["sides"][side]["acc"] == pytest.approx(acc)
        [dataset] = shown["sides"][side]["datasets"]
        assert dataset == rows[0]["dataset_digest"]

    def mean(rows: list[dict[str, Any]], problem: str) -> float:
        mine: list[float] = [row["acc"] for row in rows if row["problem_id"] == problem]
        return sum(mine) / len(mine)

    problems = {row["problem_id"] for rows in train for row in rows}
    assert {row["problem"] for row in shown["rows"]} == problems
    for row in shown["rows"]:
        expected = [mean(rows, row["problem"]) for rows in train]
        assert [row["a_acc"], row["b_acc"]] == pytest.approx(expected)
        assert row["acc"] == pytest.approx(expected[1] - expected[0])
    changes = [row["acc"] for row in shown["rows"]]
    assert changes == sorted(changes, reverse=True)
    assert shown["counts"] == {
        "better": sum(change > 1e-6 for change in changes),
        "worse": sum(change < -1e-6 for change in changes),
        "same": sum(abs(change) <= 1e-6 for change in changes),
        "only_a": 0,
        "only_b": 0,
    }
    assert shown["differences"]["acc"]["mean"] == pytest.approx(sum(changes) / len(changes))
    worse = page.get("compare", a=0, b=1, split="train", change="worse", sort="acc", desc=0)
    assert worse["total"] == shown["counts"]["worse"]
    assert worse["rows"][0]["acc"] == min(changes)


def test_the_ends_of_one_run_are_compared(page: Watched, runs: list[Path]) -> None:
    shown = page.get("compare", a=0, b=0, a_step="..4", b_step="9..", limit=500)
    rows = rows_in(runs[0])
    early = {row["problem_id"] for row in rows if row["step"] <= 4}
    late = {row["problem_id"] for row in rows if row["step"] >= 9}
    assert shown["counts"]["only_a"] == len(early - late)
    assert shown["counts"]["only_b"] == len(late - early)
    assert shown["total"] == len(early | late)
    assert {row["acc"] for row in shown["rows"][-1:]} == {None}  # what has no change comes last
    named = page.get("compare", a=0, b=1, q="nt-00", limit=500)
    assert {row["problem"] for row in named["rows"]} == {
        problem for problem in {row["problem_id"] for row in rows} if "nt-00" in problem
    }


def test_problems_are_added_up(page: Watched, runs: list[Path]) -> None:
    logged = rows_in(runs[0])
    found = page.get("problems", run=0, sort="problem", desc=0, limit=500)
    assert [row["problem"] for row in found["rows"]] == sorted({r["problem_id"] for r in logged})
    for row in found["rows"]:
        mine = [one for one in logged if one["problem_id"] == row["problem"]]
        assert row["samples"] == len(mine)
        assert row["acc"] == pytest.approx(sum(one["acc"] for one in mine) / len(mine))
        wrong = [one["ncr"] for one in mine if one["acc"] == 0]
        assert row["ncr_wrong"] == (pytest.approx(sum(wrong) / len(wrong)) if wrong else None)
        first, last = (
            np.mean([one["acc"] for one in mine if one["step"] == end(o["step"] for o in mine)])
            for end in (min, max)
        )
        assert row["change"] == pytest.approx(last - first)
    for one in page.get("problems", run=0, q="NT-00")["rows"]:
        assert one["problem"].startswith("sample-nt-00")


def test_a_problem_over_the_steps(page: Watched, runs: list[Path]) -> None:
    problem_id = page.get("problems", run=0, limit=1)["rows"][0]["problem"]
    shown = page.get(f"problem/0/{problem_id}")
    mine = [row for row in rows_in(runs[0]) if row["problem_id"] == problem_id]
    assert shown["samples"] == len(mine)
    assert shown["right"] + shown["wrong"] == len(mine)
    assert shown["history"]["x"] == sorted({row["step"] for row in mine})
    for at, node in enumerate(shown["nodes"]):
        reached = [row for row in mine if row["channels"][at]]
        assert node["by_wrong"] == sum(row["acc"] == 0 for row in reached)
        assert sum(shown["history"]["nodes"][at]["by_wrong"]) == node["by_wrong"]
        assert node["label"]
    assert {row["problem"] for row in shown["best"]} == {problem_id}


def test_the_download_holds_all(page: Watched) -> None:
    reply = page.ask("/samples.csv?run=0&verdict=wrong")
    rows = list(csv.DictReader(io.StringIO(reply.body.decode())))
    assert reply.headers["content-type"] == "text/csv; charset=utf-8"
    assert len(rows) == page.get("samples", run=0, verdict="wrong")["total"]
    assert {float(row["acc"]) for row in rows} == {0.0}


BAD_REVIEWS: list[dict[str, object]] = [
    {"drop": []},
    {"drop": [["nobody", 0]]},
    {"drop": [["sample-nt-001", 99]]},
    {"drop": "all"},
    {"drop": [], "file": "/etc/passwd"},
    {"drop": [[1, 0]]},
]


def test_nodes_are_reviewed_into_a_new_file(runs: list[Path], tmp_path: Path) -> None:
    dataset = tmp_path / "nodes.jsonl"
    rows = [json.loads(line) | {"mine": 7} for line in DATASET.read_text().splitlines()]
    write_rows(dataset, rows)
    before = dataset.read_bytes()
    with opened(runs[0], dataset=dataset) as page:
        page.wait_read()
        [shown] = page.get("datasets")["rows"]
        assert shown["reviewable"]
        by_gap = page.get(f"dataset/{shown['digest']}", sort="gap", limit=3)["rows"]
        drop = [[by_gap[0]["id"], 0], [by_gap[1]["id"], 1]]

        def review(body: object) -> Any:
            return page.ask(
                f"/api/dataset/{shown['digest']}/review",
                json.dumps(body).encode(),
                {"Content-Type": "application/json"},
            )

        written = [review({"drop": drop}).json for _ in range(2)]
        assert [Path(one["file"]).name for one in written] == [
            "nodes.reviewed-1.jsonl", "nodes.reviewed-2.jsonl",
        ]  # fmt: skip
        assert written[0]["digest"] == written[1]["digest"] != shown["digest"]
        assert written[0]["nodes"] == shown["nodes"] - 2
        for bad in BAD_REVIEWS:
            assert review(bad).code == 400, bad
    assert dataset.read_bytes() == before
    after = {row["problem_id"]: row for row in read_rows_of(Path(written[0]["file"]))}
    for row in rows:
        gone = {at for problem_id, at in drop if problem_id == row["problem_id"]}
        kept = [node for at, node in enumerate(row["nodes"]) if at not in gone]
        assert after[row["problem_id"]]["nodes"] == kept
        assert after[row["problem_id"]]["mine"] == 7
    assert len(list(tmp_path.iterdir())) == 3


def read_rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_file_of_scored_rollouts(tmp_path: Path) -> None:
    rows = list(read_rollouts(SAMPLE / "rollouts.jsonl"))
    with LocalClient(dataset=DATASET) as client:
        scores = client.score([rollout_from_row(row) for row in rows], reward=RewardSpec.maximum())
    pairs = zip(rows, scores, strict=True)
    scored = [scored_row(row | {"answer": "mine"}, score) for row, score in pairs]
    path = write_rows(tmp_path / "scored.jsonl", scored)
    with opened(path, dataset=DATASET) as page:
        page.wait_read()
        [run] = page.get("state")["runs"]
        assert (run["kind"], run["samples"], run["steps"]) == ("file", len(rows), None)
        assert set(run["models"]) == {row["model"] for row in rows}
        assert page.get("samples", model="sample-terse")["total"] == sum(
            row["model"] == "sample-terse" for row in rows
        )
        [total] = page.get("curves")["runs"][0]["total"]
        assert total["acc"] == pytest.approx(sum(s.acc or 0 for s in scores) / len(rows))
        groups = page.get("groups")
        for by, column in (("model", "model"), ("source", "data_source")):
            found = {row["name"]: row["samples"] for row in groups["groups"] if row["by"] == by}
            assert found == Counter(row[column] for row in rows)
        for kind in groups["kinds"]:
            asked = {"verdict": kind["verdict"], "reached": kind["reached"]}
            assert page.get("samples", limit=1, **asked)["total"] == kind["samples"] > 0
        for name in ("kinds", "rewards"):
            assert sum(row["samples"] for row in groups[name]) == len(rows)
        tenths = Counter(int(10 * (score.reward or 0)) for score in scores)
        assert tenths == sum(
            (Counter({row["tenth"]: row["samples"]}) for row in groups["rewards"]), Counter()
        )
        light = rows_of(page, kind="wrong_all", limit=1)[0]
        shown = page.get(f"sample/0/{light['key']}")
        assert shown["explained"]
        assert shown["differs"] is None
        assert shown["other"]["case"] == "format_error"
        assert shown["other"]["answer"] == "mine"
        assert shown["formula"] is None  # the file does not name it
        assert [(term["value"], term["adds"]) for term in shown["terms"]] == [
            (light["acc"], None), (light["ncr"], None),
        ]  # fmt: skip
        assert [node["matched"] for node in shown["nodes"]] == [c != "-" for c in light["channels"]]


def test_rows_of_a_file_that_cannot_be_shown_stay_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "POLL_S", 0.01)
    noise = random.Random(0)  # gzip makes several blocks of it
    rows = [
        {"problem_id": "p", "response": f"{at} {noise.random()}", "status": "OK", "acc": 1.0}
        for at in range(1, 6001)
    ]
    bad: list[dict[str, Any]] = [
        {"acc": "high"}, {"step": 2**70}, {"matched": 7}, {"num_tokens": 2**60}, {"response": None}
    ]  # fmt: skip
    for number, change in enumerate(bad, start=4501):
        rows[number - 1] |= change
    some = write_rows(tmp_path / "some.jsonl", rows)
    one = write_rows(tmp_path / "one.jsonl.gz", rows[:4501])
    cut = write_rows(tmp_path / "cut.jsonl.gz", rows[:4500])
    cut.write_bytes(cut.read_bytes()[:-1000])
    with opened(some, one, cut) as page:
        page.wait_read()
        time.sleep(0.2)  # the page looks for more rows
        runs = page.get("state")["runs"]
        assert [run["samples"] for run in runs[:2]] == [5995, 4500]
        assert 0 < runs[2]["samples"] < 4500
        [several], [first], [rest] = (run["left_out"] for run in runs)
        assert several.startswith(f"5 rows are left out, among them {some}:450")
        assert first.startswith(f"{one}:4501: acc: Could not convert 'high'")
        assert first.endswith("this row is left out")
        assert "the gzip data ends before its end mark; all rows after line" in rest
        assert f"line {runs[2]['samples']} are missing, their number is not known" in rest
        [row] = rows_of(page, run=0, q=rows[-1]["response"])
        pieces = page.get(f"sample/0/{row['key']}")["text"]
        assert "".join(piece["text"] for piece in pieces) == rows[-1]["response"]


def test_an_unscored_file_is_refused() -> None:
    with pytest.raises(InputError, match="they are not scored; consensuspr score"):
        open_source(SAMPLE / "rollouts.jsonl")


def logged(folder: Path, datasets: Sequence[str]) -> Path:
    """Write a run in which datasets of other nodes have a problem of one name; return it."""
    for number, name in enumerate(datasets):
        nodes = [
            {"node_id": f"n{at}", "label": f"{name} {at}", "expressions": [f"{at}*7={7 * at}"]}
            for at in range(2, 4 + number)
        ]
        row = {"problem_id": "p", "data_source": "s", "problem": "?", "ground_truth": "5"}
        path = write_rows(folder / f"{name}.jsonl", [row | {"nodes": nodes}])
        index = DatasetIndex.load(path)
        keep_dataset(folder / "run", index)
        options, keys = ScoreOptions(), SampleKeys()
        rollouts = [
            Rollout("p", f"{text} Answer: {answer}", sample=Sample(keys.next(), number, "g", None))
            for text, answer in ((f"{name} says 2 * 7 = 14.", 5), ("3 * 7 = 21", 4), ("none", 4))
        ]
        with closing(ScoreLog(folder / "run", "trainer")) as log, AnswerVerifier() as verifier:
            scorer = Scorer({"default": index}, verifier=verifier)
            scores, identity = scorer.score(rollouts, options)
            for rollout, score in zip(rollouts, scores, strict=True):
                log.put_sample(rollout, score, identity, options, "server", 0.0, score.reward)
    return folder / "run"


def test_nodes_of_two_datasets_are_not_pooled(tmp_path: Path) -> None:
    run = logged(tmp_path, ["old", "new"])
    with opened(run, dataset=tmp_path / "old.jsonl") as page:
        page.wait_read()
        digests = {name: DatasetIndex.load(tmp_path / f"{name}.jsonl").digest for name in
                   ("old", "new")}  # fmt: skip
        known = {row["digest"]: row["samples"] for row in page.get("datasets")["rows"]}
        assert known == dict.fromkeys(digests.values(), 3)
        for number, (name, digest) in enumerate(digests.items()):
            [row] = page.get(f"dataset/{digest}")["rows"]
            assert (row["samples"], row["right"], row["wrong"]) == (3, 1, 2)
            assert [node["label"] for node in row["nodes"]] == [
                f"{name} {at}" for at in range(2, 4 + number)
            ]
            assert [(n["by_right"], n["by_wrong"]) for n in row["nodes"]][:2] == [(1, 0), (0, 1)]
            assert [one["id"] for one in page.get(f"dataset/{digest}", sort="gap")["rows"]] == ["p"]
            assert page.get("samples", dataset=digest, node=0)["total"] == 1
            assert page.get("samples", dataset=digest)["total"] == 3
            shown = page.get("problem/0/p", dataset=digest)
            assert (shown["dataset"], shown["samples"]) == (digest, 3)
            assert shown["nodes"][0]["label"] == f"{name} 2"
            assert shown["nodes"][0]["by_right"] == 1
        # Without a choice it is the newest one.
        shown = page.get("problem/0/p")
        assert shown["dataset"] == digests["new"]
        assert {one["digest"]: one["samples"] for one in shown["datasets"]} == known
        group = page.get("group/0", group="g")
        assert (group["total"], group["datasets"], group["nodes"]) == (6, 2, [])
        assert len(page.get("group/0", group="g", step=0)["nodes"]) == 2


def test_problems_are_found_by_their_text(tmp_path: Path) -> None:
    rows = list(read_rollouts(SAMPLE / "rollouts.jsonl"))
    scored = [scored_row(row, Score(Status.OK, 1.0)) for row in rows]
    meant = {row["problem_id"] for row in rows if "lighthouse" in row["problem"]}
    with opened(write_rows(tmp_path / "scored.jsonl", scored)) as page:  # rows have the texts
        page.wait_read()
        found = page.get("problems", run=0, q="LightHouse")
        assert {row["problem"] for row in found["rows"]} == meant
        assert all("lighthouse" in row["text"] for row in found["rows"])
        assert (found["total"], found["searched"]) == (len(meant), 60)
        light = rows_of(page, problem=meant.pop(), limit=1)[0]
        assert "lighthouse" in page.get(f"sample/0/{light['key']}")["problem"]["text"]
    with opened(tmp_path / "scored.jsonl", dataset=DATASET) as page:
        page.wait_read()
        [digest] = [row["digest"] for row in page.get("datasets")["rows"]]
        for q, total in (("lighthouse", 1), ("nothing of the kind", 0), ("ARITH-00", 9)):
            assert page.get(f"dataset/{digest}", q=q)["total"] == total
            assert page.get("problems", run=0, q=q)["total"] == total


def test_reward_formulas_of_a_run_are_named_and_chosen(tmp_path: Path) -> None:
    log_formulas(tmp_path, RewardSpec.linear(0.3), RewardSpec.maximum())
    with opened(tmp_path) as page:
        page.wait_read()
        [run] = page.get("state")["runs"]
        assert [words for _, words in run["formulas"]] == [
            "max(Acc, NCR) (2 samples)", "0.3 · Acc + 0.7 · NCR (1 sample)",
        ]  # fmt: skip
        for formula, words in run["formulas"]:
            kinds = page.get("groups", formula=formula)["kinds"]
            assert f"({sum(row['samples'] for row in kinds)} sample" in words
            [total] = page.get("curves", formula=formula)["runs"][0]["total"]
            assert f"({total['samples']} sample" in words


def test_groups_without_an_id_hold_one_split_and_one_model(tmp_path: Path) -> None:
    rows = [
        scored_row({"problem_id": "sample-nt-001", "response": "1"} | more, Score(Status.OK, 1.0))
        for more in (
            {"model": "one", "split": "train"}, {"model": "two", "split": "train"},
            {"model": "one", "split": "test"}, {"model": "one", "split": "train", "step": 3},
            {"model": "one", "split": "train"}, {},
        )
    ]  # fmt: skip
    path = write_rows(tmp_path / "scored.jsonl", rows)
    with opened(path, dataset=DATASET) as page:
        page.wait_read()
        sizes = {}
        for row in rows_of(page):
            of = {name: row[name] for name in ("split", "model", "step") if row[name] is not None}
            group = page.get("group/0", problem=row["problem"], **of)
            assert row["key"] in {one["key"] for one in group["rows"]}
            sizes[row["model"], row["split"], row["step"]] = group["total"]
        assert sizes == {
            ("one", "train", None): 2, ("two", "train", None): 1, ("one", "test", None): 1,
            ("one", "train", 3): 1, (None, None, None): 1,
        }  # fmt: skip


def test_samples_of_both_sides_count_once(tmp_path: Path) -> None:
    server, trainer = ScoreLog(tmp_path, "server"), ScoreLog(tmp_path, "trainer")
    old = time.time() - 3600
    samples = [sample(one) for one in range(4)]
    server.put(part_of(["a", "b", "c", "d"], samples=samples, unix_s=old))
    trainer.put(part_of(["a", "b"], samples=samples[:2], unix_s=old))
    server.close()
    trainer.close()
    (
        tmp_path / "scores" / "20200101T000000000000-trainer-x-0000000000-0000000001.parquet"
    ).write_bytes(b"PAR1 not")
    with opened(tmp_path) as page:
        page.wait_read()
        [run] = page.get("state")["runs"]
        assert run["samples"] == sum(b.num_rows for b in LogReader(tmp_path).read()) == 4
        assert ["is left out" in sentence for sentence in run["left_out"]] == [True]
        shown = page.get(f"sample/0/{rows_of(page)[0]['key']}")
        assert not shown["explained"]
        assert "--dataset FILE" in shown["explained_why"]
        assert [node["matched"] for node in shown["nodes"]] == [True, False]


def test_names_are_data(tmp_path: Path) -> None:
    """A problem and a response of hostile names are found by them, and change nothing."""
    name = "x'; DROP TABLE samples; --/../<script>alert(1)</script>?&#%00\u202e"
    log = ScoreLog(tmp_path, "trainer")
    part = part_of([f"<img src=x onerror=alert(1)> {name}"], samples=[sample(1)])
    part.rollouts[0].problem_id = name
    log.put(part)
    log.close()
    with opened(tmp_path) as page:
        page.wait_read()
        for _ in range(2):
            [row] = rows_of(page, problem=name)
            assert row["problem"] == name
            shown = page.get(f"problem/0/{urllib.parse.quote(name, safe='')}")
            assert shown["problem"]["id"] == name
            assert rows_of(page, q=name)[0]["key"] == row["key"]
            assert rows_of(page, q="100%_'") == []
        reply = page.ask(f"/api/sample/0/{row['key']}")
        assert reply.headers["content-type"] == "application/json"
        assert reply.headers["x-content-type-options"] == "nosniff"
