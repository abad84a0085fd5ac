"""The training run of examples/verl_cpu, which is no installed package, and what its runs share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "verl_cpu"

NUM_TRAIN, NUM_VALIDATION = 12, 8


@pytest.fixture(scope="session")
def example() -> Iterator[SimpleNamespace]:
    """Its modules, by their names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLE))
        names = ("problems", "files", "training", "results")
        modules = {name: import_module(f"arithmetic_grpo.{name}") for name in names}
        yield SimpleNamespace(**modules, grow=import_module("grow"))
        for name in [name for name in sys.modules if name.startswith("arithmetic_grpo")]:
            del sys.modules[name]
        del sys.modules["grow"]


@pytest.fixture(scope="session")
def files(example: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Problems, of which a tool solves every other, and a model that is mostly right.

    Half a minute of supervised training, which all runs begin with.
    """
    recipe = replace(example.grow.start(NUM_TRAIN, NUM_VALIDATION), nodes=True, tool=True)
    folder = tmp_path_factory.mktemp("start") / "files"
    return example.files.prepare(folder, recipe, lambda done: None)
