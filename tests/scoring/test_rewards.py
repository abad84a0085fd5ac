"""Equations 3 and 4 and the curriculum, on tables and on arbitrary values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.core.statements import is_computed
from consensuspr.errors import InputError
from consensuspr.scoring import RewardSpec, curriculum, linear, maximum
from consensuspr.scoring.rewards import CodeCredit, outcome

NAN = math.nan
# acc, ncr, linear at 0.5, maximum, outcome
TABLE = [
    (0.0, 0.0, 0.0, 0.0, 0.0), (1.0, 1.0, 1.0, 1.0, 1.0), (1.0, 0.0, 0.5, 1.0, 1.0),
    (0.0, 1.0, 0.5, 1.0, 0.0), (0.0, 0.25, 0.125, 0.25, 0.0), (1.0, 0.25, 0.625, 1.0, 1.0),
    (NAN, 0.25, NAN, NAN, NAN), (1.0, NAN, NAN, NAN, 1.0), (NAN, NAN, NAN, NAN, NAN),
]  # fmt: skip
ACC, NCR, LINEAR, MAXIMUM, OUTCOME = (list(column) for column in zip(*TABLE, strict=True))


def test_each_formula_on_the_table() -> None:
    np.testing.assert_array_equal(linear(ACC, NCR), LINEAR)
    np.testing.assert_array_equal(maximum(ACC, NCR), MAXIMUM)
    np.testing.assert_array_equal(outcome(ACC), OUTCOME)
    np.testing.assert_array_equal(RewardSpec.linear().compute(ACC, NCR), LINEAR)
    np.testing.assert_array_equal(RewardSpec.maximum().compute(ACC, NCR), MAXIMUM)
    np.testing.assert_array_equal(RewardSpec.outcome().compute(ACC, NCR), OUTCOME)


@pytest.mark.parametrize(("alpha", "expected"), [(0.0, 0.25), (0.3, 0.475), (1.0, 1.0)])
def test_alpha_weighs_the_outcome(alpha: float, expected: float) -> None:
    assert linear([1.0], [0.25], alpha)[0] == pytest.approx(expected, abs=1e-15)
    assert RewardSpec.linear(alpha).compute([1.0], [0.25])[0] == linear([1.0], [0.25], alpha)[0]


@pytest.mark.parametrize(
    ("epoch", "switch_epoch", "stage"),
    [(0, 1, "ncr"), (1, 1, "acc"), (7, 1, "acc"), (0, 0, "acc"), (2, 3, "ncr"), (3, 3, "acc")],
)
def test_the_curriculum_switches_once(epoch: int, switch_epoch: int, stage: str) -> None:
    expected = ACC if stage == "acc" else NCR
    np.testing.assert_array_equal(curriculum(ACC, NCR, epoch, switch_epoch), expected)
    spec = RewardSpec.curriculum(switch_epoch)
    np.testing.assert_array_equal(spec.compute(ACC, NCR, epoch), expected)


@pytest.mark.parametrize("alpha", [-0.1, 1.1, NAN, math.inf, "0.5", None])
def test_alpha_out_of_range_is_refused(alpha: object) -> None:
    message = rf"alpha must be a number in \[0, 1\], got {alpha!r}"
    with pytest.raises(InputError, match=message):
        RewardSpec.linear(alpha)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message):
        linear([1.0], [1.0], alpha)  # type: ignore[arg-type]


@pytest.mark.parametrize("epoch", [-1, 0.5, "1", None])
def test_an_epoch_that_is_none_is_refused(epoch: object) -> None:
    message = rf"epoch must be a whole number of 0 or more, got {epoch!r}"
    with pytest.raises(InputError, match=message):
        curriculum([1.0], [1.0], epoch)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="switch_" + message):
        RewardSpec.curriculum(epoch)  # type: ignore[arg-type]


RATES = st.integers(0, 20).flatmap(lambda k: st.builds(lambda m: m / max(k, 1), st.integers(0, k)))


@given(st.sampled_from([0.0, 1.0]), RATES, st.floats(0, 1), st.integers(0, 3))
def test_rewards_lie_between_0_and_1(acc: float, ncr: float, alpha: float, epoch: int) -> None:
    specs = (
        RewardSpec.linear(alpha),
        RewardSpec.maximum(),
        RewardSpec.curriculum(),
        RewardSpec.outcome(),
    )
    for spec in specs:
        (reward,) = spec.compute([acc], [ncr], epoch)
        assert 0.0 <= reward <= 1.0
        assert min(acc, ncr) - 1e-15 <= reward <= max(acc, ncr) + 1e-15


def test_the_core_has_the_same_choices_for_code() -> None:
    assert [choice for choice in CodeCredit if is_computed(choice)] == [CodeCredit.COMPUTED]
