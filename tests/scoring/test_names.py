"""The names of the package, and what importing them costs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import consensuspr.scoring


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


def test_describing_rollouts_imports_neither_matcher_nor_answers_nor_pyarrow() -> None:
    code = (
        "import sys; from consensuspr.scoring import RewardSpec, Rollout, Status; "
        "print([name for name in ('consensuspr.core', 'consensuspr.scoring.answers', 'pyarrow',"
        " 'consensuspr.data', 'sympy') if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=environment, check=True
    )
    assert done.stdout.decode().strip() == "[]"


def test_a_scorer_needs_neither_pyarrow_nor_sympy_to_start() -> None:
    code = (
        "import sys; from consensuspr.scoring import DatasetIndex, Scorer; "
        "print([name for name in ('pyarrow', 'sympy', 'grpc') if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=environment, check=True
    )
    assert done.stdout.decode().strip() == "[]"
