"""An evaluation as a whole: every figure of a small example by hand, groups, and both files."""

from __future__ import annotations

import csv
import json
import math
import random
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from consensusbench.evaluation.estimates import (
    MAX_NAMED,
    ONE_PROBLEM,
    percentile_interval,
    problem_weights,
)
from consensusbench.evaluation.metrics import (
    ALL_ALIKE,
    FEW_PROBLEMS,
    ONE_CLASS,
    SCHEMA,
    TOO_FEW,
    EvaluationSettings,
    GroupMetrics,
    consistency_of,
    evaluate,
    pass_at_k,
    pass_at_k_estimate,
    weighted_figures,
    within_problems,
)
from consensusbench.evaluation.scored import ScoredRollout, ScoredSet, columns_of
from consensusbench.evaluation.tables import (
    evaluation_notes,
    evaluation_tables,
    latex_of,
    write_csv,
    write_latex,
)
from consensuspr.errors import InputError
from consensuspr.scoring.types import Status
from tests.consensusbench.evaluation.conftest import facts, rollout, scored_set

EASY = facts("p1", [False, True], difficulty="easy", data_source="sums")
HARD = facts("p2", [False, False, False, True], difficulty="hard", data_source="roots")
BARE = facts("p3", [], data_source="bare")


def example() -> ScoredSet:
    """Two models on three problems, of which one has no nodes."""
    a: dict[str, Any] = {"model": "A", "data_source": "sums"}
    return scored_set(
        [EASY, HARD, BARE, facts("p4", [True])],
        rollout("p1", 1.0, [1, 1], num_tokens=100, num_chars=300, **a),
        rollout("p1", 0.0, [1, 0], num_tokens=50, num_chars=100, **a),
        rollout("p2", 1.0, [1, 1, 0, 1], num_tokens=300, model="B", data_source="roots"),
        rollout("p2", 0.0, [0, 0, 0, 0], num_tokens=60, model="B", data_source="roots"),
        rollout("p2", 0.0, [0, 1, 0, 0], model="B", data_source="roots", answer_method="budget",
                status=Status.ANSWER_UNDECIDED),
        rollout("p3", 1.0, [], status=Status.NO_NODES, num_tokens=10, model="B"),
        rollout("p2", None, [], status=Status.INTERNAL, model="B", data_source="roots"),
    )  # fmt: skip


def test_every_figure_by_hand() -> None:
    found = evaluate(example(), settings=EvaluationSettings(ks=(1, 2))).overall
    assert (found.num_rollouts, found.num_problems) == (7, 3)
    assert found.statuses == {"OK": 4, "ANSWER_UNDECIDED": 1, "NO_NODES": 1, "INTERNAL": 1}
    assert found.acc.value == pytest.approx(3 / 6)
    assert (found.num_undecided, found.num_undecided_by_load) == (1, 0)
    assert found.acc_if_undecided_were_right == pytest.approx(4 / 6)
    first, second = found.pass_at
    assert first.estimate.value == pytest.approx((1 / 2 + 1 / 3 + 1) / 3)
    # p1: the only pair holds the right one; p2: two of three pairs do; p3 has one sample.
    assert second.estimate.value == pytest.approx((1 + 2 / 3) / 2)
    assert (second.num_left_out, second.left_out) == (1, ("p3",))

    nodes = found.nodes
    assert nodes.ncr.value == pytest.approx((1 + 1 / 2 + 3 / 4 + 0 + 1 / 4) / 5)
    assert nodes.ncr_by_problem.value == pytest.approx((3 / 4 + 1 / 3) / 2)
    assert nodes.tpn.value == pytest.approx((50 + 50 + 100) / 3)
    assert nodes.tpn_median.value == 50
    # The rollout without a match counts with its 60 tokens, the one of unknown length does not.
    assert nodes.tpn_pooled.value == pytest.approx((100 + 50 + 300 + 60) / (2 + 1 + 3 + 0))
    assert nodes.num_without_match == 1
    assert nodes.consistency.d_ncr.value == pytest.approx((1 + 3 / 4) / 2 - (1 / 2 + 0 + 1 / 4) / 3)
    assert nodes.consistency.auroc.value == 1.0
    assert nodes.consistency.prevalence == pytest.approx(2 / 5)

    without = found.nodes_without_final
    assert without.ncr.value == pytest.approx((1 + 1 + 2 / 3 + 0 + 1 / 3) / 5)
    assert without.tpn.value == pytest.approx((100 + 50 + 150) / 3)
    assert without.consistency.auroc.value == pytest.approx((1 / 2 + 1 + 1 + 0 + 1 + 1) / 6)

    assert found.tokens.value == pytest.approx(520 / 5)
    assert found.chars.value == pytest.approx((300 + 100 + 5 * 100) / 7)


