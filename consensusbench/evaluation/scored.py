"""Scored rollouts, as metrics, reports and diagnosis read them.

:func:`score_files` scores the rollouts of files and keeps half a kilobyte of each, not the texts.
:meth:`ScoredSet.rows` reads the files again.  :func:`columns_of` returns numpy columns.

An unknown value is None (NaN in a column), never 0.  An undecided answer has acc 0.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from consensusbench import check_outputs, quiet_readers, require
from consensuspr.client.files import Connection, chunks, connect
from consensuspr.console import count_of
from consensuspr.data import (
    OnError,
    Problem,
    ReadReport,
    Row,
    open_writer,
    read_problems,
    read_rollouts,
    scan_rollouts,
)
from consensuspr.errors import DataError, InputError, ServerFault
from consensuspr.scoring import SCORED_TYPES, rollout_from_row, scored_row
from consensuspr.scoring.rewards import CodeCredit, RewardSpec
from consensuspr.scoring.types import LOAD_METHODS, Identity, Score, Status

if TYPE_CHECKING:  # at run time this would load the core, for --help too
    from consensuspr.scoring import DatasetIndex

AnyPath: TypeAlias = str | os.PathLike[str]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
# Of Python strings: numpy's own give every row the width of the longest.
Texts: TypeAlias = NDArray[np.object_]
Hits: TypeAlias = tuple[bool, ...]
Spans: TypeAlias = tuple[tuple[int, int] | None, ...]
CountTokens: TypeAlias = Callable[[Sequence[str]], list[int]]

# Methods of an answer check that came to no verdict (docs/concepts/answers.md).
UNDECIDED_METHODS: Final = frozenset(
    ("budget", "memory", "crash", "screened", "length", "load", "deadline", "no-ground-truth")
)

# A label that a rollout or a problem does not have.
UNKNOWN: Final = "(none)"
DIFFICULTIES: Final = ("easy", "medium", "hard")

# The paper divides MATH-500 "according to its difficulty labels".  Its accuracies are multiples of
# 1/43, 1/323 and 1/134, the sizes of level 1, of levels 2 to 4 and of level 5.
_GROUP_OF_LEVEL: Final = {1: "easy", 2: "medium", 3: "medium", 4: "medium", 5: "hard"}
_LEVEL: Final = re.compile(r"(?:level\s*)?([1-5])(?:\.0)?", re.IGNORECASE)

# A response that matches runs a Python program, or refers to a cheat sheet or a given solution.
_BORROWS: Final = re.compile(
    r"cheat ?sheet|already (been )?(solved|provided)|provided (solution|answer)|execute code|"
    "```python"
)
# Each match has one of these, which are found ten times as fast.
_BORROWS_WORDS: Final = ("cheat", "already ", "provided ", "execute ", "```p")

# A row with these columns is taken as scored.
SCORE_COLUMNS: Final = ("acc", "ncr", "matched", "status")
_OUTPUT_TYPES: Final = SCORED_TYPES | {"answer_method": "string"}
_SPANS_TYPE: Final = {"spans": "list<list<int64>>"}

_LOOKED_AT_NODES: Final = frozenset((Status.OK, Status.ANSWER_UNDECIDED, Status.NO_GROUND_TRUTH))
_KNOWS_NO_NODES: Final = frozenset((Status.NO_NODES, Status.UNKNOWN_PROBLEM))
# An acc of 0 beside one of these would make a failure a wrong answer.
_JUDGED_NO_ANSWER: Final = frozenset(
    (Status.NO_GROUND_TRUTH, Status.UNKNOWN_PROBLEM, Status.OVERSIZE, Status.INTERNAL)
)


def difficulty_of(metadata: Row) -> str | None:
    """Return ``easy``, ``medium`` or ``hard`` by ``difficulty``, else by MATH's ``level``."""
    difficulty = metadata.get("difficulty")
    if isinstance(difficulty, str) and difficulty.strip().lower() in DIFFICULTIES:
        return difficulty.strip().lower()
    level = _LEVEL.fullmatch(str(metadata.get("level")).strip())
    return _GROUP_OF_LEVEL[int(level[1])] if level else None


def reasons_itself(response: str) -> bool:
    """Return whether a response neither runs a Python program nor refers to a given solution."""
    text = response.lower()
    return not any(word in text for word in _BORROWS_WORDS) or not _BORROWS.search(text)


