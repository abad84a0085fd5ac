"""Results in the order of their tasks, and how much is under way."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.construction import workers
from consensusbench.construction.types import Excluded, Item, Outcome, ProblemRollouts, ProblemTask
from consensusbench.construction.workers import in_order
from consensusbench.extraction.types import CorrectRollout
from consensuspr.data import Problem


class Later:
    """Ends tasks in another order than they came in: always the newest that is open."""

    def __init__(self) -> None:
        self.open: list[Patient] = []
        self.most_open = 0
        self.most_chars = 0
        self.chars: list[int] = []

    def submit(self, task: ProblemTask) -> Future[Outcome]:
        future = Patient(self, task)
        self.open.append(future)
        self.chars.append(task.num_chars)
        self.most_open = max(self.most_open, len(self.open))
        self.most_chars = max(self.most_chars, sum(self.chars))
        return future

    def end_all(self) -> None:
        """End what is open, the newest first."""
        self.chars.clear()
        while self.open:
            future = self.open.pop()
            future.set_result(Outcome(future.task.chosen))


class Patient(Future[Outcome]):
    """A future that lets the others end first when it is waited for."""

    def __init__(self, later: Later, task: ProblemTask) -> None:
        super().__init__()
        self.task = task
        self._later = later

    def result(self, timeout: float | None = None) -> Outcome:
        self._later.end_all()
        return super().result(timeout)


def items(kinds: list[bool], size: int = 0) -> Iterator[Item]:
    """Yield a task for each True, and something finished for each False."""
    for number, is_task in enumerate(kinds):
        problem = Problem(str(number))
        if is_task:
            rollouts = (CorrectRollout("r", "", "x" * size),)
            yield ProblemTask(ProblemRollouts(problem, (), 1, "", {}), rollouts)
        else:
            yield Excluded(problem, "few_correct", "")


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 8))
def test_order_is_kept_and_the_window_too(kinds: list[bool], window: int) -> None:
    later = Later()
    seen = []
    for finished in in_order(items(kinds), later.submit, window):
        problem = finished.problem if isinstance(finished, Excluded) else finished.chosen.problem
        seen.append(problem.problem_id)
    assert seen == [str(number) for number in range(len(kinds))]
    assert later.most_open <= window


def test_long_texts_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MAX_WAITING_CHARS", 1000)
    later = Later()
    assert len(list(in_order(items([True] * 10, 300), later.submit, 100))) == 10
    assert later.most_chars == 900
    # One that is larger than the limit goes alone.
    later = Later()
    assert len(list(in_order(items([True] * 3, 3000), later.submit, 100))) == 3
    assert later.most_open == 1
