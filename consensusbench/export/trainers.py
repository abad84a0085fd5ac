"""What rows for any trainer share: the prompt as chat messages, and nodes that travel along."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from consensusbench.export.files import UNNAMED_SOURCE, Export, ExportReport, Side, write_export
from consensusbench.problems.texts import with_prompt
from consensuspr.data import Problem, Row

if TYPE_CHECKING:
    import pyarrow as pa


# Trainers name the splits of their rows train and test.
SPLIT_OF = {Side.TRAIN: "train", Side.VALIDATION: "test"}

TRAINER_FILES: Mapping[Side, str] = {side: f"{side.value}.parquet" for side in Side}


def prompt_messages(problem: Problem) -> list[Row]:
    """Return the problem in the paper's prompt, as the one message of a chat."""
    return [{"role": "user", "content": with_prompt(problem.problem)}]


def messages_type() -> pa.DataType:
    """Return the type of :func:`prompt_messages`."""
    import pyarrow as pa

    return pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))


def node_rows(problem: Problem) -> list[Row]:
    """Return the nodes as they are sent with a rollout, for a server without the dataset."""
    return [
        {
            "node_id": node.node_id,
            "expressions": list(node.expressions),
            "derived": list(node.derived or ()),
        }
        for node in problem.nodes
    ]


def nodes_type() -> pa.DataType:
    """Return the type of :func:`node_rows`."""
    import pyarrow as pa

    text, texts = pa.string(), pa.list_(pa.string())
    return pa.list_(pa.struct([("node_id", text), ("expressions", texts), ("derived", texts)]))


# MERGED A dataset exported for verl: ``train.parquet`` and ``val.parquet`` in one folder.
#
# The columns are those of verl's own preprocessing: ``data_source``, ``prompt`` (chat messages),
# ``ability``, ``reward_model`` and ``extra_info``.  ``extra_info.problem_id`` is what the reward
# looks a problem up by; ``extra_info.nodes`` is there where nodes travel with the row.


def export_verl(
    export: Export, progress: Callable[[int], None] = lambda done: None
) -> ExportReport:
    """Write the files of an export; see :func:`~consensusbench.export.files.write_export`."""
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


# MERGED A dataset exported for TRL: ``train.parquet`` and ``val.parquet`` in one folder.
#
# Rows as ``GRPOTrainer`` takes them: ``prompt`` as chat messages, and beside it the columns that
# :mod:`consensuspr.client.trl` reads, ``problem_id``, ``ground_truth``, ``data_source`` and
# ``split``, with ``nodes`` where they travel with the row.  TRL hands every column of a row to
# the reward function.


def export_trl(export: Export, progress: Callable[[int], None] = lambda done: None) -> ExportReport:
    """Write the files of an export; see :func:`~consensusbench.export.files.write_export`."""
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
