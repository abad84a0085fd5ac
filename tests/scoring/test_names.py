"""What importing the names of the package costs."""

from __future__ import annotations

import pytest

from tests.commands import run_python


@pytest.mark.parametrize(
    ("names", "heavy"),
    [
        (
            "RewardSpec, Rollout, Status",
            ["consensuspr.core", "consensuspr.scoring.answers", "pyarrow", "consensuspr.data",
             "sympy"],
        ),
        ("DatasetIndex, Scorer", ["sympy", "grpc"]),
    ],
    ids=["describing rollouts", "a scorer"],
)  # fmt: skip
def test_what_is_not_needed_is_not_imported(names: str, heavy: list[str]) -> None:
    code = (
        f"import sys; from consensuspr.scoring import {names}; "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    assert run_python("-c", code) == (0, "[]\n", "")
