"""The rollouts file, written from the journal: complete or not at all, in a fixed order.

Problems stand in the order of the dataset, their rollouts by model in the order of the settings
and then by number.  Beside the file lies what a dataset that is built from it has to record:
settings, prompt, models, counts, and the problems that did not get enough.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from consensusbench.models import Reply
from consensusbench.sampling.checking import CUT, Checker
from consensusbench.sampling.records import Correct, Question, Records
from consensusbench.sampling.sampler import questions_of, recorded_indices, why_not_asked
from consensusbench.sampling.settings import SampleSettings
from consensuspr.data import Problem, Row, atomic_file, open_writer
from consensuspr.version import VERSION

TYPES = {
    "num_tokens": "int64",
    "prompt_tokens": "int64",
    "correct": "bool",
    "cost": "double",
}


@dataclass(slots=True)
class ModelCount:
    """What one model contributed.  Tokens and cost are those that are known."""

    rollouts: int = 0
    correct: int = 0
    undecided: int = 0
    cut: int = 0
    refused: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0

    def add(self, reply: Reply, correct: Correct) -> None:
        """Count one rollout."""
        self.rollouts += 1
        self.correct += correct is True
        self.undecided += correct is None
        self.cut += reply.finish_reason == CUT
        self.requests += reply.attempts
        self.prompt_tokens += reply.prompt_tokens or 0
        self.completion_tokens += reply.completion_tokens or 0
        self.cost += reply.cost or 0.0


@dataclass(slots=True)
class Report:
    """What a run came to, earlier runs on the same journal included.

    Attributes:
        written: rows of the file.
        problems: by what became of them: ``complete``, ``enough`` (at least the minimum),
            ``few``, ``not asked``.
        models: by name.
        few: ids of problems below the minimum, or with fewer samples than asked for, and how
            many they have.
        not_asked: ids of problems that cannot be asked, with the reason.
        refused: problem, model and reason of each refusal.
    """

    written: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    models: dict[str, ModelCount] = field(default_factory=dict)
    few: dict[str, int] = field(default_factory=dict)
    not_asked: dict[str, str] = field(default_factory=dict)
    refused: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def cost(self) -> float:
        """US dollars, of models with prices."""
        return sum(count.cost for count in self.models.values())

    def to_json(self) -> Row:
        """Return everything counted, ready for ``json.dumps``."""
        return {
            "rows": self.written,
            "problems": dict(self.problems),
            "models": {name: asdict(count) for name, count in self.models.items()},
            "cost": self.cost,
            "few": self.few,
            "not_asked": self.not_asked,
            "refused": [
                {"problem_id": problem, "model": model, "reason": reason}
                for problem, model, reason in self.refused
            ],
        }


@dataclass(frozen=True, slots=True)
class Output:
    """Where the rollouts go, and which.

    Attributes:
        path: JSONL, JSONL.gz or Parquet by its suffix.
        only_correct: leave out rollouts that are wrong or undecided.
        with_reasoning: put what a model thought before its answer, in ``<think>`` marks.
    """

    path: Path
    only_correct: bool = False
    with_reasoning: bool = False

    @property
    def provenance_path(self) -> Path:
        """Where settings and counts are written to."""
        return Path(f"{self.path}.provenance.json")


async def write_rollouts(
    problems: Iterable[Problem],
    output: Output,
    settings: SampleSettings,
    records: Records,
    checker: Checker,
    advance_to: Callable[[int], None],
) -> Report:
    """Write the rollouts that the journal holds, and the file beside them.

    Args:
        problems: the dataset's.
        output: where and which.
        settings: of the run.
        records: the journal.
        checker: judges replies without a verdict.
        advance_to: told after each problem how many are done.

    Raises:
        InputError: a file cannot be written.
        ConsensusPRError: an answer cannot be checked.
    """
    report = Report(models={model.name: ModelCount() for model in settings.models})
    writer = _Writer(output, settings, records, checker, report)
    with open_writer(output.path, TYPES) as rows:
        for number, problem in enumerate(problems, 1):
            for row in await writer.rows_of(problem):
                rows.write(row)
                report.written += 1
            advance_to(number)
    with atomic_file(output.provenance_path) as stream:
        content = provenance(settings, output) | {"counts": report.to_json()}
        stream.write(json.dumps(content, indent=1, ensure_ascii=False).encode("utf-8"))
    return report


def provenance(settings: SampleSettings, output: Output) -> Row:
    """Return what a dataset that is built from the rollouts records about them."""
    return {
        "made_by": f"consensusbench sample {VERSION}",
        **settings.provenance(),
        "only_correct": output.only_correct,
        "with_reasoning": output.with_reasoning,
    }


class _Writer:
    """Makes the rows of one problem after another and counts them."""

    def __init__(
        self,
        output: Output,
        settings: SampleSettings,
        records: Records,
        checker: Checker,
        report: Report,
    ) -> None:
        self._output = output
        self._settings = settings
        self._records = records
        self._checker = checker
        self._report = report

    async def rows_of(self, problem: Problem) -> list[Row]:
        reason = why_not_asked(problem, self._settings)
        if reason is not None:
            self._report.problems["not asked"] += 1
            self._report.not_asked[problem.problem_id] = reason
            return []
        rows: list[Row] = []
        rollouts = correct_ones = 0
        for question in questions_of(problem, self._settings):
            for index in recorded_indices(question, self._settings, self._records):
                found = self._records.reply(question, index)
                name = question.model.name
                if isinstance(found, str):
                    self._report.models[name].refused += 1
                    self._report.refused.append((problem.problem_id, name, found))
                    continue
                correct = await self._checker.correct(question, index, found)
                self._report.models[name].add(found, correct)
                rollouts += 1
                correct_ones += correct is True
                if correct or not self._output.only_correct:
                    rows.append(self._row(question, index, found, correct))
        self._classify(problem, rollouts, correct_ones)
        return rows

    def _classify(self, problem: Problem, rollouts: int, correct: int) -> None:
        settings = self._settings
        if settings.samples is not None:
            has, wanted = rollouts, settings.samples * len(settings.models)
            enough = wanted
        else:
            has, wanted, enough = correct, settings.per_problem, settings.minimum
        if has >= wanted:
            self._report.problems["complete"] += 1
        elif has >= enough:
            self._report.problems["enough"] += 1
        else:
            self._report.problems["few"] += 1
            self._report.few[problem.problem_id] = has

    def _row(self, question: Question, index: int, reply: Reply, correct: Correct) -> Row:
        problem, model = question.problem, question.model
        response, reasoning = reply.text, reply.reasoning
        if reasoning is not None and self._output.with_reasoning:
            response = f"<think>\n{reasoning}\n</think>\n\n{response}"
        row: Row = {
            "problem_id": problem.problem_id,
            "rollout_id": f"{problem.problem_id}/{model.name}/{index}",
            "data_source": problem.data_source,
            "problem": problem.problem,
            "ground_truth": problem.ground_truth,
            "model": model.name,
            "response": response,
            "num_tokens": reply.completion_tokens,
            "correct": correct,
            "finish_reason": reply.finish_reason,
            "sampling": {
                "temperature": model.temperature,
                "top_p": model.top_p,
                "max_tokens": model.max_tokens,
                "seed": question.seed_of(index),
            },
            "prompt_tokens": reply.prompt_tokens,
            "cost": reply.cost,
        }
        if reasoning is not None and not self._output.with_reasoning:
            row["reasoning"] = reasoning
        return row
