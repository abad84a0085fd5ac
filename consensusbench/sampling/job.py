"""What a run would ask and cost, without asking: bounds, not guesses.

The least is what it takes if every answer is correct; the most, if none is.  Requests that have
to be repeated (a busy server, a cut connection) come on top.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from consensusbench.llm import Budget, ChatModel, ModelSettings, Reply
from consensusbench.llm.types import most_tokens
from consensusbench.outputs import check_outputs, check_row_outputs
from consensusbench.sampling.plan import SampleSettings
from consensusbench.sampling.sampler import (
    CUT,
    Checker,
    Correct,
    Interruption,
    Question,
    Records,
    Run,
    Sampler,
    journal_path,
    questions_of,
    recorded_indices,
    restored_plan,
    why_not_asked,
)
from consensuspr.data import (
    OnError,
    Problem,
    ReadReport,
    Row,
    atomic_file,
    open_writer,
    read_problems,
)
from consensuspr.errors import InputError
from consensuspr.version import VERSION


@dataclass(slots=True)
class Estimate:
    """Bounds on a run.

    Attributes:
        problems: looked at.
        not_asked: of these, cannot be asked.
        recorded: replies that the journal has already.
        least_requests: if every answer is correct.
        most_requests: if none is.
        most_tokens: of prompts and replies; None where a model has no ``max_tokens``.
        most_cost: US dollars; None where a model has no ``max_tokens`` or no price.
        spent: US dollars that earlier runs paid.
    """

    problems: int = 0
    not_asked: int = 0
    recorded: int = 0
    least_requests: int = 0
    most_requests: int = 0
    most_tokens: int | None = 0
    most_cost: float | None = 0.0
    spent: float = 0.0

    def to_json(self) -> Row:
        """Return it ready for ``json.dumps``."""
        return asdict(self)


async def estimate(
    problems: Iterable[Problem], settings: SampleSettings, records: Records
) -> Estimate:
    """Return what is left to do; recorded replies without a verdict count as correct."""
    total = Estimate(spent=records.earlier.cost)
    for problem in problems:
        total.problems += 1
        if why_not_asked(problem, settings) is not None:
            total.not_asked += 1
            continue
        questions = questions_of(problem, settings)
        plan = await restored_plan(questions, settings, records)
        total.least_requests += plan.at_least
        total.most_requests += plan.at_most
        for number, question in enumerate(questions):
            total.recorded += len(records.indices(question))
            left = plan.left_of(number)
            if left:
                _add(total, question.model, most_tokens(question.messages), left)
    return total


def _add(total: Estimate, model: ModelSettings, prompt: int, requests: int) -> None:
    """Add the most that so many requests can take."""
    if model.max_tokens is None:
        total.most_tokens = total.most_cost = None
        return
    if total.most_tokens is not None:
        total.most_tokens += requests * (prompt + model.max_tokens)
    cost = model.cost(prompt, model.max_tokens)
    if cost is None or total.most_cost is None:
        total.most_cost = None
    else:
        total.most_cost += requests * cost


# MERGED The rollouts file, written from the journal: complete or not at all, in a fixed order.
#
# Problems stand in the order of the dataset, their rollouts by model in the order of the settings
# and then by number.  Beside the file lies what a dataset that is built from it has to record:
# settings, prompt, models, counts, and the problems that did not get enough.

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


# MERGED One ``sample`` command: look at the problems, draw, and write what was drawn.
#
# How a run ends
#     ``done``         every problem has what it can get; the output is written.
#     ``unfinished``   some problems wait for a model that did not answer; the output holds the rest.
#     ``stopped``      a signal, a limit or a fault ended it; no output, so that half a file is
#                      never taken for a whole one.  The journal holds all replies that came in,
#                      and ``finish`` writes the output from it without asking anybody.

TICK_S = 0.5


@dataclass(frozen=True, slots=True)
class Job:
    """What to sample, from what, to where, within which limits.

    Attributes:
        problems: the dataset.
        output: where the rollouts go.
        settings: how many of what kind.
        max_cost: US dollars, earlier runs on the same output included.
        max_requests: the same for requests.
        max_tokens: the same for tokens of prompts and replies.
        finish: ask nothing, write what the journal holds.
        grace_s: how long requests in flight may go on after a signal.
        on_error: what a bad row of the dataset does.
    """

    problems: Path
    output: Output
    settings: SampleSettings
    max_cost: float | None = None
    max_requests: int | None = None
    max_tokens: int | None = None
    finish: bool = False
    grace_s: float = 30.0
    on_error: OnError = "stop"

    def __post_init__(self) -> None:
        check_row_outputs((self.output.path,))
        outputs = (self.output.path, self.output.provenance_path, self.journal)
        check_outputs(outputs, [self.problems])
        unpriced = [model.name for model in self.settings.models if not model.is_priced]
        if self.max_cost is not None and unpriced:
            raise InputError(
                f"a limit on cost needs prices, and {unpriced[0]} has none: "
                "give price_in and price_out in a models file"
            )

    @property
    def journal(self) -> Path:
        """Where every reply is kept."""
        return journal_path(self.output.path)

    def read(self) -> Iterator[Problem]:
        """Yield the problems."""
        return read_problems(self.problems, self.on_error)


@dataclass(slots=True)
class Progress:
    """What a progress bar shows; the job changes it, whoever watches is told."""

    phase: str = "sampling"
    problems: int = 0
    total: int = 0
    requests: int = 0
    tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended.

    Attributes:
        run: what sampling came to; None where nothing was asked.
        report: of the output that was written; None where none was.
        signal: that stopped it, if any.
        total: problems of the dataset.
    """

    run: Run | None
    report: Report | None
    signal: signal.Signals | None
    total: int