def labels(groups: tuple[GroupMetrics, ...]) -> list[tuple[str, ...]]:
    return [tuple(group.key.values()) for group in groups]


def test_groups_are_within_each_model_where_there_are_several() -> None:
    found = evaluate(example())
    assert [one.by for one in found.breakdowns] == [
        ("model",),
        ("model", "source"),
        ("model", "difficulty"),
    ]
    by_source = found.breakdown("model", "source")
    assert by_source is not None
    assert labels(by_source.groups) == [("A", "sums"), ("B", "roots"), ("B", "(none)")]
    by_difficulty = found.breakdown("model", "difficulty")
    assert by_difficulty is not None
    assert labels(by_difficulty.groups) == [("A", "easy"), ("B", "hard"), ("B", "(none)")]
    pooled = evaluate(example(), by=("difficulty",)).breakdown("difficulty")
    assert pooled is not None
    assert labels(pooled.groups) == [("easy",), ("hard",), ("(none)",)]
    assert evaluate(example(), by=()).breakdowns == ()


def test_labels_that_nobody_has_make_no_groups() -> None:
    scored = scored_set([facts("p1", [True])], rollout("p1", 1.0, [1]))
    assert evaluate(scored).breakdowns == ()


def test_difficulties_stand_in_their_order() -> None:
    problems = [
        facts(f"p{at}", [True], difficulty=d) for at, d in enumerate(("hard", "easy", "medium"))
    ]
    scored = scored_set(problems, *[rollout(p.problem_id, 1.0, [1]) for p in problems])
    found = evaluate(scored).breakdown("difficulty")
    assert found is not None and labels(found.groups) == [("easy",), ("medium",), ("hard",)]


def test_auroc_within_problems_is_the_mean_of_each() -> None:
    # Of problem 0 one of two pairs is in order, of 1 both (one of them a tie); 2 has no wrong one.
    values = np.array([0.5, 0.2, 0.8, 0.9, 0.1, 0.9, 0.3])
    right = np.array([True, False, False, True, False, False, True])
    found = within_problems(values, right, np.array([0, 0, 0, 1, 1, 1, 2]), 0.95)
    assert found.value == pytest.approx((0.5 + 0.75) / 2)
    assert (found.problems, found.count) == (2, 6)
    # The order of rows says nothing, and an empty set has no value.
    order = np.array([6, 3, 0, 4, 1, 5, 2])
    shuffled = within_problems(values[order], right[order], np.array([2, 1, 0, 1, 0, 1, 0]), 0.95)
    assert shuffled == found
    assert within_problems(values[:1], right[:1], np.array([0]), 0.95).value is None


def test_within_problems_easy_ones_lend_nothing() -> None:
    """A pooled AUROC rises where easy problems have easy nodes; the one within does not."""
    ncr = np.array([0.9, 0.9, 0.9, 0.1, 0.1, 0.1])
    acc = np.array([1.0, 1.0, 0.0, 1.0, 0.0, 0.0])
    found = consistency_of(ncr, acc, np.array([0, 0, 0, 1, 1, 1]), 0.95, 0)
    assert found.auroc.value == pytest.approx(2 / 3)
    assert found.within.value == 0.5


