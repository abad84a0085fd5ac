"""Datasets exported for a trainer: ``train.parquet`` and ``val.parquet`` in one folder.

verl's columns are those of its own preprocessing.  The reward looks a problem up by
``extra_info.problem_id``.

TRL's are ``prompt`` as chat messages, and beside it what :mod:`consensuspr.client.trl` reads.
Either has ``nodes`` if these travel with the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from consensusbench.export.files import (
    UNNAMED_SOURCE,
    Export,
    ExportReport,
    ExportSplit,
    write_export,
)
from consensusbench.problems.texts import with_prompt
from consensuspr.data import Problem, Row

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


class _TrainerLayout:
    """The common parts of a trainer's rows: the paper's prompt as a chat, and inline nodes."""

    files: Mapping[ExportSplit, str] = {split: f"{split.value}.parquet" for split in ExportSplit}
    # Neither trainer starts without validation files.
    needs_both = True

    def __init__(self, inline_nodes: bool) -> None:
        self._inline_nodes = inline_nodes

    def note(self, problem: Problem) -> None:
        pass

    def _nodes(self, problem: Problem) -> Row:
        if not self._inline_nodes:
            return {}
        nodes = [
            {
                "node_id": node.node_id,
                "expressions": list(node.expressions),
                "derived": list(node.derived or ()),
            }
            for node in problem.nodes
        ]
        return {"nodes": nodes}

    def _nodes_field(self) -> list[tuple[str, pa.DataType]]:
        import pyarrow as pa

        text, texts = pa.string(), pa.list_(pa.string())
        node = pa.struct([("node_id", text), ("expressions", texts), ("derived", texts)])
        return [("nodes", pa.list_(node))] if self._inline_nodes else []


def _prompt(problem: Problem) -> list[Row]:
    return [{"role": "user", "content": with_prompt(problem.problem)}]


def _prompt_type() -> pa.DataType:
    import pyarrow as pa

    return pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))


class _VerlLayout(_TrainerLayout):
    def row(self, problem: Problem, split: ExportSplit, index: int) -> Row:
        return {
            "data_source": problem.data_source or UNNAMED_SOURCE,
            "prompt": _prompt(problem),
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": problem.ground_truth},
            "extra_info": {
                "problem_id": problem.problem_id,
                "split": SPLIT_OF[split],
                "index": index,
                **self._nodes(problem),
            },
        }

    def schema(self) -> pa.Schema:
        import pyarrow as pa

        text = pa.string()
        extra_info = [("problem_id", text), ("split", text), ("index", pa.int64())]
        return pa.schema(
            [
                ("data_source", text),
                ("prompt", _prompt_type()),
                ("ability", text),
                ("reward_model", pa.struct([("style", text), ("ground_truth", text)])),
                ("extra_info", pa.struct([*extra_info, *self._nodes_field()])),
            ]
        )


class _TrlLayout(_TrainerLayout):
    def row(self, problem: Problem, split: ExportSplit, index: int) -> Row:
        return {
            "prompt": _prompt(problem),
            "problem_id": problem.problem_id,
            "ground_truth": problem.ground_truth,
            "data_source": problem.data_source or UNNAMED_SOURCE,
            "split": SPLIT_OF[split],
            **self._nodes(problem),
        }

    def schema(self) -> pa.Schema:
        import pyarrow as pa

        names = ("problem_id", "ground_truth", "data_source", "split")
        columns = [("prompt", _prompt_type()), *[(name, pa.string()) for name in names]]
        return pa.schema([*columns, *self._nodes_field()])
