"""Problems of the public sets that the paper draws from (section 3.2), from the hub or from files.

Four sets are its test split, DAPO-Math-17k is its training split.  A row has the columns of the
set on the hub, is a row of a dataset of this project (with ``problem_id``), of which everything
is kept, or is a row of verl's files (``prompt``, ``reward_model.ground_truth``).

Problem ids never come from a row's place: they are the set's own id behind a prefix, else a digest
of the text; of a row of verl, the id that the reward computes from the row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

from consensusbench import require
from consensusbench.problems.texts import digest, without_prompt
from consensuspr.client.training import TrainingRow, problem_id_of
from consensuspr.data import DataError, OnError, Problem, ReadReport, Row, parse_problem, read_rows
from consensuspr.data.readers import check_rows, refuse_empty
from consensuspr.errors import HubUnavailable, InputError

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,400}(?:\.0{1,9})?")
_NOT_IN_AN_ID = re.compile(r"[^\w.-]+")

# Of the set's own id in a problem id; the limit of the schema is 1,024.
MAX_SOURCE_ID_CHARS = 200

Answer: TypeAlias = Literal["as written", "after ####", "whole number"]


@dataclass(frozen=True, slots=True)
class ProblemSet:
    """One public set.

    A column is named with the names that copies of the set use, the hub's own first; ``a.b``
    is the key ``b`` of the object in column ``a``.

    Attributes:
        hub_split: its split on the hub.
        split: the split of its problems in a dataset.
        data_source: label that training rows of the same set have elsewhere.
        answer: the form of the answer in its column.
        source_id: column of the set's own id; without one, ids come from the text.
        metadata: columns that are kept as metadata, by their new name.
    """

    name: str
    hub_id: str
    hub_split: str
    split: Literal["train", "test"]
    data_source: str
    id_prefix: str
    problem: tuple[str, ...] = ("problem",)
    ground_truth: tuple[str, ...] = ("answer",)
    answer: Answer = "as written"
    source_id: tuple[str, ...] = ()
    hub_config: str | None = None
    metadata: dict[str, tuple[str, ...]] = field(default_factory=dict)


_GSM8K = ProblemSet(
    name="gsm8k",
    hub_id="openai/gsm8k",
    hub_config="main",
    hub_split="test",
    split="test",
    data_source="openai/gsm8k",
    id_prefix="gsm8k-test",
    problem=("question",),
    answer="after ####",
)
_AIME_2024 = ProblemSet(
    name="aime-2024",
    hub_id="HuggingFaceH4/aime_2024",
    # Its only split on the hub is called so; it is a benchmark all the same.
    hub_split="train",
    split="test",
    data_source="HuggingFaceH4/aime_2024",
    id_prefix="aime24",
    problem=("problem", "Problem", "question"),
    ground_truth=("answer", "Answer"),
    answer="whole number",
    source_id=("id", "ID"),
    metadata={"url": ("url",), "year": ("year",)},
)
_ALL = (
    _GSM8K,
    # Not in the paper's training split; for users who want more to train on.
    replace(_GSM8K, name="gsm8k-train", hub_split="train", split="train", id_prefix="gsm8k-train"),
    ProblemSet(
        name="math-500",
        hub_id="HuggingFaceH4/MATH-500",
        hub_split="test",
        split="test",
        data_source="HuggingFaceH4/MATH-500",
        id_prefix="math500",
        source_id=("unique_id",),
        metadata={"level": ("level",), "subject": ("subject", "type")},
    ),
    _AIME_2024,
    replace(
        _AIME_2024,
        name="aime-2025",
        hub_id="math-ai/aime25",
        hub_split="test",
        data_source="math-ai/aime25",
        id_prefix="aime25",
    ),
    ProblemSet(
        name="dapo-math-17k",
        hub_id="BytedTsinghua-SIA/DAPO-Math-17k",
        hub_split="train",
        split="train",
        data_source="math_dapo",
        id_prefix="dapo17k",
        problem=("prompt",),
        ground_truth=("reward_model.ground_truth", "solution"),
        source_id=("extra_info.index",),
    ),
)

SOURCES: dict[str, ProblemSet] = {source.name: source for source in _ALL}


class _RowError(ValueError):
    """Why a row is bad, without path and line."""


def problem_of(row: Row, source: ProblemSet | None, path: str, line: int) -> Problem:
    """Return the problem of a row; ``source`` is None for rows in this project's form.

    Raises:
        DataError: a column is missing or wrong, or there is no answer.
    """
    try:
        if "problem_id" in row:
            problem = parse_problem(row, path, line)
            if source is not None:
                problem.data_source = problem.data_source or source.data_source
                problem.split = problem.split or source.split
        elif source is None and "prompt" in row and "reward_model" in row:
            problem = _from_verl_row(row)
        elif source is None:
            raise _RowError(
                "has neither problem_id nor verl's prompt and reward_model; its keys are "
                + _keys(row)
            )
        else:
            problem = _from_hub_row(row, source)
        if not problem.problem.strip():
            raise _RowError("the text of the problem is empty")
        if problem.ground_truth is None:
            raise _RowError("the ground truth is missing")
    except _RowError as fault:
        raise DataError(path, line, str(fault)) from None
    return problem


def _from_hub_row(row: Row, source: ProblemSet) -> Problem:
    text = _problem_text(_column(row, source.problem))
    own = _optional(row, source.source_id)
    # The set's own id as part of a problem id: ``test/algebra/7.json`` is ``algebra-7``.
    part = (
        ("" if own is None else str(own))
        .removeprefix("test/")
        .removeprefix("train/")
        .removesuffix(".json")
    )
    name = _NOT_IN_AN_ID.sub("-", part).strip("-")
    if len(name) > MAX_SOURCE_ID_CHARS:
        name = digest(str(own)).hex()
    # White space aside only: the id outlives a better notion of equal texts.
    name = name or digest(" ".join(text.split())).hex()[:16]
    metadata = {name: _optional(row, columns) for name, columns in source.metadata.items()}
    return Problem(
        problem_id=f"{source.id_prefix}-{name}",
        ground_truth=answer_of(_column(row, source.ground_truth), source.answer) or None,
        data_source=source.data_source,
        problem=text,
        split=source.split,
        metadata={name: value for name, value in metadata.items() if value is not None},
    )


def _from_verl_row(row: Row) -> Problem:
    """Return the problem of a row of verl, under the id by which the reward looks it up."""
    try:
        own = TrainingRow.of(row, row["prompt"])
        problem_id = problem_id_of(own.data_source, own.extra_info, own.prompt)
    except InputError as fault:
        raise _RowError(str(fault)) from None
    return Problem(
        problem_id=problem_id,
        ground_truth=(own.ground_truth or "").strip() or None,
        data_source=own.data_source or "",
        problem=_problem_text(own.prompt),
        split=own.split if own.split in ("train", "test") else None,
    )


def _problem_text(value: Any) -> str:
    """Return the text of a problem, or of the last message of the user in a prompt."""
    if isinstance(value, list):
        asked = [part for part in value if isinstance(part, dict) and part.get("role") == "user"]
        if not asked:
            raise _RowError("the prompt has no message of the user")
        value = asked[-1].get("content")
    if not isinstance(value, str):
        raise _RowError(f"the problem must be a text, got {str(value)[:60]!r}")
    return without_prompt(value)


def answer_of(value: Any, form: Answer) -> str:
    """Return the ground truth in a column.

    ``after ####`` takes the text after the last ``####`` without thousands separators, ``whole
    number`` drops leading zeros (``025`` of AIME), because a strict rule compares strings.

    Raises:
        ValueError: there is no such answer in it.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise _RowError(f"the answer must be a text or a whole number, got {str(value)[:60]!r}")
    text = str(value).strip()
    if form == "after ####":
        _, mark, answer = text.rpartition("####")
        if not (mark and answer.strip()):
            raise _RowError(f"the answer has nothing after '####': {text[-60:]!r}")
        return _THOUSANDS.sub("", answer.strip())
    if form == "whole number":
        if not _WHOLE_NUMBER.fullmatch(text):
            raise _RowError(f"the answer must be a whole number, got {text[:60]!r}")
        return str(int(text.partition(".")[0]))
    return text


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