@dataclass(frozen=True, slots=True)
class ProblemFacts:
    """The parts of a problem that metrics need; (k,) values for its nodes."""

    problem_id: str
    data_source: str
    ground_truth: str | None
    difficulty: str | None
    is_final: Hits

    @classmethod
    def of(cls, problem: Problem) -> ProblemFacts:
        """Return the facts of a problem of a dataset."""
        return cls(
            problem.problem_id,
            problem.data_source,
            problem.ground_truth,
            difficulty_of(problem.metadata),
            tuple(node.is_final for node in problem.nodes),
        )


@dataclass(frozen=True, slots=True)
class ScoredRollout:
    """One rollout and its score.

    Attributes:
        rollout_id: its name, or ``FILE:N`` (row from 1).
        data_source: its own, else its problem's, possibly empty.
        acc: 0.0 or 1.0; None if the answer could not be judged.
        matched: (k,) one per node of its problem; empty if nodes were not looked for.
        spans: (k,) half-open code point spans of first hits; None unless asked for.
        answer_method: how acc was decided (``docs/concepts/answers.md``).
        file: position of its file.
        guard: factor of NCR, in (0, 1].
        plain: (k,) hits by patterns alone, the paper's own matching; None unless asked for.
        facts: of its problem; None if the dataset does not have it.
        own_reasoning: whether its response :func:`reasons_itself`.
    """

    problem_id: str
    rollout_id: str
    model: str
    data_source: str
    status: Status
    acc: float | None
    matched: Hits
    spans: Spans | None
    num_tokens: int | None
    num_chars: int
    answer: str | None
    answer_method: str
    file: int
    guard: float = 1.0
    plain: Hits | None = None
    facts: ProblemFacts | None = None
    own_reasoning: bool = True

    @property
    def num_matched(self) -> int:
        """Nodes that were found."""
        return sum(self.matched)

    @property
    def ncr(self) -> float | None:
        """Node Coverage Rate (equation 1), guarded; None without nodes."""
        return self.guard * sum(self.matched) / len(self.matched) if self.matched else None

    @property
    def ncr_without_final(self) -> float | None:
        """NCR over the nodes that do not state the final answer; None without any."""
        hits = self.without_final(self.matched)
        return self.guard * sum(hits) / len(hits) if hits else None

    @property
    def tpn(self) -> float | None:
        """Tokens per node (equation 2); None without a length or without a matched node."""
        hits = sum(self.matched)
        return self.num_tokens / hits if self.num_tokens and hits else None

    @property
    def undecided(self) -> bool:
        """Whether acc is 0 because the answer check came to no verdict."""
        no_verdict = self.answer_method in UNDECIDED_METHODS
        return self.acc == 0 and (no_verdict or self.status is Status.ANSWER_UNDECIDED)

    @property
    def undecided_by_load(self) -> bool:
        """Whether a busy machine kept the answer from being checked."""
        return self.answer_method in LOAD_METHODS and self.status is not Status.NO_GROUND_TRUTH

    def without_final(self, hits: Hits) -> Hits:
        """Return the hits of the nodes that do not state the final answer."""
        if self.facts is None or not hits:
            return hits
        pairs = zip(hits, self.facts.is_final, strict=True)
        return tuple(hit for hit, is_final in pairs if not is_final)


