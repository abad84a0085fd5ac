"""Rollouts with their scores, as metrics, reports and diagnosis read them.

:func:`score_files` reads files of rollouts, scores what brings no scores, and forgets the texts: of
each rollout about half a kilobyte is kept.  Whoever shows a response reads it again
(:meth:`ScoredSet.responses`).  :func:`columns_of` lays a set out as columns, which is what metrics
compute on.

A value that is not known is None (NaN in a column) and stays so: a rollout that could not be scored
has neither Acc nor NCR, and no metric turns it into a 0.  An undecided answer has acc 0, as
everywhere, and says that it is undecided, so that whoever counts it as wrong can also say how many
there are.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from consensusbench import require
from consensusbench.outputs import check_outputs
from consensusbench.quiet import quiet, quiet_readers
from consensuspr.client.files import Connection, chunks, connect
from consensuspr.data import (
    OnError,
    Problem,
    ReadReport,
    Row,
    RowWriter,
    open_writer,
    read_problems,
    read_rollouts,
    scan_rollouts,
)
from consensuspr.errors import DataError, InputError, ServerFault
from consensuspr.scoring import SCORED_TYPES, rollout_from_row, scored_row
from consensuspr.scoring.rewards import CodeCredit, RewardSpec
from consensuspr.scoring.types import CHANNELS, LOAD_METHODS, Identity, Score, Status

if TYPE_CHECKING:  # at run time this would load the core, for --help too
    from consensuspr.core import Matcher
    from consensuspr.scoring import DatasetIndex

AnyPath: TypeAlias = str | os.PathLike[str]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
# Of Python strings: numpy's own give every row the width of the longest.
Texts: TypeAlias = NDArray[np.object_]

# Methods of an answer check that came to no verdict (docs/answers.md).
UNDECIDED_METHODS: Final = frozenset(
    ("budget", "memory", "crash", "screened", "length", "load", "deadline", "no-ground-truth")
)

# A label that a rollout or a problem does not have.
UNKNOWN: Final = "(none)"
DIFFICULTIES: Final = ("easy", "medium", "hard")

# The paper (section 5, RQ2) divides MATH-500 "according to its difficulty labels" and does not say
# how.  Its accuracies are exact multiples of 1/43, 1/323 and 1/134, which are the sizes of level 1,
# of levels 2 to 4 and of level 5: that fixes the groups.
_GROUP_OF_LEVEL: Final = {1: "easy", 2: "medium", 3: "medium", 4: "medium", 5: "hard"}
_LEVEL: Final = re.compile(r"(?:level\s*)?([1-5])(?:\.0)?", re.IGNORECASE)


def difficulty_of(metadata: Row) -> str | None:
    """Return ``easy``, ``medium`` or ``hard``, None where the metadata do not say it.

    ``difficulty`` counts where it is one of the three, else ``level`` of the MATH dataset.
    """
    difficulty = metadata.get("difficulty")
    if isinstance(difficulty, str) and difficulty.strip().lower() in DIFFICULTIES:
        return difficulty.strip().lower()
    level = metadata.get("level")
    if isinstance(level, bool) or not isinstance(level, int | float | str):
        return None
    found = _LEVEL.fullmatch(str(level).strip())
    return _GROUP_OF_LEVEL[int(found[1])] if found else None


@dataclass(frozen=True, slots=True)
class ProblemFacts:
    """What is known of a problem besides how rollouts fared on it; (k,) one for each of its nodes.

    The label of a node is what a person reads: an expression where it has none of its own.
    """

    problem_id: str
    data_source: str
    problem: str
    ground_truth: str | None
    difficulty: str | None
    node_ids: tuple[str, ...]
    labels: tuple[str, ...]
    is_final: tuple[bool, ...]

    @classmethod
    def of(cls, problem: Problem) -> ProblemFacts:
        """Return the facts of a problem of a dataset."""
        return cls(
            problem_id=problem.problem_id,
            data_source=problem.data_source,
            problem=problem.problem,
            ground_truth=problem.ground_truth,
            difficulty=difficulty_of(problem.metadata),
            node_ids=tuple(node.node_id for node in problem.nodes),
            labels=tuple(node.label or node.expressions[0] for node in problem.nodes),
            is_final=tuple(node.is_final for node in problem.nodes),
        )


@dataclass(frozen=True, slots=True)
class ScoredRollout:
    """One rollout, its score and where its text stands.

    Attributes:
        rollout_id: its name; ``FILE:N`` (row from 1) where the file gives none.
        data_source: its own, else its problem's, possibly empty.
        acc: 0.0 or 1.0; None where the answer could not be judged.
        matched: (k,) one per node of its problem, in node order; empty where there are none or
            the status says that they were not looked for.
        spans: (k,) half-open code point spans of first hits, None per node that was not found;
            None as a whole unless spans were asked for.
        num_tokens: positive; None where unknown.
        answer: taken from the response; None where none was found or the file does not say.
        answer_method: how acc was decided (``docs/answers.md``); empty where unknown.
        file: position of its file among those that were read.
        row: position among the good rows of that file, from 0.
        guard: what the guard multiplies NCR by, in (0, 1].
        plain: (k,) what the paper's own matching finds, patterns without statements; None where
            it was not asked for.
    """

    problem_id: str
    rollout_id: str
    model: str
    data_source: str
    status: Status
    acc: float | None
    matched: tuple[bool, ...]
    spans: tuple[tuple[int, int] | None, ...] | None
    num_tokens: int | None
    num_chars: int
    answer: str | None
    answer_method: str
    file: int
    row: int
    guard: float = 1.0
    plain: tuple[bool, ...] | None = None

    @property
    def num_matched(self) -> int:
        """Nodes that were found."""
        return sum(self.matched)

    @property
    def ncr(self) -> float | None:
        """Node Coverage Rate (equation 1), guarded; None without nodes."""
        return self.guard * sum(self.matched) / len(self.matched) if self.matched else None

    @property
    def tpn(self) -> float | None:
        """Tokens per node (equation 2); None without a length or without a matched node."""
        hits = sum(self.matched)
        return self.num_tokens / hits if self.num_tokens and hits else None

    @property
    def undecided(self) -> bool:
        """Whether acc is 0 because the answer check came to no verdict."""
        told = self.status is Status.ANSWER_UNDECIDED or self.answer_method in UNDECIDED_METHODS
        return told and self.acc == 0

    @property
    def undecided_by_load(self) -> bool:
        """Whether a busy machine, not the answer, kept the answer from being checked."""
        return self.answer_method in LOAD_METHODS and self.status is not Status.NO_GROUND_TRUTH

    def matched_without_final(self, facts: ProblemFacts | None) -> tuple[bool, ...]:
        """Return the hits of the nodes that do not state the final answer."""
        return _without_final(self.matched, facts)

    def plain_without_final(self, facts: ProblemFacts | None) -> tuple[bool, ...] | None:
        """Return the same of the paper's own matching."""
        return None if self.plain is None else _without_final(self.plain, facts)

    def ncr_without_final(self, facts: ProblemFacts | None) -> float | None:
        """Return the same over the nodes that do not state the final answer; None without any."""
        hits = self.matched_without_final(facts)
        return self.guard * sum(hits) / len(hits) if hits else None


