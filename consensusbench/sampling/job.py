"""One ``sample`` command: draw rollouts within a budget, keep every reply, write the output.

Every reply is in ``OUTPUT.journal`` before its answer is checked.  A signal, a spent budget or a
rejected key stops a run: requests in flight finish, and no other begins.  The next run, or
``finish``, goes on from the journal.  The output is written at the end from the journal, complete
or not at all, in a fixed order: problems as in the dataset, then models, then the number of the
rollout.  The file beside it is for the provenance of a dataset that is built from it.
"""

from __future__ import annotations

import asyncio
import json
import math
import signal
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeAlias

from consensusbench import check_outputs, verify_patiently
from consensusbench.llm import Budget, ChatModel, Message, ModelSettings, Reply, ask_key
from consensusbench.problems.texts import with_prompt
from consensusbench.sampling.plan import Draw, DrawResult, ProblemPlan, SampleSettings
from consensusbench.store import Journal, digest
from consensuspr.data import OnError, Problem, Row, atomic_file, open_writer, read_problems
from consensuspr.errors import (
    BudgetSpent,
    ConsensusPRError,
    InputError,
    ModelRefused,
    ModelUnavailable,
)
from consensuspr.scoring import AnswerVerifier
from consensuspr.version import VERSION

TYPES = {"num_tokens": "int64", "prompt_tokens": "int64", "correct": "bool", "cost": "double"}
# A reply that was cut at the limit of tokens is not correct, whatever it breaks off after.
CUT = "length"
# A model that failed so often in a row is not asked again.
GONE_AFTER = 8

# Takes the number of problems that are finished.
Advance: TypeAlias = Callable[[int], object]


COUNTED = (
    *("rollouts", "correct", "undecided", "cut", "refused", "requests"),
    *("prompt_tokens", "completion_tokens", "cost"),
)


@dataclass(slots=True)
class SampleReport:
    """The result of a run, earlier runs on the same journal included.

    Attributes:
        rows: of the file.
        problems: counts of ``complete``, ``enough`` (at least the minimum), ``few``, ``not asked``.
        models: counts, known tokens and known cost by name.
        few: ids of problems below the minimum, or with fewer samples than asked for, and how
            many they have.
        not_asked: ids of problems that cannot be asked, with the reason.
        refused: problem, model and reason of each refusal.
        cost: of all models.
    """

    rows: int = 0
    problems: dict[str, int] = field(default_factory=dict)
    models: dict[str, dict[str, float]] = field(default_factory=dict)
    few: dict[str, int] = field(default_factory=dict)
    not_asked: dict[str, str] = field(default_factory=dict)
    refused: list[Row] = field(default_factory=list)
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class _Question:
    """One problem put to one model; the key is a digest of all that decides its replies."""

    number: int
    model: ModelSettings
    problem: Problem
    messages: tuple[Message, ...]
    key: str


# Number of a draw, its reply or the reason of a refusal, and the verdict on the reply.
_Recorded: TypeAlias = tuple[int, Reply | str, bool | None]


