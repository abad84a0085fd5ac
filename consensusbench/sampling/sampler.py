"""Draws the rollouts: many problems at once, every reply on disk before it counts.

Problems are taken from their iterator only as others are finished, so that memory holds those
that are being worked on and the journal's keys.  What stops a run (a signal, the budget, a key
that is refused) lets the requests in flight finish, since they are paid for, and begins none.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from consensusbench.models import (
    Budget,
    BudgetSpent,
    ChatModel,
    ModelNoAccess,
    ModelRefused,
    ModelUnavailable,
    Reply,
)
from consensusbench.sampling.checking import Checker
from consensusbench.sampling.plan import Attempt, ProblemPlan, Result
from consensusbench.sampling.records import Question, Records
from consensusbench.sampling.settings import SampleSettings
from consensuspr.data import Problem
from consensuspr.errors import ConsensusPRError

# A model that failed so often in a row, after all repetitions each time, is not asked again; one
# that refused so many requests and never answered is set up wrongly.
GONE_AFTER = 8


@dataclass(slots=True)
class Run:
    """How far a run has come.

    Attributes:
        finished: problems with all their rollouts, or all their attempts made.
        unfinished: ids of problems that a later run has to come back to, with the reason.
        stopped_by: what ended the run before all problems were looked at.
        gone: models that were given up, with the reason.
    """

    finished: int = 0
    unfinished: dict[str, str] = field(default_factory=dict)
    stopped_by: ConsensusPRError | None = None
    gone: dict[str, str] = field(default_factory=dict)


class Sampler:
    """One run over a dataset.

    Args:
        settings: what is wanted.
        models: one for each of the settings' models, in their order.
        budget: that of the models.
        records: the journal.
        checker: the answer check.
    """

    def __init__(
        self,
        settings: SampleSettings,
        models: Sequence[ChatModel],
        budget: Budget,
        records: Records,
        checker: Checker,
    ) -> None:
        self._settings = settings
        self._models = models
        self._budget = budget
        self._records = records
        self._checker = checker
        self._failures = [0] * len(models)
        # By model, of those that are not recorded yet.
        self._refusals: dict[str, list[tuple[Question, int, str]]] = {}
        self.run = Run()

    async def sample(self, problems: Iterable[Problem]) -> Run:
        """Work through the problems; return how far it came and what stopped it, if anything."""
        # At least one request of each problem is in flight or waits for its turn.
        at_once = sum(model.settings.concurrency for model in self._models)
        async with asyncio.TaskGroup() as group:
            slots = asyncio.Semaphore(at_once)
            for problem in problems:
                await slots.acquire()
                if self._budget.stopped:
                    break
                task = group.create_task(self._problem(problem))
                task.add_done_callback(lambda _: slots.release())
        if not self._budget.stopped:
            for name in list(self._refusals):
                await self._settle_refusals(name)
        return self.run

    async def _settle_refusals(self, name: str) -> None:
        """Record what a model refused; one that never answered is given up instead.

        Then it may be the settings that are refused, and a later run asks again with others.
        """
        if name in self._records.answered:
            await self._record_refusals(name)
        elif pending := self._refusals[name]:
            _, _, reason = pending[-1]
            self._give_up(name, ModelNoAccess(f"{reason}; the model answered nothing else"))

    async def _problem(self, problem: Problem) -> None:
        """Draw what one problem needs."""
        if why_not_asked(problem, self._settings) is not None:
            self.run.finished += 1
            return
        try:
            await self._draw(problem)
        except ConsensusPRError as error:
            self._stop(error)

    async def _draw(self, problem: Problem) -> None:
        questions = questions_of(problem, self._settings)
        plan = await restored_plan(questions, self._settings, self._records, self._checker)
        running: dict[asyncio.Task[Result], Attempt] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                self._leave_out_gone(plan)
                while not self._budget.stopped and (attempt := plan.take()) is not None:
                    task = group.create_task(self._attempt(questions[attempt.model], attempt))
                    running[task] = attempt
                if not running:
                    break
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    plan.settle(running.pop(task), task.result())
        self._conclude(problem, plan)

    async def _attempt(self, question: Question, attempt: Attempt) -> Result:
        """Draw one rollout, bring it to disk and check its answer."""
        model = self._models[attempt.model]

        async def keep(reply: Reply) -> None:
            await self._records.add_reply(question, attempt.index, reply)

        try:
            seed = question.seed_of(attempt.index)
            reply = await model.ask(question.messages, seed=seed, keep=keep)
            self._failures[attempt.model] = 0
            await self._record_refusals(question.model.name)
            correct = await self._checker.correct(question, attempt.index, reply)
            return Result.CORRECT if correct else Result.WRONG
        except ModelRefused as error:
            return await self._refused(question, attempt, error)
        except ModelUnavailable as error:
            self._lost(attempt.model, question, error)
            return Result.LOST
        except ConsensusPRError as error:
            # Budget spent, stopped by the caller, no access, no disk: nothing more can succeed.
            # Not raised here: the other requests in flight are paid for and finish.
            self._stop(error)
            return Result.LOST

    async def _refused(self, question: Question, attempt: Attempt, error: ModelRefused) -> Result:
        """Record a refusal, once the model has answered anything.

        Before that it may be the settings that are refused (a temperature, a limit of tokens), and
        these can be put right.
        """
        name = question.model.name
        pending = self._refusals.setdefault(name, [])
        pending.append((question, attempt.index, str(error)))
        try:
            if name in self._records.answered:
                await self._record_refusals(name)
            elif len(pending) >= GONE_AFTER:
                raise ModelNoAccess(f"{error}; so were all {len(pending)} first requests")
        except ConsensusPRError as fault:
            self._stop(fault)
        return Result.REFUSED

    async def _record_refusals(self, name: str) -> None:
        for question, index, reason in self._refusals.pop(name, ()):
            await self._records.add_refusal(question, index, reason)

    def _lost(self, model: int, question: Question, error: ModelUnavailable) -> None:
        self.run.unfinished.setdefault(question.problem.problem_id, str(error))
        self._failures[model] += 1
        if self._failures[model] >= GONE_AFTER:
            self._give_up(question.model.name, error)

    def _give_up(self, name: str, error: ConsensusPRError) -> None:
        self.run.gone.setdefault(name, str(error))
        if len(self.run.gone) == len(self._models):
            self._stop(error)

    def _stop(self, error: ConsensusPRError) -> None:
        """End the run; the first reason stands, and is not that it was stopped."""
        if not self._budget.stopped:
            self.run.stopped_by = error
            self._budget.stop(str(error))
        elif self.run.stopped_by is None and not isinstance(error, BudgetSpent):
            self.run.stopped_by = error

    def _leave_out_gone(self, plan: ProblemPlan) -> None:
        for number, model in enumerate(self._settings.models):
            if model.name in self.run.gone:
                plan.leave_out(number)

    def _conclude(self, problem: Problem, plan: ProblemPlan) -> None:
        if plan.at_least == 0 and not plan.is_short:
            self.run.unfinished.pop(problem.problem_id, None)
            self.run.finished += 1
        elif not self._budget.stopped:
            self.run.unfinished.setdefault(problem.problem_id, self._first_gone())

    def _first_gone(self) -> str:
        return next(iter(self.run.gone.values()), "no reply")


def why_not_asked(problem: Problem, settings: SampleSettings) -> str | None:
    """Return why a problem cannot be sampled; None where it can."""
    if not problem.problem.strip():
        return "no text"
    try:
        problem.problem.encode()
    except UnicodeEncodeError:
        return "a text with characters that no request can carry"
    if settings.samples is None and problem.ground_truth is None:
        return "no ground truth"  # to filter by
    return None


def questions_of(problem: Problem, settings: SampleSettings) -> list[Question]:
    """Return one question a model, in the order of the settings' models."""
    return [Question(model, problem, seed=settings.seed) for model in settings.models]