def _without_final(hits: tuple[bool, ...], facts: ProblemFacts | None) -> tuple[bool, ...]:
    if facts is None or not hits:
        return hits
    return tuple(hit for hit, final in zip(hits, facts.is_final, strict=True) if not final)


@dataclass(slots=True)
class ScoredSet:
    """All rollouts of some files against one dataset; no response is kept.

    Attributes:
        problems: every problem of the dataset by id; rollouts of other problems may exist
            (status UNKNOWN_PROBLEM, or NO_NODES where the rollout brought a ground truth).
        identity: what the rollouts were scored under; None where none was scored here.
        on_error: how bad rows were met; a second pass has to meet them alike.
        messages: what the first rollout of each status other than OK was told; of rollouts
            whose problem the dataset has, where there are any.
        tokenizer: name of what counted tokens; None where only ``num_tokens`` counts.
    """

    problems: dict[str, ProblemFacts]
    rollouts: list[ScoredRollout]
    identity: Identity | None = None
    files: tuple[str, ...] = ()
    on_error: OnError = "stop"
    num_stored: int = 0
    skipped_rows: int = 0
    messages: dict[Status, str] = field(default_factory=dict)
    tokenizer: str | None = None
    num_tokenized: int = 0

    def facts(self, rollout: ScoredRollout) -> ProblemFacts | None:
        """Return the facts of a rollout's problem; None where the dataset does not have it."""
        return self.problems.get(rollout.problem_id)

    @property
    def statuses(self) -> Counter[Status]:
        """How many rollouts have which status."""
        return Counter(rollout.status for rollout in self.rollouts)

    def responses(self, rollouts: Iterable[ScoredRollout]) -> dict[tuple[int, int], str]:
        """Read the responses of some rollouts again, by ``(rollout.file, rollout.row)``.

        Raises:
            DataError: a file cannot be read any more, or holds something else by now.
        """
        wanted = {(rollout.file, rollout.row) for rollout in rollouts}
        found: dict[tuple[int, int], str] = {}
        if wanted:
            for rollout, row in self.rows():
                if (rollout.file, rollout.row) in wanted:
                    found[rollout.file, rollout.row] = row["response"]
                    if len(found) == len(wanted):
                        break
        return found

    def rows(self) -> Iterator[tuple[ScoredRollout, Row]]:
        """Yield every rollout with its row, which is read again.

        Raises:
            DataError: a file cannot be read any more, or holds something else by now.
        """
        expected = iter(self.rollouts)
        path = ""
        # Bad rows were named and counted when the files were read first.
        for file, path in enumerate(self.files):
            for row in read_rollouts(path, self.on_error, _Unsaid()):
                rollout = next(expected, None)
                if (
                    rollout is None
                    or (rollout.file, rollout.problem_id) != (file, row["problem_id"])
                    or rollout.num_chars != len(row["response"])
                ):
                    raise DataError(path, None, "has changed since its rollouts were scored")
                yield rollout, row
        if next(expected, None) is not None:
            raise DataError(path, None, "has changed since its rollouts were scored")


