"""The names of the package, and what importing them costs."""

from __future__ import annotations

import pytest

import consensuspr.scoring
from tests.scoring.conftest import printed_by


@pytest.mark.parametrize("name", consensuspr.scoring.__all__)
def test_every_name_resolves_to_the_thing_of_that_name(name: str) -> None:
    value = getattr(consensuspr.scoring, name)
    assert name in dir(consensuspr.scoring)
    assert getattr(value, "__name__", name) == name


def test_every_lazy_name_is_public_and_the_reverse() -> None:
    assert sorted(consensuspr.scoring._HOME_OF) == sorted(consensuspr.scoring.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'linaer'"):
        _ = consensuspr.scoring.linaer


@pytest.mark.parametrize(
    ("names", "heavy"),
    [
        (
            "RewardSpec, Rollout, Status",
            ["consensuspr.core", "consensuspr.scoring.answers", "pyarrow", "consensuspr.data",
             "sympy"],
        ),
        ("DatasetIndex, Scorer", ["pyarrow", "sympy", "grpc"]),
    ],
    ids=["describing rollouts", "a scorer"],
)  # fmt: skip
def test_what_is_not_needed_is_not_imported(names: str, heavy: list[str]) -> None:
    code = (
        f"import sys; from consensuspr.scoring import {names}; "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    assert printed_by(code) == "[]"
