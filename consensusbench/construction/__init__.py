"""The way from rollouts to a dataset: grouping, verification, selection, and the two stages.

::

    from consensusbench.construction import BuildJob, OutputPaths, build
    from consensusbench.extraction.refine import PaperRefiner
    from consensusbench.extraction.rules import RulesExtractor

    paths = OutputPaths(Path("dataset.jsonl"))
    report = build(BuildJob((Path("rollouts.jsonl"),), paths, RulesExtractor(), PaperRefiner()))

Stages 2 and 3 are :mod:`consensusbench.extraction`; here they are given correct rollouts, run on
all cores, kept on disk, counted and written.
``docs/build-datasets.md`` is the page for users.

Names resolve on first use: a worker process needs few of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from consensusbench.construction.outputs import BuildReport, OutputPaths
    from consensusbench.construction.pipeline import (
        AsyncExtraction,
        BuildJob,
        build,
        refine_candidates,
    )
    from consensusbench.construction.selection import SelectionSettings
    from consensusbench.construction.types import BuildProgress

_HOME_OF = {
    "AsyncExtraction": "pipeline",
    "BuildJob": "pipeline",
    "BuildProgress": "types",
    "BuildReport": "outputs",
    "OutputPaths": "outputs",
    "SelectionSettings": "selection",
    "build": "pipeline",
    "refine_candidates": "pipeline",
}

__all__ = [
    "AsyncExtraction",
    "BuildJob",
    "BuildProgress",
    "BuildReport",
    "OutputPaths",
    "SelectionSettings",
    "build",
    "refine_candidates",
]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
