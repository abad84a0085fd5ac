"""The NCR of responses without a marked final answer, in this process and at a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from consensuspr.client import (
    LocalClient,
    RewardClient,
    RewardSpec,
    Rollout,
    Status,
)

STEPS = "16 - 3 - 4 = 9 eggs are left, and 9 * 2 = 18 dollars. "
ZERO = RewardSpec.linear(unanswered="zero")

# What follows the steps, and the rules by which it is a final answer.
ENDINGS = [
    (r"\boxed{18}", {"auto", "boxed", "dapo"}),
    (r"\boxed{wrong}", {"auto", "boxed", "dapo"}),
    (r"\boxed{18", {"auto", "boxed"}),
    (r"\boxed{}", set()),
    (r"\boxed{18} is it." + " So it is." * 50, {"auto", "boxed"}),
    (r"\boxed{10^{10^{10}}}", {"auto", "boxed", "dapo"}),  # undecided
    ("#### 18", {"auto", "gsm8k"}),
    ("####", set()),
    ("Answer: 18", {"auto", "dapo"}),
    ("Answer:  ", set()),
    ("The answer is 18.", {"auto"}),
    ("Answer: 18" + " and so on" * 50, set()),
    ("I hope the answer is correct.", set()),
    ("Ann makes 18", set()),
    ("", set()),
]  # fmt: skip


@pytest.fixture(scope="module", params=["local", "server"])
def client(
    request: pytest.FixtureRequest, dataset: Path, real_server: str
) -> Iterator[LocalClient | RewardClient]:
    with (
        LocalClient(dataset=dataset)
        if request.param == "local"
        else RewardClient(real_server) as found
    ):
        yield found


@pytest.mark.parametrize("rule", ["auto", "boxed", "dapo", "gsm8k"])
def test_a_response_without_a_marked_answer(client: LocalClient | RewardClient, rule: str) -> None:
    rollouts = [Rollout("ducks", STEPS + ending) for ending, _ in ENDINGS]
    usual = client.score(rollouts, answer_rule=rule)
    zeroed = client.score(rollouts, ZERO, answer_rule=rule)
    assert zeroed.identity.reward == ZERO
    for (ending, rules), before, after in zip(ENDINGS, usual, zeroed, strict=True):
        assert before.ncr == 1.0
        assert after.ncr == (1.0 if rule in rules else 0.0), ending
        assert (after.ncr_raw, after.guard, after.acc) == (1.0, 1.0, before.acc)
        assert after.reward == 0.5 * (after.acc or 0.0) + 0.5 * after.ncr


@pytest.mark.parametrize(
    ("reward", "epoch", "expected"),
    [
        (RewardSpec.maximum(unanswered="zero"), 0, (0.0, 1.0)),
        (RewardSpec.outcome(unanswered="zero"), 0, (0.0, 1.0)),
        # The first stage is the paper's.
        (RewardSpec.curriculum(unanswered="zero"), 0, (1.0, 1.0)),
        (RewardSpec.curriculum(unanswered="zero"), 1, (0.0, 1.0)),
        (RewardSpec.linear(), 0, (1.0, 1.0)),
    ],
)
def test_the_rewards_that_it_concerns(
    client: LocalClient | RewardClient, reward: RewardSpec, epoch: int, expected: tuple[float, ...]
) -> None:
    rollouts = [Rollout("ducks", STEPS), Rollout("ducks", STEPS + "#### 18")]
    scores = client.score(rollouts, reward, epoch)
    assert tuple(score.ncr for score in scores) == expected
    if reward.kind == "curriculum" and epoch == 0:
        assert scores[0].reward == 1.0


def test_the_mark_alone_decides_without_a_ground_truth(client: LocalClient | RewardClient) -> None:
    texts = ("so x = 55", "so x = 55. #### 1", "so x = 55", "")
    nodes = (["x=55"], ["x=66"])
    rollouts = [Rollout("unknown", text, nodes=nodes) for text in texts]
    scores = client.score(rollouts, ZERO)
    assert [score.ncr for score in scores] == [0.0, 0.5, 0.0, 0.0]
    assert {score.status for score in scores} == {Status.NO_GROUND_TRUTH}
    assert client.score([Rollout("ducks", STEPS, nodes=[])], ZERO)[0].ncr is None


def test_an_explanation_has_the_same_ncr(client: LocalClient | RewardClient) -> None:
    score = client.explain(Rollout("ducks", STEPS), ZERO).score
    assert (score.ncr, score.ncr_raw) == (0.0, 1.0)
