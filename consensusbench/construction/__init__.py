"""The way from rollouts to a dataset: grouping, verification, selection, and the two stages.

::

    from consensusbench.construction import Job, OutputPaths, Source, build
    from consensusbench.construction.types import PaperRefiner
    from consensusbench.extraction.rules import RulesExtractor

    source, paths = Source((Path("rollouts.jsonl"),)), OutputPaths(Path("dataset.jsonl"))
    report = build(Job(source, paths, RulesExtractor(), PaperRefiner()))

Stage 2 is :mod:`consensusbench.extraction`, stage 3 :mod:`consensusbench.extraction.refine`; here they
are given correct rollouts, run on all cores, kept on disk, counted and written.
``docs/construction.md`` is the page for users, ``docs/design/construction.md`` for those who
change this.

Names resolve on first use: a worker process needs few of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from consensusbench.construction.outputs import BuildReport, OutputPaths
    from consensusbench.construction.pipeline import (
        AsyncExtraction,
        Job,
        Means,
        Source,
        build,
        refine_candidates,
    )
    from consensusbench.construction.selection import SelectionSettings
    from consensusbench.construction.types import Progress, Refiner

_HOMES = {
    "outputs": ("BuildReport", "OutputPaths"),
    "pipeline": ("AsyncExtraction", "Job", "Means", "Source", "build", "refine_candidates"),
    "selection": ("SelectionSettings",),
    "types": ("Progress", "Refiner"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AsyncExtraction",
    "BuildReport",
    "Job",
    "Means",
    "OutputPaths",
    "Progress",
    "Refiner",
    "SelectionSettings",
    "Source",
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
