"""Files of rollouts to scored rollouts: read, score what is not scored yet, forget the text."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Final

from consensusbench.evaluation.columns import UNKNOWN
from consensusbench.evaluation.scored_types import ProblemFacts, ScoredRollout, ScoredSet
from consensusbench.evaluation.stored_scores import is_scored, stored_score
from consensusbench.evaluation.tokens import CountTokens, open_tokenizer
from consensusbench.output_files import check_outputs
from consensusbench.quiet import quiet_readers
from consensuspr.cli.connection import Connection, connect
from consensuspr.cli.file_scoring import chunks
from consensuspr.data import (
    OnError,
    ReadReport,
    Row,
    RowWriter,
    open_writer,
    read_problems,
    read_rollouts,
    scan_rollouts,
)
from consensuspr.errors import InputError, ServerFault
from consensuspr.scoring import SCORED_TYPES, rollout_from_row, scored_row
from consensuspr.scoring.types import Identity, Rollout, Score, Status

if TYPE_CHECKING:  # at run time this would load gRPC
    from consensuspr.client import ScoredBatch

__all__ = [
    "ProblemFacts",
    "ScoredRollout",
    "ScoredSet",
    "count_rollouts",
    "model_names",
    "score_files",
]

# What is written beyond the columns of scored rollouts, so that reading it back loses nothing.
_OUTPUT_TYPES: Final = SCORED_TYPES | {"answer": "string", "answer_method": "string"}
_SPANS_TYPE: Final = {"spans": "list<list<int64>>"}


def score_files(
    rollouts: Sequence[str | os.PathLike[str]],
    dataset: str | os.PathLike[str],
    *,
    address: str | None = None,
    spans: bool = False,
    tokenizer: str | None = None,
    on_error: OnError = "stop",
    scored_output: str | os.PathLike[str] | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> ScoredSet:
    """Score the rollouts of some files against a dataset.

    Rows that bring ``acc``, ``ncr``, ``matched`` and ``status`` (and ``spans`` where spans are
    asked for) are taken as scored.  Memory is bounded but for what is returned: one chunk of
    rollouts, the dataset's index, and about half a kilobyte for each rollout.

    Args:
        rollouts: files, at least one, each once.
        dataset: the dataset they answer.
        address: of a server that has it; None to score in this process.
        spans: also find where each node stands.
        tokenizer: counts tokens of rollouts without ``num_tokens``: path of a
            ``tokenizer.json`` or a name on the hub; None leaves their length unknown.
        on_error: what a bad row does; the files are read through before anything is scored
            where it is ``"stop"``.
        scored_output: where to write the rows with their scores, complete or not at all.
        progress: told how many rollouts are done so far.

    Raises:
        InputError: no file, a file twice, or an argument is wrong.
        DataError: a file or a row of one is bad, or its scores are of another dataset.
        RewardServiceError: the server failed, or changed in between.
    """
    paths = _distinct(rollouts, dataset, scored_output)
    problems = {p.problem_id: ProblemFacts.of(p) for p in read_problems(dataset)}
    count_tokens = None if tokenizer is None else open_tokenizer(tokenizer)
    found = ScoredSet(problems, [], files=paths, on_error=on_error, tokenizer=tokenizer)
    with ExitStack() as stack:
        run = _Run(found, os.fspath(dataset), address, spans, count_tokens, stack, progress)
        if scored_output is not None:
            types = _OUTPUT_TYPES | (_SPANS_TYPE if spans else {})
            run.out = stack.enter_context(open_writer(scored_output, types))
        for file, path in enumerate(paths):
            read = ReadReport()
            row = 0
            for chunk in chunks(read_rollouts(path, on_error, read)):
                run.score_chunk(chunk, file, row)
                row += len(chunk)
            found.skipped_rows += read.skipped
    return found


def count_rollouts(rollouts: Sequence[str | os.PathLike[str]]) -> int:
    """Read files through, so that a bad row at the end stops the work at its beginning.

    Returns:
        The number of rollouts in all of them.

    Raises:
        DataError: a row is bad.
    """
    return sum(scan_rollouts(path).rows for path in rollouts)


def model_names(rollouts: Sequence[str | os.PathLike[str]], on_error: OnError) -> set[str]:
    """Read files through and return who wrote their rollouts, as the column model says.

    Raises:
        DataError: a file cannot be read, or a row is bad and that is to stop.
    """
    with quiet_readers():  # scoring tells of bad rows
        return {
            row.get("model") or UNKNOWN
            for path in rollouts
            for row in read_rollouts(path, on_error)
        }


def _distinct(
    rollouts: Sequence[str | os.PathLike[str]],
    dataset: str | os.PathLike[str],
    output: str | os.PathLike[str] | None,
) -> tuple[str, ...]:
    if not rollouts:
        raise InputError("at least one file of rollouts is needed")
    seen: set[str] = set()
    for path in rollouts:
        real = os.path.realpath(path)
        if real in seen:
            raise InputError(f"{os.fspath(path)} is given twice; its rollouts would count twice")
        seen.add(real)
    check_outputs((output,), (*rollouts, dataset))
    return tuple([os.fspath(path) for path in rollouts])


class _Run:
    """The files of one call on their way through."""

    def __init__(
        self,
        found: ScoredSet,
        dataset: str,
        address: str | None,
        spans: bool,
        count_tokens: CountTokens | None,
        stack: ExitStack,
        progress: Callable[[int], None],
    ) -> None:
        self._found = found
        self._dataset = dataset
        self._address = address
        self._spans = spans
        self._count_tokens = count_tokens
        self._stack = stack
        self._progress = progress
        self._connection: Connection | None = None
        self._told_of_listed: set[Status] = set()
        self.out: RowWriter | None = None

    def score_chunk(self, rows: list[Row], file: int, first_row: int) -> None:
        """Take consecutive rows of a file."""
        names = [self._name(row, file, first_row + at) for at, row in enumerate(rows)]
        scores = self._scores(rows, names, file)
        tokens = self._tokens(rows)
        for at, (row, score) in enumerate(zip(rows, scores, strict=True)):
            facts = self._found.problems.get(row["problem_id"])
            if score.message and score.status is not Status.OK:
                self._tell(score, facts is not None)
            self._found.rollouts.append(
                ScoredRollout.of(
                    score,
                    problem_id=row["problem_id"] if facts is None else facts.problem_id,
                    rollout_id=names[at],
                    model=intern(row.get("model") or ""),
                    data_source=intern(
                        row.get("data_source") or ("" if facts is None else facts.data_source)
                    ),
                    num_tokens=tokens[at],
                    num_chars=len(row["response"]),
                    file=file,
                    row=first_row + at,
                )
            )
            if self.out is not None:
                self.out.write(_output_row(row, score, tokens[at]))
        self._progress(len(self._found.rollouts))

    def _tell(self, score: Score, listed: bool) -> None:
        """Keep the first message of a status; one about a listed problem goes before others."""
        if score.status not in self._found.messages or (
            listed and score.status not in self._told_of_listed
        ):
            self._found.messages[score.status] = score.message
        if listed:
            self._told_of_listed.add(score.status)

    def _name(self, row: Row, file: int, position: int) -> str:
        name: str = row.get("rollout_id") or ""
        return name or f"{Path(self._found.files[file]).name}:{position + 1}"

    def _scores(self, rows: list[Row], names: list[str], file: int) -> list[Score]:
        path = self._found.files[file]
        scores: dict[int, Score] = {}
        for at, row in enumerate(rows):
            if is_scored(row, self._spans):
                facts = self._found.problems.get(row["problem_id"])
                num_nodes = 0 if facts is None else len(facts.node_ids)
                scores[at] = stored_score(row, num_nodes, path, names[at])
        self._found.num_stored += len(scores)
        missing = [at for at in range(len(rows)) if at not in scores]
        if missing:
            scores.update(zip(missing, self._score([rows[at] for at in missing]), strict=True))
        return [scores[at] for at in range(len(rows))]

    def _score(self, rows: list[Row]) -> Sequence[Score]:
        if self._connection is None:  # not before: scored files need neither index nor server
            self._connection = self._stack.enter_context(
                connect(self._dataset, self._address, None)
            )
        connection = self._connection
        before = len(self._found.rollouts)
        rollouts = [rollout_from_row(row) for row in rows]

        def score(some: Sequence[Rollout], progress: Callable[[int, int], None]) -> ScoredBatch:
            batch = connection.client.score(
                some, dataset=connection.dataset, include_spans=self._spans, progress=progress
            )
            self._check_identity(batch.identity)
            return batch

        batch = score(rollouts, lambda scored, of_chunk: self._progress(before + scored))
        # What a busy machine left open is asked once more; nobody waits here as a trainer does.
        busy = [at for at, one in enumerate(batch) if one.undecided_by_load]
        if busy:
            again = score([rollouts[at] for at in busy], lambda scored, of_chunk: None)
            for at, one in zip(busy, again, strict=True):
                batch[at] = one
        return batch

    def _check_identity(self, identity: Identity) -> None:
        """Refuse scores of two kinds in one set."""
        known = self._found.identity
        if known is not None and known != identity:
            raise ServerFault(
                f"the server changed after {len(self._found.rollouts)} rollouts: these were "
                f"scored under {known}, the next under {identity}"
            )
        self._found.identity = identity

    def _tokens(self, rows: list[Row]) -> list[int | None]:
        lengths = [_given(row.get("num_tokens")) for row in rows]
        if self._count_tokens is not None:
            missing = [at for at, length in enumerate(lengths) if length is None]
            counts = self._count_tokens([rows[at]["response"] for at in missing])
            for at, count in zip(missing, counts, strict=True):
                lengths[at] = count
            self._found.num_tokenized += len(missing)
        return lengths


def _given(num_tokens: int | None) -> int | None:
    """Return a length that counts as given: 0 or less does not (``docs/datasets.md``)."""
    return num_tokens if num_tokens is not None and num_tokens > 0 else None


def _output_row(row: Row, score: Score, num_tokens: int | None) -> Row:
    if num_tokens is not None:
        # A length that was counted here has its TPN (equation 2) too.
        tpn = num_tokens / score.num_matched if score.num_matched else None
        row, score = row | {"num_tokens": num_tokens}, replace(score, tpn=tpn)
    return scored_row(row, score) | {
        "answer": score.answer,
        "answer_method": score.answer_method,
    }
