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
def test_every_public_name_resolves(package: ModuleType) -> None:
    for name in package.__all__:
        assert getattr(getattr(package, name), "__name__", name) == name
        assert name in vars(package), "the next use finds it at once"
    names = {name for name in dir(package) if not name.startswith("_")} - MACHINERY
    things = {name for name in names if not isinstance(getattr(package, name), ModuleType)}
    assert things == set(package.__all__)
    with pytest.raises(AttributeError, match=f"'{package.__name__}' has no attribute 'linaer'"):
        _ = package.linaer
