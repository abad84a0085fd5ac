"""The rows of verl's Parquet files, read once, and the server asked for their problems.

Each row goes through the code that takes a sample apart in the reward manager.  Memory is bounded
by a batch of rows and some 300 bytes a problem, for which 64-bit hashes stand.

Each problem is asked for as a rollout without a ground truth: only then does the status of an
unknown problem differ from that of a known one without nodes.  Its response is the row's ground
truth in a box, so that Acc tells whether the server has the same.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from consensuspr.client.local import LocalClient
from consensuspr.client.rpc import RewardClient
from consensuspr.client.training import (
    VALIDATION_SPLITS,
    ProblemIds,
    RewardSettings,
    TrainingRow,
    prompt_digest,
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
    """The rows of one split, and what the server knows of their problems.

    Attributes:
        files: number of files, unreadable ones included.
        bad_rows: without a reward because of the row itself.
        bad_files: that cannot be read, with the reason.
        problems: that the rows name.
        asked: problems that the server was asked for; those that follow are of these.
        known: in the dataset, without nodes in the row.
        inline: with nodes in the row.
        with_nodes: with nodes in the row or the dataset.
        unscorable: without reward, by reason.
        unknown: without reward because the server does not know them.
        other_truth: whose ground truth in the row is not the server's.
    """

    files: int = 0
    rows: int = 0
    bad_rows: Occurrences = field(default_factory=Occurrences)
    bad_files: list[str] = field(default_factory=list)
    problems: int = 0
    asked: int = 0
    known: int = 0
    inline: int = 0
    with_nodes: int = 0
    unscorable: dict[str, Occurrences] = field(default_factory=dict)
    unknown: int = 0
    other_truth: Occurrences = field(default_factory=Occurrences)

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


class SeenProblems:
    """Notes problems and finds ids that stand for two things; training rows come first.

    Attributes:
        two_prompts: ids with two prompts.
        two_truths: ids with two ground truths.
        leaked: ids in training and validation.
    """

    def __init__(self) -> None:
        self.two_prompts = Occurrences()
        self.two_truths = Occurrences()
        self.leaked = Occurrences()
        # By hash of the id: the hashes of prompt and ground truth.
        self._known: dict[Split, dict[int, tuple[int, int]]] = {split: {} for split in Split}
        self._counted: set[tuple[int, int]] = set()

    def note(
        self, split: Split, problem_id: str, prompt: str, truth: str | None, place: str
    ) -> bool:
        """Note a row; return whether its problem is new in its split.

        ``prompt`` is its digest, ``place`` its file and number, for examples.
        """
        key, now = _hash(problem_id), (_hash(prompt), _hash(truth or ""))
        example = f"{problem_id!r}, {place}"
        known = self._known[split]
        before = known.get(key)
        if before is None and split is Split.VALIDATION:
            before = self._known[Split.TRAIN].get(key)
            if before is not None:
                self.leaked.add(example)
        for part, found in enumerate((self.two_prompts, self.two_truths)):
            changed = before is not None and before[part] != now[part]
            if changed and (part, key) not in self._counted:
                self._counted.add((part, key))
                found.add(example)
        is_new = key not in known
        known.setdefault(key, now)
        return is_new


def _hash(text: str) -> int:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


@dataclass(slots=True)
class ProblemQuestion:
    """A problem to ask the server for; ``row_split`` is the split that the row names."""

    split: Split
    rollout: Rollout
    place: str
    row_split: str | None = None

    @property
    def truth(self) -> str:
        """The row's own ground truth, empty where it has none."""
        return (self.rollout.ground_truth or "").strip()

    def as_asked(self) -> Rollout:
        """Return the rollout to score."""
        return Rollout(
            problem_id=self.rollout.problem_id,
            response=f"\\boxed{{{self.truth}}}" if _fits_a_box(self.truth) else "",
            nodes=self.rollout.nodes,
        )


def _fits_a_box(truth: str) -> bool:
    """Tell whether a ground truth in ``\\boxed{…}`` is read as it stands."""
    if not truth or len(truth) > _LONGEST_TRUTH or not truth.isprintable() or "boxed" in truth:
        return False
    depth = 0
    for character in truth:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0


# Whom to ask: a client, and the name of the dataset there.
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
    drawn = iter(questions)
    while batch := list(islice(drawn, BATCH)):
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
    """Return why a sample of the problem would have no reward; None where it has one."""
    if score.status is Status.INVALID_NODES:
        return f"with inline nodes that the server refuses: {score.message}"
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
        server: asked for the problems; None: nobody.

    Attributes:
        rows: the findings by split.
        seen: the problems.
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
        self.seen = SeenProblems()
        self.asked = server is not None
        self.server_error: RewardServiceError | None = None
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
        found = [
            (split, *opened)
            for split in Split
            for path in files[split]
            if (opened := self._open(split, path)) is not None
        ]
        with progress("reading", sum(num_rows for _, _, num_rows in found), "rows") as advance_to:
            done = 0
            for split, path, num_rows in found:
                rows = self.rows[split]
                try:
                    for number, row in enumerate(read_rows(path, self._prompt_key), 1):
                        rows.rows += 1
                        place = f"{path.name} row {number}"
                        try:
                            fields = {**row, "raw_prompt": row.get(self._prompt_key)}
                            question = self._note(split, row_of(fields), place)
                        except InputError as error:
                            rows.bad_rows.add(f"{place}: {error}")
                        else:
                            if question is not None:
                                yield question
                        if number % _BAR_ROWS == 0:
                            advance_to(done + number)
                except DataError as error:
                    rows.bad_files.append(str(error))
                done += num_rows
                advance_to(done)

    def _open(self, split: Split, name: str) -> tuple[Path, int] | None:
        """Return a file and how many rows it has by its footer; None where it cannot be read."""
        import pyarrow.parquet as pq

        rows = self.rows[split]
        rows.files += 1
        path = Path(os.path.expanduser(name))
        try:
            if "://" in name:
                raise DataError(name, None, "is not on this machine, and was not looked at")
            with _reading(path):
                return path, int(pq.read_metadata(path).num_rows)
        except DataError as error:
            rows.bad_files.append(str(error))
            return None

    def _note(self, split: Split, row: TrainingRow, place: str) -> ProblemQuestion | None:
        """Take a row in; return a question where its problem is new.

        Raises:
            InputError: it cannot be rewarded as it is.
        """
        prompt = _checked_prompt(row.prompt)
        rollout = row.rollout("", self._ids)
        digest = prompt_digest(prompt)
        if not self.seen.note(split, rollout.problem_id, digest, rollout.ground_truth, place):
            return None
        self.rows[split].problems += 1
        return ProblemQuestion(split, rollout, place, row.split)


def read_rows(path: Path, prompt_key: str) -> Iterator[Mapping[str, Any]]:
    """Yield the fields of every row of a Parquet file, in order.

    Raises:
        DataError: it cannot be read, or has no prompts.
    """
    import pyarrow.parquet as pq

    with _reading(path), pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
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


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn errors of pyarrow and of the system into one that names the file."""
    import pyarrow as pa

    try:
        yield
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(str(path), None, "does not exist") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise DataError(str(path), None, f"is not readable Parquet: {reason}") from error


def _checked_prompt(prompt: object) -> str | Sequence[Mapping[str, object]]:
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, list) and prompt and all(isinstance(m, Mapping) for m in prompt):
        return prompt
    raise InputError(f"the prompt must be chat messages, got {str(prompt)[:80]!r}")
