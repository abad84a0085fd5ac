"""Datasets exported for a trainer: ``train.parquet`` and ``val.parquet`` in one folder.

verl's columns are those of its own preprocessing; the reward finds a problem by
``extra_info.problem_id``.  TRL's are ``prompt`` as chat messages, and the columns that
:mod:`consensuspr.client.trl` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from consensusbench.export.files import (
    UNNAMED_SOURCE,
    Export,
    ExportReport,
    ExportSplit,
    write_export,
)
from consensusbench.problems.texts import with_prompt
from consensuspr.data import Node, Problem, Row

if TYPE_CHECKING:
    import pyarrow as pa

# Trainers name the splits of their rows train and test.
SPLIT_OF = {ExportSplit.TRAIN: "train", ExportSplit.VALIDATION: "test"}

# Takes a problem, its split, its place in the file, and the columns of inline nodes.
_MakeRow: TypeAlias = Callable[[Problem, str, int, Row], Row]


def export_verl(
    export: Export, progress: Callable[[int], None] = lambda done: None
) -> ExportReport:
    """Write verl's files; see :func:`~consensusbench.export.files.write_export`."""
    return write_export(export, _TrainerLayout(_verl_row, export.inline_nodes), progress)


def export_trl(export: Export, progress: Callable[[int], None] = lambda done: None) -> ExportReport:
    """Write TRL's files; see :func:`~consensusbench.export.files.write_export`."""
    return write_export(export, _TrainerLayout(_trl_row, export.inline_nodes), progress)


def _prompt(problem: Problem) -> list[Row]:
    return [{"role": "user", "content": with_prompt(problem.problem)}]


def _verl_row(problem: Problem, split: str, index: int, nodes: Row) -> Row:
    return {
        "data_source": problem.data_source or UNNAMED_SOURCE,
        "prompt": _prompt(problem),
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": problem.ground_truth},
        "extra_info": {"problem_id": problem.problem_id, "split": split, "index": index, **nodes},
    }


def _trl_row(problem: Problem, split: str, index: int, nodes: Row) -> Row:
    return {
        "prompt": _prompt(problem),
        "problem_id": problem.problem_id,
        "ground_truth": problem.ground_truth,
        "data_source": problem.data_source or UNNAMED_SOURCE,
        "split": split,
        **nodes,
    }


class _TrainerLayout:
    """The files of a trainer; the columns are those of an example row."""

    files: Mapping[ExportSplit, str] = {split: f"{split.value}.parquet" for split in ExportSplit}
    # Neither trainer starts without validation files.
    needs_both = True

    def __init__(self, make_row: _MakeRow, inline_nodes: bool) -> None:
        self._make_row = make_row
        self._inline_nodes = inline_nodes

    def note(self, problem: Problem) -> None:
        pass

    def row(self, problem: Problem, split: ExportSplit, index: int) -> Row:
        nodes = [
            {
                "node_id": node.node_id,
                "expressions": list(node.expressions),
                "derived": list(node.derived or ()),
            }
            for node in problem.nodes
        ]
        inline = {"nodes": nodes} if self._inline_nodes else {}
        return self._make_row(problem, SPLIT_OF[split], index, inline)

    def schema(self) -> pa.Schema:
        import pyarrow as pa

        node = Node("n", ("x=1",), derived=("1=x",))
        example = Problem("p", "1", (node,), problem="What is x?")
        return pa.Table.from_pylist([self.row(example, ExportSplit.TRAIN, 0)]).schema
