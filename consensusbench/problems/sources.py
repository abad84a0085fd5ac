"""Problems of the public sets that the paper draws from (section 3.2), from the hub or from files.

Four sets are its test split, DAPO-Math-17k is its training split.  Which hub dataset stands
for each, its configuration, its split on the hub and its columns are written here once;
hub id, configuration, split and revision can be given anew at run time.  No revision is
pinned: the latest is read, and the report names what was asked for.

A row is in the shape of the set on the hub, or in that of a dataset of this project
(``problem_id`` is among its keys).  Of the latter everything is kept; what it leaves out
(label, split) is filled in from the set.

Problem ids never come from a row's place: a set that is reordered, filtered or copied keeps
its ids.  They are the set's own id behind a prefix, else a digest of the text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

from consensusbench import require
from consensusbench.problems.texts import digest, without_prompt
from consensuspr.data import (
    DataError,
    OnError,
    Problem,
    ReadReport,
    Row,
    parse_problem,
    read_rows,
    refuse_empty,
)
from consensuspr.data.readers import check_rows
from consensuspr.errors import HubUnavailable, InputError

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,400}(?:\.0{1,9})?")
_NOT_IN_AN_ID = re.compile(r"[^\w.-]+")

# Of the set's own id in a problem id; the limit of the schema is 1,024.
MAX_SOURCE_ID_CHARS = 200
MAX_REASON_CHARS = 300

Answer: TypeAlias = Literal["as written", "after ####", "whole number"]


@dataclass(frozen=True, slots=True)
class ProblemSet:
    """One public set.

    A column is named with the names that copies of the set use, the hub's own first; ``a.b``
    is the key ``b`` of the object in column ``a``.

    Attributes:
        name: what a person types.
        hub_id: dataset on the hub.
        hub_config: its configuration, None for the only one.
        hub_split: its split on the hub, whatever the set is used for.
        split: what the set is used for.
        data_source: label that training rows of the same set carry elsewhere: the hub id, and
            ``math_dapo`` for DAPO-Math-17k, whose own rows say so.
        id_prefix: beginning of its problem ids.
        problem: column of the text.
        ground_truth: column of the answer.
        answer: how the answer is taken out of that column.
        source_id: column of the set's own id; None: there is none, and ids come from the text.
        metadata: columns that are kept as metadata, by the name that they get.
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


def _gsm8k(name: str, split: Literal["train", "test"]) -> ProblemSet:
    return ProblemSet(
        name=name,
        hub_id="openai/gsm8k",
        hub_config="main",
        hub_split=split,
        split=split,
        data_source="openai/gsm8k",
        id_prefix=f"gsm8k-{split}",
        problem=("question",),
        answer="after ####",
    )


