"""The custom reward function, against a real server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from consensuspr.client.verl import compute_score
from consensuspr.errors import InputError

TEXT = "16-3-4=9. Answer: 18"


def score(
    extra_info: dict[str, Any], ground_truth: Any = "18", text: str = TEXT, **settings: Any
) -> dict[str, Any]:
    return asyncio.run(
        compute_score(
            data_source="toy",
            solution_str=text,
            ground_truth=ground_truth,
            extra_info=extra_info,
            reward_router_address=None,
            **settings,
        )
    )


def test_it_returns_the_keys_of_every_sample(real_server: str) -> None:
    # Objects of verl's beside the named fields are nothing to it.
    info = {"problem_id": "ducks", "num_turns": 2, "tools_kwargs": object()}
    found = score(info, address=real_server, alpha=0.25)
    expected = {
        "score": 0.625, "acc": 1.0, "ncr": 0.5, "num_nodes": 2, "num_matched": 1,
        "by_statement": 1, "overlong_penalty": 0.0, "status": "OK",
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert None not in found.values()
    assert "tpn" not in found, "it is unknown without token ids"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"alhpa": 1}, "unknown setting 'alhpa' in reward.custom_reward_function.reward_kwargs"),
        ({"reward": "curriculum"}, "a reward function does not see the training step"),
    ],
)
def test_what_a_function_cannot_do_is_refused(
    real_server: str, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        score({"problem_id": "ducks"}, address=real_server, **settings)


def test_a_fixed_epoch_makes_a_curriculum_possible(real_server: str) -> None:
    settings = {"address": real_server, "reward": "curriculum"}
    assert score({"problem_id": "ducks"}, epoch=0, **settings)["score"] == 0.5
    assert score({"problem_id": "ducks"}, epoch=1, **settings)["score"] == 1.0
