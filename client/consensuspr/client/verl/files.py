"""The rows of verl's Parquet files, read once, and the server asked for their problems.

The doctor and the check at the start of a run use it.  Each row is read by the code that reads a
sample in the reward manager.  Memory is bounded by a batch of rows and the ids of the problems.

Each problem is asked for as a rollout without a ground truth: only then does the status of an
unknown problem differ from that of a known one without nodes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from consensuspr.client.local import LocalClient
from consensuspr.client.rpc import RewardClient
from consensuspr.client.training import VALIDATION_SPLITS, ProblemIds, RewardSettings
from consensuspr.client.verl.sample import row_of
from consensuspr.console import ProgressBar, count_of, share
from consensuspr.errors import DataError, InputError, RewardServiceError
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import Rollout, Score, ScoreOptions, Status

TRAIN, VALIDATION = "train", "val"

_BATCH_ROWS = 512
# Problems in one call.
BATCH = 512

# Rows between two movements of the progress bar.
_BAR_ROWS = 64

# Columns of a sample besides the prompt.
_FIELDS = ("data_source", "reward_model", "extra_info")

# A client, and the name of the dataset there.
Server: TypeAlias = tuple[RewardClient | LocalClient, str | None]


class Level(StrEnum):
    """Severity of a finding; only FAIL means that the run must not be started."""

    OK = "ok"
    SKIP = "skip"
    WARN = "warn"
    FAIL = "FAIL"


OK, SKIP, WARN, FAIL = Level.OK, Level.SKIP, Level.WARN, Level.FAIL


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of a check: its name, level, finding and advice."""

    check: str
    level: Level
    found: str
    advice: str = ""


@dataclass(slots=True)
class Occurrences:
    """How often something was met, and where first."""

    count: int = 0
    first: str = ""

    def add(self, example: str) -> None:
        """Count one more."""
        self.first = self.first or example
        self.count += 1


class RowProblem(NamedTuple):
    """A problem of a file: its rollout without a response, its row, and the split there."""

    split: str
    rollout: Rollout
    place: str
    row_split: str | None = None

    @property
    def has_truth(self) -> bool:
        """Whether the row has a ground truth."""
        return bool((self.rollout.ground_truth or "").strip())


@dataclass(slots=True)
class SplitRows:
    """The rows of one split, and the server's answers for their problems."""

    files: int = 0  # unreadable ones included
    rows: int = 0
    bad_rows: Occurrences = field(default_factory=Occurrences)  # no reward because of the row
    bad_files: list[str] = field(default_factory=list)  # the reason of each
    problems: set[str] = field(default_factory=set)
    # Of the problems that the server was asked for:
    asked: int = 0
    with_nodes: int = 0  # in the row or the dataset
    unscorable: dict[str, Occurrences] = field(default_factory=dict)  # by reason
    unknown: int = 0  # unscorable because the server does not know them

    def exceeds(self, settings: RewardSettings) -> bool:
        """Return whether more have no reward than ``max_unscorable`` allows.

        A number for ``on_unscorable`` covers problems that the server knows. A file whose ids the
        server does not know belongs to another dataset, and no setting makes it fit.
        """
        lost = self.unknown
        if settings.on_unscorable == "raise":
            lost = sum(found.count for found in self.unscorable.values())
        checked = max(self.asked, len(self.problems)) + self.bad_rows.count
        return lost + self.bad_rows.count > settings.max_unscorable * checked

    def findings(
        self, split: str, settings: RewardSettings, failure: str | None
    ) -> Iterator[Finding]:
        """Yield what was found about the problems; ``failure``: why not all were asked for."""
        name, level = f"{split} problems", FAIL if self.exceeds(settings) else WARN
        if failure is not None:
            yield Finding(name, FAIL, f"the server failed: {failure}", "see its log")
        elif self.unscorable:
            count = sum(found.count for found in self.unscorable.values())
            reasons = "; ".join(
                f"{found.count:,} {reason} (the first: {found.first})"
                for reason, found in self.unscorable.items()
            )
            reward = settings.on_unscorable
            then = "" if reward == "raise" else f"; they get on_unscorable={reward}"
            yield Finding(
                name,
                level,
                f"{share(count, self.asked)} of {self.asked:,} have no reward under"
                f" reward={settings.reward}: {reasons}{then if level is WARN else ''}",
                "serve the dataset of these rows, or drop them",
            )
        elif self.asked:
            nodes = share(self.with_nodes, self.asked)
            yield Finding(name, OK, f"{self.asked:,} have a reward, {nodes} have nodes")


