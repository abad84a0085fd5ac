"""The whole-step benchmark's sides, on few rollouts: verl's code runs them, and they agree."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("verl", "0.9", reason="verl 0.9 is not installed: run make test-verl")

from benchmarks import plain_reward, texts
from benchmarks import verl_step as verl
from benchmarks.measure import WrongAnswerError
from benchmarks.processes import serving
from consensuspr.client import RewardClient


def test_all_sides_give_the_rewards_that_are_written_into_the_texts(tmp_path: Path) -> None:
    step = texts.batch(24, 3_000, 5, tmp_path)
    lookup = verl.LookUp([row["response"] for row in step.rows])
    data = verl.batch(step, lambda at, text: [at])
    with serving(step.dataset, tmp_path) as (address, _), RewardClient(address) as client:
        naive = verl.Worker(verl.config(verl.plain_function(step)), lookup)
        ours = verl.Worker(verl.config(verl.manager(address)), lookup)
        sides = {
            "plain": verl.managed(naive, data),
            "plain, by verl's worker": verl.whole_batch(naive, data),
            "ours": verl.managed(ours, data),
            "ours, by verl's worker": verl.whole_batch(ours, data),
            "one batch": verl.batched(client, step),
        }
        for name, run in sides.items():
            verl.check(name, step, run())
        with pytest.raises(WrongAnswerError, match=r"hasty: rollout 23 gets nan, not"):
            verl.check("hasty", step, [*sides["ours"]()[:-1], float("nan")])
        ours.loop.run_until_complete(verl.close(verl.manager(address)))


@pytest.mark.parametrize(
    ("text", "node", "found"),
    [
        ("so $12 \\times 3 = 36$.", "12*3=36", True),
        ("so 112 * 3 = 36", "12*3=36", False),
        ("so 12 * 3 = 365", "12*3=36", False),
        ("112*3=36 and 12*3=36", "12*3=36", True),
        ("\\frac{1}{2} = 0.50", "(1)/(2)=0.5", True),
        ("12,345 + 1{,}000 = 13,345", "12345+1000=13345", True),
    ],
)
def test_the_plain_function_finds_nodes_at_borders_alone(text: str, node: str, found: bool) -> None:
    assert plain_reward.matched(plain_reward.normalised(text), [[node]]) == found
