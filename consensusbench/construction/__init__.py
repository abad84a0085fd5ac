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

from typing import TYPE_CHECKING

from consensuspr.lazy import lazy_names

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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".outputs": "BuildReport OutputPaths",
        ".pipeline": "AsyncExtraction BuildJob build refine_candidates",
        ".selection": "SelectionSettings",
        ".types": "BuildProgress",
    },
)
