"""The engines: order, limits, and problems that end their worker."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.construction import work
from consensusbench.construction.types import (
    Excluded,
    Finished,
    Item,
    Outcome,
    ProblemRollouts,
    ProblemTask,
    UsedRollout,
)
from consensusbench.construction.work import Stages, Workers, in_order, work_here
from consensusbench.extraction.types import CorrectRollout
from consensuspr.data import Problem
from consensuspr.errors import ConsensusPRError
from tests.consensusbench.construction.conftest import ToyExtractor


def task(name: str, text: str = "", response: str = "so 1+1=2") -> ProblemTask:
    """Return a task with one rollout."""
    rollouts = (CorrectRollout("r", "ada", response),)
    sampled = (UsedRollout("r", "ada"),)
    return ProblemTask(
        ProblemRollouts(Problem(name, problem=text), sampled, 1, f"sha256:{name}", {}), rollouts
    )


def name_of(finished: Finished) -> str:
    """Return the id of the problem."""
    known = finished if isinstance(finished, Excluded) else finished.chosen
    return known.problem.problem_id


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 8), st.integers(0, 400))
def test_order_window_and_length_are_kept(kinds: list[bool], window: int, size: int) -> None:
    under_way: list[int] = []

    def items() -> Iterator[Item]:
        for number, is_task in enumerate(kinds):
            problem = Problem(str(number))
            one = Excluded(problem, "few_correct", "")
            yield task(str(number), response="x" * size) if is_task else one

    class Begun:
        def __init__(self, one: ProblemTask) -> None:
            self.one = one
            under_way.append(size)
            assert len(under_way) <= window and sum(under_way) <= max(size, 1000)

        def done(self) -> bool:
            return False

        def result(self) -> Outcome:
            under_way.pop()
            return Outcome(self.one.chosen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "MAX_WAITING_CHARS", 1000)
        seen = list(map(name_of, in_order(items(), Begun, window)))
    assert seen == [str(number) for number in range(len(kinds))]


def test_what_is_finished_is_not_held_back() -> None:
    begun: list[Future[Outcome]] = []

    def submit(one: ProblemTask) -> Future[Outcome]:
        begun.append(Future())
        if name_of(Outcome(one.chosen)) != "1":
            begun[-1].set_result(Outcome(one.chosen))
        return begun[-1]

    stream = in_order((task(str(number)) for number in range(100)), submit, 8)
    assert (name_of(next(stream)), len(begun)) == ("0", 1)
    late = threading.Timer(0.2, lambda: begun[1].set_result(Outcome(task("1").chosen)))
    late.start()
    assert (name_of(next(stream)), len(begun)) == ("1", 9)
    assert ([name_of(next(stream)) for _ in range(7)], len(begun)) == (list("2345678"), 9)


def test_a_problem_that_ends_its_worker_leaves_the_others_alone() -> None:
    texts = {"SPIN": "", "fine": "", "CRASH": "", "RAISE": "", "well": ""}
    stages = Stages(ToyExtractor(), None, time_limit_s=2.0)
    items = [task(name, name) for name in texts]
    outcomes = [one for one in work_here(items, stages, 2) if isinstance(one, Outcome)]
    failures = [one.failure and (one.failure.reason, one.failure.detail) for one in outcomes]
    assert failures == [
        ("time_limit", "took more than 2 s of CPU time"),
        None,
        ("failed", "its worker process ended (-11)"),
        ("failed", "ZeroDivisionError: division by zero"),
        None,
    ]
    assert all(one.extraction is not None for one in (outcomes[1], outcomes[4]))


def test_a_problem_whose_worker_is_killed_runs_once_more(tmp_path: Path) -> None:
    items = [task("p", f"KILL ONCE at {tmp_path / 'mark'}"), task("q")]
    outcomes = list(work_here(items, Stages(ToyExtractor(), None), 1))
    assert [one.failure for one in outcomes if isinstance(one, Outcome)] == [None, None]


def test_problems_run_once_more_when_all_workers_are_killed() -> None:
    with Workers(Stages(ToyExtractor(), None), 2) as workers:
        # More than a pipe holds: the pool has not taken up the last ones when it ends.
        items = [task(f"p{number}", response="1+1=2 " * 50_000) for number in range(6)]
        assert len(list(workers.work(items[:1]))) == 1
        for worker in multiprocessing.active_children():
            os.kill(worker.pid or 0, signal.SIGKILL)
        outcomes = [one for one in workers.work(items) if isinstance(one, Outcome)]
    assert [one.failure for one in outcomes] == [None] * len(items)


def test_the_time_limit_is_cpu_time() -> None:
    def failures(sleep_s: float) -> list[Excluded | None]:
        stages = Stages(ToyExtractor(sleep_s=sleep_s), None, time_limit_s=0.1)
        found = work_here([task("p")], stages, 1)
        return [one.failure for one in found if isinstance(one, Outcome)]

    assert failures(0.5) == [None]
    hung = failures(60.0)[0]
    assert hung and (hung.reason, hung.detail) == ("time_limit", "took more than 2 s on the clock")


def test_few_are_taken_ahead_and_leaving_early_ends_the_workers() -> None:
    taken = 0

    def items() -> Iterator[Item]:
        nonlocal taken
        for number in range(60):
            taken += 1
            name = f"p{number}"
            text = "SPIN" if number > 40 else ""
            yield task(name, text) if number % 3 else Excluded(Problem(name), "few_correct", "none")

    stream = work_here(items(), Stages(ToyExtractor(), None), 2)
    for number in range(40):
        assert name_of(next(stream)) == f"p{number}"
        assert taken <= number + 17
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
