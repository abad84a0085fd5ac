"""Draws the rollouts: many problems at once, every reply on disk before it counts.

Problems are taken from their iterator only as others are finished, so that memory holds those
that are being worked on and the journal's keys.  What stops a run (a signal, the budget, a key
that is refused) lets the requests in flight finish, since they are paid for, and begins none.

The verdict on a reply is a record of its own in the journal, under a key that names ground truth
and rule: where one of them is corrected later, the reply is judged again and not paid for again.
"""

from __future__ import annotations

import asyncio
import os
import re
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self, TypeAlias

from consensusbench.llm import (
    Budget,
    BudgetSpent,
    ChatModel,
    Message,
    ModelNoAccess,
    ModelRefused,
    ModelSettings,
    ModelUnavailable,
    Reply,
    Spent,
    ask_key,
    spent_on,
)
from consensusbench.problems.texts import with_prompt
from consensusbench.sampling.plan import Draw, DrawResult, ProblemPlan, SampleSettings
from consensusbench.store import Journal, digest, write_down
from consensuspr.data import Problem, Row
from consensuspr.errors import ConsensusPRError
from consensuspr.scoring import AnswerVerifier

# A reply that was cut at the limit of tokens is not correct, whatever number it happens to break
# off after: a rollout without an end is no derivation to take conclusions from.
CUT = "length"
# A model that failed so often in a row, after all repetitions each time, is not asked again; one
# that refused so many requests and never answered is set up wrongly.
GONE_AFTER = 8

# What the answer check said: true, false, or null where it could not decide.
Correct: TypeAlias = bool | None
_NUMBERED = re.compile(r"(?P<question>[0-9a-f]{32})-(?P<index>\d+)")


@dataclass(frozen=True, slots=True)
class AskedProblem:
    """One problem put to one model.

    Its key stands for the problem and all that decides how the replies are distributed.
    """

    model: ModelSettings
    problem: Problem
    seed: int | None = None
    messages: tuple[Message, ...] = field(init=False)
    key: str = field(init=False)

    def __post_init__(self) -> None:
        messages = (Message("user", with_prompt(self.problem.problem)),)
        sample = ["problem", self.problem.problem_id]
        object.__setattr__(self, "messages", messages)
        object.__setattr__(
            self, "key", ask_key(self.model, messages, seed=self.seed, sample=sample)
        )

    def seed_of(self, index: int) -> int | None:
        """Return the seed of one draw: equal seeds would give equal rollouts."""
        return None if self.seed is None else self.seed + index


class SampleJournal:
    """The journal as sampling sees it: replies, refusals and verdicts.

    Attributes:
        earlier: what earlier runs spent on the replies that are recorded.
        answered: names of the models that have a reply.

    Raises:
        InputError: see :class:`Journal`.
    """

    def __init__(
        self,
        path: Path,
        models: Sequence[ModelSettings],
        settings: SampleSettings,
        *,
        read_only: bool = False,
    ) -> None:
        self.models = models
        self.settings = settings
        self.earlier = Spent()
        self.answered: set[str] = set()
        self._indices: dict[str, list[int]] = {}
        asked_with = {"prompt": digest(with_prompt("")), "seed": settings.seed}
        self._journal = Journal(path, "rollouts", asked_with, read_only=read_only)
        try:
            for model in models:
                self._journal.check(_model_setting(model))
            for key, record in self._journal.items():
                self._take_in(key, record)
        except BaseException:
            self._journal.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._journal.close()

    def asked(self, problem: Problem) -> list[AskedProblem]:
        """Return the problem put to each model, in their order."""
        return [AskedProblem(model, problem, self.settings.seed) for model in self.models]

    def indices(self, asked: AskedProblem) -> list[int]:
        """Return the numbers of the recorded draws that count, in ascending order.

        Where so many samples are asked for, an earlier run that was to draw more may have left
        later ones, and gaps before them.
        """
        most = self.settings.samples
        found = self._indices.get(asked.key, ())
        return sorted(index for index in found if most is None or index < most)

    def reply(self, asked: AskedProblem, index: int) -> Reply | str:
        """Return a recorded reply, or the reason of a refusal."""
        record = self._journal.get(_draw_key(asked, index))
        assert record is not None, "only recorded draws are asked for"
        refused: str | None = record.get("refused")
        return Reply.from_row(record["reply"]) if refused is None else refused

    def verdict(self, asked: AskedProblem, index: int) -> Correct | Literal["unknown"]:
        """Return the recorded verdict; ``"unknown"`` where there is none yet."""
        record = self._journal.get(self._verdict_key(asked, index))
        if record is None:
            return "unknown"
        correct: Correct = record["correct"]
        return correct

    async def add_reply(self, asked: AskedProblem, index: int, reply: Reply) -> None:
        """Bring a reply to disk."""
        self.answered.add(asked.model.name)
        await self._add(asked, index, {"reply": reply.to_row()})

    async def add_refusal(self, asked: AskedProblem, index: int, reason: str) -> None:
        """Record that the server refuses this problem for good."""
        await self._add(asked, index, {"refused": reason})

    async def add_verdict(self, asked: AskedProblem, index: int, correct: Correct) -> None:
        """Record a verdict; one that gets lost is made again."""
        key = self._verdict_key(asked, index)
        await write_down(self._journal, key, {"correct": correct}, durable=False)

    async def _add(self, asked: AskedProblem, index: int, what: Row) -> None:
        # Only now: settings with which a model never answered bind nobody.
        self._journal.declare(_model_setting(asked.model))
        name = {"problem_id": asked.problem.problem_id, "model": asked.model.name}
        await write_down(self._journal, _draw_key(asked, index), {**name, **what})
        self._indices.setdefault(asked.key, []).append(index)

    def _verdict_key(self, asked: AskedProblem, index: int) -> str:
        rule = self.settings.rule_of(asked.problem)
        judged = digest([asked.problem.ground_truth, rule])[:16]
        return f"{_draw_key(asked, index)}/{judged}"

    def _take_in(self, key: str, record: Row) -> None:
        match = _NUMBERED.fullmatch(key)
        if match is None:
            return  # a verdict
        self._indices.setdefault(match["question"], []).append(int(match["index"]))
        if "reply" in record:
            self.answered.add(record["model"])
            self.earlier.add(spent_on(Reply.from_row(record["reply"])))


