"""Rows of datasets and rollouts files: schema, validation, readers and writers.

The formats are described in ``docs/datasets.md``.  This package knows neither the normal
form nor scoring, so that the server, the client, the commands and the dataset tools read
the same rows in the same way.
"""

from consensuspr.data.readers import (
    OnError,
    ReadReport,
    Unparsed,
    WholeFile,
    parse_rollouts,
    read_problem_rows,
    read_problems,
    read_rollouts,
    read_rows,
    read_unparsed,
    refuse_empty,
    scan_rollouts,
)
from consensuspr.data.schema import (
    ANSWER_RULES,
    NODE_TYPES,
    SPLITS,
    Node,
    Problem,
    Row,
    check_rollout,
    parse_problem,
    problem_to_row,
)
from consensuspr.data.writers import (
    JsonRows,
    RowWriter,
    atomic_file,
    is_parquet_output,
    open_writer,
)
from consensuspr.errors import DataError

__all__ = [
    "ANSWER_RULES",
    "NODE_TYPES",
    "SPLITS",
    "DataError",
    "JsonRows",
    "Node",
    "OnError",
    "Problem",
    "ReadReport",
    "Row",
    "RowWriter",
    "Unparsed",
    "WholeFile",
    "atomic_file",
    "check_rollout",
    "is_parquet_output",
    "open_writer",
    "parse_problem",
    "parse_rollouts",
    "problem_to_row",
    "read_problem_rows",
    "read_problems",
    "read_rollouts",
    "read_rows",
    "read_unparsed",
    "refuse_empty",
    "scan_rollouts",
]
