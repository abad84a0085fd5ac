"""Rows of the public sets turned into problems.

A row is in the shape of the set on the hub, or in that of a dataset of this project
(``problem_id`` is among its keys).  Of the latter everything is kept; what it leaves out
(label, split) is filled in from the source.

Problem ids never come from a row's place: a set that is reordered, filtered or copied keeps
its ids.  They are the set's own id behind a prefix, else a digest of the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from consensusbench.export.prompt import without_prompt
from consensusbench.same_text import digest
from consensusbench.sources.registry import Answer, Source
from consensuspr.data import DataError, Problem, Row, parse_problem

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,400}(?:\.0{1,9})?")
_NOT_IN_AN_ID = re.compile(r"[^\w.-]+")

# Of the set's own id in a problem id; the limit of the schema is 1,024.
MAX_SOURCE_ID_CHARS = 200


def problem_of(row: Row, source: Source | None, path: str, line: int) -> Problem:
    """Return the problem that a row describes.

    Args:
        row: in either shape.
        source: the set that it belongs to; None: unknown, rows must be in this project's shape.
        path: file or dataset that it came from, for messages.
        line: line or row of it, counted from 1.

    Raises:
        DataError: a column is missing or holds something else, or there is no answer.
    """
    if "problem_id" in row:
        problem = parse_problem(row, path, line)
        if source is not None:
            problem.data_source = problem.data_source or source.data_source
            problem.split = problem.split or source.split
    elif source is None:
        raise DataError(path, line, f"has no problem_id; its keys are {_keys(row)}")
    else:
        problem = _from_hub_row(row, source, path, line)
    if not problem.problem.strip():
        raise DataError(path, line, "the text of the problem is empty")
    if problem.ground_truth is None:
        raise DataError(path, line, "the ground truth is missing")
    return problem


def _from_hub_row(row: Row, source: Source, path: str, line: int) -> Problem:
    try:
        text = _problem_text(_column(row, source.problem))
        answer = answer_of(_column(row, source.ground_truth), source.answer)
    except _RowError as fault:
        raise DataError(path, line, str(fault)) from None
    return Problem(
        problem_id=_problem_id(row, source, text),
        ground_truth=answer or None,
        data_source=source.data_source,
        problem=text,
        split=source.split,
        metadata={
            name: value
            for name, columns in source.metadata.items()
            if (value := _optional(row, columns)) is not None
        },
    )


class _RowError(ValueError):
    """Why a row is refused; the caller adds path and line."""


def _problem_text(value: Any) -> str:
    """Return the text of a problem that is given plainly, or as the messages of a prompt."""
    if isinstance(value, list):
        asked = [part for part in value if isinstance(part, dict) and part.get("role") == "user"]
        value = asked[0].get("content") if len(asked) == 1 else None
        if value is None:
            raise _RowError(f"the prompt must have one message of a user, got {len(asked)}")
    if not isinstance(value, str):
        raise _RowError(f"the problem must be a text, got {str(value)[:60]!r}")
    return without_prompt(value)


def answer_of(value: Any, how: Answer) -> str:
    """Return the ground truth that a column holds, as it is compared later.

    Args:
        value: a text or a whole number.
        how: ``after ####`` takes what follows the last ``####`` and drops thousands
            separators; ``whole number`` drops leading zeros (``025`` of AIME), because a
            strict rule compares strings.

    Raises:
        ValueError: there is no such answer in it.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise _RowError(f"the answer must be a text or a whole number, got {str(value)[:60]!r}")
    text = str(value).strip()
    match how:
        case "as written":
            return text
        case "after ####":
            _, found, answer = text.rpartition("####")
            if not found or not answer.strip():
                raise _RowError(f"the answer has nothing after '####': {text[-60:]!r}")
            return _THOUSANDS.sub("", answer.strip())
        case "whole number":
            if not _WHOLE_NUMBER.fullmatch(text):
                raise _RowError(f"the answer must be a whole number, got {text[:60]!r}")
            return str(int(text.partition(".")[0]))


def _problem_id(row: Row, source: Source, text: str) -> str:
    own = _optional(row, source.source_id)
    if own is not None:
        part = _id_part(str(own))
        if part:
            return f"{source.id_prefix}-{part}"
    # White space aside only: the id outlives a better notion of what texts are the same.
    return f"{source.id_prefix}-{digest(' '.join(text.split())).hex()[:16]}"


def _id_part(own: str) -> str:
    """Return a set's own id as part of a problem id: ``test/algebra/7.json`` is ``algebra-7``."""
    part = own.removeprefix("test/").removeprefix("train/").removesuffix(".json")
    safe = _NOT_IN_AN_ID.sub("-", part).strip("-")
    return safe if len(safe) <= MAX_SOURCE_ID_CHARS else digest(own).hex()


def _column(row: Row, names: Sequence[str]) -> Any:
    value = _optional(row, names)
    if value is None:
        raise _RowError(f"has no {' or '.join(names)}; its keys are {_keys(row)}")
    return value


def _optional(row: Row, names: Sequence[str]) -> Any:
    for name in names:
        outer, _, inner = name.partition(".")
        value = row.get(outer)
        if inner:
            value = value.get(inner) if isinstance(value, dict) else None
        if value is not None:
            return value
    return None


def _keys(row: Row) -> str:
    return (", ".join(map(str, row))[:200]) or "none"
