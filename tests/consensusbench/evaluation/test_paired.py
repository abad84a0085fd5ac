"""Two models on the same problems, by hand, and the sign-flip test against a second library."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.evaluation.estimates import PATTERNS, sign_flip_p_value
from consensusbench.evaluation.paired import compare, paired_difference
from consensuspr.errors import InputError
from tests.consensusbench.evaluation.conftest import columns

NAN = math.nan


def test_a_difference_by_hand() -> None:
    # Problem means 1/2, 1 and 0 against 1, 1 and 1; problem 3 and 4 have one side only.
    baseline = np.array([1.0, 0, 1, 0, 1]), np.array([0, 0, 1, 2, 3])
    candidate = np.array([1.0, 1, 1, 0, NAN]), np.array([0, 1, 2, 4, 3])
    found = paired_difference("acc", baseline, candidate, 0.95)
    assert (found.baseline, found.candidate) == (0.5, 1.0)
    assert found.delta.value == pytest.approx(0.5)
    assert found.delta.std_error == pytest.approx(np.std([0.5, 0, 1], ddof=1) / math.sqrt(3))
    assert found.relative == pytest.approx(1.0)
    assert (found.wins, found.ties, found.losses, found.num_unpaired) == (2, 1, 0, 2)
    # Of the four patterns of 1/2 and 1, both with all signs alike are as far from 0.
    assert found.p_value == 0.5


def test_of_tpn_less_is_better() -> None:
    problem = np.arange(3)
    sides = (np.array([10.0, 20, 30]), problem), (np.array([5.0, 20, 60]), problem)
    tpn, ncr = (paired_difference(name, *sides, 0.95) for name in ("tpn", "ncr"))
    assert (tpn.wins, tpn.ties, tpn.losses) == (1, 1, 1)
    assert (ncr.wins, ncr.ties, ncr.losses) == (1, 1, 1)
    assert tpn.delta.value == ncr.delta.value == pytest.approx(25 / 3)
    worse = paired_difference("tpn", sides[0], (sides[0][0] + 1, problem), 0.95)
    assert (worse.wins, worse.losses) == (0, 3)


def test_nothing_paired_is_no_value() -> None:
    found = paired_difference(
        "tpn", (np.array([NAN]), np.array([0])), (np.array([3.0]), np.array([0])), 0.95
    )
    assert (found.delta.value, found.baseline, found.p_value, found.num_unpaired) == (
        None,
        None,
        None,
        1,
    )


def test_problems_of_one_model_alone_are_left_out_and_named() -> None:
    ids = ("a", "b", "c", "d")
    baseline = columns(problem=[0, 1, 2], acc=[1, 1, 0])
    candidate = columns(problem=[1, 2, 3], acc=[1, 1, 0])
    found = compare(baseline, candidate, ids, names=("A", "B"))
    assert (found.only_baseline, found.only_candidate) == (("a",), ("d",))
    assert (found.num_only_baseline, found.num_only_candidate) == (1, 1)
    assert found.overall.num_problems == 2
    acc = found.overall.differences[0]
    assert (acc.measure, acc.delta.value, acc.num_unpaired) == ("acc", 0.5, 0)


def test_groups_are_those_of_the_problems() -> None:
    labels = ["easy", "hard", "hard", "(none)"]
    one = replace(columns(problem=[0, 1, 2, 3], acc=[1, 0, 0, 0]), difficulty=np.array(labels))
    other = replace(columns(problem=[0, 1, 2, 3], acc=[1, 1, 0, 1]), difficulty=np.array(labels))
    found = compare(one, other, tuple("abcd"), names=("A", "B"), by=("difficulty",))
    deltas = {g.key["difficulty"]: g.differences[0].delta.value for g in found.groups}
    assert deltas == {"easy": 0.0, "hard": 0.5}


def test_nothing_in_common_is_refused() -> None:
    with pytest.raises(InputError, match="'A' and 'B' have no problem in common"):
        compare(
            columns(problem=[0], acc=[1]),
            columns(problem=[1], acc=[1]),
            ("a", "b"),
            names=("A", "B"),
        )


def test_no_difference_is_no_evidence() -> None:
    assert sign_flip_p_value(np.zeros(5)) == 1.0
    assert sign_flip_p_value(np.array([0.3])) == 1.0
    assert sign_flip_p_value(np.array([1.0, 1, 1])) == 2 / 8


@given(st.lists(st.sampled_from([-1.0, -0.5, -0.1, 0.0, 0.1, 0.3, 1.0]), min_size=2, max_size=9))
def test_few_differences_are_tested_exactly(differences: list[float]) -> None:
    values = np.array(differences)
    sums = [
        abs(sum(s * v for s, v in zip(p, values, strict=True)))
        for p in product((1, -1), repeat=len(values))
    ]
    by_hand = np.mean([total >= abs(values.sum()) - 1e-9 for total in sums])
    assert sign_flip_p_value(values) == pytest.approx(by_hand)


def test_a_p_value_is_never_zero() -> None:
    assert sign_flip_p_value(np.full(200, 1.0)) == 1 / (PATTERNS + 1)
