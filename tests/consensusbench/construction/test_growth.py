"""Nodes made of a training run's own rollouts, and put into service between its epochs."""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from consensusbench.construction import BuildJob, OutputPaths, build
from consensusbench.construction.growth import Growth, add_nodes
from consensusbench.extraction.refine import PaperRefiner
from consensusbench.extraction.rules import RulesExtractor
from consensuspr.client import Access, LocalClient, Rollout
from consensuspr.client.admin import AdminClient
from consensuspr.client.training.grown import GrownDatasets
from consensuspr.data import Problem, read_problems
from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.score_log import dataset_path
from consensuspr.scoring.types import Status
from tests.rows import read_rows, write_rows
from tests.runs import Group, Log, question, rewards, right
from tests.servers import served


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "run")


@pytest.fixture
def job(tmp_path: Path, log: Log) -> Callable[..., BuildJob]:
    """Return the work on the run, whose dataset has three problems without nodes."""
    dataset = write_rows(tmp_path / "data" / "problems.jsonl", [question(n) for n in range(3)])

    def make(**changes: Any) -> BuildJob:
        given: dict[str, Any] = {
            "rollouts": (log.run,),
            "paths": OutputPaths(tmp_path / "grown.jsonl"),
            "extractor": RulesExtractor(),
            "refiner": PaperRefiner(),
            "problems": dataset,
            **changes,
        }
        return BuildJob(**given)

    return make


# Growth of the run, and the address of the server that rewards it.
Growing = Callable[..., AbstractContextManager[tuple[Growth, str]]]


@pytest.fixture
def growing(tmp_path: Path, log: Log, job: Callable[..., BuildJob]) -> Growing:
    """Begin the growth of the run at a server that may read its nodes."""

    @contextmanager
    def begun(
        say: Callable[[str], None] = lambda sentence: None,
    ) -> Iterator[tuple[Growth, str]]:
        folder = log.run / "nodes"
        folder.mkdir(parents=True, exist_ok=True)
        options = ("--workers", "2", "--dataset-folder", str(folder))
        with (
            served(tmp_path, job().problems or "", *options) as address,
            Growth(job(), address, Access(), say) as growth,
        ):
            growth.begin()
            yield growth, address

    return begun


def nodes_of(path: Path) -> dict[str, list[str]]:
    """Return the nodes' first expressions by problem."""
    return {p.problem_id: [n.expressions[0] for n in p.nodes] for p in read_problems(path)}


def test_a_problem_gets_nodes_from_right_rollouts_of_two_steps(
    tmp_path: Path, log: Log, job: Callable[..., BuildJob]
) -> None:
    log.add(Group(0, 1), Group(1, 1, rights=6), Group(2, 2, rights=1))
    log.add(Group(0, 4), Group(2, 5, rights=1))
    grown = add_nodes(job())
    nodes = nodes_of(tmp_path / "grown.jsonl")
    assert (grown.problems, grown.with_nodes, grown.added) == (3, 1, 1)
    assert [*nodes] == ["p0", "p1", "p2"]
    assert len(nodes["p0"]) >= 2
    assert any("40-17=23" in text for text in nodes["p0"])
    assert not any("57" in text for text in nodes["p0"])
    # Six right ones of one step are one policy's habit, two of two steps are too few.
    assert nodes["p1"] == nodes["p2"] == []
    with LocalClient(tmp_path / "grown.jsonl") as client:
        assert client.server_info().datasets[0].digest == grown.digest
        [score] = client.score([Rollout("p0", right(0, 0))])
        assert (score.acc, score.ncr) == (1.0, 1.0)


def test_nodes_that_are_there_stay_and_problems_too(
    tmp_path: Path, log: Log, job: Callable[..., BuildJob]
) -> None:
    kept = [{"node_id": "own", "label": "own", "expressions": ["40-17=23"], "note": 7}]
    base = write_rows(
        tmp_path / "data" / "base.jsonl",
        [question(2, split="test"), question(0, nodes=kept, metadata={"level": 3}), question(1)],
    )
    log.add(Group(0, 1), Group(1, 1))
    log.add(Group(0, 4), Group(1, 4))
    grown = add_nodes(job(problems=base))
    assert (grown.with_nodes, grown.added) == (2, 1)
    before, after = read_rows(base), read_rows(tmp_path / "grown.jsonl")
    assert [row["problem_id"] for row in after] == ["p2", "p0", "p1"]
    assert after[1]["nodes"][0]["node_id"] == "own"
    assert after[1]["metadata"] == before[1]["metadata"]
    assert after[0]["split"] == "test"
    assert len(after[2]["nodes"]) >= 2
    again = add_nodes(
        job(problems=tmp_path / "grown.jsonl", paths=OutputPaths(tmp_path / "2.jsonl"))
    )
    assert (again.added, again.digest) == (0, grown.digest)


