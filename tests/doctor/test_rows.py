"""The rows: what a problem needs for a reward, and what the findings say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consensuspr.client import InlineNode, LocalClient, NcrKind, Rollout
from consensuspr.client.training import RewardSettings
from consensuspr.client.verl.files import (
    BATCH,
    TRAIN,
    VALIDATION,
    Occurrences,
    RowProblem,
    RowScan,
    SplitRows,
)
from consensuspr.errors import InvalidRequest, Unavailable
from tests.doctor.conftest import lines
from tests.rows import write_rows

NODES = [{"node_id": "a", "expressions": ["x=55"]}]
PROBLEMS: list[dict[str, Any]] = [
    {"problem_id": "full", "ground_truth": "55", "nodes": NODES},
    {"problem_id": "bare", "ground_truth": "1/2", "nodes": []},
    {"problem_id": "open", "nodes": NODES},
    {"problem_id": "final", "ground_truth": "55", "nodes": [{**NODES[0], "is_final": True}]},
]
INLINE = [InlineNode(["x=1"])]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalClient]:
    """The dataset, scored in this process."""
    path = write_rows(tmp_path_factory.mktemp("dataset") / "problems.jsonl", PROBLEMS)
    with LocalClient(path) as local:
        yield local


def asked(
    client: LocalClient,
    settings: RewardSettings,
    problem_id: str,
    truth: str | None = None,
    nodes: Any = None,
    row_split: str | None = None,
) -> SplitRows:
    """Ask for one problem."""
    scan = RowScan(settings, (client, None))
    rollout = Rollout(problem_id, "", truth, nodes=nodes)
    scan.ask(iter([RowProblem(TRAIN, rollout, "here", row_split)]))
    return scan.rows[TRAIN]


NO_NODES, NO_TRUTH = "without nodes", "without ground truth"
UNKNOWN = "unknown to the server"
NEITHER = f"{UNKNOWN}, and without ground truth"


def test_nodes_that_do_not_count_and_weights_that_are_not_there(client: LocalClient) -> None:
    settings = RewardSettings(final_nodes=False)
    assert list(asked(client, settings, "final").unscorable) == [NO_NODES]
    assert not asked(client, RewardSettings(), "final").unscorable
    with pytest.raises(InvalidRequest, match="which ncr='weighted' needs"):
        asked(client, RewardSettings(ncr=NcrKind.WEIGHTED), "full")


@pytest.mark.parametrize(
    ("problem", "reasons"),
    [
        # Under linear, max, outcome, the curriculum, and each of its stages.
        (("full", None, None), (None,) * 6),
        (("full", "55", None), (None,) * 6),
        (("bare", None, None), (NO_NODES, NO_NODES, None, NO_NODES, NO_NODES, None)),
        (("open", None, None), (NO_TRUTH, NO_TRUTH, NO_TRUTH, NO_TRUTH, None, NO_TRUTH)),
        (("open", " ", None), (NO_TRUTH, NO_TRUTH, NO_TRUTH, NO_TRUTH, None, NO_TRUTH)),
        (("open", "55", None), (None,) * 6),
        (("else", None, None), (NEITHER,) * 6),
        (("else", "7", None), (UNKNOWN, UNKNOWN, None, UNKNOWN, UNKNOWN, None)),
        (("else", "7", INLINE), (None,) * 6),
        (("else", None, INLINE), (NO_TRUTH, NO_TRUTH, NO_TRUTH, NO_TRUTH, None, NO_TRUTH)),
    ],
)
def test_what_a_reward_needs(
    client: LocalClient, problem: tuple[str, str | None, Any], reasons: tuple[str | None, ...]
) -> None:
    rewards: list[dict[str, Any]] = [
        {"reward": "linear"},
        {"reward": "max"},
        {"reward": "outcome"},
        {"reward": "curriculum"},
        {"reward": "curriculum", "epoch": 0},
        {"reward": "curriculum", "epoch": 1},
    ]
    found = [asked(client, RewardSettings(**reward), *problem).unscorable for reward in rewards]
    assert [next(iter(unscorable), None) for unscorable in found] == list(reasons)
    assert all(some.count == 1 for unscorable in found for some in unscorable.values())


@pytest.mark.parametrize(
    ("problem_id", "truth", "differs"),
    [
        ("full", "55", False),
        ("full", "55.0", False),
        ("full", "54", True),
        ("bare", r"\frac{1}{2}", False),
        ("bare", "0.5", False),
        ("bare", r"\frac{1}{3}", True),
        ("open", "54", False),
        ("else", "54", False),
        # What does not survive a box decides nothing.
        ("full", "54}", False),
        ("full", r"\boxed{54}", False),
        ("full", "54\nand more", False),
        ("full", "5" * 300, False),
    ],
)
def test_another_ground_truth_in_the_row(
    client: LocalClient, problem_id: str, truth: str, differs: bool
) -> None:
    assert asked(client, RewardSettings(), problem_id, truth).other_truth.count == differs


@pytest.mark.parametrize(
    ("split", "settings", "reasons"),
    [
        ("test", {}, []),
        ("test", {"validate_by_acc": False}, [NO_NODES]),
        ("train", {}, [NO_NODES]),
        (None, {}, [NO_NODES]),
    ],
)
def test_validation_without_nodes_has_its_accuracy(
    client: LocalClient, split: str | None, settings: dict[str, Any], reasons: list[str]
) -> None:
    found = asked(client, RewardSettings(**settings), "bare", row_split=split)
    assert list(found.unscorable) == reasons


ONE = {NO_NODES: Occurrences(1, "'p', here")}


@pytest.mark.parametrize(
    ("rows", "settings", "line"),
    [
        ({}, {}, "ok train problems: 2,000 have a reward, "),
        (
            {"unscorable": ONE},
            {},
            "warn train problems: 1 (0.1 %) of 2,000 have no reward under reward=linear: 1 without"
            " nodes (the first: 'p', here) → serve the dataset",
        ),
        (
            {"unscorable": ONE},
            {"max_unscorable": 0},
            "FAIL train problems: 1 (0.1 %) of 2,000 have no reward",
        ),
        (
            {"unscorable": ONE},
            {"on_unscorable": -1.0},
            "warn train problems: 1 (0.1 %) of 2,000 have no reward under reward=linear: 1 without"
            " nodes (the first: 'p', here); they get on_unscorable=-1.0 → serve",
        ),
        # A number of the user's is not for the ids of another dataset, nor for bad rows.
        (
            {"unscorable": {UNKNOWN: Occurrences(21, "'p', here")}, "unknown": 21},
            {"on_unscorable": -1.0},
            "FAIL train problems: 21 (1.1 %) of 2,000 have no reward",
        ),
        (
            {"bad_rows": Occurrences(21, "t row 1: the prompt is missing")},
            {"on_unscorable": -1.0},
            "FAIL train rows: 21 (1.1 %) of 2,000 cannot be rewarded, the first: t row 1",
        ),
    ],
)
def test_what_is_said_of_a_split_of_2000_rows(
    client: LocalClient, rows: dict[str, Any], settings: dict[str, Any], line: str
) -> None:
    scan = RowScan(RewardSettings(**settings), (client, None))
    counts = {"files": 1, "rows": 2000, "asked": 2000, **rows}
    scan.rows[TRAIN] = SplitRows(**counts)
    assert [found for found in lines(scan.findings()) if found.startswith(line)]


def test_rows_are_read_on_if_the_server_fails(tmp_path: Path) -> None:
    class Failing:
        calls = 0

        def score_with(self, *_: Any) -> Any:
            self.calls += 1
            raise Unavailable("it went away")

    rows = [
        {"prompt": [{"role": "user", "content": "?"}], "extra_info": {"problem_id": f"p{n}"}}
        for n in range(2 * BATCH)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "train.parquet")
    client: Any = Failing()
    read = RowScan(RewardSettings(), (client, None))
    read.run({TRAIN: [str(tmp_path / "train.parquet")], VALIDATION: []})
    assert client.calls == 1
    assert lines(read.findings()) == [
        f"ok train rows: {2 * BATCH:,} in 1 file, {2 * BATCH:,} problems",
        "FAIL train problems: the server failed: it went away → see its log",
    ]
