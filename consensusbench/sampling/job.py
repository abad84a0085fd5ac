"""One ``sample`` command: bound what it may ask, draw, and write what was drawn.

How a run ends
    ``done``         every problem has what it can get; the output is written.
    ``unfinished``   some problems wait for a model that did not answer; the output has the rest.
    ``stopped``      a signal, a limit or a fault ended it; no output, so that half a file is
                     never taken for a whole one.  The journal holds all replies that came in,
                     and ``finish`` writes the output from it without asking anybody.

The output is complete or not at all, in a fixed order: problems as in the dataset, their rollouts
by model as these were named, and then by number.  Beside it lies what a dataset that is built
from it has to record: settings, prompt, models, counts, and the problems that did not get enough.
"""

from __future__ import annotations

import asyncio
import json
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from consensusbench.llm import Budget, ChatModel, ModelSettings, Reply
from consensusbench.llm.limits import most_tokens
from consensusbench.outputs import check_outputs, check_row_outputs
from consensusbench.problems.texts import with_prompt
from consensusbench.sampling.plan import SampleSettings
from consensusbench.sampling.sampler import (
    CUT,
    AnswerChecker,
    AskedProblem,
    Correct,
    RolloutSampler,
    SampleJournal,
    SampleRun,
    restored_plan,
    why_not_asked,
)
from consensuspr.data import OnError, Problem, Row, atomic_file, open_writer, read_problems
from consensuspr.errors import InputError
from consensuspr.version import VERSION

TICK_S = 0.5
TYPES = {"num_tokens": "int64", "prompt_tokens": "int64", "correct": "bool", "cost": "double"}


@dataclass(frozen=True, slots=True)
class SampleJob:
    """What to sample, from whom, to where; ``finish`` writes what the journal holds."""

    problems: Path
    output: Path
    models: tuple[ModelSettings, ...]
    settings: SampleSettings
    finish: bool = False
    on_error: OnError = "stop"

    def __post_init__(self) -> None:
        check_row_outputs((self.output,))
        check_outputs((self.output, self.provenance_path, self.journal_path), [self.problems])
        settings = self.settings
        unpriced = [model.name for model in self.models if not model.is_priced]
        if settings.max_cost is not None and unpriced:
            raise InputError(
                f"a limit on cost needs prices, and {unpriced[0]} has none: "
                "give price_in and price_out in a models file"
            )
        most = settings.max_attempts * len(self.models)
        if settings.samples is None and most < settings.per_problem:
            raise InputError(
                f"max_attempts={settings.max_attempts} of {len(self.models)} models cannot give "
                f"per_problem={settings.per_problem} rollouts"
            )

    @property
    def journal_path(self) -> Path:
        """Where every reply is kept."""
        return Path(f"{self.output}.journal")

    @property
    def provenance_path(self) -> Path:
        """Where settings and counts are written to."""
        return Path(f"{self.output}.provenance.json")

    def open_journal(self, path: Path, *, read_only: bool = False) -> SampleJournal:
        """Open a journal of this job."""
        return SampleJournal(path, self.models, self.settings, read_only=read_only)

    def read(self) -> Iterator[Problem]:
        """Yield the problems."""
        return read_problems(self.problems, self.on_error)

    def provenance(self) -> Row:
        """Return what a dataset that is built from the rollouts records about them."""
        settings = self.settings
        kind = ("samples",) if settings.samples else ("per_problem", "minimum", "max_attempts")
        return {
            "made_by": f"consensusbench sample {VERSION}",
            "mode": "samples" if settings.samples else "correct",
            **{name: getattr(settings, name) for name in kind},
            "answer_rule": None if settings.answer_rule is None else settings.answer_rule.value,
            "seed": settings.seed,
            "prompt": with_prompt("{problem}"),
            "models": [model.provenance() for model in self.models],
            "only_correct": settings.only_correct,
            "with_reasoning": settings.with_reasoning,
        }