class RowScan:
    """All files of both splits, read once.

    Args:
        settings: of the reward.
        server: asked for the problems; None: only the rows are read.
        prompt_key: column of the prompts (``data.prompt_key``).

    Attributes:
        rows: the findings by split.
        leaked: problems that are in training and validation.
        server_error: why it could not be asked to the end; all rows are read.
    """

    def __init__(
        self, settings: RewardSettings, server: Server | None = None, prompt_key: str = "prompt"
    ) -> None:
        self.rows = {TRAIN: SplitRows(), VALIDATION: SplitRows()}
        self.leaked = Occurrences()
        self.server_error: RewardServiceError | None = None
        self._settings = settings
        self._server = server
        self._prompt_key = prompt_key
        # One for all files: a worker sees samples of training and validation.
        self._ids = ProblemIds(settings.problem_id_format)

    def run(self, files: Mapping[str, Sequence[str]], progress: ProgressBar | None = None) -> None:
        """Read all rows of all files."""
        bar: AbstractContextManager[Callable[[int], None]] = nullcontext(lambda done: None)
        if progress is not None:
            bar = progress("reading", None, "rows")
        with bar as advance_to:
            problems = self._read(files, advance_to)
            try:
                self.ask(problems)
            except RewardServiceError as error:
                self.server_error = error
            for _ in problems:
                pass  # without a server, or after its failure

    def findings(self) -> Iterator[Finding]:
        """Yield what was found: files and rows that cannot be read, problems without a reward."""
        for split, rows in self.rows.items():
            for reason in rows.bad_files:
                yield Finding(f"{split} files", FAIL, reason, "correct the path or the file")
            name, bad = f"{split} rows", rows.bad_rows
            if bad.count:
                yield Finding(
                    name,
                    FAIL if rows.exceeds(self._settings) else WARN,
                    f"{share(bad.count, rows.rows)} of {rows.rows:,} cannot be rewarded, the"
                    f" first: {bad.first}",
                    "correct these rows",
                )
            elif rows.files and (rows.rows or not rows.bad_files):
                files = count_of(rows.files, "file")
                problems = count_of(len(rows.problems), "problem")
                level = OK if rows.rows else WARN
                yield Finding(name, level, f"{rows.rows:,} in {files}, {problems}")
        if self.leaked.count:
            found = f"{self.leaked.count:,} are in training and validation, the first: "
            advice = "validate on other problems"
            yield Finding("problem ids", WARN, found + self.leaked.first, advice)
        failure = None if self.server_error is None else str(self.server_error)
        for split, rows in self.rows.items():
            if self._server is not None:
                yield from rows.findings(split, self._settings, failure if rows.files else None)
            elif rows.files:
                reason = "there is no server or dataset to ask"
                yield Finding(f"{split} problems", SKIP, reason)

    def ask(self, problems: Iterator[RowProblem]) -> None:
        """Ask the server for problems, some hundred at a time.

        Raises:
            RewardServiceError: the server failed.
        """
        if self._server is None:
            return
        client, dataset_name = self._server
        settings = self._settings
        options = ScoreOptions(
            RewardSpec.outcome(final_nodes=settings.final_nodes, ncr=settings.ncr),
            dataset=dataset_name,
            probe=True,
        )
        while batch := list(islice(problems, BATCH)):
            asked = [replace(problem.rollout, ground_truth=None) for problem in batch]
            scores = client.score_with(asked, options)
            for problem, score in zip(batch, scores, strict=True):
                self._count(problem, score)

    def _count(self, problem: RowProblem, score: Score) -> None:
        rows = self.rows[problem.split]
        rows.asked += 1
        rows.with_nodes += bool(score.num_nodes)
        example = f"{problem.rollout.problem_id!r}, {problem.place}"
        unknown = score.status is Status.UNKNOWN_PROBLEM and problem.rollout.nodes is None
        reason = _why_unscorable(problem, score, unknown, self._settings)
        if reason is not None:
            rows.unscorable.setdefault(reason, Occurrences()).add(example)
            rows.unknown += unknown

    def _read(
        self, files: Mapping[str, Sequence[str]], advance_to: Callable[[int], None]
    ) -> Iterator[RowProblem]:
        """Note every row, and yield each problem that is new in its split."""
        count = 0
        for split, rows in self.rows.items():
            for name in files[split]:
                rows.files += 1
                path = Path(os.path.expanduser(name))
                try:
                    if "://" in name:
                        raise DataError(name, None, "is not on this machine and is not checked")
                    for number, row in enumerate(read_rows(path, self._prompt_key), 1):
                        count += 1
                        if count % _BAR_ROWS == 0:
                            advance_to(count)
                        yield from self._note(split, row, f"{path.name} row {number}")
                except DataError as error:
                    rows.bad_files.append(str(error))
        advance_to(count)

    def _note(self, split: str, fields: Mapping[str, Any], place: str) -> Iterable[RowProblem]:
        """Count a row; return its problem if that is new."""
        rows = self.rows[split]
        rows.rows += 1
        try:
            row = row_of(fields, self._prompt_key)
            if not row.prompt or not (
                isinstance(row.prompt, str) or all(isinstance(m, Mapping) for m in row.prompt)
            ):
                raise InputError(f"the prompt must be chat messages, got {str(row.prompt)[:80]!r}")
            rollout = row.rollout("", self._ids)
        except InputError as error:
            rows.bad_rows.add(f"{place}: {error}")
            return ()
        problem_id = rollout.problem_id
        if problem_id in rows.problems:
            return ()
        rows.problems.add(problem_id)
        if split == VALIDATION and problem_id in self.rows[TRAIN].problems:
            self.leaked.add(f"{problem_id!r}, {place}")
        return (RowProblem(split, rollout, place, row.split),)