@dataclass(slots=True)
class ScoredSet:
    """All rollouts of files, scored against one dataset; no response is kept.

    ``identity`` is what rollouts were scored under, None if all were scored before.
    ``messages`` holds the message of the first rollout of each status other than OK.
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

    @property
    def statuses(self) -> Counter[Status]:
        """How many rollouts have which status."""
        return Counter(rollout.status for rollout in self.rollouts)

    def rows(self) -> Iterator[tuple[ScoredRollout, Row]]:
        """Yield every rollout with its row, which is read again.

        Raises:
            DataError: a file cannot be read any more, or its rows have changed.
        """
        expected = iter(self.rollouts)
        path = ""
        with quiet_readers():  # bad rows were logged when the files were read first
            for file, path in enumerate(self.files):
                for row in read_rollouts(path, self.on_error):
                    rollout = next(expected, None)
                    key = (file, row["problem_id"], len(row["response"]))
                    if (
                        rollout is None
                        or (rollout.file, rollout.problem_id, rollout.num_chars) != key
                    ):
                        raise DataError(path, None, "has changed since its rollouts were scored")
                    yield rollout, row
        if next(expected, None) is not None:
            raise DataError(path, None, "has changed since its rollouts were scored")


def is_scored(row: Row, spans: bool) -> bool:
    """Return whether a row has scores, and spans if these are asked for."""
    if row.get("status") is None or any(column not in row for column in SCORE_COLUMNS):
        return False
    return not spans or row.get("spans") is not None or not row["matched"]


def stored_score(row: Row, num_nodes: int) -> Score:
    """Return the score of a row for which :func:`is_scored` holds.

    Raises:
        ValueError: a column is wrong, or the score was made with another dataset.
    """
    if row["status"] not in Status.__members__.values():
        raise ValueError(f"status {str(row['status'])[:40]!r} is not a status of scores")
    status, acc, matched = Status(row["status"]), row["acc"], row["matched"] or []
    if type(matched) is not list or not all(type(hit) is bool for hit in matched):
        raise ValueError("matched must be a list of true and false")
    looked_for = num_nodes if status in _LOOKED_AT_NODES else 0
    if len(matched) != looked_for or (status in _KNOWS_NO_NODES and num_nodes):
        raise ValueError(
            f"it was scored {status} with {len(matched)} nodes, and its problem has {num_nodes} "
            "in this dataset; score it again with this dataset"
        )
    if acc is not None and (isinstance(acc, bool | str) or acc not in (0, 1)):
        raise ValueError(f"acc must be 0, 1 or null, got {str(acc)[:40]!r}")
    if acc is not None and status in _JUDGED_NO_ANSWER:
        raise ValueError(f"acc must be null under status {status}, got {acc}")
    guard = row.get("guard") or 1.0
    if not isinstance(guard, int | float) or not 0 < guard <= 1:
        raise ValueError(f"guard must be above 0 and at most 1, got {str(guard)[:40]!r}")
    return Score(
        status,
        acc=None if acc is None else float(acc),
        guard=guard,
        matched=tuple(matched),
        spans=_spans(row.get("spans"), matched, len(row["response"])),
        answer=row.get("extracted_answer"),
        answer_method=row.get("answer_method") or "",
    )


def _spans(spans: Any, matched: Sequence[bool], num_chars: int) -> Spans | None:
    if spans is None:
        return None
    try:
        found = tuple(None if span is None else (int(span[0]), int(span[1])) for span in spans)
        inside = all(0 <= span[0] <= span[1] <= num_chars for span in found if span is not None)
        if inside and [span is not None for span in found] == list(matched):
            return found
    except (TypeError, ValueError, IndexError):
        pass
    raise ValueError(
        "spans must hold [start, end] inside the response for each matched node, null for others"
    )


def open_tokenizer(name: str) -> CountTokens:
    """Return a function that counts tokens without special ones.

    Args:
        name: a ``tokenizer.json``, a folder with one, or the name of a model on the hub.

    Raises:
        InputError: the package is missing, or there is no such tokenizer.
    """
    tokenizers = require("tokenizers", "counting tokens")
    path = Path(name) / "tokenizer.json" if Path(name).is_dir() else Path(name)
    try:
        if path.suffix == ".json":
            tokenizer = tokenizers.Tokenizer.from_file(str(path))
        else:
            tokenizer = tokenizers.Tokenizer.from_pretrained(name)
    except Exception as error:  # the package raises bare Exception
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"the tokenizer {name!r} cannot be loaded: {reason}") from None
    # A tokenizer.json may ask for truncation or padding, which would make lengths wrong.
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def count(texts: Sequence[str]) -> list[int]:
        # No tokenizer takes lone surrogates.
        clean = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        encodings = tokenizer.encode_batch_fast(clean, add_special_tokens=False)
        return [len(encoding.ids) for encoding in encodings]

    return count


def dataset_warning(scored: ScoredSet, dataset: AnyPath) -> str | None:
    """Return one sentence if fewer than half of the rollouts' problems have nodes."""
    rollouts, total = scored.rollouts, len(scored.rollouts)
    with_nodes = sum(bool(r.matched or (r.facts and r.facts.is_final)) for r in rollouts)
    if not total or 2 * with_nodes >= total:
        return None
    listed = sum(rollout.facts is not None for rollout in rollouts)
    return (
        f"{listed:,} of {count_of(total, 'rollout')} have a problem in {os.fspath(dataset)}, and "
        f"{with_nodes:,} a problem with nodes; check that it is the right dataset"
    )


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
    """Score the rollouts of files against a dataset.

    Rows with ``acc``, ``ncr``, ``matched`` and ``status`` (and ``spans`` if asked for) are taken
    as scored.

    Args:
        address: of a server that has the dataset; None to score in this process.
        spans: also find the position of each node.
        plain: also find the hits of the paper's own matching, in this process.
        code: when a statement in program code counts.
        tokenizer: counts tokens of rollouts without ``num_tokens``.
        scored_output: file for the rows with their scores, complete or not at all.

    Raises:
        InputError: no file, a file twice, or an argument is wrong.
        DataError: a file or a row of one is bad, or its scores are of another dataset.
        RewardServiceError: the server failed, or changed in between.
    """
    paths = tuple([os.fspath(path) for path in rollouts])
    if not paths:
        raise InputError("at least one file of rollouts is needed")
    if len(paths) > len({os.path.realpath(path) for path in paths}):
        raise InputError("a file of rollouts is given twice, so its rollouts would count twice")
    check_outputs((scored_output,), (*paths, dataset))
    problems = {p.problem_id: ProblemFacts.of(p) for p in read_problems(dataset)}
    count_tokens = None if tokenizer is None else open_tokenizer(tokenizer)
    found = ScoredSet(problems, [], files=paths, on_error=on_error, tokenizer=tokenizer)
    with ExitStack() as stack:
        out = None
        if scored_output is not None:
            types = _OUTPUT_TYPES | (_SPANS_TYPE if spans else {})
            out = stack.enter_context(open_writer(scored_output, types))
        # Scored files need neither index nor server.
        connection = cache(lambda: stack.enter_context(connect(os.fspath(dataset), address, None)))
        run = _Run(found, connection, code, spans, count_tokens, progress)
        if plain:
            from consensuspr.scoring import DatasetIndex

            run.index = DatasetIndex.load(dataset)
        for file, path in enumerate(paths):
            read, first = ReadReport(), len(found.rollouts)
            for rows in chunks(read_rollouts(path, on_error, read)):
                for rollout, row in run.score_chunk(rows, file, len(found.rollouts) - first):
                    found.rollouts.append(rollout)
                    if out is not None:
                        out.write(row)
                progress(len(found.rollouts))
            found.skipped_rows += read.skipped
    return found