@dataclass(slots=True)
class SampleEstimate:
    """What a run would ask and cost: bounds, not guesses.

    Requests that have to be repeated (a busy server, a cut connection) come on top.

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

    def add(self, model: ModelSettings, prompt_tokens: int, requests: int) -> None:
        """Add the most that so many requests can take."""
        if model.max_tokens is None:
            self.most_tokens = self.most_cost = None
            return
        if self.most_tokens is not None:
            self.most_tokens += requests * (prompt_tokens + model.max_tokens)
        cost = model.cost(prompt_tokens, model.max_tokens)
        if cost is None or self.most_cost is None:
            self.most_cost = None
        else:
            self.most_cost += requests * cost


async def estimate_job(job: SampleJob) -> SampleEstimate:
    """Return what is left to do, and change nothing."""
    with ExitStack() as stack:
        path, exists = job.journal_path, job.journal_path.exists()
        if not exists:
            path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "journal"
        journal = stack.enter_context(job.open_journal(path, read_only=exists))
        total = SampleEstimate(spent=journal.earlier.cost)
        for problem in job.read():
            total.problems += 1
            if why_not_asked(problem, job.settings) is not None:
                total.not_asked += 1
                continue
            asked = journal.asked(problem)
            plan = await restored_plan(asked, journal)
            total.least_requests += plan.at_least
            total.most_requests += plan.at_most
            for number, one in enumerate(asked):
                total.recorded += len(journal.indices(one))
                if left := plan.left_of(number):
                    total.add(one.model, most_tokens(one.messages), left)
    return total


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
class SampleReport:
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

    def to_json(self) -> Row:
        """Return everything counted, ready for ``json.dumps``."""
        return {
            "rows": self.written,
            "problems": dict(self.problems),
            "models": {name: asdict(count) for name, count in self.models.items()},
            "cost": sum(count.cost for count in self.models.values()),
            "few": self.few,
            "not_asked": self.not_asked,
            "refused": [
                {"problem_id": problem, "model": model, "reason": reason}
                for problem, model, reason in self.refused
            ],
        }


async def write_rollouts(
    job: SampleJob,
    journal: SampleJournal,
    checker: AnswerChecker,
    advance_to: Callable[[int], None],
) -> SampleReport:
    """Write the rollouts that the journal holds, and the file beside them."""
    report = SampleReport(models={model.name: ModelCount() for model in job.models})
    with open_writer(job.output, TYPES) as rows:
        for number, problem in enumerate(job.read(), 1):
            for row in await _rows_of(problem, job.settings, journal, checker, report):
                rows.write(row)
                report.written += 1
            advance_to(number)
    with atomic_file(job.provenance_path) as stream:
        content = job.provenance() | {"counts": report.to_json()}
        stream.write(json.dumps(content, indent=1, ensure_ascii=False).encode("utf-8"))
    return report


async def _rows_of(
    problem: Problem,
    settings: SampleSettings,
    journal: SampleJournal,
    checker: AnswerChecker,
    report: SampleReport,
) -> list[Row]:
    """Return the rows of one problem, and count what became of it."""
    reason = why_not_asked(problem, settings)
    if reason is not None:
        report.problems["not asked"] += 1
        report.not_asked[problem.problem_id] = reason
        return []
    rows: list[Row] = []
    rollouts = correct_ones = 0
    for asked in journal.asked(problem):
        count = report.models[asked.model.name]
        for index in journal.indices(asked):
            found = journal.reply(asked, index)
            if isinstance(found, str):
                count.refused += 1
                report.refused.append((problem.problem_id, asked.model.name, found))
                continue
            correct = await checker.correct(asked, index, found)
            count.add(found, correct)
            rollouts += 1
            correct_ones += correct is True
            if correct or not settings.only_correct:
                rows.append(_row(asked, index, found, correct, settings.with_reasoning))
    if settings.samples is not None:
        has, wanted = rollouts, settings.samples * len(journal.models)
        enough = wanted
    else:
        has, wanted, enough = correct_ones, settings.per_problem, settings.minimum
    fate = "complete" if has >= wanted else "enough" if has >= enough else "few"
    report.problems[fate] += 1
    if fate == "few":
        report.few[problem.problem_id] = has
    return rows


def _row(
    asked: AskedProblem, index: int, reply: Reply, correct: Correct, with_reasoning: bool
) -> Row:
    problem, model = asked.problem, asked.model
    thought = reply.reasoning
    marked = thought is not None and with_reasoning
    row: Row = {
        "problem_id": problem.problem_id,
        "rollout_id": f"{problem.problem_id}/{model.name}/{index}",
        "data_source": problem.data_source,
        "problem": problem.problem,
        "ground_truth": problem.ground_truth,
        "model": model.name,
        "response": f"<think>\n{thought}\n</think>\n\n{reply.text}" if marked else reply.text,
        "num_tokens": reply.completion_tokens,
        "correct": correct,
        "finish_reason": reply.finish_reason,
        "sampling": {
            "temperature": model.temperature,
            "top_p": model.top_p,
            "max_tokens": model.max_tokens,
            "seed": asked.seed_of(index),
        },
        "prompt_tokens": reply.prompt_tokens,
        "cost": reply.cost,
    }
    if thought is not None and not with_reasoning:
        row["reasoning"] = thought
    return row


class Interruption:
    """Ctrl-C and SIGTERM: begin nothing new, let what is in flight finish for a while.

    The first signal stops the asking, a second one the waiting as well.  What is cut off is asked,
    and paid for, again in a later run; all else is in the journal.
    """

    def __init__(self, work: asyncio.Future[Any], budget: Budget, grace_s: float) -> None:
        self._work = work
        self._budget = budget
        self._grace_s = grace_s
        self._timer: asyncio.TimerHandle | None = None
        self.signal: signal.Signals | None = None

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._installed = []
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self._loop.add_signal_handler(number, self._arrived, number)
            except (RuntimeError, ValueError):
                return self  # not in the main thread, where signals are another's business
            self._installed.append(number)
        return self

    def __exit__(self, *exception: object) -> None:
        for number in self._installed:
            self._loop.remove_signal_handler(number)
        if self._timer is not None:
            self._timer.cancel()

    def _arrived(self, number: signal.Signals) -> None:
        if self.signal is not None:
            self._work.cancel()
            return
        self.signal = number
        self._budget.stop("interrupted")
        self._timer = self._loop.call_later(self._grace_s, self._work.cancel)


@dataclass(slots=True)
class SampleProgress:
    """What a progress bar shows."""

    phase: str
    problems: int
    requests: int = 0
    tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class SampleOutcome:
    """How a job ended."""

    run: SampleRun | None  # None where nothing was asked
    report: SampleReport | None  # None where no output was written
    signal: signal.Signals | None  # that stopped it


async def run_job(job: SampleJob, watch: Callable[[SampleProgress], None]) -> SampleOutcome:
    """Sample and write; ``watch`` is told every half second how it goes.

    Raises:
        InputError: see :class:`SampleJournal`, or the output cannot be written.
        ConsensusPRError: the journal cannot be written, or an answer cannot be checked; what
            stops the asking is not raised but part of the outcome.
    """
    if job.finish and not job.journal_path.exists():
        raise InputError(f"{job.journal_path}: no such file, so that there is nothing to finish")
    with job.open_journal(job.journal_path) as journal, AnswerChecker(journal) as checker:
        run, stopped = None, None
        if not job.finish:
            run, stopped = await _draw(job, journal, checker, watch)
        report = None
        if run is None or (run.stopped_by is None and stopped is None):
            report = await write_rollouts(
                job, journal, checker, lambda done: watch(SampleProgress("writing", done))
            )
        return SampleOutcome(run, report, stopped)


async def _draw(
    job: SampleJob,
    journal: SampleJournal,
    checker: AnswerChecker,
    watch: Callable[[SampleProgress], None],
) -> tuple[SampleRun, signal.Signals | None]:
    settings = job.settings
    budget = Budget(settings.max_cost, settings.max_requests, settings.max_tokens_total)
    budget.charge_earlier(journal.earlier)
    async with AsyncExitStack() as stack:
        models = [await stack.enter_async_context(ChatModel(model, budget)) for model in job.models]
        sampler = RolloutSampler(models, budget, journal, checker)
        work = asyncio.ensure_future(sampler.sample(job.read()))
        with Interruption(work, budget, settings.grace) as interruption:
            while not work.done():
                await asyncio.wait((work,), timeout=TICK_S)
                spent = budget.spent
                phase = "stopping" if budget.stopped else "sampling"
                finished = sampler.run.finished
                watch(SampleProgress(phase, finished, spent.requests, spent.tokens, spent.cost))
        return sampler.run if work.cancelled() else work.result(), interruption.signal
