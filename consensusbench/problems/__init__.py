"""Problems of the paper's five sources, from the hub or from files, without repetitions.

::

    from consensusbench.problems import Collection, collect_problems, source_input

    inputs = [source_input("math-500"), source_input("dapo-math-17k", "dapo.parquet")]
    report = collect_problems(Collection(inputs, "problems.jsonl"))

Which sets there are is a table (:mod:`~consensusbench.problems.sources`); how a row of each
reads is in :mod:`~consensusbench.problems.sources`; which problems are kept is decided by
:mod:`~consensusbench.problems.dedup`.  The problems carry no nodes yet.
"""

from __future__ import annotations

from consensusbench.problems.dedup import Collection, Fate, SourcesReport, collect_problems
from consensusbench.problems.sources import SOURCES, HubChoice, Source, SourceInput, source_input

__all__ = [
    "SOURCES",
    "Collection",
    "Fate",
    "HubChoice",
    "Source",
    "SourceInput",
    "SourcesReport",
    "collect_problems",
    "source_input",
]
