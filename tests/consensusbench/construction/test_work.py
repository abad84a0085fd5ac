"""The engines: order, limits, and problems that end their worker."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.construction import work
from consensusbench.construction.types import BuildItem, BuildRecord
from consensusbench.construction.work import Stages, Workers, in_order, work_here
from consensusbench.extraction.types import CorrectRollout
from consensuspr.data import Problem
from consensuspr.errors import ConsensusPRError
from tests.consensusbench.construction.conftest import ToyExtractor


def task(name: str, text: str = "", response: str = "so 1+1=2") -> BuildItem:
    """Return an item with one rollout."""
    record = BuildRecord(1, 0, None, ({"rollout_id": "r", "model": "ada"},), f"sha256:{name}", {})
    rollouts = (CorrectRollout("r", "ada", response),)
    return BuildItem(Problem(name, problem=text), record, rollouts)


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 8), st.integers(0, 400))
def test_order_window_and_length_are_kept(kinds: list[bool], window: int, size: int) -> None:
    under_way: list[int] = []

    class Begun(Future[BuildItem]):
        def __init__(self, begun: BuildItem) -> None:
            super().__init__()
            self.begun = begun
            under_way.append(size)
            assert len(under_way) <= window and sum(under_way) <= max(size, 1000)

        def result(self, timeout: float | None = None) -> BuildItem:
            under_way.pop()
            return self.begun

    items = [
        task(str(n), response="x" * size if is_open else "") for n, is_open in enumerate(kinds)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "MAX_WAITING_CHARS", 1000)
        done = in_order(
            items, lambda item: Begun(item) if item.rollouts[0].response else item, window
        )
        assert list(done) == items


def failures_of(stages: Stages, items: list[BuildItem]) -> list[tuple[str, str] | None]:
    """Return reason and detail of the failure of each item, worked on by two processes."""
    return [
        None if item.excluded is None else (item.excluded.reason, item.excluded.detail)
        for item in work_here(items, stages, 2)
    ]


def test_a_problem_that_ends_its_worker_leaves_the_others_alone(tmp_path: Path) -> None:
    texts = ["SPIN", "fine", "CRASH", "RAISE", f"KILL ONCE at {tmp_path / 'mark'}"]
    stages = Stages(ToyExtractor(), None, time_limit_s=1.0)
    assert failures_of(stages, [task(text, text) for text in texts]) == [
        ("time_limit", "took more than 1 s of CPU time"),
        None,
        ("failed", "its worker process ended (-11)"),
        ("failed", "ZeroDivisionError: division by zero"),
        None,
    ]


def test_the_time_limit_is_cpu_time() -> None:
    assert failures_of(Stages(ToyExtractor(sleep_s=0.3), None, 0.05), [task("p")]) == [None]
    hung = failures_of(Stages(ToyExtractor(sleep_s=60.0), None, 0.05), [task("p")])
    assert hung == [("time_limit", "took more than 1 s on the clock")]


def test_problems_run_once_more_when_all_workers_are_killed() -> None:
    with Workers(Stages(ToyExtractor(), None), 2) as workers:
        # More than a pipe holds, so that kills come in the middle of messages too.
        items = [task(f"p{number}", response="1+1=2 " * 50_000) for number in range(6)]
        list(workers.work(items[:1]))
        for worker in multiprocessing.active_children():
            os.kill(worker.pid or 0, signal.SIGKILL)
        assert [item.excluded for item in workers.work(items)] == [None] * len(items)


def test_few_are_taken_ahead_and_leaving_early_ends_the_workers() -> None:
    taken = 0

    def items() -> Iterator[BuildItem]:
        nonlocal taken
        for number in range(60):
            taken += 1
            yield task(f"p{number}", "SPIN" if number > 20 else "")

    stream = work_here(items(), Stages(ToyExtractor(), None), 2)
    for number in range(20):
        assert next(stream).problem.problem_id == f"p{number}"
        assert taken <= number + 17
    stream.close()
    children = multiprocessing.active_children()
    assert not [child for child in children if child.name.startswith("_Process")]


def test_an_extractor_that_cannot_be_loaded_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "only_here.py").write_text("class Gone:\n    name = 'gone'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    gone = importlib.import_module("only_here").Gone()
    (tmp_path / "only_here.py").unlink()
    with pytest.raises(ConsensusPRError, match=r"cannot load its stages: ModuleNotFoundError"):
        list(work_here([task("p")], Stages(gone, None), 1))