def test_validation_undecided_answers_and_texts_that_were_not_kept_make_no_nodes(
    log: Log, job: Callable[..., BuildJob]
) -> None:
    log.add(Group(0, 1, split="test"), Group(0, 4, split="val"))
    log.add(*(Group(1, step, status=Status.ANSWER_UNDECIDED) for step in (1, 4)))
    log.add(*(Group(1, step, status=Status.UNKNOWN_PROBLEM) for step in (5, 6)))
    log.add(Group(2, 1), Group(2, 4), text_bytes=0)
    assert add_nodes(job()).added == 0


def test_what_wrong_rollouts_write_as_well_is_no_node(
    tmp_path: Path, log: Log, job: Callable[..., BuildJob]
) -> None:
    """A policy that writes one sentence everywhere is not rewarded for it."""
    habit = "Note that 12*12=144 and 144-5=139. "
    log.add(Group(0, 1, before=habit), Group(0, 4, before=habit))
    assert add_nodes(job()).added == 1
    nodes = nodes_of(tmp_path / "grown.jsonl")["p0"]
    assert not any("12*12" in text or "139" in text for text in nodes)


def test_a_run_makes_no_budgets(tmp_path: Path, log: Log, job: Callable[..., BuildJob]) -> None:
    log.add(Group(0, 1), Group(0, 4))
    build(job())
    [problem] = read_problems(tmp_path / "grown.jsonl")
    assert isinstance(problem, Problem)
    assert problem.budget is None
    assert all(node.weight is not None for node in problem.nodes)
    made = problem.metadata["construction"]
    assert made["provenance"]["selection"]["correct"] == "labels"
    assert {one["model"] for one in made["rollouts"]} == {"toy step 1", "toy step 4"}


# In service.


def test_what_is_ready_rewards_the_next_epoch_and_no_sample_before(
    log: Log, growing: Growing
) -> None:
    said: list[str] = []
    samples = [Rollout("p0", right(0, 0)), Rollout("p1", right(1, 0))]
    folder = log.run / "nodes"
    with growing(said.append) as (growth, address):
        first = growth.begin()
        assert (first.name, first.with_nodes, first.problems) == ("default", 0, 3)
        assert growth.grow() is None
        assert [one.score.num_nodes for one in rewards(address, folder, 0, *samples)] == [0, 0]
        log.add(Group(0, 1), Group(0, 4))
        ready = growth.grow()
        assert ready is not None
        assert ready.with_nodes == 1
        assert dataset_path(log.run, ready.digest).exists()
        assert growth.grow() is None  # nothing new was scored
        # The epoch under way goes on as it began, in a worker that starts only now, too.
        assert [one.score.num_nodes for one in rewards(address, folder, 0, *samples)] == [0, 0]
        later = rewards(address, folder, 1, *samples)
        assert later[0].score.num_nodes >= 2
        assert later[0].reward == 1.0
        assert later[1].score.num_nodes == 0
        log.add(Group(1, 5), Group(1, 8))
        newest = growth.grow()
        assert newest is not None
        assert newest.with_nodes == 2
        assert [one.score.num_nodes > 0 for one in rewards(address, folder, 1, *samples)] == [
            True,
            False,
        ]
        assert [one.score.num_nodes > 0 for one in rewards(address, folder, 2, *samples)] == [
            True,
            True,
        ]
        log.add(Group(2, 9), Group(2, 12))
        assert growth.grow() is not None
        # Datasets that no epoch took go, but the one before the last may just be taken.
        assert len(list(folder.glob("grown-*.jsonl"))) == 3
        with AdminClient(address) as client:
            assert len(client.list()) == 4
        taken = GrownDatasets(folder).taken()
        assert [one.digest for one in taken.values()] == [first.digest, ready.digest, newest.digest]
        nodes = [nodes_of(folder / f"{one.name}.jsonl") for one in (ready, newest)]
        assert nodes[0]["p0"] == nodes[1]["p0"]
    assert len(said) == 3
    assert said[0].startswith("ready for the next epoch: 1 of 3 problems have nodes, 1 of them new")
    # All of it again, as after a kill: another server, another maker.
    with growing(said.append) as (resumed, address):
        assert resumed.begin().with_nodes == 3
        assert rewards(address, folder, 1, *samples)[0].score.num_nodes >= 2
        assert [one.score.num_nodes for one in rewards(address, folder, 0, *samples)] == [0, 0]