def test_the_guard_lowers_ncr_and_the_plain_one_stands_beside_it() -> None:
    problems = {"p": facts("p", [False, True])}
    rollouts = [
        rollout("p", 1.0, (1, 1), num_chars=30),
        rollout("p", 1.0, (1, 0), num_chars=40),
        rollout("p", 0.0, (1, 1), num_chars=90, guard=0.1),
    ]
    found = evaluate(ScoredSet(problems, rollouts)).overall
    assert found.nodes.ncr.value == pytest.approx((1 + 0.5 + 0.1) / 3)
    assert found.nodes.ncr_raw.value == pytest.approx(2.5 / 3)
    assert found.nodes_without_final.ncr.value == pytest.approx((1 + 1 + 0.1 * 1) / 3)
    raw = found.nodes.consistency_raw
    assert raw is not None and raw.within.value == 0.25
    assert found.nodes.consistency.within.value == 1.0
    assert found.right_lowered.value == 0.0
    assert (found.length.auroc, found.length.within.value) == (0.0, 0.0)


def test_the_papers_own_ncr_stands_beside_ours_where_it_differs() -> None:
    problems = {"p": facts("p", [False, True])}
    rollouts = [
        rollout("p", 1.0, (1, 1), plain=(False, True)),
        rollout("p", 0.0, (1, 0), plain=(True, False), guard=0.5),
    ]
    found = evaluate(ScoredSet(problems, rollouts))
    ours, inner = found.overall.nodes, found.overall.nodes_without_final
    assert ours.ncr_paper is not None and ours.ncr_paper.value == 0.5
    assert ours.consistency_paper is not None and inner.consistency_paper is not None
    assert (ours.consistency.auroc.value, ours.consistency_paper.auroc.value) == (1.0, 0.5)
    assert (inner.consistency.auroc.value, inner.consistency_paper.auroc.value) == (1.0, 0.0)
    notes = "\n".join(evaluation_notes(found))
    assert "the paper's own NCR (no statements, no guard) is 50.0 %, AUROC 50.0 %" in notes
    headings = [column.heading for table in evaluation_tables(found) for column in table.columns]
    assert {"NCR, paper's %", "AUROC, paper's %"} <= set(headings)


@pytest.mark.parametrize("plain", [None, (True, True)])
def test_the_papers_own_ncr_is_left_out_where_it_is_unknown_or_the_same(
    plain: tuple[bool, ...] | None,
) -> None:
    rollouts = [rollout("p", 1.0, (1, 1), plain=plain), rollout("p", 0.0, (1, 1), plain=plain)]
    found = evaluate(ScoredSet({"p": facts("p", [False, True])}, rollouts))
    assert (found.overall.nodes.ncr_paper, found.overall.nodes.consistency_paper) == (None, None)
    headings = [column.heading for table in evaluation_tables(found) for column in table.columns]
    assert not [heading for heading in headings if "paper" in heading]


def test_without_a_lowered_rollout_there_is_nothing_to_stand_beside() -> None:
    assert evaluate(example()).overall.nodes.consistency_raw is None


def test_the_json_form_is_complete_and_has_no_nan() -> None:
    found = evaluate(
        example(), dataset="d.jsonl", settings=EvaluationSettings(ks=(1, 2), seed=3)
    ).to_json()
    read = json.loads(json.dumps(found, allow_nan=False))
    assert (read["schema"], read["dataset"], read["ks"], read["seed"]) == (
        SCHEMA,
        "d.jsonl",
        [1, 2],
        3,
    )
    assert read["num_problems_without_rollouts"] == 1
    assert read["overall"]["pass_at"]["2"]["left_out"] == ["p3"]
    # What another program may rely on; a change of these is a change of SCHEMA.
    assert sorted(read) == sorted(
        "schema version dataset files identity num_stored skipped_rows "
        "num_problems_without_rollouts tokenizer num_tokenized messages ks confidence seed "
        "replicates overall breakdowns".split()
    )
    assert sorted(read["overall"]) == sorted(
        "key num_rollouts num_problems statuses num_undecided num_undecided_by_load acc "
        "acc_if_undecided_were_right pass_at nodes nodes_without_final right_lowered length "
        "tokens chars".split()
    )
    assert sorted(read["overall"]["nodes"]) == sorted(
        "ncr ncr_raw ncr_by_problem tpn tpn_pooled tpn_median num_without_match consistency "
        "consistency_raw ncr_paper consistency_paper".split()
    )
    assert sorted(read["overall"]["nodes"]["consistency"]) == sorted(
        "d_ncr auroc aucpr within prevalence ncr_right ncr_wrong num_right num_wrong".split()
    )