def _model_setting(model: ModelSettings) -> Row:
    return {f"sampling of {model.name}": model.sampling()}


def _draw_key(asked: AskedProblem, index: int) -> str:
    return f"{asked.key}-{index}"


class AnswerChecker:
    """Verdicts on replies, from the journal or from the answer verifier; a context manager."""

    def __init__(self, journal: SampleJournal) -> None:
        self._journal = journal
        workers = max(1, os.cpu_count() or 1)
        self._verifier = AnswerVerifier(workers=workers)
        # Of its own: replies waiting for a slow answer must not hold up those on their way
        # to the journal.
        self._threads = ThreadPoolExecutor(2 * workers, "answer-check")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._verifier.close()
        self._threads.shutdown(cancel_futures=True)

    async def correct(self, asked: AskedProblem, index: int, reply: Reply) -> Correct:
        """Return the verdict on a recorded reply; None: undecided, or no ground truth.

        Raises:
            VerifierUnavailable: the worker processes of the answer check cannot run.
        """
        truth = asked.problem.ground_truth
        if truth is None:
            return None
        known = self._journal.verdict(asked, index)
        if known != "unknown":
            return known
        correct: Correct = False
        if reply.finish_reason != CUT:
            rule = self._journal.settings.rule_of(asked.problem)
            verdict = await asyncio.get_running_loop().run_in_executor(
                self._threads, self._verifier.verify, truth, reply.text, rule
            )
            correct = verdict.correct
        await self._journal.add_verdict(asked, index, correct)
        return correct


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


async def restored_plan(
    asked: Sequence[AskedProblem], journal: SampleJournal, checker: AnswerChecker | None = None
) -> ProblemPlan:
    """Return a problem's plan with the draws that the journal knows.

    Args:
        asked: one problem, put to each model.
        journal: of the run.
        checker: judges replies without a verdict; None: they count as correct, for an estimate.
    """
    settings = journal.settings
    turn = zlib.crc32(asked[0].problem.problem_id.encode("utf-8", "surrogatepass"))
    plan = ProblemPlan(len(asked), settings.attempts_each, settings.target, turn)
    for number, one in enumerate(asked):
        for index in journal.indices(one):
            found = journal.reply(one, index)
            if isinstance(found, str):
                plan.settle(Draw(number, index), DrawResult.REFUSED)
                continue
            if checker is None:
                correct = journal.verdict(one, index) in (True, "unknown")
            else:
                correct = await checker.correct(one, index, found) is True
            plan.settle(Draw(number, index), DrawResult.of(correct))
    return plan


@dataclass(slots=True)
class SampleRun:
    """How far a run has come.

    Attributes:
        finished: problems with all their rollouts, or all their draws made.
        unfinished: ids of problems that a later run has to come back to, with the reason.
        stopped_by: what ended the run before all problems were looked at.
        gone: models that were given up, with the reason.
    """

    finished: int = 0
    unfinished: dict[str, str] = field(default_factory=dict)
    stopped_by: ConsensusPRError | None = None
    gone: dict[str, str] = field(default_factory=dict)