@dataclass(slots=True)
class SourceInput:
    """One source: rows of ``path``, or of the known set ``source`` on the hub.

    ``read`` counts its rows while it is read.
    """

    name: str
    source: ProblemSet | None
    path: Path | None
    revision: str | None = None  # commit, tag or branch on the hub; None: the latest
    limit: int | None = None
    read: ReadReport = field(default_factory=ReadReport)

    def to_json(self) -> Row:
        """Return the source as given and its counts of rows."""
        path = None if self.path is None else str(self.path)
        origin = {"name": self.name, "path": path, "revision": self.revision, "limit": self.limit}
        return origin | {"read": self.read.rows, "bad_rows": self.read.skipped}


def source_input(text: str, limit: int | None = None) -> SourceInput:
    """Return the source of ``NAME``, ``NAME@REVISION``, ``NAME=PATH`` or ``PATH``.

    Raises:
        InputError: the name is unknown and no file, or a part is empty.
    """
    if text not in SOURCES and Path(text).is_file():
        return SourceInput(Path(text).name, None, Path(text), None, limit)
    named, has_path, path = text.partition("=")
    name, has_revision, revision = named.partition("@")
    if (has_path and not path) or (has_revision and not revision) or (path and revision):
        raise InputError(f"{text!r} must be NAME, NAME@REVISION or NAME=PATH")
    source = SOURCES.get(name)
    if source is None and not path:
        raise InputError(
            f"{name!r} is neither a file nor a known problem set; known are {', '.join(SOURCES)}"
        )
    return SourceInput(name, source, Path(path) if path else None, revision or None, limit)


