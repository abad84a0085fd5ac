"""Two small stages with known results, for tests of what runs around them.

Worker processes import this module by name, so that it holds nothing of pytest.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from consensusbench.extraction.corpus import Corpus
from consensusbench.extraction.types import Candidate, CorrectRollout, Dropped, Extraction
from consensuspr.data import Problem, Row
from consensuspr.errors import BudgetSpent, ConsensusPRError, ModelUnavailable

EQUATION = re.compile(r"\b\d+[+*-]\d+=\d+\b")


@dataclass(frozen=True, slots=True)
class ToyExtractor:
    """Takes every equation of the form ``1+2=3``; misbehaves if the problem's text asks for it."""

    version: int = 1
    sleep_s: float = 0.0
    name: str = "toy"

    def provenance(self) -> Row:
        return {"name": self.name, "version": self.version}

    def extract(self, problem: Problem, rollouts: Sequence[CorrectRollout]) -> Extraction:
        time.sleep(self.sleep_s)
        _misbehave(problem.problem)
        return equations(rollouts)


def equations(rollouts: Sequence[CorrectRollout]) -> Extraction:
    """Return every equation as a candidate, and those with a 0 as dropped."""
    found: dict[str, list[CorrectRollout]] = {}
    for rollout in rollouts:
        for text in dict.fromkeys(EQUATION.findall(rollout.response)):
            found.setdefault(text, []).append(rollout)
    candidates, dropped = [], []
    for text, by in sorted(found.items()):
        if text.startswith("0"):
            dropped.append(Dropped("extract", "trivial", "has a 0", text, (text,), len(by)))
            continue
        places = [rollout.response.index(text) / len(rollout.response) for rollout in by]
        models = {rollout.model for rollout in by}
        candidates.append(
            Candidate(text, "equation", (text,), (), len(by), len(models), sum(places) / len(by))
        )
    return Extraction(tuple(candidates), tuple(dropped))


@dataclass(frozen=True, slots=True)
class ToyRefiner:
    """Keeps candidates with enough support."""

    min_support: int = 2
    min_nodes: int = 1

    def provenance(self) -> Row:
        return {"min_support": self.min_support, "min_nodes": self.min_nodes}

    def refine(
        self, problem: Problem, extraction: Extraction, rollouts: int, corpus: Corpus
    ) -> Extraction:
        if "REFINING FAILS" in problem.problem:
            raise ConsensusPRError("this one cannot be refined")
        kept, dropped = [], []
        for found in extraction.candidates:
            assert found.support <= rollouts
            if found.support >= self.min_support:
                kept.append(found)
                continue
            dropped.append(Dropped("refine", "support", "is too low", found.label))
        return Extraction(tuple(kept), tuple(dropped))


@dataclass(slots=True)
class ToyAsyncExtractor:
    """Does the same as a model would, slowly and in any order.

    Attributes:
        asked: ids of the problems that were extracted.
        most, now: problems extracted at once, at most and at this moment; -1 when closed.
        fail: text of problems that get no usable reply.
        last: how many may be extracted before the budget is spent, None: no limit.
    """

    asked: list[str]
    most: int = 0
    now: int = 0
    fail: str = "NO REPLY"
    last: int | None = None
    name: str = "toy-model"
    in_flight: int = 4

    def provenance(self) -> Row:
        return {"name": self.name}

    def usage(self) -> Row:
        return {"model": self.name, "requests": len(self.asked)}

    async def close(self) -> None:
        self.now = -1

    async def extract(self, problem: Problem, rollouts: Sequence[CorrectRollout]) -> Extraction:
        if self.last is not None and len(self.asked) >= self.last:
            raise BudgetSpent("the next request could exceed the limit of $1")
        self.now += 1
        self.most = max(self.most, self.now)
        self.asked.append(problem.problem_id)
        await asyncio.sleep(0.02 / len(self.asked))  # the earlier ones take longer
        self.now -= 1
        if self.fail in problem.problem:
            raise ModelUnavailable("no usable reply after 3 attempts")
        return equations(rollouts)


def _misbehave(text: str) -> None:
    if "SPIN" in text:
        # In one call that never returns to Python.
        re.fullmatch(r"(a|a)*b", "a" * 60)
    if "CRASH" in text:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "KILL ONCE" in text:
        mark = Path(text.partition(" at ")[2])
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    if "RAISE" in text:
        raise ZeroDivisionError("division by zero")
