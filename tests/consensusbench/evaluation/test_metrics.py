"""An evaluation as a whole: every figure of a small example by hand, groups, and both files."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from consensusbench.evaluation.estimates import (
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
from consensusbench.evaluation.scored import ScoredSet
from consensusbench.evaluation.tables import evaluation_notes, evaluation_tables
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
    assert (found.num_undecided, found.num_without_match) == (1, 1)
    assert (found.num_right, found.num_wrong) == (2, 3)
    assert found.acc_if_undecided_were_right == pytest.approx(4 / 6)
    assert found.left_out == {"pass@2": (1, ("p3",))}
    values = {
        "acc": 3 / 6,
        "pass@1": (1 / 2 + 1 / 3 + 1) / 3,
        # p1: the only pair holds the right one; p2: two of three pairs do; p3 has one sample.
        "pass@2": (1 + 2 / 3) / 2,
        "ncr": (1 + 1 / 2 + 3 / 4 + 0 + 1 / 4) / 5,
        "tpn": (50 + 50 + 100) / 3,
        # The rollout without a match counts with its 60 tokens, the one of unknown length does not.
        "tpn_pooled": (100 + 50 + 300 + 60) / (2 + 1 + 3 + 0),
        "d_ncr": (1 + 3 / 4) / 2 - (1 / 2 + 0 + 1 / 4) / 3,
        "auroc": 1.0,
        "prevalence": 2 / 5,
        "ncr_without_final": (1 + 1 + 2 / 3 + 0 + 1 / 3) / 5,
        "tpn_without_final": (100 + 50 + 150) / 3,
        "auroc_without_final": (1 / 2 + 1 + 1 + 0 + 1 + 1) / 6,
        "tokens": 520 / 5,
        "chars": (300 + 100 + 5 * 100) / 7,
    }
    assert {name: found.figures[name].value for name in values} == pytest.approx(values)


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


def test_rollouts_that_reason_themselves_are_a_group_if_others_do_not() -> None:
    borrowed = replace(example().rollouts[0], own_reasoning=False)
    found = replace(example(), rollouts=[*example().rollouts, borrowed, borrowed])
    evaluation = evaluate(found, by=())
    [group] = evaluation.breakdown("reasoning").groups  # type: ignore[union-attr]
    assert (group.key, group.num_rollouts) == ({"reasoning": "own reasoning"}, 7)
    assert replace(group, key={}) == evaluate(example()).overall
    assert evaluation_tables(evaluation)[0].sections[1][0][0] == "own reasoning"
    assert "own reasoning: without 2 rollouts that run" in "".join(evaluation_notes(evaluation))


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


def figures_of(*rollouts: Any) -> dict[str, float | None]:
    found = evaluate(scored_set([facts("p", [False, True])], *rollouts)).overall
    return {name: figure.value for name, figure in found.figures.items()}


def test_the_guard_lowers_ncr_and_the_plain_one_stands_beside_it() -> None:
    found = figures_of(
        rollout("p", 1.0, (1, 1), num_chars=30),
        rollout("p", 1.0, (1, 0), num_chars=40),
        rollout("p", 0.0, (1, 1), num_chars=90, guard=0.1),
    )
    assert found["ncr"] == pytest.approx((1 + 0.5 + 0.1) / 3)
    assert found["ncr_raw"] == pytest.approx(2.5 / 3)
    assert found["ncr_without_final"] == pytest.approx((1 + 1 + 0.1 * 1) / 3)
    names = ("within", "within_raw", "right_lowered", "length_within")
    assert [found[name] for name in names] == [1.0, 0.25, 0.0, 0.0]


def test_the_papers_own_ncr_stands_beside_ours_where_it_differs() -> None:
    rollouts = [
        rollout("p", 1.0, (1, 1), plain=(False, True)),
        rollout("p", 0.0, (1, 0), plain=(True, False), guard=0.5),
    ]
    found = figures_of(*rollouts)
    assert (found["ncr_paper"], found["auroc"], found["auroc_paper"]) == (0.5, 1.0, 0.5)
    assert found["auroc_without_final"] == 1.0 and found["auroc_paper_without_final"] == 0.0
    evaluation = evaluate(scored_set([facts("p", [False, True])], *rollouts))
    notes = "\n".join(evaluation_notes(evaluation))
    assert "NCR of the paper (no statements, no guard): 50.0 %, AUROC 50.0 %" in notes
    tables = evaluation_tables(evaluation)
    headings = {column.heading for table in tables for column in table.columns}
    assert {"NCR of the paper %", "AUROC of the paper %"} <= headings
    # Unknown or the same, it is left out.
    for plain in (None, (True, True)):
        same = [rollout("p", acc, (1, 1), plain=plain) for acc in (1.0, 0.0)]
        assert not [name for name in figures_of(*same) if "paper" in name]


def test_the_json_form_is_complete_and_has_no_nan() -> None:
    found = evaluate(example(), dataset="d.jsonl", settings=EvaluationSettings(ks=(1, 2))).to_json()
    read = json.loads(json.dumps(found, allow_nan=False))
    assert (read["schema"], read["dataset"], read["ks"]) == (SCHEMA, "d.jsonl", [1, 2])
    assert read["num_problems_without_rollouts"] == 1
    assert read["overall"]["left_out"] == {"pass@2": [1, ["p3"]]}
    assert read["overall"]["figures"]["acc"]["value"] == 0.5
    # What another program may rely on; a change of these is a change of SCHEMA.
    assert sorted(read) == sorted(
        "schema version dataset files identity num_stored skipped_rows "
        "num_problems_without_rollouts tokenizer num_tokenized messages ks confidence "
        "replicates overall breakdowns".split()
    )


def test_notes_say_what_the_tables_do_not() -> None:
    notes = "\n".join(evaluation_notes(evaluate(example(), settings=EvaluationSettings(ks=(2,)))))
    assert "AUROC of 2 problems says little" in notes
    assert "INTERNAL 1" in notes and "ANSWER_UNDECIDED 1" in notes and "66.7 %" in notes
    assert "pass@2 of all leaves out 1 of 3 problems, which have fewer than 2 rollouts: p3" in notes


@pytest.mark.parametrize(
    ("by", "settings", "sentence"),
    [
        (("colour",), EvaluationSettings(), "by model, source, difficulty, not by 'colour'"),
        ((), EvaluationSettings(confidence=0.0), "above 0 and below 1, got 0.0"),
        ((), EvaluationSettings(ks=(0,)), r"1 or more, got \(0,\)"),
        ((), EvaluationSettings(ks=(2, 1)), r"ascending and 1 or more, got \(2, 1\)"),
    ],
)
def test_settings_out_of_range_are_refused(
    by: tuple[str, ...], settings: EvaluationSettings, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        evaluate(example(), by=by, settings=settings)


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


def test_the_figure_is_the_mean_over_problems_that_have_enough() -> None:
    # p0: 1 of 2, p1: 2 of 2, p2: one sample, p3: one that could be judged, p4: none.
    problem = np.array([0, 0, 1, 1, 2, 3, 3, 4])
    acc = np.array([1, 0, 1, 1, 1, 0, math.nan, math.nan])
    first, few = pass_at_k_estimate(acc, problem, 1, 0.95)
    assert first.value == pytest.approx((0.5 + 1 + 1 + 0) / 4) and few == [4]
    second, few = pass_at_k_estimate(acc, problem, 2, 0.95)
    assert (second.value, second.std_error, second.count, second.problems) == (1.0, 0.0, 4, 2)
    assert few == [2, 3, 4]
    third, few = pass_at_k_estimate(acc, problem, 3, 0.95)
    assert third.value is None and len(few) == 5


def test_the_three_by_hand() -> None:
    ncr = np.array([1.0, 0.5, 0.5, 0.0])
    found = consistency_of(ncr, np.array([1.0, 1, 0, 0]), np.arange(4), 0.95)
    assert found.figures["d_ncr"].value == pytest.approx((1 + 0.5) / 2 - (0.5 + 0) / 2)
    # Right above wrong in 3 of 4 pairs, level in the other.
    assert found.figures["auroc"].value == pytest.approx(3.5 / 4)
    # At 1: precision 1, recall 1/2.  At 1/2: precision 2/3, recall 1.
    assert found.figures["aucpr"].value == pytest.approx(1 / 2 * 1 + 1 / 2 * 2 / 3)
    assert (found.figures["prevalence"].value, found.num_right, found.num_wrong) == (0.5, 2, 2)
    assert (found.ncr_right, found.ncr_wrong) == (0.75, 0.25)


def test_one_class_alone_has_no_figure_and_says_so() -> None:
    found = consistency_of(np.array([1.0, 0.5]), np.ones(2), np.arange(2), 0.95)
    found_auroc = found.figures["auroc"]
    assert (found_auroc.value, found_auroc.no_interval) == (None, ONE_CLASS)
    assert (found.figures["prevalence"].value, found.ncr_right, found.ncr_wrong) == (
        1.0,
        0.75,
        None,
    )
    empty = consistency_of(np.array([]), np.array([]), np.array([], dtype=int), 0.95)
    assert (empty.figures["prevalence"].value, empty.figures["d_ncr"].value) == (None, None)


def test_too_few_problems_have_figures_without_intervals() -> None:
    ncr, acc = np.array([1.0, 0.0]), np.array([1.0, 0.0])
    single = consistency_of(ncr, acc, np.zeros(2, dtype=int), 0.95)
    single_auroc = single.figures["auroc"]
    assert (single_auroc.value, single_auroc.no_interval) == (
        1.0,
        ONE_PROBLEM,
    )
    few = consistency_of(np.tile(ncr, 9), np.tile(acc, 9), np.arange(18) // 2, 0.95)
    few_auroc = few.figures["auroc"]
    assert (
        few_auroc.value,
        few_auroc.low,
        few_auroc.no_interval,
    ) == (1.0, None, FEW_PROBLEMS)
    # A third of the samples of these twelve problems lack the only right rollout.
    ncr, acc = np.eye(12)[0] + 0.1 * np.arange(12), np.eye(12)[0]
    rare = consistency_of(ncr, acc, np.arange(12), 0.95)
    rare_auroc = rare.figures["auroc"]
    assert rare_auroc.value == pytest.approx(9.5 / 11)
    assert (rare_auroc.low, rare_auroc.no_interval) == (None, TOO_FEW)


def test_a_perfect_sample_is_not_certain_to_be_perfect() -> None:
    acc = np.tile([1.0, 0.0], 20)
    found = consistency_of(0.5 * acc + 0.25, acc, np.arange(40) // 2, 0.95)
    for name, value in (("auroc", 1.0), ("aucpr", 1.0), ("d_ncr", 0.5)):
        figure = found.figures[name]
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


def test_the_interval_is_that_of_resampled_problems() -> None:
    """Against a plain loop over the same draws."""
    random = np.random.default_rng(5)
    problem = random.integers(0, 12, 150)
    acc = (random.random(150) < 0.6).astype(float)
    ncr = random.integers(0, 4, 150) / 4 * 0.7 + 0.3 * acc
    found = consistency_of(ncr, acc, problem, 0.9)
    right, wrong = ncr[acc == 1][:, None], ncr[acc == 0][None, :]
    ordered = (right > wrong) + (right == wrong) / 2
    values = [
        np.average(ordered, weights=np.outer(drawn[acc == 1], drawn[acc == 0]))
        for block in problem_weights(12)
        for drawn in block[:, problem]
    ]
    low, high = np.quantile(values, [0.05, 0.95])
    assert (found.figures["auroc"].low, found.figures["auroc"].high) == pytest.approx((low, high))
    assert found.figures["auroc"].value is not None and low <= found.figures["auroc"].value <= high


def test_a_percentile_interval_needs_most_of_its_replicates() -> None:
    replicates = np.linspace(0, 1, 101)
    assert percentile_interval(replicates, 0.9) == pytest.approx((0.05, 0.95))
    replicates[:10] = math.nan
    assert percentile_interval(replicates, 0.9) is not None
    replicates[:11] = math.nan
    assert percentile_interval(replicates, 0.9) is None
