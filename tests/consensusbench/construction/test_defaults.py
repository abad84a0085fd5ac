"""The commands' defaults are those of the settings behind them."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from consensusbench.cli.construction import ModelOptions, build_build, extract, refine
from consensusbench.construction import SelectionSettings
from consensusbench.extraction.refine import RefineSettings
from consensusbench.extraction.rules import RulesSettings


@pytest.mark.parametrize("command", [build_build, extract, refine])
@pytest.mark.parametrize(
    "settings", [RefineSettings(), RulesSettings(), SelectionSettings(), ModelOptions()]
)
def test_defaults(command: Callable[..., None], settings: object) -> None:
    shared = {
        name: parameter.default
        for name, parameter in inspect.signature(command).parameters.items()
        if hasattr(settings, name)
    }
    # The command line spells this one, because it may also be "all".
    shared = {name: int(value) if value == "5" else value for name, value in shared.items()}
    assert shared == {name: getattr(settings, name) for name in shared}


def test_there_are_thresholds_to_compare() -> None:
    parameters = inspect.signature(build_build).parameters
    assert {"min_share", "min_formula_share", "min_models", "min_rollouts"} <= set(parameters)
