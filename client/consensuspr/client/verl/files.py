"""The rows of verl's Parquet files, read once, and the server asked for their problems.

Each row is read by the code that reads a sample in the reward manager.  Memory is bounded by a
batch of rows and the ids of the problems.

Each problem is asked for as a rollout without a ground truth: only then does the status of an
unknown problem differ from that of a known one without nodes.  Its response is the row's ground
truth in a box, so that Acc is 0 if the server's differs.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from consensuspr.client.local import LocalClient
from consensuspr.client.rpc import RewardClient
from consensuspr.client.training import (
    VALIDATION_SPLITS,
    ProblemIds,
    RewardSettings,
)
from consensuspr.client.verl.sample import row_of
from consensuspr.console import ProgressBar
from consensuspr.errors import DataError, InputError, RewardServiceError
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import AnswerRule, OnUndecided, Rollout, Score, ScoreOptions, Status

_BATCH_ROWS = 512
# Problems in one call.
BATCH = 512

# Rows between two movements of the progress bar.
_BAR_ROWS = 64

_LONGEST_TRUTH = 200

# Columns of a sample besides the prompt.
_FIELDS = ("data_source", "reward_model", "extra_info")


class Split(StrEnum):
    """What rows are for."""

    TRAIN = "train"
    VALIDATION = "val"


@dataclass(slots=True)
class Occurrences:
    """How often something was met, and where first."""

    count: int = 0
    first: str = ""

    def add(self, example: str) -> None:
        """Count one more."""
        if not self.count:
            self.first = example
        self.count += 1


@dataclass(slots=True)
class SplitRows:
    """The rows of one split, and the server's answers for their problems."""

    files: int = 0  # unreadable ones included
    rows: int = 0
    bad_rows: Occurrences = field(default_factory=Occurrences)  # no reward because of the row
    bad_files: list[str] = field(default_factory=list)  # the reason of each
    problems: int = 0
    # Of the problems that the server was asked for:
    asked: int = 0
    known: int = 0  # in the dataset, without nodes in the row
    inline: int = 0  # with nodes in the row
    with_nodes: int = 0  # in the row or the dataset
    unscorable: dict[str, Occurrences] = field(default_factory=dict)  # by reason
    unknown: int = 0  # unscorable because the server does not know them
    other_truth: Occurrences = field(default_factory=Occurrences)  # in the row than at the server

    @property
    def num_unscorable(self) -> int:
        """Problems and rows without a reward."""
        return self.bad_rows.count + sum(found.count for found in self.unscorable.values())

    @property
    def num_checked(self) -> int:
        """Problems and rows whose reward was checked."""
        return max(self.asked, self.problems) + self.bad_rows.count

    def exceeds(self, settings: RewardSettings) -> bool:
        """Return whether more have no reward than ``max_unscorable`` allows.

        A number for ``on_unscorable`` covers problems that the server knows. A file whose ids the
        server does not know belongs to another dataset, and no setting makes it fit.
        """
        counted = self.num_unscorable if settings.on_unscorable == "raise" else self.unknown
        return counted > settings.max_unscorable * self.num_checked


@dataclass(slots=True)
class ProblemQuestion:
    """A problem to ask the server for; ``row_split`` is the split that the row names."""

    split: Split
    rollout: Rollout
    place: str
    row_split: str | None = None

    @property
    def truth(self) -> str:
        """The row's own ground truth, empty if it has none."""
        return (self.rollout.ground_truth or "").strip()

    def as_asked(self) -> Rollout:
        """Return the rollout to score."""
        return Rollout(
            problem_id=self.rollout.problem_id,
            response=f"\\boxed{{{self.truth}}}" if _fits_a_box(self.truth) else "",
            nodes=self.rollout.nodes,
        )


def _fits_a_box(truth: str) -> bool:
    """Return whether a ground truth in ``\\boxed{…}`` is read as it stands."""
    if not truth or len(truth) > _LONGEST_TRUTH or not truth.isprintable() or "boxed" in truth:
        return False
    depth = 0
    for character in truth:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0


# A client, and the name of the dataset there.
Server: TypeAlias = tuple[RewardClient | LocalClient, str | None]


def ask_for(
    questions: Iterable[ProblemQuestion],
    server: Server,
    settings: RewardSettings,
    rows: Mapping[Split, SplitRows],
) -> None:
    """Ask the server for problems, some hundred at a time, and count its answers in ``rows``.

    Raises:
        RewardServiceError: the server failed.
    """
    client, dataset = server
    options = ScoreOptions(
        RewardSpec.outcome(final_nodes=settings.final_nodes, ncr=settings.ncr),
        dataset=dataset,
        answer_rule=AnswerRule.AUTO,
        on_undecided=OnUndecided.MASK,
        probe=True,
    )
    remaining = iter(questions)
    while batch := list(islice(remaining, BATCH)):
        scores = client.score_with([question.as_asked() for question in batch], options)
        for question, score in zip(batch, scores, strict=True):
            _count(question, score, settings, rows[question.split])