def test_the_documentation_names_every_key(repository: Path) -> None:
    text = (repository / "docs/evaluate.md").read_text(encoding="utf-8")
    said = evaluate(example()).to_json()
    assert SCHEMA in text
    assert [key for key in keys(said) if f"`{key}`" not in text] == []


def keys(value: object) -> set[str]:
    """Return the keys of all objects whose keys are words of the format."""
    if isinstance(value, list):
        return {key for inner in value for key in keys(inner)}
    if not isinstance(value, dict):
        return set()
    labels = {"statuses", "messages", "key", "pass_at", "identity"}
    inner = {key for name, below in value.items() if name not in labels for key in keys(below)}
    return set(value) | inner


def test_csv_has_a_row_for_each_group_and_fractions(tmp_path: Path) -> None:
    found = evaluate(example(), settings=EvaluationSettings(ks=(1, 2)))
    write_csv(found, tmp_path / "figures.csv")
    with (tmp_path / "figures.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["model"], row["source"], row["difficulty"]) for row in rows] == [
        ("", "", ""), ("A", "", ""), ("B", "", ""),
        ("A", "sums", ""), ("B", "roots", ""), ("B", "(none)", ""),
        ("A", "", "easy"), ("B", "", "hard"), ("B", "", "(none)"),
    ]  # fmt: skip
    assert float(rows[0]["acc"]) == 0.5
    assert float(rows[0]["acc_low"]) < 0.5 < float(rows[0]["acc_high"])
    assert (rows[1]["acc"], rows[1]["acc_low"], rows[1]["pass@2"]) == ("0.5", "", "1.0")
    assert rows[5]["ncr"] == ""


def test_latex_has_the_papers_tables(tmp_path: Path) -> None:
    scored = example()
    scored.rollouts = [
        replace(r, model={"A": "a_1 & b%", "B": "B"}[r.model]) for r in scored.rollouts
    ]
    write_latex(evaluate(scored, settings=EvaluationSettings(ks=(1, 2))), tmp_path / "tables.tex")
    text = (tmp_path / "tables.tex").read_text(encoding="utf-8")
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 4
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 4
    lines = text.splitlines()
    assert r"Model & Acc & pass@1 & pass@2 & NCR & TPN \\" in lines
    # Of TPN the least is best, of all else the most; equal to what is shown is equally bold.
    assert (
        r"a\_1 \& b\% & \textbf{50.0} & 50.0 & \textbf{100.0} & \textbf{75.0} & \textbf{50.00} \\"
        in lines
    )
    assert r"Model & easy & hard & (none) \\" in lines
    assert r"B & -- & 33.3 & 100.0 \\" in lines  # where one model stands alone, none is best
    assert r"\multicolumn{4}{c}{Response Length (tokens)} \\" in lines


def test_names_are_no_formulas_in_csv(tmp_path: Path) -> None:
    names = ["=HYPERLINK(1)", "+1", "-1", "@sum", " =1", "plain-1"]
    scored = scored_set([EASY], *[rollout("p1", 1.0, [1, 1], model=name) for name in names])
    write_csv(evaluate(scored, by=("model",)), tmp_path / "figures.csv")
    with (tmp_path / "figures.csv").open(newline="") as stream:
        models = {row["model"] for row in csv.DictReader(stream)}
    assert models == {"", "plain-1", *["'" + name for name in names[:-1]]}


def test_latex_takes_no_name_for_an_argument_and_none_for_another() -> None:
    # A bracket or a star after the break of the line before would be read as its argument.
    twins = ["*" + "x" * 300, "*" + "x" * 300 + "y"]
    scored = scored_set(
        [EASY],
        rollout("p1", 1.0, [1, 1], model="[m]"),
        rollout("p1", 1.0, [1, 1], model=twins[0]),
        rollout("p1", 0.0, [0, 0], model=twins[1]),
    )
    lines = latex_of(evaluate(scored, by=("model", "difficulty"))).splitlines()
    assert r"{[}m{]} & \textbf{100.0} & \textbf{100.0} & \textbf{100.0} & -- \\" in lines
    assert not [line for line in lines if line.startswith(("[", "*"))]
    blocks = [line for line in lines if line.startswith("{*}x") and line.count("&") == 1]
    # Acc, NCR and length of either, although both are shown alike.
    assert [line.rsplit(" & ")[1] for line in blocks] == [
        r"\textbf{100.0} \\", r"0.0 \\", r"\textbf{100.0} \\", r"0.0 \\",
        r"100.0 \\", r"100.0 \\",
    ]  # fmt: skip


