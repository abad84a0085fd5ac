"""The reward as verl's custom reward function, for managers other than ours.

Such a function gets neither the step nor the token ids: a curriculum needs a fixed ``epoch``, TPN
is absent, and the overlong penalty belongs to the manager that calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from consensuspr.client.training import EpochClock, RewardSettings, SampleScorer, TrainingRow

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
        data_source: of the row, as the ground truth.
        solution_str: the response.
        ground_truth: see ``data_source``.
        extra_info: of the row; ``problem_id`` or ``index`` names the problem.
        **settings: of the reward (:class:`RewardSettings`).

    Raises:
        InputError: a setting is wrong; other errors are those of :meth:`SampleScorer.score`.
    """
    given = tuple((name, value) for name, value in settings.items() if name not in _OF_VERL)
    columns = {
        "data_source": data_source, "ground_truth": ground_truth, "extra_info": extra_info
    }  # fmt: skip
    row = TrainingRow.of(columns, None)
    figures = (await _samples(given).score(row, solution_str, penalty=None)).numbers()
    del figures["tpn"]  # never known here, and verl would average zeros
    return figures


@lru_cache(maxsize=16)
def _samples(given: tuple[tuple[str, Any], ...]) -> SampleScorer:
    settings = RewardSettings.of(dict(given), SOURCE)
    clock = EpochClock(settings, None, "a reward function does not see the training step")
    return SampleScorer(settings, clock)
