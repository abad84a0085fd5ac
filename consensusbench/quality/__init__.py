"""Datasets looked over before anybody trains or evaluates on them.

``validate`` names what is wrong with rows and nodes, ``stats`` counts what is there::

    from consensusbench.quality import DatasetStats, validate_dataset

    report = validate_dataset("dataset.jsonl", rollouts=["rollouts.jsonl"])
    report.counts[Code.UNMATCHABLE_NODE]

Every finding, its severity and what to do about it: ``docs/build-datasets.md``.
"""

from __future__ import annotations

from consensusbench.quality.stats import Composition, DatasetStats, read_stats
from consensusbench.quality.validate import (
    Code,
    DatasetFinding,
    Severity,
    ValidationReport,
    ValidationSettings,
    validate_dataset,
)

__all__ = [
    "Code",
    "Composition",
    "DatasetFinding",
    "DatasetStats",
    "Severity",
    "ValidationReport",
    "ValidationSettings",
    "read_stats",
    "validate_dataset",
]
