"""Results in the order of their tasks, and how much is under way."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.construction import workers
from consensusbench.construction.types import Excluded, Group, Item, Result, Task
from consensusbench.construction.workers import in_order
from consensusbench.extraction.types import CorrectRollout
from consensuspr.data import Problem


class Later:
    """Ends tasks in another order than they came in: always the newest that is open."""

    def __init__(self) -> None:
        self.open: list[tuple[Future[Result], float]] = []
        self.most_open = 0
        self.most_chars = 0
        self.chars: list[int] = []

    def submit(self, task: Task) -> Future[Result]:
        future: Future[Result] = Patient(self)
        self.open.append((future, float(task.group.problem.problem_id)))
        self.chars.append(task.num_chars)
        self.most_open = max(self.most_open, len(self.open))
        self.most_chars = max(self.most_chars, sum(self.chars))
        return future

    def end_all(self) -> None:
        """End what is open, the newest first."""
        self.chars.clear()
        while self.open:
            future, number = self.open.pop()
            future.set_result(Result(extract_s=number))


class Patient(Future[Result]):
    """A future that lets the others end first when it is waited for."""

    def __init__(self, later: Later) -> None:
        super().__init__()
        self._later = later

    def result(self, timeout: float | None = None) -> Result:
        self._later.end_all()
        return super().result(timeout)


def items(kinds: list[bool], size: int = 0) -> Iterator[Item]:
    """Yield a task for each True, and something finished for each False."""
    for number, is_task in enumerate(kinds):
        problem = Problem(str(number))
        if is_task:
            rollouts = (CorrectRollout("r", "", "x" * size),)
            yield Task(Group(problem, (), 1, "", {}), rollouts)
        else:
            yield Excluded(problem, "few_correct", "")


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 8))
def test_order_is_kept_and_the_window_too(kinds: list[bool], window: int) -> None:
    later = Later()
    seen = []
    for finished in in_order(items(kinds), later.submit, window):
        if isinstance(finished, Excluded):
            seen.append(finished.problem.problem_id)
        else:
            group, result = finished
            assert result.extract_s == float(group.problem.problem_id)
            seen.append(group.problem.problem_id)
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
