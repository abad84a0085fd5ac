"""Problems of the paper's five sources, from the hub or from files, without repetitions.

::

    from consensusbench.sources import Collection, collect_problems, source_input

    inputs = [source_input("math-500"), source_input("dapo-math-17k", "dapo.parquet")]
    report = collect_problems(Collection(inputs, "problems.jsonl"))

Which sets there are is a table (:mod:`~consensusbench.sources.registry`); how a row of each
reads is in :mod:`~consensusbench.sources.rows`; which problems are kept is decided by
:mod:`~consensusbench.sources.census`.  The problems carry no nodes yet.
"""

from consensusbench.sources.census import Fate
from consensusbench.sources.collect import Collection, collect_problems
from consensusbench.sources.reading import HubChoice, SourceInput, source_input
from consensusbench.sources.registry import SOURCES, Source
from consensusbench.sources.report import SourcesReport

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
