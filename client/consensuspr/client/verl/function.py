"""The reward as verl's custom reward function, for managers other than ours.

Such a function gets neither the step nor the token ids: a curriculum needs a fixed ``epoch``, TPN
is unknown, and the overlong penalty belongs to the manager that calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from consensuspr.client.training import (
    EpochClock,
    ProblemIds,
    RewardSettings,
    TrainingRow,
    ground_truth_text,
    shared_source,
)

SOURCE = "reward.custom_reward_function.reward_kwargs"

# Arguments that verl passes if a reward model runs.
_OF_VERL = ("reward_router_address", "reward_model_tokenizer")


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str | float | None,
    extra_info: Mapping[str, Any] | None = None,
    **settings: Any,
) -> dict[str, float | int | str]:
    """Return the reward of one response as ``score``, and the figures of the sample.

    Args:
        data_source: of the row.
        solution_str: the response.
        ground_truth: of the row.
        extra_info: of the row; ``problem_id`` or ``index`` names the problem.
        **settings: of the reward (:class:`RewardSettings`).

    Raises:
        InputError: a setting is wrong, or the row names no problem.
        UnscorableSample: there is no reward, and ``on_unscorable`` is ``raise``.
        RewardServiceError: the server rejected it, or was away for too long.
    """
    given = tuple((name, value) for name, value in settings.items() if name not in _OF_VERL)
    read, clock, ids = _read(given)
    truth = ground_truth_text(ground_truth, "ground_truth")
    row = TrainingRow(data_source, truth, extra_info or {}, None)
    rollout = row.rollout(solution_str, ids)
    scored = await shared_source(read).score(rollout, clock.epoch_of(None), row.split, penalty=None)
    return scored.numbers()


@lru_cache(maxsize=16)
def _read(given: tuple[tuple[str, Any], ...]) -> tuple[RewardSettings, EpochClock, ProblemIds]:
    settings = RewardSettings.of(dict(given), SOURCE)
    clock = EpochClock(settings, None, "a reward function does not see the training step")
    return settings, clock, ProblemIds(settings.problem_id_format)