def _count(
    question: ProblemQuestion, score: Score, settings: RewardSettings, rows: SplitRows
) -> None:
    rows.asked += 1
    example = f"{question.rollout.problem_id!r}, {question.place}"
    if question.rollout.nodes is not None:
        rows.inline += 1
    elif score.status is not Status.UNKNOWN_PROBLEM:
        rows.known += 1
    rows.with_nodes += bool(score.num_nodes)
    # Masked, an undecided answer has no reward: 0 is a verdict.
    if score.reward == 0 and _fits_a_box(question.truth):
        rows.other_truth.add(example)
    reason = _why_unscorable(question, score, settings)
    if reason is not None:
        rows.unscorable.setdefault(reason, Occurrences()).add(example)
        unknown = score.status is Status.UNKNOWN_PROBLEM and question.rollout.nodes is None
        rows.unknown += unknown


def _why_unscorable(
    question: ProblemQuestion, score: Score, settings: RewardSettings
) -> str | None:
    """Return why a sample of the problem would have no reward; None if it would have one."""
    if score.status is Status.INVALID_NODES:
        return f"with inline nodes that the server rejects: {score.message}"
    if score.status in (Status.OVERSIZE, Status.INTERNAL):
        return f"with status {score.status}: {score.message}"
    has_truth = bool(question.truth) or score.acc is not None
    if has_truth and settings.validate_by_acc and question.row_split in VALIDATION_SPLITS:
        return None
    unknown = score.status is Status.UNKNOWN_PROBLEM and question.rollout.nodes is None
    # A setting for problems without nodes applies only to problems in the dataset.
    instead = None if score.num_nodes or unknown else settings.instead_of_nodes
    if isinstance(instead, float) or (instead == "acc" and has_truth):
        return None
    acc = 0.0 if has_truth else math.nan
    ncr = 0.0 if score.num_nodes else math.nan
    # An epoch of each stage of the reward.
    epochs = {0}
    if settings.reward == "curriculum":
        fixed = settings.epoch
        epochs = {0, settings.switch_epoch} if fixed is None else {fixed}
    rewards = [settings.spec.compute([acc], [ncr], epoch)[0] for epoch in epochs]
    if not any(math.isnan(reward) for reward in rewards):
        return None
    if unknown:
        return "unknown to the server" + ("" if has_truth else ", and without ground truth")
    return "without ground truth" if score.num_nodes else "without nodes"


class RowScan:
    """All files of both splits, read once.

    Args:
        settings: of the reward.
        prompt_key: column of the prompts (``data.prompt_key``).
        server: asked for the problems; None: only the rows are read.

    Attributes:
        rows: the findings by split.
        leaked: problems that are in training and validation.
        asked: whether there is a server.
        server_error: why it could not be asked to the end; all rows are read.
    """

    def __init__(
        self,
        settings: RewardSettings,
        prompt_key: str = "prompt",
        server: Server | None = None,
    ) -> None:
        self.rows = {split: SplitRows() for split in Split}
        self.leaked = Occurrences()
        self.asked = server is not None
        self.server_error: RewardServiceError | None = None
        self._seen: dict[Split, set[str]] = {split: set() for split in Split}
        self._settings = settings
        self._prompt_key = prompt_key
        self._server = server
        # One for all files: a worker sees samples of training and validation.
        self._ids = ProblemIds(settings.problem_id_format)

    def run(self, files: Mapping[Split, Sequence[str]], progress: ProgressBar) -> None:
        """Read all rows of all files."""
        questions = self._read(files, progress)
        if self._server is not None:
            try:
                ask_for(questions, self._server, self._settings, self.rows)
            except RewardServiceError as error:
                self.server_error = error
        for _ in questions:
            pass  # without a server, or after its failure

    def _read(
        self, files: Mapping[Split, Sequence[str]], progress: ProgressBar
    ) -> Iterator[ProblemQuestion]:
        """Note every row, and yield a question for each problem that is new in its split."""
        count = 0
        with progress("reading", None, "rows") as advance_to:
            for split in Split:
                rows = self.rows[split]
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
                            question = self._note(split, row, f"{path.name} row {number}")
                            if question is not None:
                                yield question
                    except DataError as error:
                        rows.bad_files.append(str(error))
            advance_to(count)

    def _note(self, split: Split, fields: Mapping[str, Any], place: str) -> ProblemQuestion | None:
        """Count a row; return a question if its problem is new."""
        rows = self.rows[split]
        rows.rows += 1
        try:
            row = row_of({**fields, "raw_prompt": fields.get(self._prompt_key)})
            _check_prompt(row.prompt)
            rollout = row.rollout("", self._ids)
        except InputError as error:
            rows.bad_rows.add(f"{place}: {error}")
            return None
        problem_id = rollout.problem_id
        if problem_id in self._seen[split]:
            return None
        self._seen[split].add(problem_id)
        rows.problems += 1
        if split is Split.VALIDATION and problem_id in self._seen[Split.TRAIN]:
            self.leaked.add(f"{problem_id!r}, {place}")
        return ProblemQuestion(split, rollout, place, row.split)


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
                raise DataError(
                    str(path),
                    None,
                    f"has no column {prompt_key!r} (data.prompt_key); its columns are"
                    f" {', '.join(names[:12])}",
                )
            columns = [prompt_key, *(name for name in _FIELDS if name in names)]
            for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=columns):
                yield from batch.to_pylist()
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(str(path), None, "does not exist") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise DataError(str(path), None, f"is not readable Parquet: {reason}") from error


def _check_prompt(prompt: object) -> None:
    is_chat = isinstance(prompt, list) and all(isinstance(m, Mapping) for m in prompt)
    if not prompt or not (is_chat or isinstance(prompt, str)):
        raise InputError(f"the prompt must be chat messages, got {str(prompt)[:80]!r}")
