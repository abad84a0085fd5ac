"""Datasets exported for a trainer: ``train.parquet`` and ``val.parquet`` in one folder.

verl's columns are those of its own preprocessing; the reward finds a problem by
``extra_info.problem_id``.  TRL's are ``prompt`` as chat messages, and the columns that
:mod:`consensuspr.client.trl` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from consensusbench.export.files import (
    UNNAMED_SOURCE,
    Export,
    ExportReport,
    ExportSplit,
    Layout,
    write_export,
)
from consensusbench.problems.texts import with_prompt
from consensuspr.data import Node, Problem, Row

if TYPE_CHECKING:
    import pyarrow as pa

# Trainers name the splits of their rows train and test.
SPLIT_OF = {ExportSplit.TRAIN: "train", ExportSplit.VALIDATION: "test"}


def export_verl(
    export: Export, progress: Callable[[int], None] = lambda done: None
) -> ExportReport:
    """Write verl's files; see :func:`~consensusbench.export.files.write_export`."""
    return write_export(export, _VerlLayout(export.inline_nodes), progress)


def export_trl(export: Export, progress: Callable[[int], None] = lambda done: None) -> ExportReport:
    """Write TRL's files; see :func:`~consensusbench.export.files.write_export`."""
    return write_export(export, _TrlLayout(export.inline_nodes), progress)


class _TrlLayout(Layout):
    files: Mapping[ExportSplit, str] = {split: f"{split.value}.parquet" for split in ExportSplit}
    # Neither trainer starts without validation files.
    needs_both = True

    def __init__(self, inline_nodes: bool) -> None:
        self._inline_nodes = inline_nodes

    def row(self, problem: Problem, split: ExportSplit, index: int) -> Row:
        row: Row = {
            "prompt": [{"role": "user", "content": with_prompt(problem.problem)}],
            "problem_id": problem.problem_id,
            "ground_truth": problem.ground_truth,
            "data_source": problem.data_source or UNNAMED_SOURCE,
            "split": SPLIT_OF[split],
        }
        if self._inline_nodes:
            row["nodes"] = [
                {
                    "node_id": node.node_id,
                    "expressions": list(node.expressions),
                    "derived": list(node.derived or ()),
                }
                for node in problem.nodes
            ]
        return row

    def schema(self) -> pa.Schema:
        """Return the columns of an example row."""
        import pyarrow as pa

        node = Node("n", ("x=1",), derived=("1=x",))
        example = Problem("p", "1", (node,), problem="What is x?")
        return pa.Table.from_pylist([self.row(example, ExportSplit.TRAIN, 0)]).schema


class _VerlLayout(_TrlLayout):
    def row(self, problem: Problem, split: ExportSplit, index: int) -> Row:
        row = super().row(problem, split, index)
        inline = {"nodes": row["nodes"]} if self._inline_nodes else {}
        named = {"problem_id": row["problem_id"], "split": row["split"], "index": index}
        return {
            "data_source": row["data_source"],
            "prompt": row["prompt"],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": row["ground_truth"]},
            "extra_info": named | inline,
        }
