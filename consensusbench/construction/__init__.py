"""From rollouts to a dataset: grouping, verification, selection, extraction and refinement.

``docs/tutorials/build-nodes.md`` is the page for users.  Names resolve on first use: a worker
process needs few of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consensuspr.lazy import lazy_names

if TYPE_CHECKING:
    from consensusbench.construction.outputs import BuildReport, OutputPaths
    from consensusbench.construction.pipeline import BuildJob, build, refine_candidates
    from consensusbench.construction.selection import SelectionSettings

__all__ = [
    "BuildJob",
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
        ".pipeline": "BuildJob build refine_candidates",
        ".selection": "SelectionSettings",
    },
)