def count_rollouts(rollouts: Sequence[AnyPath]) -> int:
    """Count rollouts; a bad row raises before anything is scored."""
    return sum(scan_rollouts(path).rows for path in rollouts)


@dataclass(slots=True)
class _Run:
    """State of one call of :func:`score_files`."""

    found: ScoredSet
    connection: Callable[[], Connection]
    code: CodeCredit
    spans: bool
    count_tokens: CountTokens | None
    progress: Callable[[int], None]
    index: DatasetIndex | None = None

    def score_chunk(
        self, rows: list[Row], file: int, first_row: int
    ) -> list[tuple[ScoredRollout, Row]]:
        """Return the rollouts of consecutive rows of a file, with their rows of the output."""
        path = self.found.files[file]
        names = [
            row.get("rollout_id") or f"{Path(path).name}:{number}"
            for number, row in enumerate(rows, start=first_row + 1)
        ]
        facts = [self.found.problems.get(row["problem_id"]) for row in rows]
        stored: dict[int, Score] = {}
        for at, (row, of_problem) in enumerate(zip(rows, facts, strict=True)):
            if is_scored(row, self.spans):
                try:
                    stored[at] = stored_score(row, len(of_problem.is_final) if of_problem else 0)
                except ValueError as fault:
                    raise DataError(path, None, f"rollout {names[at][:80]!r}: {fault}") from None
        self.found.num_stored += len(stored)
        made = iter(self._score([row for at, row in enumerate(rows) if at not in stored]))
        scores = [stored[at] if at in stored else next(made) for at in range(len(rows))]
        tokens, plain = self._tokens(rows), self._plain(rows, scores)
        pairs = []
        for at, (row, score, of_problem) in enumerate(zip(rows, scores, facts, strict=True)):
            if score.status is not Status.OK:
                self.found.messages.setdefault(score.status, score.message)
            source = row.get("data_source") or (of_problem.data_source if of_problem else "")
            rollout = ScoredRollout(
                problem_id=of_problem.problem_id if of_problem else row["problem_id"],
                rollout_id=names[at],
                model=intern(row.get("model") or ""),
                data_source=intern(source),
                status=score.status,
                acc=score.acc,
                matched=tuple(score.matched),
                spans=score.spans,
                num_tokens=tokens[at],
                num_chars=len(row["response"]),
                answer=score.answer,
                answer_method=score.answer_method,
                file=file,
                guard=1.0 if score.guard is None else score.guard,
                plain=plain.get(at),
                facts=of_problem,
                own_reasoning=reasons_itself(row["response"]),
            )
            written = row if at in stored else scored_row(row, score)
            if rollout.num_tokens is not None:
                written = written | {"num_tokens": rollout.num_tokens, "tpn": rollout.tpn}
            found = {"extracted_answer": score.answer, "answer_method": score.answer_method}
            pairs.append((rollout, written | found))
        return pairs

    def _score(self, rows: list[Row]) -> Sequence[Score]:
        if not rows:
            return ()
        connection, before = self.connection(), len(self.found.rollouts)
        batch = connection.client.score(
            [rollout_from_row(row) for row in rows],
            reward=RewardSpec.linear(code=self.code),
            dataset=connection.dataset_name,
            include_spans=self.spans,
            progress=lambda scored, of_chunk: self.progress(before + scored),
        )
        if self.found.identity not in (None, batch.identity):
            raise ServerFault(
                f"the server changed after {before} rollouts: these were scored under "
                f"{self.found.identity}, the next under {batch.identity}"
            )
        self.found.identity = batch.identity
        return batch

    def _tokens(self, rows: list[Row]) -> list[int | None]:
        given = [row.get("num_tokens") for row in rows]
        lengths = [length if length is not None and length > 0 else None for length in given]
        if self.count_tokens is not None:
            missing = [at for at, length in enumerate(lengths) if length is None]
            counts = self.count_tokens([rows[at]["response"] for at in missing])
            for at, count in zip(missing, counts, strict=True):
                lengths[at] = count
            self.found.num_tokenized += len(missing)
        return lengths

    def _plain(self, rows: list[Row], scores: list[Score]) -> dict[int, Hits]:
        """Return the hits of patterns alone, for the rows whose nodes are the dataset's."""
        if self.index is None:
            return {}
        from consensuspr.core import match_batch

        matchers = {}
        for at, (row, score) in enumerate(zip(rows, scores, strict=True)):
            entry = self.index.entry(row["problem_id"]) if score.matched else None
            if entry is not None and entry.num_nodes == len(score.matched) and not row.get("nodes"):
                matchers[at] = entry.matcher
        texts = [rows[at]["response"] for at in matchers]
        found = match_batch(list(matchers.values()), texts, statements=False, counts=False)
        return {at: tuple(found.matched(number).tolist()) for number, at in enumerate(matchers)}