def hub_rows(source: ProblemSet, revision: str | None, limit: int | None) -> Iterator[Row]:
    """Yield the rows of a set on the hub.

    The ``datasets`` library caches downloads in memory-mapped files.  With a limit, rows are
    streamed instead.

    Raises:
        InputError: the ``datasets`` package is not installed, or the hub has no such dataset,
            configuration, split or revision.
        HubUnavailable: the hub cannot be reached.
    """
    datasets = require("datasets", f"reading {source.hub_id} from the hub")
    try:
        rows = datasets.load_dataset(
            source.hub_id,
            source.hub_config,
            split=source.hub_split,
            revision=revision,
            streaming=limit is not None,
        )
        for row in rows if limit is None else rows.take(limit):
            yield dict(row)
    # pyarrow's errors and those of an unknown split or configuration are ValueErrors.
    except (datasets.exceptions.DatasetsError, ValueError, OSError) as error:
        cause = error.__cause__ or error
        reason = " ".join(str(cause).split())[:300] or type(cause).__name__
        if isinstance(cause, ConnectionError):
            raise HubUnavailable(
                f"{source.hub_id}: the hub cannot be reached ({reason}); download the file "
                "elsewhere and give it as NAME=PATH"
            ) from error
        raise InputError(f"{source.hub_id}: cannot be read: {reason}") from error


def read_source(origin: SourceInput, on_error: OnError = "stop") -> Iterator[Problem]:
    """Yield the problems of a source in order; its ``read`` is filled meanwhile.

    Raises:
        DataError: a bad row with ``"stop"``; a bad file, or one without a good row, always.
        InputError: the hub has no such dataset.
        HubUnavailable: the hub cannot be reached.
    """
    rows: Iterator[tuple[int, Row | DataError]]
    if origin.path is not None:
        name = str(origin.path)
        rows = read_rows(name, ())
    else:
        assert origin.source is not None
        name = origin.source.hub_id
        rows = enumerate(hub_rows(origin.source, origin.revision, origin.limit), 1)

    def check(row: Row, path: str, line: int) -> Problem:
        return problem_of(row, origin.source, path, line)

    yield from check_rows(islice(rows, origin.limit), name, check, on_error, origin.read)
    refuse_empty(name, origin.read)