def count_problems(job: Job) -> ReadReport:
    """Read the dataset once, so that a bad row stops the command before anything is paid."""
    report = ReadReport()
    for _ in read_problems(job.problems, job.on_error, report):
        pass
    return report


async def estimate_job(job: Job) -> Estimate:
    """Return what is left to do, and change nothing."""
    path = job.journal if job.journal.exists() else None
    records = Records(path, job.settings, read_only=True)
    try:
        return await estimate(job.read(), job.settings, records)
    finally:
        records.close()


async def run_job(job: Job, total: int, watch: Callable[[Progress], None]) -> Outcome:
    """Sample and write.

    Args:
        job: what to do.
        total: number of problems.
        watch: told every half second how it goes.

    Raises:
        ConsensusPRError: see :class:`Sampler`, :class:`Records` and :func:`write_rollouts`; what
            stops the asking is not raised but part of the outcome.
    """
    if job.finish and not job.journal.exists():
        raise InputError(f"{job.journal}: no such file, so that there is nothing to finish")
    records = Records(job.journal, job.settings)
    try:
        with Checker(records, job.settings) as checker:
            run, stopped = None, None
            if not job.finish:
                run, stopped = await _draw(job, total, records, checker, watch)
            report = None
            if run is None or (run.stopped_by is None and stopped is None):
                report = await _write(job, total, records, checker, watch)
            return Outcome(run, report, stopped, total)
    finally:
        records.close()


async def _draw(
    job: Job,
    total: int,
    records: Records,
    checker: Checker,
    watch: Callable[[Progress], None],
) -> tuple[Run, signal.Signals | None]:
    budget = Budget(job.max_cost, job.max_requests, job.max_tokens)
    budget.charge_earlier(records.earlier)
    async with AsyncExitStack() as stack:
        models = [
            await stack.enter_async_context(ChatModel(model, budget))
            for model in job.settings.models
        ]
        sampler = Sampler(job.settings, models, budget, records, checker)
        work = asyncio.ensure_future(sampler.sample(job.read()))
        with Interruption(work, budget, job.grace_s) as interruption:
            while not work.done():
                await asyncio.wait((work,), timeout=TICK_S)
                spent = budget.spent
                watch(
                    Progress(
                        "stopping" if budget.stopped else "sampling",
                        sampler.run.finished,
                        total,
                        spent.requests,
                        spent.tokens,
                        spent.cost,
                    )
                )
        if work.cancelled():
            return sampler.run, interruption.signal
        return work.result(), interruption.signal


async def _write(
    job: Job,
    total: int,
    records: Records,
    checker: Checker,
    watch: Callable[[Progress], None],
) -> Report:
    def advance_to(done: int) -> None:
        watch(Progress("writing", done, total))

    return await write_rollouts(job.read(), job.output, job.settings, records, checker, advance_to)