@dataclass(frozen=True, slots=True)
class Columns:
    """Rollouts as columns of equal length, NaN or :data:`UNKNOWN` if not known.

    ``problem`` is the number of the problem in the order of ids; ``nodes`` is 0 if none were
    looked for; ``plain_hits`` are those of the paper's own matching.
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
    own_reasoning: Bools
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
    problem_ids = tuple(sorted({rollout.problem_id for rollout in scored.rollouts}))
    number_of = {problem_id: number for number, problem_id in enumerate(problem_ids)}

    def column(kind: DTypeLike, of: Callable[[ScoredRollout], object]) -> NDArray[Any]:
        return np.array([of(rollout) for rollout in scored.rollouts], dtype=kind)

    columns = Columns(
        problem=column(np.int64, lambda r: number_of[r.problem_id]),
        acc=column(np.float64, lambda r: r.acc),
        nodes=column(np.int64, lambda r: len(r.matched)),
        hits=column(np.int64, lambda r: sum(r.matched)),
        nodes_without_final=column(np.int64, lambda r: len(r.without_final(r.matched))),
        hits_without_final=column(np.int64, lambda r: sum(r.without_final(r.matched))),
        plain_hits=column(np.float64, lambda r: None if r.plain is None else sum(r.plain)),
        plain_hits_without_final=column(
            np.float64, lambda r: None if r.plain is None else sum(r.without_final(r.plain))
        ),
        guard=column(np.float64, lambda r: r.guard),
        tokens=column(np.float64, lambda r: r.num_tokens),
        chars=column(np.int64, lambda r: r.num_chars),
        undecided=column(np.bool_, lambda r: r.undecided),
        own_reasoning=column(np.bool_, lambda r: r.own_reasoning),
        status=column(np.object_, lambda r: r.status.value),
        model=column(np.object_, lambda r: r.model or UNKNOWN),
        source=column(np.object_, lambda r: r.data_source or UNKNOWN),
        difficulty=column(np.object_, lambda r: (r.facts and r.facts.difficulty) or UNKNOWN),
        file=column(np.int64, lambda r: r.file),
    )
    return columns, problem_ids


def label_order(label: str) -> tuple[int, int, str]:
    """Return the sort key of a label: difficulties first, then names, unknown last."""
    if label in DIFFICULTIES:
        return 0, DIFFICULTIES.index(label), label
    return int(label == UNKNOWN), 0, label


def per_node(values: Ints | Floats, nodes: Ints | Floats) -> Floats:
    """Return values over numbers of nodes, NaN without nodes.

    Hits over nodes are NCR (equation 1), tokens over hits TPN (equation 2).
    """
    ratios: Floats = np.divide(values, nodes, out=np.full(len(nodes), np.nan), where=nodes > 0)
    return ratios
