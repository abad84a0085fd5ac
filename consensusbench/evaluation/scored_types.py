"""Rollouts with their scores, as metrics, reports and diagnosis read them.

Of each rollout is kept what metrics need: about half a kilobyte, and never the response.  Whoever
shows a response asks for it again (:meth:`ScoredSet.responses`), one more pass over the file.
Made by :func:`consensusbench.evaluation.scored.score_files`.

A value that is not known is None and stays None: a rollout that could not be scored has neither
Acc nor NCR, and no metric turns it into a 0.  An undecided answer has acc 0, as everywhere, and
says that it is undecided, so that whoever counts it as wrong can also say how many there are.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from consensusbench.evaluation.difficulty import difficulty_of
from consensuspr.data import OnError, Problem, ReadReport, read_rollouts
from consensuspr.errors import DataError
from consensuspr.scoring.types import Identity, Score, Status

# Methods of an answer check that came to no verdict (docs/answers.md).
UNDECIDED_METHODS: Final = frozenset(
    ("budget", "memory", "crash", "screened", "length", "load", "deadline", "no-ground-truth")
)
# Those of them that a calmer machine would decide.
LOAD_METHODS: Final = frozenset(("load", "deadline"))


@dataclass(frozen=True, slots=True)
class ProblemFacts:
    """What is known of a problem besides how rollouts fared on it.

    Attributes:
        problem_id: key in the dataset.
        data_source: label of its benchmark, possibly empty.
        problem: its text, possibly empty.
        ground_truth: None where unknown.
        difficulty: ``easy``, ``medium``, ``hard`` or None where unknown.
        split: ``train``, ``test`` or None.
        node_ids: (k,) one per node, in node order.
        labels: (k,) what a person reads; an expression where the node has no label.
        is_final: (k,) whether the node states the final answer.
        types: (k,) kind of each node.
    """

    problem_id: str
    data_source: str
    problem: str
    ground_truth: str | None
    difficulty: str | None
    split: str | None
    node_ids: tuple[str, ...]
    labels: tuple[str, ...]
    is_final: tuple[bool, ...]
    types: tuple[str, ...]

    @classmethod
    def of(cls, problem: Problem) -> ProblemFacts:
        """Return the facts of a problem of a dataset."""
        return cls(
            problem_id=problem.problem_id,
            data_source=problem.data_source,
            problem=problem.problem,
            ground_truth=problem.ground_truth,
            difficulty=difficulty_of(problem.metadata),
            split=problem.split,
            node_ids=tuple(node.node_id for node in problem.nodes),
            labels=tuple(node.label or node.expressions[0] for node in problem.nodes),
            is_final=tuple(node.is_final for node in problem.nodes),
            types=tuple(node.type for node in problem.nodes),
        )


@dataclass(frozen=True, slots=True)
class ScoredRollout:
    """One rollout, its score and where its text stands.

    Attributes:
        problem_id: key of its problem.
        rollout_id: its name; ``FILE:N`` (row from 1) where the file gives none.
        model: who wrote it, possibly empty.
        data_source: its own, else its problem's, possibly empty.
        status: read it before any number.
        acc: 0.0 or 1.0; None where the answer could not be judged.
        matched: (k,) one per node of its problem, in node order; empty where there are none or
            the status says that they were not looked for.
        spans: (k,) half-open code point spans of first hits, None per node that was not found;
            None as a whole unless spans were asked for.
        num_tokens: positive; None where unknown.
        num_chars: code points of the response.
        answer: taken from the response; None where none was found or the file does not say.
        answer_method: how acc was decided (``docs/answers.md``); empty where unknown.
        file: position of its file among those that were read.
        row: position among the good rows of that file, from 0.
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

    @property
    def num_matched(self) -> int:
        """Nodes that were found."""
        return sum(self.matched)

    @property
    def ncr(self) -> float | None:
        """Node Coverage Rate (equation 1); None without nodes."""
        return sum(self.matched) / len(self.matched) if self.matched else None

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
        return self.undecided and self.answer_method in LOAD_METHODS

    def matched_without_final(self, facts: ProblemFacts | None) -> tuple[bool, ...]:
        """Return the hits of the nodes that do not state the final answer."""
        if facts is None:
            return self.matched
        if not self.matched:
            return ()
        return tuple(
            hit for hit, final in zip(self.matched, facts.is_final, strict=True) if not final
        )

    def ncr_without_final(self, facts: ProblemFacts | None) -> float | None:
        """Return NCR over the nodes that do not state the final answer; None without any.

        Args:
            facts: of its problem; None where the dataset does not have it.
        """
        hits = self.matched_without_final(facts)
        return sum(hits) / len(hits) if hits else None

    @classmethod
    def of(
        cls,
        score: Score,
        *,
        problem_id: str,
        rollout_id: str,
        model: str,
        data_source: str,
        num_tokens: int | None,
        num_chars: int,
        file: int,
        row: int,
    ) -> ScoredRollout:
        """Return a rollout with its score."""
        return cls(
            problem_id=problem_id,
            rollout_id=rollout_id,
            model=model,
            data_source=data_source,
            status=score.status,
            acc=score.acc,
            matched=tuple(score.matched),
            spans=score.spans,
            num_tokens=num_tokens if num_tokens and num_tokens > 0 else None,
            num_chars=num_chars,
            answer=score.answer,
            answer_method=score.answer_method,
            file=file,
            row=row,
        )


@dataclass(slots=True)
class ScoredSet:
    """All rollouts of some files against one dataset; no response is kept.

    Attributes:
        problems: every problem of the dataset by id; rollouts of other problems may exist
            (status UNKNOWN_PROBLEM, or NO_NODES where the rollout brought a ground truth).
        rollouts: in order of files and rows.
        identity: what the rollouts were scored under; None where none was scored here.
        files: paths that were read, as they were given.
        on_error: how bad rows were met; a second pass has to meet them alike.
        num_stored: rollouts whose scores came with the file.
        skipped_rows: bad rows that were passed over.
        messages: what the first rollout of each status other than OK was told; of rollouts
            whose problem the dataset has, where there are any.
        tokenizer: name of what counted tokens; None where only ``num_tokens`` counts.
        num_tokenized: rollouts whose length it counted.
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
        """Read the responses of some rollouts again, in one pass over each of their files.

        Args:
            rollouts: of this set; few enough that their texts fit into memory.

        Returns:
            The response by ``(rollout.file, rollout.row)``.

        Raises:
            DataError: a file cannot be read any more, or holds something else by now.
        """
        wanted: dict[int, dict[int, ScoredRollout]] = {}
        for rollout in rollouts:
            wanted.setdefault(rollout.file, {})[rollout.row] = rollout
        return {
            (file, row): response
            for file, rows in sorted(wanted.items())
            for row, response in _responses(self.files[file], rows, self.on_error)
        }


class _Quiet(ReadReport):
    """Skips bad rows without a word: they were named when the file was read first."""

    def skip(self, fault: DataError) -> None:
        self.skipped += 1
        if not self.reasons:
            self.reasons.append(fault)


def _responses(
    path: str | os.PathLike[str], wanted: dict[int, ScoredRollout], on_error: OnError
) -> Sequence[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    last = max(wanted)
    for at, row in enumerate(read_rollouts(path, on_error, _Quiet())):
        rollout = wanted.get(at)
        if rollout is not None:
            response: str = row["response"]
            if row["problem_id"] != rollout.problem_id or len(response) != rollout.num_chars:
                break
            found.append((at, response))
        if at == last:
            return found
    raise DataError(os.fspath(path), None, "has changed since its rollouts were scored")
