"""A dataset exported for TRL: ``train.parquet`` and ``val.parquet`` in one folder.

Rows as ``GRPOTrainer`` takes them: ``prompt`` as chat messages, and beside it the columns that
:mod:`consensuspr.client.trl` reads, ``problem_id``, ``ground_truth``, ``data_source`` and
``split``, with ``nodes`` where they travel with the row.  TRL hands every column of a row to
the reward function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from consensusbench.export.pipeline import Export, write_export
from consensusbench.export.report import UNNAMED_SOURCE, ExportReport
from consensusbench.export.selection import Side
from consensusbench.export.trainer_rows import (
    SPLIT_OF,
    TRAINER_FILES,
    messages_type,
    node_rows,
    nodes_type,
    prompt_messages,
)
from consensuspr.data import Problem, Row

if TYPE_CHECKING:
    import pyarrow as pa


def export_trl(export: Export, progress: Callable[[int], None] = lambda done: None) -> ExportReport:
    """Write the files of an export; see :func:`~consensusbench.export.pipeline.write_export`."""
    return write_export(export, _TrlLayout(export.inline_nodes), progress)


class _TrlLayout:
    files = TRAINER_FILES
    needs_both = True

    def __init__(self, inline_nodes: bool) -> None:
        self._inline_nodes = inline_nodes

    def row(self, problem: Problem, side: Side) -> Row:
        row: Row = {
            "prompt": prompt_messages(problem),
            "problem_id": problem.problem_id,
            "ground_truth": problem.ground_truth,
            "data_source": problem.data_source or UNNAMED_SOURCE,
            "split": SPLIT_OF[side],
        }
        if self._inline_nodes:
            row["nodes"] = node_rows(problem)
        return row

    def finished(self, row: Row, index: int) -> Row:
        return row

    def schema(self) -> pa.Schema:
        import pyarrow as pa

        names = ("problem_id", "ground_truth", "data_source", "split")
        columns = [("prompt", messages_type()), *[(name, pa.string()) for name in names]]
        if self._inline_nodes:
            columns.append(("nodes", nodes_type()))
        return pa.schema(columns)
