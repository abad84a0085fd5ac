"""The plugin in the real ms-swift: its registry, and its computing of rewards; a real server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("swift", reason="ms-swift is not installed: run make test-trl")
torch = pytest.importorskip("torch", reason="torch is not installed: run make test-trl")

# Of what ms-swift imports.
pytestmark = pytest.mark.filterwarnings("ignore")

QUESTION = {"role": "user", "content": "What is 1 and 1?"}
SHOT = [{"role": "user", "content": "2 and 2?"}, {"role": "assistant", "content": "2+2=4"}]


def sample(*messages: dict[str, str], turns: int = 0, **columns: Any) -> Any:
    """Return a sample with token ids as ms-swift has them: of turns, a list for each."""
    from swift.rl_core.data import GRPOSample

    return GRPOSample(
        messages=[*SHOT, QUESTION, *messages],
        response_token_ids=[[1, 2]] * turns if turns else [1, 2],
        extra={"problem_id": "toy/1", **columns},
    )


def compute(*samples: Any, state: Any = None, **settings: Any) -> Any:
    from swift.rewards import orms
    from swift.rl_core.grpo_algorithm import compute_rewards_per_func

    from consensuspr.client.ms_swift import consensus_orm

    orms["consensus"] = consensus_orm(name="NodeReward", **settings)
    reward = orms["consensus"](args=None)
    assert type(reward).__name__ == "NodeReward", "what its log calls it"
    rewards = [
        compute_rewards_per_func(list(samples), [reward], [None], torch.device("cpu"), state)
        for _ in range(2)  # on one loop, though ms-swift makes one for each batch
    ]
    assert torch.equal(*rewards)
    return rewards[0].flatten().tolist()


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def test_rewards(address: str) -> None:
    assert compute(
        sample(assistant("1+1=2 and 2+2=4 Answer: 2")),
        sample(assistant("1+1=2 Answer: 3"), ground_truth="2"),
        address=address,
    ) == [1.0, 0.25], "and no word of the prompt's example"


def test_what_tools_say_earns_nothing_and_each_turn_of_the_policy_counts(address: str) -> None:
    turns = [assistant("1+1=2"), {"role": "tool", "content": "2+2=4"}, assistant("Answer: 2")]
    assert compute(sample(*turns, turns=2), address=address) == [0.75]


@pytest.mark.parametrize(("epoch", "reward"), [(0.9, 0.5), (1.0, 0.0)])
def test_the_curriculum_follows_the_trainer(address: str, epoch: float, reward: float) -> None:
    state = SimpleNamespace(epoch=epoch, global_step=3)
    one = sample(assistant("1+1=2 Answer: 3"))
    assert compute(one, state=state, address=address, reward="curriculum") == [reward]


def test_a_failure_ends_the_training(address: str) -> None:
    with pytest.raises(Exception, match="problem 'nobody' ended with UNKNOWN_PROBLEM"):
        compute(sample(assistant("?"), problem_id="nobody"), address=address)
