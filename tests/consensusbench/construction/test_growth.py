"""Nodes made of a training run's own rollouts, and put into service between its epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from consensusbench.construction import BuildJob, OutputPaths, SelectionSettings, build
from consensusbench.construction.growth import Growth, add_nodes
from consensusbench.extraction.refine import PaperRefiner
from consensusbench.extraction.rules import RulesExtractor
from consensuspr.client import Access, LocalClient, Rollout
from consensuspr.client.admin import AdminClient
from consensuspr.client.training.grown import GrownDatasets
from consensuspr.data import read_problems
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
        report: Callable[[str], None] = lambda sentence: None,
    ) -> Iterator[tuple[Growth, str]]:
        folder = log.run / "nodes"
        folder.mkdir(parents=True, exist_ok=True)
        options = ("--workers", "1", "--dataset-folder", str(folder))
        with (
            served(tmp_path, job().problems or "", *options) as address,
            Growth(job(), address, Access(), report) as growth,
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


def test_existing_nodes_and_problems_stay(
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


def test_a_sentence_of_wrong_rollouts_is_no_node(
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
    assert problem.budget is None
    made = problem.metadata["construction"]
    assert made["provenance"]["selection"]["correct"] == "labels"
    assert {rollout["model"] for rollout in made["rollouts"]} == {"toy step 1", "toy step 4"}


# In service.


def test_ready_nodes_reward_the_next_epoch_and_no_sample_before(
    tmp_path: Path,
    log: Log,
    job: Callable[..., BuildJob],
    growing: Growing,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    printed: list[str] = []
    samples = [Rollout("p0", right(0, 0)), Rollout("p1", right(1, 0))]
    folder = log.run / "nodes"

    def have_nodes(address: str, epoch: int) -> list[bool]:
        scored = rewards(address, folder, epoch, *samples)
        return [found.score.num_nodes > 0 for found in scored]

    with growing(printed.append) as (growth, address):
        with (
            pytest.raises(InputError, match="another process is growing the nodes of"),
            Growth(job(), address, Access(), print),
        ):
            pass
        first = growth.begin()
        assert (first.name, first.with_nodes, first.problems) == ("default", 0, 3)
        assert growth.grow() is None
        assert have_nodes(address, 0) == [False, False]
        log.add(Group(0, 1), Group(0, 4))
        ready = growth.grow()
        assert ready is not None and ready.with_nodes == 1
        assert dataset_path(log.run, ready.digest).exists()
        assert growth.grow() is None  # nothing new was scored
        # The epoch under way goes on as it began, also in a worker that starts only now.
        assert have_nodes(address, 0) == [False, False]
        assert have_nodes(address, 1) == [True, False]
        log.add(Group(1, 5), Group(1, 8))
        with monkeypatch.context() as away:
            away.setattr(growth, "_address", "127.0.0.1:1")
            with pytest.raises(ConsensusPRError):
                growth.grow()
        # Tried again without new samples.
        newest = growth.grow()
        assert newest is not None and newest.with_nodes == 2
        assert have_nodes(address, 1) == [True, False]
        assert have_nodes(address, 2) == [True, True]
        log.add(Group(2, 9), Group(2, 12))
        assert growth.grow() is not None
        # Datasets that no epoch took go, but the one before the last may just be taken.
        assert len(list(folder.glob("grown-*.jsonl"))) == 3
        with AdminClient(address) as client:
            assert len(client.list()) == 4
        taken = GrownDatasets(folder).taken().values()
        assert [found.digest for found in taken] == [first.digest, ready.digest, newest.digest]
        nodes = [nodes_of(folder / f"{found.name}.jsonl") for found in (ready, newest)]
        assert nodes[0]["p0"] == nodes[1]["p0"]
        # As after a restart of the server.
        with AdminClient(address) as client:
            for dataset in client.list():
                if dataset.info.name != first.name:
                    client.remove(dataset.info.name)
        assert growth.begin().with_nodes == 3
        assert have_nodes(address, 1) == [True, False]
        other = write_rows(tmp_path / "data" / "other.jsonl", [question(7)])
        with pytest.raises(InputError, match="started with the dataset sha256:"):
            Growth(job(problems=other), address, Access(), print).begin()
    assert len(printed) == 3


@pytest.mark.parametrize("is_known", [True, False])
def test_an_equation_of_a_node_of_another_problem_is_not_rare(
    tmp_path: Path, is_known: bool
) -> None:
    solution = "The sides are p + q = 57, and 3p - 2q = 61, so the answer is 35."
    rows = [
        {"rollout_id": f"r{number}", "model": f"m{number % 2}", "correct": True}
        | {"problem_id": "new", "response": f"{solution} Really, {number}."}
        for number in range(3)
    ]
    problems: list[dict[str, Any]] = [
        {"problem_id": "new", "problem": "Find p.", "ground_truth": "35"},
        *(
            {"problem_id": f"p{number}", "nodes": [{"expressions": [f"x^2 = {number}y"]}]}
            for number in range(30)
        ),
    ]
    if is_known:
        problems[-1] |= {"nodes": [{"expressions": ["a + b = 57"]}]}
    job = BuildJob(
        (write_rows(tmp_path / "rollouts.jsonl", rows),),
        OutputPaths(tmp_path / "grown.jsonl"),
        RulesExtractor(),
        PaperRefiner(),
        problems=write_rows(tmp_path / "problems.jsonl", problems),
        selection=SelectionSettings(trust_labels=True),
    )
    add_nodes(job)
    [new, *_] = read_problems(tmp_path / "grown.jsonl")
    rare = [text for node in new.nodes for text in node.rare]
    assert rare == (["3p - 2q = 61"] if is_known else ["p + q = 57", "3p - 2q = 61"])
