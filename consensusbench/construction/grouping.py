"""The spool turned into work: correct rollouts verified, chosen and put together by problem.

Answers are verified some hundreds at a time, over as many problems as that takes, because the
few that need computer algebra then overlap; their texts are let go again, and only the chosen
ones are read a second time.  Memory is bounded by one such batch.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from consensusbench.construction.counts import RolloutCounts
from consensusbench.construction.problem_table import ProblemTable
from consensusbench.construction.selection import SelectionSettings, choose
from consensusbench.construction.spool import RolloutSpool, Stored
from consensusbench.construction.values import Excluded, Group, Item, Sampled, Task
from consensusbench.construction.verification import Judge
from consensusbench.extraction.types import CorrectRollout
from consensuspr.data import Problem, Row

BATCH_ROLLOUTS = 512
BATCH_BYTES = 16 << 20


@dataclass(slots=True)
class _Candidate:
    """A problem whose rollouts are being verified."""

    problem: Problem
    stored: list[Stored]
    correct: list[Stored] = field(default_factory=list)


class Grouping:
    """Makes the work of a build out of a finished spool.

    Args:
        table: the problems.
        spool: their rollouts.
        settings: which rollouts are looked at.
        judge: decides which are correct; None: their labels do.
        counts: filled on the way.
        provenance: put into each group.

    Attributes:
        verify_s: seconds that the judge took.
    """

    def __init__(
        self,
        table: ProblemTable,
        spool: RolloutSpool,
        settings: SelectionSettings,
        judge: Judge | None,
        counts: RolloutCounts,
        provenance: Row,
    ) -> None:
        self.verify_s = 0.0
        self._provenance = provenance
        self._table = table
        self._spool = spool
        self._settings = settings
        self._judge = judge
        self._counts = counts

    def items(self) -> Iterator[Item]:
        """Yield every problem in the order of the dataset, as work or with its reason."""
        waiting: list[_Candidate | Excluded] = []
        rollouts = num_bytes = 0
        for number in self._table.numbers():
            candidate = self._candidate(number)
            waiting.append(candidate)
            if isinstance(candidate, _Candidate):
                rollouts += len(candidate.stored)
                num_bytes += sum(one.num_bytes for one in candidate.stored)
            if rollouts >= BATCH_ROLLOUTS or num_bytes >= BATCH_BYTES:
                yield from self._judged(waiting)
                waiting, rollouts, num_bytes = [], 0, 0
        yield from self._judged(waiting)

    def _candidate(self, number: int) -> _Candidate | Excluded:
        problem = self._table.get(number)
        stored = self._spool.of_problem(number)
        counts = self._counts
        counts.repeated += sum(one.repeats for one in stored)
        if isinstance(problem, Problem) and problem.ground_truth is None:
            problem = Excluded(problem, "no_ground_truth", "its ground truth is not known")
        if isinstance(problem, Excluded):
            counts.unusable_problem += len(stored)
            return problem
        if not stored:
            return Excluded(problem, "no_rollouts", "there is no rollout of it")
        return _Candidate(problem, stored)

    def _judged(self, waiting: Sequence[_Candidate | Excluded]) -> Iterator[Item]:
        candidates = [one for one in waiting if isinstance(one, _Candidate)]
        if self._judge is None:
            for one in candidates:
                for stored in one.stored:
                    self._count(one, stored, stored.label)
        else:
            self._verify(candidates, self._judge)
        for item in waiting:
            yield self._item(item) if isinstance(item, _Candidate) else item

    def _verify(self, candidates: Sequence[_Candidate], judge: Judge) -> None:
        """Verify all rollouts of some problems, in portions that are bounded in bytes."""
        by_rule: dict[str, list[tuple[_Candidate, Stored]]] = {}
        for one in candidates:
            rule = self._settings.answer_rule or one.problem.answer_rule or "auto"
            by_rule.setdefault(rule, []).extend((one, stored) for stored in one.stored)
        for rule, pairs in by_rule.items():
            for portion in _portions(pairs):
                truths = [one.problem.ground_truth or "" for one, _ in portion]
                texts = [self._spool.read(stored.at).response for _, stored in portion]
                start = time.perf_counter()
                verdicts = judge.judge(truths, texts, rule)
                self.verify_s += time.perf_counter() - start
                for (one, stored), correct in zip(portion, verdicts, strict=True):
                    self._count(one, stored, correct)

    def _count(self, candidate: _Candidate, stored: Stored, correct: bool | None) -> None:
        if correct:
            candidate.correct.append(stored)
            self._counts.correct += 1
        elif correct is None:
            self._counts.undecided += 1
        else:
            self._counts.incorrect += 1

    def _item(self, candidate: _Candidate) -> Item:
        problem, correct = candidate.problem, len(candidate.correct)
        if correct < self._settings.min_rollouts:
            return Excluded(
                problem,
                "few_correct",
                f"{correct} of {len(candidate.stored)} distinct rollouts are correct, the least "
                f"is {self._settings.min_rollouts}",
            )
        chosen = choose(problem.problem_id, candidate.correct, self._settings)
        self._counts.used += len(chosen)
        return self._task(problem, chosen, correct)

    def _task(self, problem: Problem, chosen: Sequence[Stored], correct: int) -> Task:
        read = [self._spool.read(one.at) for one in chosen]
        names = _unique_names([rollout.name for rollout in read], chosen)
        sampled = tuple(
            Sampled(name, one.model, json.loads(rollout.sampling or "{}"))
            for name, one, rollout in zip(names, chosen, read, strict=True)
        )
        rollouts = tuple(
            CorrectRollout(one.rollout_id, one.model, rollout.response)
            for one, rollout in zip(sampled, read, strict=True)
        )
        inputs = inputs_digest(problem, chosen, names)
        return Task(Group(problem, sampled, correct, inputs, self._provenance), rollouts)


def inputs_digest(problem: Problem, chosen: Sequence[Stored], names: Sequence[str]) -> str:
    """Return a digest of all that an extractor is given."""
    given = [
        problem.problem_id,
        problem.problem,
        problem.ground_truth,
        [
            [name, one.model, one.digest.hex()]
            for name, one in zip(names, chosen, strict=True)
        ],
    ]  # fmt: skip
    return "sha256:" + hashlib.sha256(json.dumps(given).encode("ascii")).hexdigest()


def _portions(
    pairs: Sequence[tuple[_Candidate, Stored]],
) -> Iterator[list[tuple[_Candidate, Stored]]]:
    portion: list[tuple[_Candidate, Stored]] = []
    num_bytes = 0
    for pair in pairs:
        portion.append(pair)
        num_bytes += pair[1].num_bytes
        if len(portion) >= BATCH_ROLLOUTS or num_bytes >= BATCH_BYTES:
            yield portion
            portion, num_bytes = [], 0
    if portion:
        yield portion


def _unique_names(names: Sequence[str | None], chosen: Sequence[Stored]) -> list[str]:
    """Return a name for each rollout; one without, or with that of another, is named by text."""
    unique = []
    for name, one in zip(names, chosen, strict=True):
        mark = one.digest.hex()[:12]
        if not name:
            unique.append(mark)
        else:
            unique.append(name if names.count(name) == 1 else f"{name}#{mark}")
    return unique