def _why_unscorable(
    problem: RowProblem, score: Score, unknown: bool, settings: RewardSettings
) -> str | None:
    """Return why a sample of the problem would have no reward; None if it would have one."""
    if score.status is Status.INVALID_NODES:
        return f"with inline nodes that the server rejects: {score.message}"
    if score.status in (Status.OVERSIZE, Status.INTERNAL):
        return f"with status {score.status}: {score.message}"
    has_truth = problem.has_truth or score.acc is not None
    if has_truth and settings.validate_by_acc and problem.row_split in VALIDATION_SPLITS:
        return None
    # A setting for problems without nodes applies only to problems in the dataset.
    instead = None if score.num_nodes or unknown else settings.instead_of_nodes
    if isinstance(instead, float) or (instead == "acc" and has_truth):
        return None
    # An epoch of each stage of the reward.
    epochs = {0}
    if settings.reward == "curriculum":
        epochs = {0, settings.switch_epoch} if settings.epoch is None else {settings.epoch}
    acc, ncr = (0.0 if known else math.nan for known in (has_truth, score.num_nodes))
    if not any(math.isnan(settings.spec.compute([acc], [ncr], epoch)[0]) for epoch in epochs):
        return None
    if unknown:
        return "unknown to the server" + ("" if has_truth else ", and without ground truth")
    return "without ground truth" if score.num_nodes else "without nodes"


def read_rows(path: Path, prompt_key: str) -> Iterator[Mapping[str, Any]]:
    """Yield the fields of every row of a Parquet file, in order.

    Raises:
        DataError: it cannot be read, or has no prompts.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
            names = file.schema_arrow.names
            if prompt_key not in names:
                known = ", ".join(names[:12])
                reason = f"has no column {prompt_key!r} (data.prompt_key); its columns are {known}"
                raise DataError(str(path), None, reason)
            columns = [prompt_key, *(name for name in _FIELDS if name in names)]
            for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=columns):
                yield from batch.to_pylist()
    except FileNotFoundError:
        raise DataError(str(path), None, "does not exist") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise DataError(str(path), None, f"is not readable Parquet: {reason}") from error
