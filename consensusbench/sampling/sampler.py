"""Whether a reply's answer is right, found out off the event loop.

A reply that was cut at the limit of tokens is not correct, whatever number it happens to break
off after: a rollout without an end is no derivation to take conclusions from.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from consensusbench.construction.selection import VerifyingJudge
from consensusbench.llm import (
    Budget,
    BudgetSpent,
    ChatModel,
    Journal,
    Message,
    ModelNoAccess,
    ModelRefused,
    ModelSettings,
    ModelUnavailable,
    Reply,
    Spent,
    ask_key,
    digest,
    spent_on,
    write_down,
)
from consensusbench.problems.sources import with_prompt
from consensusbench.sampling.plan import Attempt, ProblemPlan, Result, SampleSettings
from consensuspr.data import Problem, Row
from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.scoring import AnswerVerifier

CUT = "length"


class Checker:
    """Verdicts on replies, from the journal or from the answer verifier; a context manager.

    Args:
        records: where verdicts are kept.
        settings: say how an answer is found.
    """

    def __init__(self, records: Records, settings: SampleSettings) -> None:
        self._records = records
        self._settings = settings
        workers = max(1, os.cpu_count() or 1)
        self._verifier = AnswerVerifier(workers=workers)
        # Asks again what a busy machine left open: the verdict is on record for good.
        self._judge = VerifyingJudge(self._verifier)
        # Of its own: replies waiting for a slow answer must not hold up those on their way
        # to the journal.
        self._threads = ThreadPoolExecutor(2 * workers, "answer-check")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._verifier.close()
        self._threads.shutdown(cancel_futures=True)

    async def correct(self, question: Question, index: int, reply: Reply | None = None) -> Correct:
        """Return the verdict on a recorded reply; None: undecided, or no ground truth.

        Args:
            question: what was asked.
            index: the number of the attempt.
            reply: where it is at hand; read from the journal otherwise.

        Raises:
            VerifierUnavailable: the worker processes of the answer check cannot run.
        """
        problem = question.problem
        if problem.ground_truth is None:
            return None
        rule = self._settings.rule_of(problem)
        known = self._records.verdict(question, index, rule)
        if known != "unknown":
            return known
        found = self._records.reply(question, index) if reply is None else reply
        correct: Correct = False
        if isinstance(found, Reply) and found.finish_reason != CUT:
            [correct] = await asyncio.get_running_loop().run_in_executor(
                self._threads, self._judge.judge, [problem.ground_truth], [found.text], rule
            )
        await self._records.add_verdict(question, index, rule, correct)
        return correct


# MERGED Ctrl-C and SIGTERM: begin nothing new, let what is in flight finish for a while.
#
# The first signal stops the asking, a second one the waiting as well.  What is cut off is asked,
# and paid for, again in a later run; all else is in the journal.

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Ends a piece of work at a signal; a context manager around waiting for it.

    Args:
        work: cancelled at a second signal, or when the time is over.
        budget: stopped at the first.
        grace_s: how long requests in flight may go on.
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
        for number in SIGNALS:
            try:
                self._loop.add_signal_handler(number, self._arrived, number)
            except (RuntimeError, ValueError):
                return self  # not in the main thread, where signals are another's business
            self._installed.append(number)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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


# MERGED The journal of a sampling run: replies, refusals and verdicts by problem, model and number.
#
# A reply is on disk before its answer is looked at.  The verdict on it is a record of its own,
# under a key that names ground truth and rule: where one of them is corrected later, the reply is
# judged again and not paid for again.

KIND = "rollouts"
SUFFIX = ".journal"

# What the answer check said: true, false, or null where it could not decide.
Correct: TypeAlias = bool | None
_NUMBERED = re.compile(r"(?P<question>[0-9a-f]{32})-(?P<index>\d+)")


def journal_path(output: str | os.PathLike[str]) -> Path:
    """Return where the journal of an output lies: beside it."""
    return Path(f"{os.fspath(output)}{SUFFIX}")


@dataclass(frozen=True, slots=True)
class Question:
    """One problem put to one model.

    Attributes:
        model: who is asked.
        problem: what is asked.
        key: stands for all that decides how the replies are distributed, and for the problem.
    """

    model: ModelSettings
    problem: Problem
    messages: tuple[Message, ...] = field(init=False)
    key: str = field(init=False)
    seed: int | None = None

    def __post_init__(self) -> None:
        messages = (Message("user", with_prompt(self.problem.problem)),)
        key = ask_key(
            self.model, messages, seed=self.seed, sample=["problem", self.problem.problem_id]
        )
        object.__setattr__(self, "messages", messages)
        object.__setattr__(self, "key", key)

    def seed_of(self, index: int) -> int | None:
        """Return the seed of one attempt: equal seeds would give equal rollouts."""
        return None if self.seed is None else self.seed + index


class Records:
    """The journal as sampling sees it.

    Args:
        path: of the journal; None where there is none and nothing is to be written.
        settings: of the run.
        read_only: write nothing.

    Attributes:
        earlier: what earlier runs spent on the replies that are recorded.
        answered: names of the models that have a reply.

    Raises:
        InputError: see :class:`Journal`.
    """

    def __init__(
        self, path: Path | None, settings: SampleSettings, *, read_only: bool = False
    ) -> None:
        self.earlier = Spent()
        self.answered: set[str] = set()
        self._indices: dict[str, list[int]] = {}
        self._journal = (
            None if path is None else Journal(path, KIND, settings.identity(), read_only=read_only)
        )
        try:
            if self._journal is not None:
                for model in settings.models:
                    self._journal.check(_model_setting(model))
                for key, record in self._journal.items():
                    self._visit(key, record)
        except InputError:
            self.close()
            raise

    def close(self) -> None:
        """Let another process have the journal."""
        if self._journal is not None:
            self._journal.close()

    def indices(self, question: Question) -> list[int]:
        """Return the numbers of the attempts that are recorded, in ascending order."""
        return sorted(self._indices.get(question.key, ()))

    def reply(self, question: Question, index: int) -> Reply | str:
        """Return a recorded reply, or the reason of a refusal."""
        record = self._get(_attempt_key(question, index))
        refused: str | None = record.get("refused")
        return Reply.from_row(record["reply"]) if refused is None else refused

    def verdict(self, question: Question, index: int, rule: str) -> Correct | Literal["unknown"]:
        """Return the recorded verdict; ``"unknown"`` where there is none yet."""
        key = _verdict_key(question, index, rule)
        if self._journal is None or key not in self._journal:
            return "unknown"
        correct: Correct = self._get(key)["correct"]
        return correct

    async def add_reply(self, question: Question, index: int, reply: Reply) -> None:
        """Bring a reply to disk."""
        await self._add(question, index, {"reply": reply.to_row()})

    async def add_refusal(self, question: Question, index: int, reason: str) -> None:
        """Record that the server refuses this question for good."""
        await self._add(question, index, {"refused": reason})

    async def add_verdict(
        self, question: Question, index: int, rule: str, correct: Correct
    ) -> None:
        """Record a verdict; one that gets lost is made again."""
        if self._journal is not None:
            key = _verdict_key(question, index, rule)
            await write_down(self._journal, key, {"correct": correct}, durable=False)

    async def _add(self, question: Question, index: int, what: Row) -> None:
        if self._journal is None:
            raise ValueError("there is no journal to write to")
        # Only now: settings with which a model never answered bind nobody.
        self._journal.declare(_model_setting(question.model))
        if "reply" in what:
            self.answered.add(question.model.name)
        name = {"problem_id": question.problem.problem_id, "model": question.model.name}
        await write_down(self._journal, _attempt_key(question, index), {**name, **what})
        self._indices.setdefault(question.key, []).append(index)

    def _get(self, key: str) -> Mapping[str, Any]:
        record = None if self._journal is None else self._journal.get(key)
        if record is None:
            raise KeyError(key)
        return record

    def _visit(self, key: str, record: Row) -> None:
        """Take in a record of an earlier run."""
        match = _NUMBERED.fullmatch(key)
        if match is None:
            return  # a verdict
        self._indices.setdefault(match["question"], []).append(int(match["index"]))
        if "reply" in record:
            self.answered.add(record["model"])
            self.earlier.add(spent_on(Reply.from_row(record["reply"])))


def _model_setting(model: ModelSettings) -> Row:
    return {f"sampling of {model.name}": model.sampling()}


def _attempt_key(question: Question, index: int) -> str:
    return f"{question.key}-{index}"


def _verdict_key(question: Question, index: int, rule: str) -> str:
    asked = digest([question.problem.ground_truth, rule])[:16]
    return f"{question.key}-{index}/{asked}"


# MERGED Draws the rollouts: many problems at once, every reply on disk before it counts.
#
# Problems are taken from their iterator only as others are finished, so that memory holds those
# that are being worked on and the journal's keys.  What stops a run (a signal, the budget, a key
# that is refused) lets the requests in flight finish, since they are paid for, and begins none.

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
