"""Rows of datasets and rollouts files: schema, validation, readers and writers.

The formats are described in ``docs/reference/file-formats.md``.
"""

from consensuspr.data.readers import (
    OnError,
    ReadReport,
    read_problem_rows,
    read_problems,
    read_rollouts,
    read_rows,
    scan_rollouts,
)
from consensuspr.data.schema import (
    Node,
    Problem,
    Row,
    parse_problem,
    problem_to_row,
)
from consensuspr.data.writers import (
    RowWriter,
    atomic_file,
    open_writer,
)
from consensuspr.errors import DataError

__all__ = [
    "DataError",
    "Node",
    "OnError",
    "Problem",
    "ReadReport",
    "Row",
    "RowWriter",
    "atomic_file",
    "open_writer",
    "parse_problem",
    "problem_to_row",
    "read_problem_rows",
    "read_problems",
    "read_rollouts",
    "read_rows",
    "scan_rollouts",
]