def test_undecided_answers_that_have_no_acc_are_not_counted_as_wrong() -> None:
    scored = scored_set(
        [EASY],
        rollout("p1", 1.0, [1, 1]),
        rollout("p1", None, [1, 1], status=Status.NO_GROUND_TRUTH, answer_method="load"),
    )
    found = evaluate(scored).overall
    assert (found.num_undecided, found.num_undecided_by_load) == (0, 0)
    assert found.acc_if_undecided_were_right == 1.0


def test_one_long_name_does_not_widen_every_row() -> None:
    scored = scored_set(
        [EASY],
        *[rollout("p1", 1.0, [1, 1], model="m" * (10**6 if at == 0 else 1)) for at in range(2000)],
    )
    columns, _ = columns_of(scored)
    assert columns.model.nbytes < 10**5
    assert columns_of(scored)[0].model.tolist()[1] == "m"


def test_latex_of_one_unnamed_model_has_one_row() -> None:
    scored = scored_set([EASY], rollout("p1", 1.0, [1, 1]), rollout("p1", 0.0, [1, 0]))
    text = latex_of(evaluate(scored))
    assert r"all & 50.0 & 50.0 & 75.0 & -- \\" in text.splitlines()
    assert r"\textbf" not in text


def test_notes_say_what_the_tables_do_not() -> None:
    notes = "\n".join(evaluation_notes(evaluate(example(), settings=EvaluationSettings(ks=(2,)))))
    assert "INTERNAL 1" in notes and "ANSWER_UNDECIDED 1" in notes
    assert "1 answer stayed undecided, which counts as wrong" in notes and "66.7 %" in notes
    assert "1 rollout has no Acc" in notes
    assert "AUROC of all has no interval: fewer than 10 problems" in notes
    assert "1 problem of the dataset has no rollout" in notes
    assert "pass@2 of all leaves out 1 of 3 problems, which have fewer than 2 samples: p3" in notes
    assert "2 rollouts have no length in tokens" in notes
    assert "95 % intervals, clustered by problem" in notes


def test_a_busy_machine_is_named() -> None:
    scored = scored_set([EASY], rollout("p1", 0.0, [1, 1], answer_method="load"))
    notes = evaluation_notes(evaluate(scored))
    assert any("1 of them because the machine was busy" in note for note in notes)
    assert "no intervals: a single problem says nothing about others" in notes