class _Unsaid(ReadReport):
    """Skips bad rows without a word."""

    def skip(self, fault: DataError) -> None:
        self.skipped += 1


# Scores that a rollouts file brings with it.  What a file written by ``consensuspr score`` says is
# believed, but not that it belongs to this dataset: a score with another number of nodes is
# refused, because it would be counted under the wrong nodes.
SCORE_COLUMNS: Final = ("acc", "ncr", "matched", "status")

# Statuses under which a score says of every node whether it was found.
_LOOKED_AT_NODES: Final = frozenset((Status.OK, Status.ANSWER_UNDECIDED, Status.NO_GROUND_TRUTH))
_KNOWS_NO_NODES: Final = frozenset((Status.NO_NODES, Status.UNKNOWN_PROBLEM))
# Statuses under which no answer was judged: an acc of 0 beside one would make a failure a wrong
# answer.
_JUDGED_NO_ANSWER: Final = frozenset(
    (Status.NO_GROUND_TRUTH, Status.UNKNOWN_PROBLEM, Status.OVERSIZE, Status.INTERNAL)
)


def is_scored(row: Row, spans: bool) -> bool:
    """Say whether a row brings its scores, and where nodes were found if that is asked for."""
    if row.get("status") is None or any(column not in row for column in SCORE_COLUMNS):
        return False
    # Where no node was looked for, none has a place.
    return not spans or row.get("spans") is not None or not row["matched"]


