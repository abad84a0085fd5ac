"""Problems of the paper's five sources, from the hub or from files, without repetitions.

::

    from consensusbench.problems import ProblemCollection, collect_problems, source_input

    inputs = [source_input("math-500"), source_input("dapo-math-17k", "dapo.parquet")]
    report = collect_problems(ProblemCollection(inputs, "problems.jsonl"))

Which sets there are and how their rows read is in :mod:`~consensusbench.problems.sources`; which
problems are kept is decided by :mod:`~consensusbench.problems.dedup`.  They carry no nodes yet.
"""

from __future__ import annotations

from consensusbench.problems.dedup import (
    ProblemCollection,
    ProblemStatus,
    SourcesReport,
    collect_problems,
)
from consensusbench.problems.sources import (
    SOURCES,
    HubChoice,
    ProblemSet,
    SourceInput,
    source_input,
)

__all__ = [
    "SOURCES",
    "HubChoice",
    "ProblemCollection",
    "ProblemSet",
    "ProblemStatus",
    "SourceInput",
    "SourcesReport",
    "collect_problems",
    "source_input",
]
