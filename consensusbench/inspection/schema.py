"""Rows against the schema, every fault of every row.

The schema is :func:`consensuspr.data.parse_problem`, which stops at the first fault of a row.
A bad row is therefore taken apart here and each part parsed alone, so that one run names
everything that has to be mended.  A good row is parsed once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from consensusbench.inspection.findings import Code, Finding
from consensuspr.data import DataError, Problem, Row, WholeFile, parse_problem, read_rows

_COLUMNS = ("problem_id", "nodes")
# In which a sound node stands where only one key of a node is on trial.
_SOUND_NODE: Row = {"expressions": ["1+1=2"]}


@dataclass(slots=True)
class RowCounts:
    """Rows of a dataset: good ones, and ones with a fault of their own or between rows.

    Of the bad ones, ``unreadable`` are no rows at all, and ``unreadable_because`` is what is
    wrong with the first of these.
    """

    good: int = 0
    bad: int = 0
    unreadable: int = 0
    unreadable_because: str = ""


def checked_problems(
    path: str | os.PathLike[str], counts: RowCounts, tell: Callable[[Finding], None]
) -> Iterator[tuple[int, Problem]]:
    """Yield line and problem of every good row; tell the faults of the others.

    Raises:
        DataError: the file as a whole is bad.
    """
    name = os.fspath(path)
    whole = WholeFile()
    for line, row in read_rows(name, _COLUMNS):
        faults: list[str] = []
        problem = None
        if isinstance(row, DataError):
            faults = [row.reason]
            counts.unreadable += 1
            counts.unreadable_because = counts.unreadable_because or row.reason
        else:
            try:
                problem = parse_problem(row, name, line)
                whole.check(problem, name, line)
            except DataError as fault:
                faults = [fault.reason] if problem is not None else row_faults(row)
        if faults or problem is None:
            counts.bad += 1
            problem_id = row.get("problem_id") if isinstance(row, dict) else None
            shown = problem_id[:1024] if isinstance(problem_id, str) and problem_id else None
            for reason in faults:
                message = f"{reason}; the row is not usable until this is mended"
                tell(Finding(Code.SCHEMA, message, line, shown))
        else:
            counts.good += 1
            yield line, problem


def row_faults(row: Row) -> list[str]:
    """Return every fault of a row that is no problem, in the order of its keys."""
    faults = [] if (own := _fault({"problem_id": row.get("problem_id")})) is None else [own]
    for key, value in row.items():
        if key not in ("problem_id", "nodes"):
            _collect(faults, {key: value})
    nodes = row.get("nodes")
    if nodes is None:
        return faults
    if type(nodes) is not list:
        return _collect(faults, {"nodes": nodes})
    before = len(faults)
    for position, node in enumerate(nodes):
        faults += [
            reason.replace("nodes[0]", f"nodes[{position}]", 1) for reason in _node_faults(node)
        ]
    if len(faults) == before:
        _collect(faults, {"nodes": nodes})  # what is wrong is between nodes
    return faults


def _node_faults(node: object) -> list[str]:
    if type(node) is not dict:
        return _collect([], {"nodes": [node]})
    faults = _collect([], {"nodes": [{"expressions": node.get("expressions")}]})
    for key, value in node.items():
        if key != "expressions":
            _collect(faults, {"nodes": [_SOUND_NODE | {key: value}]})
    return faults


def _collect(faults: list[str], part: Row) -> list[str]:
    reason = _fault({"problem_id": "p"} | part)
    if reason is not None:
        faults.append(reason)
    return faults


def _fault(row: Row) -> str | None:
    try:
        parse_problem(row)
    except DataError as fault:
        return fault.reason
    return None