class _Unusable(Exception):
    """Why a stored score cannot be taken; the entry point adds file and rollout."""


def stored_score(row: Row, num_nodes: int, path: str, name: str) -> Score:
    """Return the score that a row brings, for which :func:`is_scored` holds.

    Raises:
        DataError: a column has a wrong type, or the score was made with another dataset.
    """
    try:
        status = _status(row["status"])
        matched = _matched(row["matched"], status, num_nodes)
        acc = row["acc"]
        guard = row.get("guard")
        guard = 1.0 if guard is None else guard
        if type(guard) not in (int, float) or not 0 < guard <= 1:
            raise _Unusable(f"guard must be above 0 and at most 1, got {str(guard)[:40]!r}")
        if acc is not None and (type(acc) not in (int, float) or acc not in (0, 1)):
            raise _Unusable(f"acc must be 0, 1 or null, got {str(acc)[:40]!r}")
        if acc is not None and status in _JUDGED_NO_ANSWER:
            raise _Unusable(f"acc must be null under status {status}, got {acc}")
        return Score(
            status,
            acc=None if acc is None else float(acc),
            ncr=guard * sum(matched) / len(matched) if matched else None,
            ncr_raw=sum(matched) / len(matched) if matched else None,
            guard=guard if matched else None,
            channel_numbers=_channels(row.get("channels"), matched),
            num_nodes=len(matched),
            num_matched=sum(matched),
            matched=matched,
            spans=_spans(row.get("spans"), matched, len(row["response"])),
            **_carried(row),
        )
    except _Unusable as fault:
        raise DataError(path, None, f"rollout {name[:80]!r}: {fault}") from None


def _status(value: object) -> Status:
    if not isinstance(value, str) or value not in Status.__members__:
        raise _Unusable(f"status {str(value)[:40]!r} is not a status of scores")
    return Status(value)


def _matched(value: object, status: Status, num_nodes: int) -> tuple[bool, ...]:
    hits = [] if value is None else value
    if type(hits) is not list or not all(type(hit) is bool for hit in hits):
        raise _Unusable("matched must be a list of true and false")
    looked_for = num_nodes if status in _LOOKED_AT_NODES else 0
    if len(hits) != looked_for or (status in _KNOWS_NO_NODES and num_nodes):
        raise _Unusable(
            f"it was scored {status} with {len(hits)} nodes, and its problem has {num_nodes} in "
            "this dataset; score it again with this dataset"
        )
    return tuple(hits)


def _channels(value: object, matched: tuple[bool, ...]) -> bytes:
    if not value:
        return b""
    if (
        type(value) is not list
        or len(value) != len(matched)
        or any(channel not in CHANNELS for channel in value)
    ):
        raise _Unusable("channels must hold how each node was found, or an empty text")
    return bytes(map(CHANNELS.index, value))


def _spans(
    value: object, matched: tuple[bool, ...], num_chars: int
) -> tuple[tuple[int, int] | None, ...] | None:
    if value is None:
        return None
    wrong = _Unusable(
        "spans must hold [start, end] inside the response for each matched node, null for others"
    )
    if type(value) is not list or len(value) != len(matched):
        raise wrong
    spans: list[tuple[int, int] | None] = []
    for span, hit in zip(value, matched, strict=True):
        if span is None and not hit:
            spans.append(None)
            continue
        if type(span) is not list or [type(end) for end in span] != [int, int] or not hit:
            raise wrong
        if not 0 <= span[0] <= span[1] <= num_chars:
            raise wrong
        spans.append((span[0], span[1]))
    return tuple(spans)


def _carried(row: Row) -> dict[str, Any]:
    """Return columns that are only carried through; left out where they hold something else."""
    numbers = [name for name in ("reward", "tpn") if type(row.get(name)) in (int, float)]
    texts = [name for name in ("answer", "answer_method") if isinstance(row.get(name), str)]
    return {name: float(row[name]) for name in numbers} | {name: row[name] for name in texts}