class Sampler:
    """Draws rollouts of the problems of a file from models, and writes them.

    Attributes:
        finished: problems with all their rollouts, or all their draws made.
        unfinished: ids of problems for a later run, with the reason.
        gone: models that were given up, with the reason.
        stopped_by: the error that ended the run early; no output is written then.
        signal: that stopped it.
        report: None if no output was written.

    Raises:
        InputError: the paths or the settings do not go together.
    """

    def __init__(
        self,
        problems: Path,
        output: Path,
        models: Sequence[ModelSettings],
        settings: SampleSettings,
        on_error: OnError = "stop",
    ) -> None:
        self.problems, self.output = problems, output
        self.models, self.settings, self.on_error = models, settings, on_error
        self.journal_path = Path(f"{output}.journal")
        self.provenance_path = Path(f"{output}.provenance.json")
        check_outputs((output, self.provenance_path, self.journal_path), [problems])
        unpriced = [model.name for model in models if not model.is_priced]
        if settings.max_cost is not None and unpriced:
            raise InputError(
                f"a limit on cost needs prices, and {unpriced[0]} has none: "
                "give price_in and price_out in a models file"
            )
        if settings.samples is None and settings.max_attempts * len(models) < settings.per_problem:
            raise InputError(
                f"max_attempts={settings.max_attempts} of {len(models)} models cannot give "
                f"per_problem={settings.per_problem} rollouts"
            )
        self.finished = 0
        self.unfinished: dict[str, str] = {}
        self.gone: dict[str, str] = {}
        self.stopped_by: ConsensusPRError | None = None
        self.signal: signal.Signals | None = None
        self.report: SampleReport | None = None
        self._verdicts: dict[str, bool | None] = {}
        self._indices: dict[str, set[int]] = {}
        self._answered: set[str] = set()
        self._failures: Counter[str] = Counter()

    def read(self) -> Iterator[Problem]:
        """Yield the problems."""
        return read_problems(self.problems, self.on_error)

    async def run(self, advance: Advance, *, finish: bool = False) -> None:
        """Sample and write.

        Args:
            advance: called with the number of problems that are finished.
            finish: ask nothing; write the rollouts of the journal.

        Raises:
            InputError: a setting differs from the journal's, or the output cannot be written.
            ConsensusPRError: the journal cannot be written, or an answer cannot be checked.
        """
        if finish and not self.journal_path.exists():
            raise InputError(f"{self.journal_path}: no such file, so there is nothing to finish")
        self._budget = Budget(self.settings.max_cost, self.settings.max_requests)
        with (
            Journal(self.journal_path, "rollouts") as self._journal,
            AnswerVerifier() as self._verifier,
        ):
            settings = {model.name: self._settings_of(model) for model in self.models}
            for key, record in self._journal.items():
                self._check_settings(record, settings)
                question, _, index = key.rpartition("-")
                self._indices.setdefault(question, set()).add(int(index))
                self._answered.add(record["model"])
                if "reply" in record:
                    self._budget.charge_earlier(Reply.from_row(record["reply"]))
            if not finish:
                await self._draw_rollouts(advance)
            if self.stopped_by is None and self.signal is None:
                await self._write(advance)

    def _settings_of(self, model: ModelSettings) -> Row:
        """Return what decides the replies of a model, but for the problem."""
        prompt = digest(with_prompt(""))
        return {**model.sampling(), "seed": self.settings.seed, "prompt": prompt}

    def _check_settings(self, record: Row, settings: dict[str, Row]) -> None:
        """Reject settings that the replies of a model were not drawn with.

        All of them would be drawn and paid for anew, and the earlier ones leave the output.
        """
        name = record["model"]
        now = settings.get(name, {})
        for setting, value in record.get("settings", {}).items():
            if setting in now and now[setting] != value:
                raise InputError(
                    f"{self.journal_path} has replies of {name} with {setting} = "
                    f"{json.dumps(value)}, now it is {json.dumps(now[setting])}: keep the setting, "
                    "or write to another output"
                )

    async def _draw_rollouts(self, advance: Advance) -> None:
        async with AsyncExitStack() as stack:
            models = [
                await stack.enter_async_context(ChatModel(model, self._budget))
                for model in self.models
            ]
            work = asyncio.ensure_future(self._draw_all(models, advance))
            with self._interruptible(work):
                await asyncio.wait((work,))
            if not work.cancelled():
                work.result()

    @contextmanager
    def _interruptible(self, work: asyncio.Future[None]) -> Iterator[None]:
        """On SIGINT and SIGTERM, begin no request; cancel those in flight after the grace."""
        loop = asyncio.get_running_loop()

        def arrived(number: signal.Signals) -> None:
            if self.signal is not None:
                work.cancel()
                return
            self.signal = number
            self._budget.stop("interrupted")
            loop.call_later(self.settings.grace, work.cancel)

        numbers = (signal.SIGINT, signal.SIGTERM)
        for number in numbers:
            loop.add_signal_handler(number, arrived, number)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    async def _draw_all(self, models: Sequence[ChatModel], advance: Advance) -> None:
        slots = asyncio.Semaphore(sum(model.settings.concurrency for model in models))

        def done(_: asyncio.Task[None]) -> None:
            slots.release()
            advance(self.finished)

        async with asyncio.TaskGroup() as group:
            for problem in self.read():
                await slots.acquire()
                if self._budget.stopped:
                    break
                task = group.create_task(self._draw_problem(models, problem))
                task.add_done_callback(done)

    def _why_not_asked(self, problem: Problem) -> str | None:
        """Return why a problem cannot be sampled, None if it can."""
        if not problem.problem.strip():
            return "no text"
        try:
            problem.problem.encode()
        except UnicodeEncodeError:
            return "a text with characters that no request can carry"
        if self.settings.samples is None and problem.ground_truth is None:
            return "no ground truth"  # to filter by
        return None

    async def _draw_problem(self, models: Sequence[ChatModel], problem: Problem) -> None:
        if self._why_not_asked(problem) is not None:
            self.finished += 1
            return
        questions = self._questions(problem)
        plan = await self._plan(questions)
        while not self._budget.stopped:
            for question in questions:
                if question.model.name in self.gone:
                    plan.leave_out(question.number)
            if not (draws := plan.next_draws()):
                break
            results = await asyncio.gather(
                *(self._draw(models[draw.model], questions[draw.model], draw.index)
                  for draw in draws)
            )  # fmt: skip
            for draw, result in zip(draws, results, strict=True):
                plan.settle(draw, result)
        if not plan.next_draws() and not plan.is_short:
            self.unfinished.pop(problem.problem_id, None)
            self.finished += 1
        elif not self._budget.stopped:
            reason = next(iter(self.gone.values()), "no reply")
            self.unfinished.setdefault(problem.problem_id, reason)

    async def _draw(self, model: ChatModel, question: _Question, index: int) -> DrawResult:
        """Draw one rollout, bring it to disk and check its answer."""
        name = question.model.name
        try:
            reply = await model.ask(question.messages, seed=self._seed_of(index))
            self._failures[name] = 0
            self._answered.add(name)
            self._record(question, index, {"reply": asdict(reply)})
            correct = await self._correct(question, index, reply)
            return DrawResult.CORRECT if correct else DrawResult.WRONG
        except (ModelRefused, ModelUnavailable) as error:
            if isinstance(error, ModelRefused) and name in self._answered:
                self._record(question, index, {"refused": str(error)})
                return DrawResult.REFUSED
            # A refusal before a model's first answer may be due to its settings.
            self._failures[name] += 1
            if self._failures[name] >= GONE_AFTER:
                self._give_up(name, str(error))
            self.unfinished.setdefault(question.problem.problem_id, str(error))
        except ConsensusPRError as error:
            # No other request can succeed.  Not raised: those in flight are paid for.
            self._stop(error)
        return DrawResult.LOST

    def _record(self, question: _Question, index: int, content: Row) -> None:
        about: Row = {"problem_id": question.problem.problem_id, "model": question.model.name}
        about["settings"] = self._settings_of(question.model)
        self._journal.append(f"{question.key}-{index}", about | content)
        self._indices.setdefault(question.key, set()).add(index)

    def _give_up(self, name: str, reason: str) -> None:
        self.gone.setdefault(name, reason)
        if len(self.gone) == len(self.models):
            self._stop(ModelUnavailable(reason))

    def _stop(self, error: ConsensusPRError) -> None:
        """End the run; the first reason counts."""
        is_followup = isinstance(error, BudgetSpent) and self._budget.stopped
        if self.stopped_by is None and not is_followup:
            self.stopped_by = error
        self._budget.stop(str(error))

    def _questions(self, problem: Problem) -> list[_Question]:
        """Return the problem put to each model, in their order."""
        messages = (Message("user", with_prompt(problem.problem)),)
        sample, seed = ["problem", problem.problem_id], self.settings.seed
        return [
            _Question(number, model, problem, messages,
                      ask_key(model, messages, seed=seed, sample=sample))
            for number, model in enumerate(self.models)
        ]  # fmt: skip

    def _seed_of(self, index: int) -> int | None:
        """Return the seed of one draw: equal seeds would give equal rollouts."""
        seed = self.settings.seed
        return None if seed is None else seed + index

    async def _recorded(self, question: _Question) -> list[_Recorded]:
        """Return the draws that count, of this run and earlier ones."""
        found: list[_Recorded] = []
        for index in sorted(self._indices.get(question.key, ())):
            if index >= (self.settings.samples or math.inf):
                break
            record = self._journal.get(f"{question.key}-{index}")
            assert record is not None, "only recorded draws are looked up"
            if "refused" in record:
                found.append((index, str(record["refused"]), None))
            else:
                reply = Reply.from_row(record["reply"])
                found.append((index, reply, await self._correct(question, index, reply)))
        return found

    async def _correct(self, question: _Question, index: int, reply: Reply) -> bool | None:
        """Return the verdict on a reply; None: undecided, or no ground truth."""
        truth, key = question.problem.ground_truth, f"{question.key}-{index}"
        if truth is None:
            return None
        if reply.finish_reason == CUT:
            return False
        if key not in self._verdicts:
            rule = self.settings.rule_of(question.problem)
            [self._verdicts[key]] = await asyncio.to_thread(
                verify_patiently, self._verifier, [truth], [reply.text], rule
            )
        return self._verdicts[key]

    async def _plan(self, questions: Sequence[_Question]) -> ProblemPlan:
        """Return a problem's plan with the draws of the journal."""
        settings, problem_id = self.settings, questions[0].problem.problem_id
        plan = ProblemPlan(
            len(questions),
            settings.samples or settings.max_attempts,
            None if settings.samples else settings.per_problem,
            zlib.crc32(problem_id.encode("utf-8", "surrogatepass")),
        )
        for question in questions:
            for index, reply, correct in await self._recorded(question):
                result = DrawResult.CORRECT if correct else DrawResult.WRONG
                if isinstance(reply, str):
                    result = DrawResult.REFUSED
                plan.settle(Draw(question.number, index), result)
        return plan

    async def _write(self, advance: Advance) -> None:
        """Write the rollouts that the journal holds, and the file beside them."""
        self.report = report = SampleReport()
        report.models = {model.name: dict.fromkeys(COUNTED, 0) for model in self.models}
        with open_writer(self.output, TYPES) as out:
            for number, problem in enumerate(self.read(), 1):
                for row in await self._rows_of(problem, report):
                    out.write(row)
                    report.rows += 1
                advance(number)
        report.cost = sum(count["cost"] for count in report.models.values())
        settings = self.settings
        kind = ("samples",) if settings.samples else ("per_problem", "minimum", "max_attempts")
        provenance = {
            "made_by": f"consensusbench sample {VERSION}",
            "mode": "samples" if settings.samples else "correct",
            **{name: getattr(settings, name) for name in kind},
            "answer_rule": None if settings.answer_rule is None else settings.answer_rule.value,
            "seed": settings.seed,
            "prompt": with_prompt("{problem}"),
            "models": [model.provenance() for model in self.models],
            "only_correct": settings.only_correct,
            "with_reasoning": settings.with_reasoning,
            "counts": asdict(report),
        }
        with atomic_file(self.provenance_path) as stream:
            stream.write(json.dumps(provenance, indent=1, ensure_ascii=False).encode("utf-8"))

    async def _rows_of(self, problem: Problem, report: SampleReport) -> list[Row]:
        """Return the rows of one problem, and count it."""
        settings, problem_id = self.settings, problem.problem_id
        rows: list[Row] = []
        rollouts = correct_rollouts = 0
        reason = self._why_not_asked(problem)
        for question in [] if reason else self._questions(problem):
            name = question.model.name
            for index, reply, correct in await self._recorded(question):
                if isinstance(reply, str):
                    report.models[name]["refused"] += 1
                    refusal = {"problem_id": problem_id, "model": name, "reason": reply}
                    report.refused.append(refusal)
                    continue
                rollouts += 1
                correct_rollouts += correct is True
                counted = {
                    "rollouts": 1,
                    "correct": correct is True,
                    "undecided": correct is None,
                    "cut": reply.finish_reason == CUT,
                    "requests": reply.attempts,
                    "prompt_tokens": reply.prompt_tokens or 0,
                    "completion_tokens": reply.completion_tokens or 0,
                    "cost": reply.cost or 0.0,
                }
                for column, count in counted.items():
                    report.models[name][column] += count
                if correct or not settings.only_correct:
                    rows.append(self._row(question, index, reply, correct))
        if settings.samples is not None:
            count, wanted = rollouts, settings.samples * len(self.models)
            enough = wanted
        else:
            count, wanted, enough = correct_rollouts, settings.per_problem, settings.minimum
        if reason:
            outcome = "not asked"
            report.not_asked[problem_id] = reason
        elif count < enough:
            outcome = "few"
            report.few[problem_id] = count
        else:
            outcome = "complete" if count >= wanted else "enough"
        report.problems[outcome] = report.problems.get(outcome, 0) + 1
        return rows

    def _row(self, question: _Question, index: int, reply: Reply, correct: bool | None) -> Row:
        problem, model, reasoning = question.problem, question.model, reply.reasoning
        row: Row = {
            "problem_id": problem.problem_id,
            "rollout_id": f"{problem.problem_id}/{model.name}/{index}",
            "data_source": problem.data_source,
            "problem": problem.problem,
            "ground_truth": problem.ground_truth,
            "model": model.name,
            "response": reply.text,
            "num_tokens": reply.completion_tokens,
            "correct": correct,
            "finish_reason": reply.finish_reason,
            "sampling": {
                "temperature": model.temperature,
                "top_p": model.top_p,
                "max_tokens": model.max_tokens,
                "seed": self._seed_of(index),
            },
            "prompt_tokens": reply.prompt_tokens,
            "cost": reply.cost,
        }
        if reasoning is not None and self.settings.with_reasoning:
            row["response"] = f"<think>\n{reasoning}\n</think>\n\n{reply.text}"
        elif reasoning is not None:
            row["reasoning"] = reasoning
        return row