class RolloutSampler:
    """One run over a dataset; the models are those of the journal, in their order."""

    def __init__(
        self,
        models: Sequence[ChatModel],
        budget: Budget,
        journal: SampleJournal,
        checker: AnswerChecker,
    ) -> None:
        self._models = models
        self._budget = budget
        self._journal = journal
        self._checker = checker
        self._failures = [0] * len(models)
        # By model, of those that are not recorded yet.
        self._refusals: dict[str, list[tuple[AskedProblem, int, str]]] = {}
        self.run = SampleRun()

    async def sample(self, problems: Iterable[Problem]) -> SampleRun:
        """Work through the problems; return how far it came and what stopped it, if anything."""
        # At least one request of each problem is in flight or waits for its turn.
        slots = asyncio.Semaphore(sum(model.settings.concurrency for model in self._models))
        async with asyncio.TaskGroup() as group:
            for problem in problems:
                await slots.acquire()
                if self._budget.stopped:
                    break
                task = group.create_task(self._problem(problem))
                task.add_done_callback(lambda _: slots.release())
        if not self._budget.stopped:
            for name, refused in list(self._refusals.items()):
                # Of a model that never answered it may be the settings that are refused, and a
                # later run asks again with others.
                if name in self._journal.answered:
                    await self._record_refusals(name)
                elif refused:
                    reason = f"{refused[-1][2]}; the model answered nothing else"
                    self._give_up(name, ModelNoAccess(reason))
        return self.run

    async def _problem(self, problem: Problem) -> None:
        """Draw what one problem needs."""
        if why_not_asked(problem, self._journal.settings) is not None:
            self.run.finished += 1
            return
        try:
            await self._draw_all(problem)
        except ConsensusPRError as error:
            self._stop(error)

    async def _draw_all(self, problem: Problem) -> None:
        asked = self._journal.asked(problem)
        plan = await restored_plan(asked, self._journal, self._checker)
        running: dict[asyncio.Task[DrawResult], Draw] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                for number, model in enumerate(self._models):
                    if model.settings.name in self.run.gone:
                        plan.leave_out(number)
                while not self._budget.stopped and (draw := plan.take()) is not None:
                    task = group.create_task(self._draw(asked[draw.model], draw))
                    running[task] = draw
                if not running:
                    break
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    plan.settle(running.pop(task), task.result())
        if plan.at_least == 0 and not plan.is_short:
            self.run.unfinished.pop(problem.problem_id, None)
            self.run.finished += 1
        elif not self._budget.stopped:
            reason = next(iter(self.run.gone.values()), "no reply")
            self.run.unfinished.setdefault(problem.problem_id, reason)

    async def _draw(self, asked: AskedProblem, draw: Draw) -> DrawResult:
        """Draw one rollout, bring it to disk and check its answer."""

        async def keep(reply: Reply) -> None:
            await self._journal.add_reply(asked, draw.index, reply)

        try:
            reply = await self._models[draw.model].ask(
                asked.messages, seed=asked.seed_of(draw.index), keep=keep
            )
            self._failures[draw.model] = 0
            await self._record_refusals(asked.model.name)
            return DrawResult.of(await self._checker.correct(asked, draw.index, reply))
        except ModelRefused as error:
            return await self._refused(asked, draw, error)
        except ModelUnavailable as error:
            self.run.unfinished.setdefault(asked.problem.problem_id, str(error))
            self._failures[draw.model] += 1
            if self._failures[draw.model] >= GONE_AFTER:
                self._give_up(asked.model.name, error)
        except ConsensusPRError as error:
            # Budget spent, stopped by the caller, no access, no disk: nothing more can succeed.
            # Not raised here: the other requests in flight are paid for and finish.
            self._stop(error)
        return DrawResult.LOST

    async def _refused(self, asked: AskedProblem, draw: Draw, error: ModelRefused) -> DrawResult:
        """Record a refusal, once the model has answered anything.

        Before that it may be the settings that are refused (a temperature, a limit of tokens), and
        these can be put right.
        """
        name = asked.model.name
        pending = self._refusals.setdefault(name, [])
        pending.append((asked, draw.index, str(error)))
        try:
            if name in self._journal.answered:
                await self._record_refusals(name)
            elif len(pending) >= GONE_AFTER:
                raise ModelNoAccess(f"{error}; so were all {len(pending)} first requests")
        except ConsensusPRError as fault:
            self._stop(fault)
        return DrawResult.REFUSED

    async def _record_refusals(self, name: str) -> None:
        for asked, index, reason in self._refusals.pop(name, ()):
            await self._journal.add_refusal(asked, index, reason)

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
