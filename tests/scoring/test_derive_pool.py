"""Children derive what this process derives, and start only for large sets."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Any

import pytest

from consensuspr.core import derive_forms
from consensuspr.scoring import derive
from consensuspr.scoring.derive import DerivePool


def many(count: int, first: int = 0) -> list[str]:
    return [f"{n}+{n + 1}={2 * n + 1}" for n in range(first, first + count)]


def alone(expressions: list[str]) -> dict[str, list[str]]:
    return {text: derive_forms(text) for text in expressions}


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start children at once."""
    monkeypatch.setattr(derive, "ALONE_S", 0.0)


@pytest.mark.usefixtures("eager")
def test_children_give_what_this_process_gives() -> None:
    with DerivePool(2) as pool:
        for first in (0, 10):  # the children stay for the next portion
            texts = [*many(7, first), "", "\ud800", 'quote " and \n line']
            assert pool.derive(texts) == alone(texts)
        children = list(pool._children)
        assert len(children) == 2
        assert pool.derive([]) == {}
    assert all(child.returncode is not None for child in children)


def test_small_sets_start_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **kwargs: pytest.fail("started"))
    with DerivePool() as pool:
        assert pool.derive(many(70)) == alone(many(70))


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(("cores", "children"), [(2, 2), (40, 3)])
def test_children_are_one_a_core_and_not_without_end(
    monkeypatch: pytest.MonkeyPatch, cores: int, children: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    monkeypatch.setattr(derive, "MAX_CHILDREN", 3)
    with DerivePool() as pool:
        assert pool.derive(many(7)) == alone(many(7))
        assert len(pool._children) == children


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("processes", [0, 1])
def test_no_children_on_request(monkeypatch: pytest.MonkeyPatch, processes: int) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **kwargs: pytest.fail("started"))
    with DerivePool(processes) as pool:
        assert pool.derive(many(5)) == alone(many(5))


@pytest.mark.usefixtures("eager")
def test_a_child_that_does_not_start_is_told_and_done_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sys.executable", "/absent/python")
    with DerivePool(2) as pool:
        assert pool.derive(many(20)) == alone(many(20))
        assert pool.derive(many(20)) == alone(many(20))
    assert len([text for text in caplog.messages if "since one failed" in text]) == 1


@pytest.mark.usefixtures("eager")
def test_a_child_that_dies_is_told_and_done_without(caplog: pytest.LogCaptureFixture) -> None:
    with DerivePool(2) as pool:
        pool.derive(many(4))
        children: list[Any] = list(pool._children)
        os.kill(children[1].pid, signal.SIGKILL)
        children[1].wait()
        assert pool.derive(many(20)) == alone(many(20))
        assert all(child.returncode is not None for child in children)
    assert "deriving without child processes, since one failed" in caplog.text
