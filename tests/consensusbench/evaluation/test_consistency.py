"""D_NCR, AUROC and AUCPR by hand, by counting pairs, and against scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from consensusbench.evaluation.estimates import ONE_PROBLEM, percentile_interval, problem_weights
from consensusbench.evaluation.metrics import (
    ALL_ALIKE,
    FEW_PROBLEMS,
    ONE_CLASS,
    TOO_FEW,
    consistency_of,
    weighted_figures,
)


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
