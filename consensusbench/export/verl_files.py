"""verl's Parquet rows: their schema, how a problem becomes one, and the writer.

The columns are those of verl's own preprocessing: ``data_source``, ``prompt`` (chat messages),
``ability``, ``reward_model`` and ``extra_info``.  ``extra_info.problem_id`` is what the reward
looks a problem up by; ``extra_info.nodes`` is there where nodes travel with the row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

from consensusbench.export.prompt import with_prompt
from consensusbench.export.selection import Side
from consensuspr.data import Problem, Row

if TYPE_CHECKING:
    import pyarrow as pa

# verl names the splits of its rows train and test.
SPLIT_OF = {Side.TRAIN: "train", Side.VALIDATION: "test"}

# verl groups validation metrics by data source, which must therefore have a name.
UNNAMED_SOURCE = "consensusbench"

# Rows are held until a row group is full: 2,048 rows, or some 16 MB where they are long.
GROUP_ROWS = 2048
GROUP_CHARS = 16 << 20


def verl_row(problem: Problem, side: Side, inline_nodes: bool) -> Row:
    """Return the row of a problem, without its ``index``, which is its place in the file.

    Args:
        problem: has a text and a ground truth.
        side: which file it goes to.
        inline_nodes: put the nodes into the row, for a server without the dataset.
    """
    extra_info: Row = {"problem_id": problem.problem_id, "split": SPLIT_OF[side]}
    if inline_nodes:
        extra_info["nodes"] = [
            {
                "node_id": node.node_id,
                "expressions": list(node.expressions),
                "derived": list(node.derived or ()),
            }
            for node in problem.nodes
        ]
    return {
        "data_source": problem.data_source or UNNAMED_SOURCE,
        "prompt": [{"role": "user", "content": with_prompt(problem.problem)}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": problem.ground_truth},
        "extra_info": extra_info,
    }


class VerlFile:
    """Writes rows as one Parquet file, a row group at a time.

    Args:
        stream: where to.
        inline_nodes: whether the rows have nodes.
    """

    def __init__(self, stream: BinaryIO, inline_nodes: bool) -> None:
        import pyarrow.parquet as pq

        self._schema = _schema(inline_nodes)
        self._out = pq.ParquetWriter(stream, self._schema, compression="zstd")
        self._group: list[Row] = []
        self._chars = 0
        self._rows = 0

    def write(self, row: Row) -> None:
        """Take a row of :func:`verl_row`; its index is added here."""
        row["extra_info"]["index"] = self._rows
        self._rows += 1
        self._group.append(row)
        self._chars += _chars(row)
        if len(self._group) >= GROUP_ROWS or self._chars >= GROUP_CHARS:
            self._flush()

    def close(self) -> None:
        """Write what is held, and the file's end."""
        self._flush()
        self._out.close()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._group:
            self._out.write_table(pa.Table.from_pylist(self._group, self._schema))
            self._group, self._chars = [], 0


def _schema(inline_nodes: bool) -> pa.Schema:
    import pyarrow as pa

    text = pa.string()
    extra_info = [("problem_id", text), ("split", text), ("index", pa.int64())]
    if inline_nodes:
        node = [("node_id", text), ("expressions", pa.list_(text)), ("derived", pa.list_(text))]
        extra_info.append(("nodes", pa.list_(pa.struct(node))))
    return pa.schema(
        [
            ("data_source", text),
            ("prompt", pa.list_(pa.struct([("role", text), ("content", text)]))),
            ("ability", text),
            ("reward_model", pa.struct([("style", text), ("ground_truth", text)])),
            ("extra_info", pa.struct(extra_info)),
        ]
    )


def _chars(value: Any) -> int:
    """Return the characters of all strings in a row, which make nearly all of its size."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_chars, value.values()))
    if isinstance(value, list):
        return sum(map(_chars, value))
    return 0