@pytest.mark.parametrize(
    ("by", "how", "sentence"),
    [
        (("colour",), EvaluationSettings(), "by model, source, difficulty, not by 'colour'"),
        ((), EvaluationSettings(confidence=0.0), "above 0 and below 1, got 0.0"),
        ((), EvaluationSettings(seed=-1), "the seed must be 0 or more, got -1"),
        ((), EvaluationSettings(ks=(0,)), r"1 or more, got \(0,\)"),
        ((), EvaluationSettings(ks=(2, 1)), r"ascending and 1 or more, got \(2, 1\)"),
    ],
)
def test_settings_out_of_range_are_refused(
    by: tuple[str, ...], how: EvaluationSettings, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        evaluate(example(), by=by, settings=how)


@st.composite
def rollouts(draw: st.DrawFn) -> list[ScoredRollout]:
    found = []
    for _ in range(draw(st.integers(1, 12))):
        facts_of = draw(st.sampled_from([EASY, HARD]))
        size = len(facts_of.node_ids)
        matched = draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
        found.append(
            rollout(
                facts_of.problem_id,
                draw(st.sampled_from([0.0, 1.0, None])),
                matched,
                num_tokens=draw(st.sampled_from([None, 5, 80])),
                model=draw(st.sampled_from(["A", "B"])),
            )
        )
    return found


def test_the_example_in_another_order_has_the_same_figures() -> None:
    scored, reverse = example(), example()
    reverse.rollouts.reverse()
    one, other = (flat(evaluate(each).to_json()) for each in (scored, reverse))
    assert one == pytest.approx(other, abs=1e-12)


@pytest.mark.slow  # each evaluates twice, with all its resampling
@given(rollouts(), st.integers(0, 5))
def test_the_order_of_rollouts_does_not_matter(found: list[ScoredRollout], seed: int) -> None:
    shuffled = found[:]
    random.Random(seed).shuffle(shuffled)
    one, other = (evaluate(scored_set([EASY, HARD], *rows)).to_json() for rows in (found, shuffled))
    assert flat(one) == pytest.approx(flat(other), abs=1e-12)


def flat(value: object, path: str = "") -> dict[str, float]:
    """Return all numbers of a JSON value by their path."""
    match value:
        case dict():
            items = [(f"{path}/{key}", inner) for key, inner in value.items()]
        case list():
            items = [(f"{path}/{at}", inner) for at, inner in enumerate(value)]
        case bool() | None | str():
            return {}
        case int() | float():
            return {path: float(value)}
        case _:
            raise AssertionError(f"{path} holds {value!r}")
    return {name: number for key, inner in items for name, number in flat(inner, key).items()}


def one(samples: int, right: int, k: int) -> float:
    return float(pass_at_k(np.array([samples]), np.array([right]), k)[0])


@pytest.mark.parametrize(
    ("samples", "right", "k", "value"),
    [
        (4, 1, 1, 1 / 4),
        (4, 1, 2, 1 - 3 / 6),
        (4, 2, 2, 1 - 1 / 6),
        (4, 3, 2, 1.0),
        (16, 1, 16, 1.0),
        (16, 0, 16, 0.0),
        (5, 5, 1, 1.0),
    ],
)
def test_pass_at_k_by_hand(samples: int, right: int, k: int, value: float) -> None:
    assert one(samples, right, k) == pytest.approx(value, abs=1e-15)


def test_fewer_samples_than_k_have_no_value() -> None:
    assert math.isnan(one(3, 3, 4))
    assert math.isnan(one(0, 0, 1))


def test_many_samples_neither_overflow_nor_cancel() -> None:
    # C(n-1, k) / C(n, k) = (n - k) / n.
    assert one(1_000_000, 1, 100) == pytest.approx(1e-4, rel=1e-9)
    assert one(100_000, 99_999, 2) == 1.0


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_it_is_the_share_of_subsets_that_hold_a_right_one(sizes: tuple[int, int]) -> None:
    samples, right = sizes
    for k in range(1, samples + 1):
        subsets = list(combinations([True] * right + [False] * (samples - right), k))
        share = sum(map(any, subsets)) / len(subsets)
        assert one(samples, right, k) == pytest.approx(share)


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_it_grows_with_k_and_begins_at_the_share_of_right_ones(sizes: tuple[int, int]) -> None:
    samples, right = sizes
    values = [one(samples, right, k) for k in range(1, min(samples, 20) + 1)]
    assert values[0] == pytest.approx(right / samples)
    assert all(0 <= low <= high + 1e-15 <= 1 + 1e-15 for low, high in pairwise(values))


def test_the_figure_is_the_mean_over_problems_that_have_enough() -> None:
    # p0: 1 of 2, p1: 2 of 2, p2: one sample, p3: one that could be judged, p4: none.
    problem = np.array([0, 0, 1, 1, 2, 3, 3, 4])
    acc = np.array([1, 0, 1, 1, 1, 0, math.nan, math.nan])
    ids = ("a", "b", "c", "d", "e")
    first = pass_at_k_estimate(acc, problem, 1, 0.95, ids)
    assert first.estimate.value == pytest.approx((0.5 + 1 + 1 + 0) / 4)
    assert (first.num_left_out, first.left_out) == (1, ("e",))
    second = pass_at_k_estimate(acc, problem, 2, 0.95, ids)
    assert second.estimate.value == 1.0
    assert (second.estimate.count, second.estimate.problems) == (4, 2)
    assert (second.num_left_out, second.left_out) == (3, ("c", "d", "e"))
    third = pass_at_k_estimate(acc, problem, 3, 0.95, ids)
    assert third.estimate.value is None and third.num_left_out == 5


def test_only_so_many_problems_are_named() -> None:
    ids = tuple(f"p{number:03}" for number in range(50))
    found = pass_at_k_estimate(np.ones(50), np.arange(50), 2, 0.95, ids)
    assert (found.num_left_out, found.left_out) == (50, ids[:MAX_NAMED])


def test_the_error_is_that_of_a_mean_of_problems() -> None:
    problem, acc = np.repeat(np.arange(4), 2), np.array([1, 0, 1, 1, 0, 0, 0, 1], dtype=float)
    found = pass_at_k_estimate(acc, problem, 2, 0.95, tuple("abcd"))
    values = [1.0, 1.0, 0.0, 1.0]
    assert found.estimate.value == pytest.approx(np.mean(values))
    assert found.estimate.std_error == pytest.approx(np.std(values, ddof=1) / 2)


def test_the_three_by_hand() -> None:
    ncr = np.array([1.0, 0.5, 0.5, 0.0])
    found = consistency_of(ncr, np.array([1.0, 1, 0, 0]), np.arange(4), 0.95, 0)
    assert found.d_ncr.value == pytest.approx((1 + 0.5) / 2 - (0.5 + 0) / 2)
    # Right above wrong in 3 of 4 pairs, level in the other.
    assert found.auroc.value == pytest.approx(3.5 / 4)
    # At 1: precision 1, recall 1/2.  At 1/2: precision 2/3, recall 1.
    assert found.aucpr.value == pytest.approx(1 / 2 * 1 + 1 / 2 * 2 / 3)
    assert (found.prevalence, found.num_right, found.num_wrong) == (0.5, 2, 2)
    assert (found.ncr_right, found.ncr_wrong) == (0.75, 0.25)


def test_unknown_values_are_left_out() -> None:
    ncr = np.array([1.0, math.nan, 0.0, 0.5])
    found = consistency_of(ncr, np.array([1.0, 1, 0, math.nan]), np.arange(4), 0.95, 0)
    assert (found.num_right, found.num_wrong, found.auroc.value) == (1, 1, 1.0)
    assert found.auroc.count == 2


def test_one_class_alone_has_no_figure_and_says_so() -> None:
    found = consistency_of(np.array([1.0, 0.5]), np.ones(2), np.arange(2), 0.95, 0)
    assert (found.auroc.value, found.auroc.no_interval) == (None, ONE_CLASS)
    assert (found.prevalence, found.ncr_right, found.ncr_wrong) == (1.0, 0.75, None)
    empty = consistency_of(np.array([]), np.array([]), np.array([], dtype=int), 0.95, 0)
    assert (empty.prevalence, empty.d_ncr.value) == (None, None)


def test_too_few_problems_have_figures_without_intervals() -> None:
    ncr, acc = np.array([1.0, 0.0]), np.array([1.0, 0.0])
    single = consistency_of(ncr, acc, np.zeros(2, dtype=int), 0.95, 0)
    assert (single.auroc.value, single.auroc.no_interval) == (1.0, ONE_PROBLEM)
    few = consistency_of(np.tile(ncr, 9), np.tile(acc, 9), np.arange(18) // 2, 0.95, 0)
    assert (few.auroc.value, few.auroc.low, few.auroc.no_interval) == (1.0, None, FEW_PROBLEMS)
    # A third of the samples of these twelve problems lack the only right rollout.
    ncr, acc = np.eye(12)[0] + 0.1 * np.arange(12), np.eye(12)[0]
    rare = consistency_of(ncr, acc, np.arange(12), 0.95, 0)
    assert rare.auroc.value == pytest.approx(9.5 / 11)
    assert (rare.auroc.low, rare.auroc.no_interval) == (None, TOO_FEW)


def test_a_perfect_sample_is_not_certain_to_be_perfect() -> None:
    acc = np.tile([1.0, 0.0], 20)
    found = consistency_of(0.5 * acc + 0.25, acc, np.arange(40) // 2, 0.95, 0)
    for figure, value in ((found.auroc, 1.0), (found.aucpr, 1.0), (found.d_ncr, 0.5)):
        assert (figure.value, figure.low, figure.no_interval) == (value, None, ALL_ALIKE)


LEVELS = [0.0, 0.25, 1 / 3, 0.5, 1.0]
COUNTS = st.lists(st.integers(0, 5), min_size=5, max_size=5)


@given(COUNTS, COUNTS)
def test_counted_figures_are_those_of_scikit_learn(right: list[int], wrong: list[int]) -> None:
    d_ncr, auroc, aucpr = weighted_figures(
        np.array(LEVELS), np.array([right], dtype=float), np.array([wrong], dtype=float)
    )
    if not sum(right) or not sum(wrong):
        assert np.isnan([d_ncr[0], auroc[0], aucpr[0]]).all()
        return
    labels = [1] * 5 + [0] * 5
    scores, weights = LEVELS * 2, right + wrong
    assert auroc[0] == pytest.approx(roc_auc_score(labels, scores, sample_weight=weights))
    assert aucpr[0] == pytest.approx(average_precision_score(labels, scores, sample_weight=weights))
    means = [np.average(LEVELS, weights=counts) for counts in (right, wrong)]
    assert d_ncr[0] == pytest.approx(means[0] - means[1])


@given(
    st.lists(st.tuples(st.sampled_from(LEVELS), st.booleans(), st.integers(0, 4)), min_size=2),
    st.integers(0, 3),
)
def test_auroc_is_the_share_of_pairs_in_order(
    rows: list[tuple[float, bool, int]], seed: int
) -> None:
    ncr = np.array([row[0] for row in rows])
    acc = np.array([float(row[1]) for row in rows])
    problem = np.array([row[2] for row in rows])
    found = consistency_of(ncr, acc, problem, 0.95, seed)
    pairs = [(a > b) + (a == b) / 2 for a in ncr[acc == 1] for b in ncr[acc == 0]]
    if pairs:
        assert found.auroc.value == pytest.approx(np.mean(pairs))
    else:
        assert found.auroc.value is None
    again = consistency_of(ncr[::-1], acc[::-1], problem[::-1], 0.95, seed)
    assert again.auroc == found.auroc
    assert again.aucpr.low == pytest.approx(found.aucpr.low)


def test_the_interval_is_that_of_resampled_problems() -> None:
    """Against a plain loop over the same draws, with scikit-learn's own AUROC."""
    random = np.random.default_rng(5)
    problem = random.integers(0, 12, 150)
    acc = (random.random(150) < 0.6).astype(float)
    ncr = random.integers(0, 4, 150) / 4 * 0.7 + 0.3 * acc
    found = consistency_of(ncr, acc, problem, 0.9, 11)
    values = [
        roc_auc_score(acc, ncr, sample_weight=weights[problem])
        for block in problem_weights(12, 11)
        for weights in block
    ]
    low, high = np.quantile(values, [0.05, 0.95])
    assert (found.auroc.low, found.auroc.high) == pytest.approx((low, high))
    assert found.auroc.value is not None and low <= found.auroc.value <= high


def test_draws_are_as_many_as_there_are_problems_and_seeded() -> None:
    blocks = list(problem_weights(30_000, 3, 200))
    assert len(blocks) > 1 and sum(len(block) for block in blocks) == 200
    assert all((block.sum(axis=1) == 30_000).all() for block in blocks)
    assert np.mean([block.mean() for block in blocks]) == 1.0
    # Drawn with replacement, about e^-1 of the problems are missing from a sample.
    assert np.mean([(block == 0).mean() for block in blocks]) == pytest.approx(
        math.exp(-1), abs=1e-3
    )
    again = list(problem_weights(30_000, 3, 200))
    assert all((one == other).all() for one, other in zip(blocks, again, strict=True))


def test_a_percentile_interval_needs_most_of_its_replicates() -> None:
    replicates = np.linspace(0, 1, 101)
    assert percentile_interval(replicates, 0.9) == pytest.approx((0.05, 0.95))
    replicates[:10] = math.nan
    assert percentile_interval(replicates, 0.9) is not None
    replicates[:11] = math.nan
    assert percentile_interval(replicates, 0.9) is None
