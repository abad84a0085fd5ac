"""Packages whose public names resolve on first use."""

from __future__ import annotations

from types import ModuleType

import pytest

import consensusbench.construction
import consensuspr.client
import consensuspr.scoring
import consensuspr.scoring.answers

PACKAGES = [
    consensusbench.construction,
    consensuspr.client,
    consensuspr.scoring,
    consensuspr.scoring.answers,
]
# What such a package imports at once.
MACHINERY = {"annotations", "TYPE_CHECKING", "lazy_names"}

packages = pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)


@packages
def test_every_name_resolves_to_the_thing_of_that_name(package: ModuleType) -> None:
    for name in package.__all__:
        assert getattr(getattr(package, name), "__name__", name) == name
        assert name in vars(package), "the next use finds it at once"


@packages
def test_every_lazy_name_is_public_and_the_reverse(package: ModuleType) -> None:
    names = {name for name in dir(package) if not name.startswith("_")} - MACHINERY
    things = {name for name in names if not isinstance(getattr(package, name), ModuleType)}
    assert things == set(package.__all__)


@packages
def test_an_unknown_name_is_an_attribute_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=f"'{package.__name__}' has no attribute 'linaer'"):
        _ = package.linaer
