"""The rows: ids of two things, problems without a reward, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consensuspr.client import InlineNode, LocalClient, NcrKind, Rollout
from consensuspr.client.training import RewardSettings
from consensuspr.client.verl.files import (
    BATCH,
    Occurrences,
    ProblemQuestion,
    RowScan,
    SeenProblems,
    Split,
    SplitRows,
    ask_for,
)
from consensuspr.doctor.dataset_checks import check_problems
from consensuspr.doctor.verl_config import NO_RUN
from consensuspr.errors import InvalidRequest, Unavailable
from tests.doctor.conftest import no_progress
from tests.rows import write_rows

if TYPE_CHECKING:
    from tests.doctor.conftest import Lines, Plan


def test_problems_are_new_once_on_each_side() -> None:
    seen = SeenProblems()
    assert seen.note(Split.TRAIN, "a", "p", "1", "t row 1")
    assert not seen.note(Split.TRAIN, "a", "p", "1", "t row 2")
    assert seen.note(Split.TRAIN, "b", "q", None, "t row 3")
    assert seen.note(Split.VALIDATION, "a", "p", "1", "v row 1")
    assert not seen.note(Split.VALIDATION, "a", "p", "1", "v row 2")
    assert (seen.two_prompts.count, seen.two_truths.count) == (0, 0)
    assert (seen.leaked.count, seen.leaked.first) == (1, "'a', v row 1")


def test_an_id_with_two_prompts_counts_once() -> None:
    seen = SeenProblems()
    for row, prompt in enumerate(["p", "q", "r", "p"]):
        seen.note(Split.TRAIN, "a", prompt, "1", f"row {row}")
    seen.note(Split.VALIDATION, "b", "p", "1", "")
    assert (seen.two_prompts.count, seen.two_prompts.first) == (1, "'a', row 1")


def test_an_id_with_another_ground_truth_on_the_other_side() -> None:
    seen = SeenProblems()
    seen.note(Split.TRAIN, "a", "p", "1", "")
    seen.note(Split.VALIDATION, "a", "p", "2", "v row 1")
    assert (seen.two_truths.count, seen.two_truths.first) == (1, "'a', v row 1")


def test_progress_ends_with_all_rows_and_problems_are_counted_by_split(tmp_path: Path) -> None:
    files = {}
    for split, num_rows in ((Split.TRAIN, 70), (Split.VALIDATION, 3)):
        rows = [
            {
                "prompt": [{"role": "user", "content": "?"}],
                "extra_info": {"problem_id": f"p{n % 50}"},
            }
            for n in range(num_rows)
        ]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{split}.parquet")
        files[split] = [str(tmp_path / f"{split}.parquet")]
    told: list[object] = []

    @contextmanager
    def progress(what: str, total: int | None, unit: str) -> Iterator[Callable[[int], None]]:
        told.extend((what, total, unit))
        yield told.append

    scan = RowScan(RewardSettings())
    scan.run(files, progress)
    assert told == ["reading", 73, "rows", 64, 70, 73]
    assert [(rows.rows, rows.problems) for rows in scan.rows.values()] == [(70, 50), (3, 3)]


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
    client: LocalClient, settings: RewardSettings, *rollouts: tuple[str, str | None, Any]
) -> SplitRows:
    rows = {Split.TRAIN: SplitRows()}
    questions = [
        ProblemQuestion(Split.TRAIN, Rollout(problem_id, "", truth, nodes=nodes), "here")
        for problem_id, truth, nodes in rollouts
    ]
    ask_for(questions, (client, None), settings, rows)
    return rows[Split.TRAIN]


NO_NODES, NO_TRUTH = "without nodes", "without ground truth"
UNKNOWN = "unknown to the server"
NEITHER = f"{UNKNOWN}, and without ground truth"


def test_nodes_that_do_not_count_and_weights_that_are_not_there(client: LocalClient) -> None:
    settings = RewardSettings(final_nodes=False)
    assert list(asked(client, settings, ("final", None, None)).unscorable) == [NO_NODES]
    assert not asked(client, RewardSettings(), ("final", None, None)).unscorable
    with pytest.raises(InvalidRequest, match="which ncr='weighted' needs"):
        asked(client, RewardSettings(ncr=NcrKind.WEIGHTED), ("full", None, None))


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
    client: LocalClient,
    problem: tuple[str, str | None, Any],
    reasons: tuple[str | None, ...],
) -> None:
    rewards: list[dict[str, Any]] = [
        {"reward": "linear"},
        {"reward": "max"},
        {"reward": "outcome"},
        {"reward": "curriculum"},
        {"reward": "curriculum", "epoch": 0},
        {"reward": "curriculum", "epoch": 1},
    ]
    found = [asked(client, RewardSettings(**reward), problem).unscorable for reward in rewards]
    assert [next(iter(unscorable), None) for unscorable in found] == list(reasons)
    assert all(some.count == 1 for unscorable in found for some in unscorable.values())


@pytest.mark.parametrize(
    ("problem", "reason", "unknown"),
    [
        (("bare", "1/2", None), None, 0),
        (("else", "7", []), None, 0),
        (("else", "7", None), UNKNOWN, 1),
        (("else", None, None), NEITHER, 1),
    ],
)
@pytest.mark.parametrize("without_nodes", ["acc", 0.25])
def test_a_reward_without_nodes_is_for_problems_that_the_server_knows(
    client: LocalClient,
    problem: tuple[str, str | None, Any],
    reason: str | None,
    unknown: int,
    without_nodes: Any,
) -> None:
    rows = asked(client, RewardSettings(without_nodes=without_nodes), problem)
    assert (next(iter(rows.unscorable), None), rows.unknown) == (reason, unknown)


def test_known_problems_and_problems_that_bring_their_nodes(client: LocalClient) -> None:
    answers = asked(
        client,
        RewardSettings(),
        ("full", "55", None),
        ("bare", "1/2", None),
        ("else", "7", None),
        ("else", "7", INLINE),
    )
    assert (answers.asked, answers.known, answers.inline, answers.with_nodes) == (4, 2, 1, 2)
    assert {reason: found.count for reason, found in answers.unscorable.items()} == {
        NO_NODES: 1,
        UNKNOWN: 1,
    }


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
        # What does not survive a box says nothing.
        ("full", "54}", False),
        ("full", r"\boxed{54}", False),
        ("full", "54\nand more", False),
        ("full", "5" * 300, False),
    ],
)
def test_another_ground_truth_in_the_row(
    client: LocalClient, problem_id: str, truth: str, differs: bool
) -> None:
    answers = asked(client, RewardSettings(), (problem_id, truth, None))
    assert answers.other_truth.count == differs


def test_many_problems_are_asked_for_in_several_calls(client: LocalClient) -> None:
    problems = [(f"p{number}", "1", None) for number in range(2 * BATCH + 3)]
    assert asked(client, RewardSettings(), *problems).asked == len(problems)


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
    rows = {Split.VALIDATION: SplitRows()}
    question = ProblemQuestion(Split.VALIDATION, Rollout("bare", ""), "here", split)
    ask_for([question], (client, None), RewardSettings(**settings), rows)
    assert list(rows[Split.VALIDATION].unscorable) == reasons


@pytest.fixture
def scan() -> RowScan:
    """Two thousand rows of one file for each split, of which one problem has no reward."""
    made = RowScan(RewardSettings())
    made.asked = True
    for rows in made.rows.values():
        rows.files, rows.rows, rows.asked, rows.known = 1, 2000, 2000, 1999
        rows.unscorable = {"without nodes": Occurrences(1, "'p', here")}
    return made


def test_a_share_below_all_is_never_100_percent(scan: RowScan, lines: Lines) -> None:
    for rows in scan.rows.values():
        rows.unscorable = {}
    found = lines(check_problems(scan, NO_RUN, RewardSettings()))
    assert found[0].startswith("ok train problems: 1,999 (99.9 %) of 2,000 known to the server, ")


def test_what_the_trainer_does_is_said(scan: RowScan, plan: Plan, lines: Lines) -> None:
    train, val = lines(check_problems(scan, plan(), RewardSettings()))
    start = (
        "1 (0.1 %) of 2,000 have no reward under reward=linear: 1 without nodes (the first: 'p',"
        " here); "
    )
    assert train.startswith(f"FAIL train problems: {start}verl drops the sample and trains its")
    assert val.startswith(f"FAIL val problems: {start}validation goes on without them")
    old = plan({"trainer.use_v1": None})
    assert "training stops at the first" in lines(check_problems(scan, old, RewardSettings()))[0]


def test_a_number_of_the_users_makes_it_a_warning(scan: RowScan, lines: Lines) -> None:
    settings = RewardSettings(on_unscorable=-1.0)
    found = lines(check_problems(scan, NO_RUN, settings))
    assert [line.split()[0] for line in found] == ["warn", "warn"]
    assert "; they get on_unscorable=-1 →" in found[0]


@pytest.mark.parametrize(("unknown", "level"), [(20, "warn"), (21, "FAIL")])
def test_a_number_of_the_users_is_not_for_ids_of_another_dataset(
    scan: RowScan, lines: Lines, unknown: int, level: str
) -> None:
    for rows in scan.rows.values():
        rows.unknown = unknown
        rows.unscorable = {UNKNOWN: Occurrences(unknown, "'p', here")}
    found = lines(check_problems(scan, NO_RUN, RewardSettings(on_unscorable=-1.0)))
    assert [line.split()[0] for line in found] == [level, level]
    assert ("; more than max_unscorable=0.01 allows →" in found[0]) == (level == "FAIL")


def test_a_server_that_fails_in_the_middle(scan: RowScan, lines: Lines) -> None:
    scan.server_error = Unavailable("it went away")
    assert lines(check_problems(scan, NO_RUN, RewardSettings())) == [
        f"FAIL {split} problems: the server failed while they were asked for: it went away → look"
        " at its log"
        for split in Split
    ]


def test_rows_are_read_on_where_the_server_fails(tmp_path: Path) -> None:
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
    scan = RowScan(RewardSettings(), server=(client, None))
    scan.run({Split.TRAIN: [str(tmp_path / "train.parquet")], Split.VALIDATION: []}, no_progress)
    assert (client.calls, str(scan.server_error)) == (1, "it went away")
    assert scan.rows[Split.TRAIN].rows == 2 * BATCH
