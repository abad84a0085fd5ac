"""The journal of a sampling run: replies, refusals and verdicts by problem, model and number.

A reply is on disk before its answer is looked at.  The verdict on it is a record of its own,
under a key that names ground truth and rule: where one of them is corrected later, the reply is
judged again and not paid for again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from consensusbench.export.prompt import with_prompt
from consensusbench.models import (
    Journal,
    Message,
    ModelSettings,
    Reply,
    Spent,
    ask_key,
    digest,
    spent_on,
    write_down,
)
from consensusbench.sampling.settings import SampleSettings
from consensuspr.data import Problem, Row
from consensuspr.errors import InputError

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
            None
            if path is None
            else Journal(path, KIND, settings.identity(), self._visit, read_only=read_only)
        )
        try:
            if self._journal is not None:
                for model in settings.models:
                    self._journal.check(_model_setting(model))
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
