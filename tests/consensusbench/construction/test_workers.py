"""Worker processes: limits, deaths and order."""

from __future__ import annotations

import importlib
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.construction import workers
from consensusbench.construction.types import (
    Excluded,
    Finished,
    Item,
    Outcome,
    ProblemRollouts,
    ProblemTask,
    UsedRollout,
)
from consensusbench.construction.worker import Stages
from consensusbench.construction.workers import WorkerProcess, in_order, work_here
from consensusbench.extraction.types import CorrectRollout
from consensuspr.data import Problem
from consensuspr.errors import ConsensusPRError
from tests.consensusbench.construction.conftest import ToyExtractor

# Results in the order of their tasks, and how much is under way.


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


def name_of(finished: Finished) -> str:
    """Return the id of the problem that something became of."""
    known = finished if isinstance(finished, Excluded) else finished.chosen
    return known.problem.problem_id


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 8))
def test_order_is_kept_and_the_window_too(kinds: list[bool], window: int) -> None:
    later = Later()
    seen = list(map(name_of, in_order(items(kinds), later.submit, window)))
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


# Worker processes: limits, deaths and order.


def task(name: str, text: str = "") -> ProblemTask:
    """Return a task with one rollout."""
    rollouts = (CorrectRollout("r", "ada", "so 1+1=2"),)
    sampled = (UsedRollout("r", "ada"),)
    return ProblemTask(
        ProblemRollouts(Problem(name, problem=text), sampled, 1, f"sha256:{name}", {}), rollouts
    )


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        ("SPIN", "time_limit", "took more than 0.2 s of processor time"),
        ("CRASH", "failed", "its worker process was ended by SIGSEGV, twice"),
        ("RAISE", "failed", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_problem_that_ends_its_worker_leaves_the_next_one_alone(
    text: str, reason: str, detail: str
) -> None:
    with closing(WorkerProcess(Stages(ToyExtractor(), None, time_limit_s=0.2))) as worker:
        failure = worker.run(task("bad", text)).failure
        extraction = worker.run(task("good")).extraction
    assert failure is not None and (failure.reason, failure.detail) == (reason, detail)
    assert extraction is not None and [one.label for one in extraction.candidates] == ["1+1=2"]


def test_one_that_sleeps_for_ever_is_ended_too() -> None:
    # Of processor time, which receiving the task takes some of, too.
    stages = Stages(ToyExtractor(sleep_s=3600.0), None, time_limit_s=0.1)
    with closing(WorkerProcess(stages)) as worker:
        failure = worker.run(task("sleepy")).failure
    assert failure is not None
    assert (failure.reason, failure.detail) == ("time_limit", "was not done after 2 s")


def test_results_come_in_order_and_few_are_under_way() -> None:
    taken = 0

    def items() -> Iterator[Item]:
        nonlocal taken
        for number in range(60):
            taken += 1
            name = f"p{number}"
            yield task(name) if number % 3 else Excluded(Problem(name), "few_correct", "none")

    seen = []
    for finished in work_here(items(), Stages(ToyExtractor(), None), 2):
        seen.append(name_of(finished))
        assert taken <= len(seen) + 16
    assert seen == [f"p{number}" for number in range(60)]


def test_leaving_early_ends_the_workers() -> None:
    items: list[Item] = [Excluded(Problem("p"), "few_correct", "none"), *map(task, "abc")]
    stream = work_here(items, Stages(ToyExtractor(sleep_s=30.0), None), 2)
    assert isinstance(next(stream), Excluded)
    stream.close()


def test_an_extractor_that_cannot_be_loaded_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "only_here.py").write_text("class Gone:\n    name = 'gone'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    gone = importlib.import_module("only_here").Gone()
    (tmp_path / "only_here.py").unlink()
    with pytest.raises(ConsensusPRError, match=r"cannot load its stages: ModuleNotFoundError"):
        list(work_here([task("p")], Stages(gone, None), 1))


def test_the_way_a_worker_ended_is_named() -> None:
    assert workers._how(-signal.SIGKILL) == "was ended by SIGKILL"
    assert workers._how(3) == "ended with exit code 3"
