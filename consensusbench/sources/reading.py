"""The problems of one input, wherever it lies: on the hub, in a folder, in a file.

Files are JSONL, gzip'd JSONL or Parquet, told apart by content, with rows in the shape of
the hub or in that of a dataset of this project.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from consensusbench.sources.hub import HubDataset, hub_rows
from consensusbench.sources.registry import SOURCES, Source
from consensusbench.sources.rows import problem_of
from consensuspr.data import DataError, OnError, Problem, ReadReport, Row, read_rows, refuse_empty
from consensuspr.data.reading import check_rows
from consensuspr.errors import InputError


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
    source: Source | None
    path: Path | None
    hub: HubDataset | None
    limit: int | None = None
    read: ReadReport = field(default_factory=ReadReport)

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise InputError(f"the limit must be at least 1, got {self.limit}")

    @property
    def where(self) -> str:
        """Path or hub dataset, for a person."""
        return str(self.hub) if self.path is None else str(self.path)


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