def recorded_indices(
    question: Question, settings: SampleSettings, records: Records
) -> Iterator[int]:
    """Yield the numbers of the recorded attempts that count, in ascending order.

    Where so many samples are asked for, an earlier run that was to draw more may have left later
    ones, and gaps before them.
    """
    for index in records.indices(question):
        if settings.samples is None or index < settings.samples:
            yield index


async def restored_plan(
    questions: Sequence[Question],
    settings: SampleSettings,
    records: Records,
    checker: Checker | None = None,
) -> ProblemPlan:
    """Return a problem's plan with the attempts that the journal knows.

    Args:
        questions: of one problem, one a model.
        settings: of the run.
        records: the journal.
        checker: judges replies without a verdict; None: they count as correct, for an estimate.
    """
    turn = zlib.crc32(questions[0].problem.problem_id.encode("utf-8", "surrogatepass"))
    plan = ProblemPlan(len(questions), settings.attempts_each, settings.target, turn)
    for number, question in enumerate(questions):
        for index in recorded_indices(question, settings, records):
            result = await _recorded(question, index, settings, records, checker)
            plan.settle(Attempt(number, index), result)
    return plan


async def _recorded(
    question: Question,
    index: int,
    settings: SampleSettings,
    records: Records,
    checker: Checker | None,
) -> Result:
    found = records.reply(question, index)
    if isinstance(found, str):
        return Result.REFUSED
    correct: object
    if checker is None:
        correct = records.verdict(question, index, settings.rule_of(question.problem))
    else:
        correct = await checker.correct(question, index, found)
    return Result.CORRECT if correct else Result.WRONG
