"""The file between ``extract`` and ``refine``: every problem with what stage 2 made of it.

A row is that of a problem without nodes, with one more key: ``extraction`` (candidates, what was
dropped, rollouts, provenance) or ``excluded`` (stage, reason, detail).  So stage 3 runs again
with other thresholds and without extracting, which a model is paid for, and its audit is whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast, get_args

from consensusbench.construction.extraction_rows import extraction_from_row, extraction_to_row
from consensusbench.construction.provenance import sampled_rows
from consensusbench.construction.values import Excluded, Group, Item, Reason, Sampled, Stage, Task
from consensusbench.extraction.types import Extraction
from consensuspr.data import (
    DataError,
    OnError,
    Problem,
    ReadReport,
    Row,
    problem_to_row,
    read_problem_rows,
)
from consensuspr.errors import InputError

_KEYS = ("extraction", "excluded")


def extracted_row(group: Group, extraction: Extraction) -> Row:
    """Return the row of a problem that has candidates, possibly none."""
    return problem_to_row(group.problem) | {
        "extraction": {
            "correct_rollouts": group.correct,
            "rollouts": sampled_rows(group),
            "inputs": group.inputs,
            "provenance": group.provenance,
            **extraction_to_row(extraction),
        },
        "excluded": None,
    }


def excluded_row(excluded: Excluded) -> Row:
    """Return the row of a problem that has no extraction."""
    return problem_to_row(excluded.problem) | {
        "extraction": None,
        "excluded": {
            "stage": excluded.stage,
            "reason": excluded.reason,
            "detail": excluded.detail,
        },
    }


def read_candidates(
    path: str | os.PathLike[str], on_error: OnError, report: ReadReport
) -> Iterator[Item]:
    """Yield the problems of a file of candidates in order.

    Args:
        path: JSONL, gzip'd JSONL or Parquet.
        on_error: what a bad row does.
        report: filled with counts and reasons.

    Raises:
        DataError: a bad row with ``"stop"``; a bad file always.
    """
    name = os.fspath(path)
    for problem, row in read_problem_rows(name, on_error, report):
        try:
            yield _item(problem, row)
        except InputError as error:
            fault = DataError(name, None, f"problem {problem.problem_id[:80]!r}: {error}")
            if on_error == "stop":
                raise fault from None
            report.rows -= 1
            report.skip(fault)


def _item(problem: Problem, row: Row) -> Item:
    extra = {key: value for key, value in problem.extra.items() if key not in _KEYS}
    problem = replace(problem, nodes=(), extra=extra)
    excluded, extraction = row.get("excluded"), row.get("extraction")
    if isinstance(excluded, dict):
        return _excluded(problem, excluded)
    if not isinstance(extraction, dict):
        raise InputError("has neither extraction nor excluded; files of candidates are made by "
                         "consensusbench extract")  # fmt: skip
    for key, kind in (("correct_rollouts", int), ("inputs", str), ("provenance", dict)):
        if not isinstance(extraction.get(key), kind):
            raise InputError(f"extraction.{key} is missing or of a wrong type")
    group = Group(
        problem,
        _sampled(extraction.get("rollouts")),
        extraction["correct_rollouts"],
        extraction["inputs"],
        extraction["provenance"],
    )
    return Task(group, extraction=extraction_from_row(extraction))


def _excluded(problem: Problem, row: Row) -> Excluded:
    reason, stage, detail = row.get("reason"), row.get("stage"), row.get("detail")
    if reason not in get_args(Reason) or stage not in get_args(Stage) or type(detail) is not str:
        raise InputError(f"excluded has stage {stage!r}, reason {reason!r}, detail {detail!r}")
    return Excluded(problem, cast(Reason, reason), detail, cast(Stage, stage))


def _sampled(rows: Any) -> tuple[Sampled, ...]:
    if not isinstance(rows, list) or not rows:
        raise InputError("extraction.rollouts must be a list, and not empty")
    sampled = []
    for at, row in enumerate(rows):
        name, model = (row.get("rollout_id"), row.get("model")) if isinstance(row, dict) else (0, 0)
        if not isinstance(name, str) or not isinstance(model, str):
            raise InputError(f"extraction.rollouts[{at}] must have rollout_id and model")
        sampled.append(Sampled(name, model, row.get("sampling") or {}))
    return tuple(sampled)