def test_what_the_server_refused_is_tried_again_without_new_samples(
    log: Log, growing: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    with growing() as (growth, _):
        log.add(Group(0, 1), Group(0, 4))
        with monkeypatch.context() as away:
            away.setattr(growth, "_address", "127.0.0.1:1")
            with pytest.raises(ConsensusPRError):
                growth.grow()
        ready = growth.grow()
        assert ready is not None
        assert ready.with_nodes == 1
        assert growth.grow() is None


def test_another_dataset_or_another_process_is_refused(
    tmp_path: Path, log: Log, job: Callable[..., BuildJob]
) -> None:
    def growth(**changes: Any) -> Growth:
        return Growth(job(**changes), address, Access(), lambda sentence: None)

    with served(tmp_path, job().problems or "") as address:
        with growth() as first:
            first.begin()
            with pytest.raises(InputError, match="another process grows the nodes of"), growth():
                pass
        other = write_rows(tmp_path / "data" / "other.jsonl", [question(7)])
        with (
            growth(problems=other) as wrong_one,
            pytest.raises(InputError, match="was begun with another dataset"),
        ):
            wrong_one.begin()
    state = json.loads((log.run / "nodes" / "ready.json").read_bytes())
    assert state["name"] == "default"


@pytest.fixture
def rounds(
    job: Callable[..., BuildJob], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Iterable[Any]], list[str]]:
    """Return what is said while rounds end in these ways, on a clock that only pauses move."""
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds

    def said_in(ends: Iterable[Any]) -> list[str]:
        said: list[str] = []
        left = iter(ends)

        def grow(self: Growth) -> None:
            end = next(left)
            if end is not None:
                raise end

        monkeypatch.setattr(Growth, "grow", grow)
        with Growth(job(), "127.0.0.1:1", Access(), said.append) as growth:
            try:
                growth.keep_on()
            except (SystemExit, ConsensusPRError) as end:
                said.append(f"{type(end).__name__}: {end}")
        return said

    monkeypatch.setattr(time, "sleep", pause)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(os, "setpriority", lambda *which: None)
    return said_in


def test_what_fails_is_said_and_tried_again(rounds: Callable[[Iterable[Any]], list[str]]) -> None:
    ends = [
        ConsensusPRError("the server is away"),
        OSError(28, "disk full"),
        sqlite3.OperationalError("disk I/O error"),
        None,
        ZeroDivisionError("a defect"),
        SystemExit(0),
    ]
    assert rounds(ends) == [
        "no new nodes: the server is away; again in 2 s",
        "no new nodes: [Errno 28] disk full; again in 4 s",
        "no new nodes: OperationalError: disk I/O error; again in 8 s",
        "after 3 rounds that failed, nodes grow again",
        "no new nodes: ZeroDivisionError: a defect; again in 2 s",
        "SystemExit: 0",
    ]


def test_rounds_that_only_fail_end_with_the_reason(
    rounds: Callable[[Iterable[Any]], list[str]],
) -> None:
    *told, last = rounds(itertools.repeat(ConsensusPRError("the server is away")))
    assert len(told) > 10
    assert last.startswith("ConsensusPRError: no new nodes for 60 minutes, in")
    assert last.endswith("rounds that failed; the last: the server is away")
    # An hour of failures, a success, and another hour.
    away = [ConsensusPRError("the server is away")] * 60
    assert rounds([*away, None, *away, SystemExit(0)])[-1] == "SystemExit: 0"