CountTokens: TypeAlias = Callable[[Sequence[str]], list[int]]


def open_tokenizer(name: str) -> CountTokens:
    """Return what counts tokens, special ones (beginning, end) left out.

    Args:
        name: path of a ``tokenizer.json`` or of a folder that holds one, else the name of a
            model on the hub of the ``tokenizers`` package.

    Raises:
        InputError: the package is missing, or there is no such tokenizer.
    """
    tokenizers = require("tokenizers", "counting tokens")
    path = Path(name)
    if path.is_dir():
        path = path / "tokenizer.json"
    local = path.is_file()
    if not local and (path.suffix == ".json" or path.is_absolute() or Path(name).is_dir()):
        raise InputError(f"{path}: no such file, so there is no tokenizer to count with")
    try:
        with quiet("huggingface_hub"):  # of every attempt, where the error says it once
            tokenizer = (
                tokenizers.Tokenizer.from_file(str(path))
                if local
                else tokenizers.Tokenizer.from_pretrained(name)
            )
    except Exception as error:  # the package raises bare Exception
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"the tokenizer {name!r} cannot be loaded: {reason}") from None
    # A tokenizer.json may say to cut or to fill up; either would make every length a lie.
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def count(texts: Sequence[str]) -> list[int]:
        # Lone surrogates, which no tokenizer takes, are replaced one for one.
        clean = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        encoded = tokenizer.encode_batch_fast(clean, add_special_tokens=False)
        return [len(one.ids) for one in encoded]

    return count


def dataset_warning(scored: ScoredSet, dataset: AnyPath) -> str | None:
    """Return one sentence where fewer than half of the rollouts' problems have nodes.

    A rollout that brought nodes of its own counts as having them.
    """
    total = len(scored.rollouts)
    listed = with_nodes = 0
    for rollout in scored.rollouts:
        facts = scored.facts(rollout)
        listed += facts is not None
        with_nodes += bool(rollout.matched) or (facts is not None and bool(facts.node_ids))
    if not total or 2 * with_nodes >= total:
        return None
    of_all = f"of the {total:,} rollouts' problems" if total > 1 else "of the one rollout's problem"
    path = os.fspath(dataset)
    if with_nodes:
        said = f"only {with_nodes:,} {of_all} have nodes in {path}, {listed:,} are listed there"
    elif listed:
        said = f"none {of_all} has nodes in {path}, {listed:,} are listed there without"
    else:
        said = f"none {of_all} is in {path}"
    return f"{said}: is it the right dataset?"


# What is written beyond the columns of scored rollouts, so that reading it back loses nothing.
_OUTPUT_TYPES: Final = SCORED_TYPES | {"answer": "string", "answer_method": "string"}
_SPANS_TYPE: Final = {"spans": "list<list<int64>>"}


