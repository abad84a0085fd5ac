"""What rows for any trainer share: the prompt as chat messages, and nodes that travel along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from consensusbench.export.prompt import with_prompt
from consensusbench.export.selection import Side
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
