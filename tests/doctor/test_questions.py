"""Which problems have a reward under which settings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from consensuspr.client import InlineNode, LocalClient, Rollout
from consensuspr.client.training import RewardSettings
from consensuspr.doctor.dataset_checks import BATCH, Answers, Question, Questioner, Side

NODES = [{"node_id": "a", "expressions": ["x=55"]}]
PROBLEMS = [
    {"problem_id": "full", "ground_truth": "55", "nodes": NODES},
    {"problem_id": "bare", "ground_truth": "1/2", "nodes": []},
    {"problem_id": "open", "nodes": NODES},
]
INLINE = [InlineNode(["x=1"])]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalClient]:
    """The dataset, scored in this process."""
    path = tmp_path_factory.mktemp("dataset") / "problems.jsonl"
    path.write_text("".join(json.dumps(problem) + "\n" for problem in PROBLEMS))
    with LocalClient(Path(path)) as local:
        yield local


def asked(
    client: LocalClient, settings: RewardSettings, *rollouts: tuple[str, str | None, Any]
) -> Answers:
    questioner = Questioner(client, None, settings)
    for problem_id, truth, nodes in rollouts:
        questioner.ask(Question(Side.TRAIN, Rollout(problem_id, "", truth, nodes=nodes), "here"))
    questioner.finish()
    return questioner.answers[Side.TRAIN]


NO_NODES, NO_TRUTH = "without nodes", "without ground truth"
UNKNOWN = "unknown to the server"
NEITHER = f"{UNKNOWN}, and without ground truth"


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
    assert all(tally.count == 1 for unscorable in found for tally in unscorable.values())


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
    assert answers.never_rewarded == 2


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
    questioner = Questioner(client, None, RewardSettings(**settings))
    questioner.ask(Question(Side.VALIDATION, Rollout("bare", ""), "here", split))
    questioner.finish()
    assert list(questioner.answers[Side.VALIDATION].unscorable) == reasons