_ALL = (
    _gsm8k("gsm8k", "test"),
    # Not in the paper's training split; here for those who want more to train on.
    _gsm8k("gsm8k-train", "train"),
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
    ProblemSet(
        name="aime-2024",
        hub_id="HuggingFaceH4/aime_2024",
        # Its only split on the hub is called so; it is a benchmark all the same.
        hub_split="train",
        split="test",
        data_source="HuggingFaceH4/aime_2024",
        id_prefix="aime24",
        problem=("problem", "Problem"),
        ground_truth=("answer", "Answer"),
        answer="whole number",
        source_id=("id", "ID"),
        metadata={"url": ("url",), "year": ("year",)},
    ),
    ProblemSet(
        name="aime-2025",
        hub_id="math-ai/aime25",
        hub_split="test",
        split="test",
        data_source="math-ai/aime25",
        id_prefix="aime25",
        problem=("problem", "question"),
        answer="whole number",
        source_id=("id",),
        metadata={"url": ("url",), "year": ("year",)},
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


def problem_of(row: Row, source: ProblemSet | None, path: str, line: int) -> Problem:
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


def _from_hub_row(row: Row, source: ProblemSet, path: str, line: int) -> Problem:
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


def _problem_id(row: Row, source: ProblemSet, text: str) -> str:
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


@dataclass(frozen=True, slots=True)
class HubDataset:
    """Which rows of the hub."""

    hub_id: str  # owner and name, or the path of a local folder
    config: str | None
    split: str
    revision: str | None = None  # commit, tag or branch; None: the latest

    def __str__(self) -> str:
        config = f" ({self.config})" if self.config else ""
        revision = f" at {self.revision}" if self.revision else ""
        return f"{self.hub_id}{config}{revision}, split {self.split}"


def hub_rows(dataset: HubDataset, first: int | None = None) -> Iterator[tuple[int, Row]]:
    """Yield row number, counted from 1, and row.

    Read through the ``datasets`` library, which keeps what it has downloaded and reads it from
    there when told to stay offline (``HF_HUB_OFFLINE=1``).  Rows lie in a memory-mapped file, so
    that the 1.8 million rows of DAPO-Math-17k take no more memory than thirty; only the first
    rows of a set are streamed, without downloading the rest.

    Raises:
        InputError: the ``datasets`` package is not installed, or the hub has no such dataset,
            configuration, split or revision.
        HubUnavailable: the hub cannot be reached.
    """
    datasets = require("datasets", f"reading {dataset.hub_id} from the hub")
    with _in_one_sentence(dataset):
        rows = datasets.load_dataset(
            dataset.hub_id,
            dataset.config,
            split=dataset.split,
            revision=dataset.revision,
            streaming=first is not None,
        )
        if first is not None:
            rows = rows.take(first)
        for number, row in enumerate(rows, 1):
            yield number, dict(row)


@contextmanager
def _in_one_sentence(dataset: HubDataset) -> Iterator[None]:
    """Turn the library's errors into ours."""
    from datasets.exceptions import DatasetsError

    try:
        yield
    # pyarrow's errors and those of an unknown split or configuration are ValueErrors.
    except (DatasetsError, ValueError, OSError) as error:
        # The library wraps what happened while it made its own files of a download.
        cause = error.__cause__ if isinstance(error, DatasetsError) and error.__cause__ else error
        said = _short(cause)
        if isinstance(cause, ConnectionError):
            raise HubUnavailable(
                f"{dataset.hub_id}: the hub cannot be reached ({said}); download the file "
                "elsewhere and give it as NAME=PATH"
            ) from error
        raise InputError(f"{dataset}: cannot be read: {said}") from error


def _short(error: BaseException) -> str:
    said = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return said if len(said) <= MAX_REASON_CHARS else said[: MAX_REASON_CHARS - 1] + "…"


@dataclass(slots=True)
class SourceInput:
    """One thing to read problems from.

    Attributes:
        name: what it was called: the name of a known set, or any other with a path.
        source: the known set, None where the name is not one.
        path: file to read; None: the hub.
        hub: what to read from the hub where there is no path.
        limit: rows to read at most.
        read: what became of its rows, filled while it is read.
    """

    name: str
    source: ProblemSet | None
    path: Path | None
    hub: HubDataset | None
    limit: int | None = None
    read: ReadReport = field(default_factory=ReadReport)

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise InputError(f"the limit must be at least 1, got {self.limit}")


@dataclass(frozen=True, slots=True)
class HubChoice:
    """What is read from the hub for one source instead of what the registry says.

    Attributes:
        hub_id: another dataset of the same columns, or a local folder.
        config: another configuration; that of the registry holds for its own hub id only.
        split: another split of the hub.
        revision: commit, tag or branch.
    """

    hub_id: str | None = None
    config: str | None = None
    split: str | None = None
    revision: str | None = None


def source_input(
    name: str,
    path: str | os.PathLike[str] | None = None,
    choice: HubChoice | None = None,
    limit: int | None = None,
) -> SourceInput:
    """Return an input by the name of a source.

    Args:
        name: of a known set; or, with a path, any.
        path: file to read instead of the hub.
        choice: what to read from the hub instead of the registry's.
        limit: rows to read at most.

    Raises:
        InputError: an unknown name without a path, both a path and a choice, or a bad limit.
    """
    source = SOURCES.get(name)
    if path is not None:
        if choice is not None:
            raise InputError(f"{name} is read from {path}: hub id, split or revision do not apply")
        return SourceInput(name, source, Path(path), None, limit)
    if source is None:
        raise InputError(
            f"{name!r} is no known source; known are {', '.join(SOURCES)}, "
            "and any other name with a file: NAME=PATH"
        )
    choice = choice or HubChoice()
    own = choice.hub_id in (None, source.hub_id)
    hub = HubDataset(
        choice.hub_id or source.hub_id,
        choice.config or (source.hub_config if own else None),
        choice.split or source.hub_split,
        choice.revision,
    )
    return SourceInput(name, source, None, hub, limit)


def read_source(origin: SourceInput, on_error: OnError = "stop") -> Iterator[Problem]:
    """Yield the problems of an input in order; its ``read`` is filled meanwhile.

    Files are JSONL, gzip'd JSONL or Parquet, told apart by content.

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
        assert origin.hub is not None
        name = origin.hub.hub_id
        rows = iter(hub_rows(origin.hub, origin.limit))

    def check(row: Row, path: str, line: int) -> Problem:
        return problem_of(row, origin.source, path, line)

    yield from check_rows(islice(rows, origin.limit), name, check, on_error, origin.read)
    refuse_empty(name, origin.read)
