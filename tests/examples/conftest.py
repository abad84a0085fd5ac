"""The modules of examples/verl_cpu, and the files that its runs share."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

import examples.study  # noqa: F401  (puts examples/verl_cpu on the path)

NUM_TRAIN, NUM_VALIDATION = 12, 8


@pytest.fixture(scope="session")
def example() -> SimpleNamespace:
    """Its modules, by their names."""
    names = ("problems", "files", "training", "results")
    modules = {name: import_module(f"arithmetic_grpo.{name}") for name in names}
    return SimpleNamespace(**modules, grow=import_module("grow"))


@pytest.fixture(scope="session")
def files(example: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Problems, of which a tool solves every other, and a model that is mostly right.

    Half a minute of supervised training, which all runs begin with.
    """
    recipe = replace(example.grow.start(NUM_TRAIN, NUM_VALIDATION), nodes=True, tool=True)
    folder = tmp_path_factory.mktemp("start") / "files"
    return example.files.prepare(folder, recipe, lambda done: None)