def score_files(
    rollouts: Sequence[AnyPath],
    dataset: AnyPath,
    *,
    address: str | None = None,
    spans: bool = False,
    plain: bool = False,
    code: CodeCredit = CodeCredit.WRITTEN,
    tokenizer: str | None = None,
    on_error: OnError = "stop",
    scored_output: AnyPath | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> ScoredSet:
    """Score the rollouts of some files against a dataset.

    Rows that bring ``acc``, ``ncr``, ``matched`` and ``status`` (and ``spans`` where spans are
    asked for) are taken as scored.  Memory is bounded but for what is returned: one chunk of
    rollouts, the dataset's index, and about half a kilobyte for each rollout.

    Args:
        address: of a server that has it; None to score in this process.
        spans: also find where each node stands.
        plain: also find what the paper's own matching does, in this process, and of rollouts
            that bring their scores too.
        code: when a statement in program code reaches a node; computed for models that answer
            in programs.
        tokenizer: counts tokens of rollouts without ``num_tokens``: path of a
            ``tokenizer.json`` or a name on the hub; None leaves their length unknown.
        scored_output: where to write the rows with their scores, complete or not at all.

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
        out: RowWriter | None = None
        if scored_output is not None:
            types = _OUTPUT_TYPES | (_SPANS_TYPE if spans else {})
            out = stack.enter_context(open_writer(scored_output, types))
        # Not before it is needed: scored files need neither index nor server.
        connection = cache(lambda: stack.enter_context(connect(os.fspath(dataset), address, None)))
        index = cache(lambda: _load_index(dataset)) if plain else None
        run = _Run(found, connection, code, spans, count_tokens, out, progress, index)
        for file, path in enumerate(paths):
            read = ReadReport()
            row = 0
            for chunk in chunks(read_rollouts(path, on_error, read)):
                run.score_chunk(chunk, file, row)
                row += len(chunk)
            found.skipped_rows += read.skipped
    return found


def _load_index(dataset: AnyPath) -> DatasetIndex:
    from consensuspr.scoring import DatasetIndex

    return DatasetIndex.load(dataset)


def count_rollouts(rollouts: Sequence[AnyPath]) -> int:
    """Count rollouts, so that a bad row at the end of a file stops the work at its beginning."""
    return sum(scan_rollouts(path).rows for path in rollouts)


def model_names(rollouts: Sequence[AnyPath], on_error: OnError) -> set[str]:
    """Read files through and return who wrote their rollouts, as the column model says."""
    with quiet_readers():  # scoring tells of bad rows
        return {
            row.get("model") or UNKNOWN
            for path in rollouts
            for row in read_rollouts(path, on_error)
        }


def _distinct(
    rollouts: Sequence[AnyPath],
    dataset: AnyPath,
    output: AnyPath | None,
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


@dataclass(slots=True)
class _Run:
    """The files of one call on their way through."""

    found: ScoredSet
    connection: Callable[[], Connection]
    code: CodeCredit
    spans: bool
    count_tokens: CountTokens | None
    out: RowWriter | None
    progress: Callable[[int], None]
    index: Callable[[], DatasetIndex] | None
    told_of_listed: set[Status] = field(default_factory=set)

    def score_chunk(self, rows: list[Row], file: int, first_row: int) -> None:
        """Take consecutive rows of a file."""
        path = self.found.files[file]
        names = [
            row.get("rollout_id") or f"{Path(path).name}:{number}"
            for number, row in enumerate(rows, start=first_row + 1)
        ]
        scores = self._scores(rows, names, path)
        tokens = self._tokens(rows)
        plain = self._plain(rows, scores)
        for at, (row, score) in enumerate(zip(rows, scores, strict=True)):
            facts = self.found.problems.get(row["problem_id"])
            if score.message and score.status is not Status.OK:
                self._tell(score, facts is not None)
            self.found.rollouts.append(
                ScoredRollout(
                    problem_id=row["problem_id"] if facts is None else facts.problem_id,
                    rollout_id=names[at],
                    model=intern(row.get("model") or ""),
                    data_source=intern(
                        row.get("data_source") or ("" if facts is None else facts.data_source)
                    ),
                    status=score.status,
                    acc=score.acc,
                    matched=tuple(score.matched),
                    spans=score.spans,
                    num_tokens=tokens[at],
                    num_chars=len(row["response"]),
                    answer=score.answer,
                    answer_method=score.answer_method,
                    file=file,
                    row=first_row + at,
                    guard=1.0 if score.guard is None else score.guard,
                    plain=plain.get(at),
                )
            )
            if self.out is not None:
                self.out.write(_output_row(row, score, tokens[at]))
        self.progress(len(self.found.rollouts))

    def _plain(self, rows: list[Row], scores: list[Score]) -> dict[int, tuple[bool, ...]]:
        """Return what patterns alone find, for the rows whose nodes are the dataset's."""
        if self.index is None:
            return {}
        from consensuspr.core import match_batch

        of: dict[int, Matcher] = {}
        for at, (row, score) in enumerate(zip(rows, scores, strict=True)):
            entry = self.index().entry(row["problem_id"]) if score.matched else None
            if entry is not None and entry.num_nodes == len(score.matched) and not row.get("nodes"):
                of[at] = entry.matcher
        texts = [rows[at]["response"] for at in of]
        found = match_batch(list(of.values()), texts, statements=False, counts=False)
        return {at: tuple(found.matched(row).tolist()) for row, at in enumerate(of)}

    def _tell(self, score: Score, listed: bool) -> None:
        """Keep the first message of a status; one about a listed problem goes before others."""
        if score.status not in self.found.messages or (
            listed and score.status not in self.told_of_listed
        ):
            self.found.messages[score.status] = score.message
        if listed:
            self.told_of_listed.add(score.status)

    def _scores(self, rows: list[Row], names: list[str], path: str) -> list[Score]:
        scores: dict[int, Score] = {}
        for at, row in enumerate(rows):
            if is_scored(row, self.spans):
                facts = self.found.problems.get(row["problem_id"])
                num_nodes = 0 if facts is None else len(facts.node_ids)
                scores[at] = stored_score(row, num_nodes, path, names[at])
        self.found.num_stored += len(scores)
        missing = [at for at in range(len(rows)) if at not in scores]
        if missing:
            scores.update(zip(missing, self._score([rows[at] for at in missing]), strict=True))
        return [scores[at] for at in range(len(rows))]

    def _score(self, rows: list[Row]) -> Sequence[Score]:
        """Score rows; refuse scores of two kinds in one set."""
        connection, before = self.connection(), len(self.found.rollouts)
        batch = connection.client.score(
            [rollout_from_row(row) for row in rows],
            reward=RewardSpec.linear(code=self.code),
            dataset=connection.dataset,
            include_spans=self.spans,
            progress=lambda scored, of_chunk: self.progress(before + scored),
        )
        known = self.found.identity
        if known is not None and known != batch.identity:
            raise ServerFault(
                f"the server changed after {before} rollouts: these were scored under {known}, "
                f"the next under {batch.identity}"
            )
        self.found.identity = batch.identity
        return batch

    def _tokens(self, rows: list[Row]) -> list[int | None]:
        # A length of 0 or less does not count as given (``docs/datasets.md``).
        given = [row.get("num_tokens") for row in rows]
        lengths = [length if length is not None and length > 0 else None for length in given]
        if self.count_tokens is not None:
            missing = [at for at, length in enumerate(lengths) if length is None]
            counts = self.count_tokens([rows[at]["response"] for at in missing])
            for at, count in zip(missing, counts, strict=True):
                lengths[at] = count
            self.found.num_tokenized += len(missing)
        return lengths


def _output_row(row: Row, score: Score, num_tokens: int | None) -> Row:
    if num_tokens is not None:
        # A length that was counted here has its TPN (equation 2) too.
        tpn = num_tokens / score.num_matched if score.num_matched else None
        row, score = row | {"num_tokens": num_tokens}, replace(score, tpn=tpn)
    return scored_row(row, score) | {
        "answer": score.answer,
        "answer_method": score.answer_method,
    }


@dataclass(frozen=True, slots=True)
class Columns:
    """Rollouts as columns of equal length n, NaN or :data:`UNKNOWN` where something is not known.

    ``problem`` is the number of the problem in the order of ids, ``nodes`` how many were looked for
    (0 where none were), ``file`` the position of the file.  ``plain_hits`` are those of the paper's
    own matching, NaN where it was not asked for.
    """

    problem: Ints
    acc: Floats
    nodes: Ints
    hits: Ints
    nodes_without_final: Ints
    hits_without_final: Ints
    plain_hits: Floats
    plain_hits_without_final: Floats
    guard: Floats
    tokens: Floats
    chars: Ints
    undecided: Bools
    undecided_by_load: Bools
    status: Texts
    model: Texts
    source: Texts
    difficulty: Texts
    file: Ints

    def __len__(self) -> int:
        return len(self.problem)

    def where(self, wanted: Bools) -> Self:
        """Return the rollouts for which ``wanted`` holds."""
        return type(self)(*[getattr(self, column.name)[wanted] for column in fields(self)])


def columns_of(scored: ScoredSet) -> tuple[Columns, tuple[str, ...]]:
    """Return the rollouts of a set as columns, and the problem ids by number."""
    rollouts = scored.rollouts
    facts = [scored.facts(r) for r in rollouts]
    without = [r.matched_without_final(of) for r, of in zip(rollouts, facts, strict=True)]
    problem_ids = tuple(sorted({rollout.problem_id for rollout in rollouts}))
    number_of = {problem_id: number for number, problem_id in enumerate(problem_ids)}

    def column(kind: DTypeLike, of: Callable[[ScoredRollout], object]) -> NDArray[Any]:
        return np.array([of(r) for r in rollouts], dtype=kind)

    columns = Columns(
        problem=column(np.int64, lambda r: number_of[r.problem_id]),
        acc=column(np.float64, lambda r: r.acc),
        nodes=column(np.int64, lambda r: len(r.matched)),
        hits=column(np.int64, lambda r: sum(r.matched)),
        nodes_without_final=np.array([len(matched) for matched in without], dtype=np.int64),
        hits_without_final=np.array([sum(matched) for matched in without], dtype=np.int64),
        plain_hits=column(np.float64, lambda r: _count(r.plain)),
        plain_hits_without_final=np.array(
            [_count(r.plain_without_final(of)) for r, of in zip(rollouts, facts, strict=True)],
            dtype=np.float64,
        ),
        guard=column(np.float64, lambda r: r.guard),
        tokens=column(np.float64, lambda r: r.num_tokens),
        chars=column(np.int64, lambda r: r.num_chars),
        undecided=column(np.bool_, lambda r: r.undecided),
        undecided_by_load=column(np.bool_, lambda r: r.undecided_by_load),
        status=column(np.object_, lambda r: r.status.value),
        model=column(np.object_, lambda r: r.model or UNKNOWN),
        source=column(np.object_, lambda r: r.data_source or UNKNOWN),
        difficulty=np.array([(of and of.difficulty) or UNKNOWN for of in facts], dtype=np.object_),
        file=column(np.int64, lambda r: r.file),
    )
    return columns, problem_ids


def _count(hits: tuple[bool, ...] | None) -> float:
    return float("nan") if hits is None else sum(hits)


def statuses_of(columns: Columns) -> dict[str, int]:
    """Return how many rollouts have which status, in the order in which statuses are told."""
    counts = Counter(columns.status.tolist())
    return {status.value: counts[status.value] for status in Status if status.value in counts}


def label_order(label: str) -> tuple[int, int, str]:
    """Return what labels sort by: difficulties as they grow, names by letter, unknown last."""
    if label in DIFFICULTIES:
        return 0, DIFFICULTIES.index(label), label
    return int(label == UNKNOWN), 0, label


def ncr_of(hits: Ints | Floats, nodes: Ints) -> Floats:
    """Return the Node Coverage Rate of each rollout.

    Equation 1 of the paper: matched nodes over nodes.  NaN where there is no node to match:
    the paper's problems all have some.
    """
    ncr: Floats = np.divide(hits, nodes, out=np.full(len(hits), np.nan), where=nodes > 0)
    return ncr


def tpn_of(tokens: Floats, hits: Ints) -> Floats:
    """Return the tokens per node of each rollout.

    Equation 2 of the paper: length over matched nodes.  The paper leaves open what a rollout
    without a matched node has; here it has none (NaN), as it has where its length is unknown.
    """
    tpn: Floats = np.divide(tokens, hits, out=np.full(len(hits), np.nan), where=hits > 0)
    return tpn
