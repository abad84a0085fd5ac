"""A dataset exported for verl: ``train.parquet`` and ``val.parquet`` in one folder.

The columns are those of verl's own preprocessing: ``data_source``, ``prompt`` (chat messages),
``ability``, ``reward_model`` and ``extra_info``.  ``extra_info.problem_id`` is what the reward
looks a problem up by; ``extra_info.nodes`` is there where nodes travel with the row.
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


def export_verl(
    export: Export, progress: Callable[[int], None] = lambda done: None
) -> ExportReport:
    """Write the files of an export; see :func:`~consensusbench.export.pipeline.write_export`."""
    return write_export(export, _VerlLayout(export.inline_nodes), progress)


class _VerlLayout:
    files = TRAINER_FILES
    # verl does not start without validation files.
    needs_both = True

    def __init__(self, inline_nodes: bool) -> None:
        self._inline_nodes = inline_nodes

    def row(self, problem: Problem, side: Side) -> Row:
        extra_info: Row = {"problem_id": problem.problem_id, "split": SPLIT_OF[side]}
        if self._inline_nodes:
            extra_info["nodes"] = node_rows(problem)
        return {
            "data_source": problem.data_source or UNNAMED_SOURCE,
            "prompt": prompt_messages(problem),
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": problem.ground_truth},
            "extra_info": extra_info,
        }

    def finished(self, row: Row, index: int) -> Row:
        row["extra_info"]["index"] = index
        return row

    def schema(self) -> pa.Schema:
        import pyarrow as pa

        text = pa.string()
        extra_info = [("problem_id", text), ("split", text), ("index", pa.int64())]
        if self._inline_nodes:
            extra_info.append(("nodes", nodes_type()))
        return pa.schema(
            [
                ("data_source", text),
                ("prompt", messages_type()),
                ("ability", text),
                ("reward_model", pa.struct([("style", text), ("ground_truth", text)])),
                ("extra_info", pa.struct(extra_info)),
            ]
        )
