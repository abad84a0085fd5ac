"""Step credit in verl, experimental: node rewards on the tokens that reached them, and their use.

Two settings of verl 0.9.1's V1 trainer turn it on::

    actor_rollout_ref.rollout.agent.agent_loop_manager_class=\
consensuspr.client.verl.step_credit.StepCreditManager
    algorithm.adv_estimator=consensuspr_step

The reward worker places the reward on tokens and sends it with the figures of the sample; the agent
loop's worker takes it out again.  Of several outputs of one loop, verl rewards the last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import ray
import torch
from numpy.typing import NDArray
from pydantic import Field
from verl.experimental.agent_loop import AgentLoopOutput
from verl.trainer.ppo.core_algos import register_adv_est

from consensuspr.client.training.credit import compare_group
from consensuspr.client.verl.agent_loop import MaskingAgentLoopManager, MaskingAgentLoopWorker
from consensuspr.client.verl.config import STEP_ESTIMATOR
from consensuspr.client.verl.sample import BY_TOKEN
from consensuspr.errors import InputError

# How far the sum of the tokens' rewards may be from the reward, relative to it where it is large.
_TOLERANCE = 2.0**-20


class CreditedOutput(AgentLoopOutput):  # type: ignore[misc]  # verl has no types
    """An agent loop's output with the rewards of its tokens by their index; others earn 0."""

    by_token: dict[int, float] = Field(exclude=True)

    def as_dict(self) -> dict[str, Any]:
        """Return verl's dictionary of the output, with a reward for each token."""
        output: dict[str, Any] = super().as_dict()
        rewards = torch.zeros_like(output["rm_scores"])
        rewards[list(self.by_token)] = torch.tensor([*self.by_token.values()], dtype=rewards.dtype)
        given, placed = float(self.reward_score), float(rewards.sum())
        if abs(placed - given) > _TOLERANCE * max(1.0, abs(given)):
            raise InputError(f"the rewards of the tokens add up to {placed}, not to {given}")
        output["rm_scores"] = rewards
        return output


class StepCreditWorker(MaskingAgentLoopWorker):
    """A worker of agent loops that lets the reward be placed."""

    async def _compute_score(self, outputs: list[Any], kwargs: dict[str, Any]) -> None:
        final = outputs[-1]
        final.extra_fields[BY_TOKEN] = True
        try:
            await super()._compute_score(outputs, kwargs)
        finally:
            del final.extra_fields[BY_TOKEN]
        figures = final.extra_fields.get("reward_extra_info")
        if figures is None:
            return  # rewarded by the loop itself, or later by a model
        if BY_TOKEN not in figures:
            raise InputError(
                "step credit needs the reward manager that places rewards:"
                " reward.reward_manager.name=consensuspr"
            )
        given = {name: getattr(final, name) for name in final.model_fields_set}
        given |= {"extra_fields": final.extra_fields, "by_token": figures.pop(BY_TOKEN)}
        # verl continues with the outputs in the list.
        outputs[-1] = CreditedOutput(**given)


class StepCreditManager(MaskingAgentLoopManager):
    """A manager of agent loops with these workers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(StepCreditWorker)


@register_adv_est(STEP_ESTIMATOR)  # type: ignore[untyped-decorator]
def step_advantage(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: NDArray[Any],
    config: Mapping[str, Any] | None = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the advantage of each token, and its reward-to-go.

    Let R_i be the whole reward of response *i* of a group, and e_i(t) the sum that its tokens
    before *t* have earned.  The response is compared with those of its group that had earned as
    much at some token::

        A_i(t) = (R_i - mean of R_j over all j with e_j(u) = e_i(t) for a token u) / (s + 1e-6)

    So steps are aligned by the nodes reached.  If no other response came that far, the mean of the
    step before stays.  s is the standard deviation of the group's R, or 1 if
    ``algorithm.norm_adv_by_std_in_grpo`` is False (without the 1e-6).  A group without any node
    has GRPO's advantages, a group of one 0.

    Args:
        token_level_rewards: (n, length) float.
        response_mask: (n, length), 1 for the tokens of the policy; the others get 0.
        index: (n,) group of each response.
        config: verl's ``algorithm``.

    Raises:
        InputError: tokens also earn a KL reward, or rewards are discounted.
    """
    settings = {} if config is None else config
    if settings.get("use_kl_in_reward", False):
        raise InputError(
            f"adv_estimator={STEP_ESTIMATOR} does not work with algorithm.use_kl_in_reward=True;"
            " use the KL loss"
        )
    if settings.get("gamma", 1.0) != 1.0:
        raise InputError(
            f"adv_estimator={STEP_ESTIMATOR} does not discount: algorithm.gamma must be 1, got"
            f" {settings.get('gamma')}"
        )
    by_std = bool(settings.get("norm_adv_by_std_in_grpo", True))
    rewards = token_level_rewards.detach().double().cpu().numpy()
    policy = response_mask.detach().bool().cpu().numpy()
    groups: defaultdict[Any, list[int]] = defaultdict(list)
    for row, group in enumerate(index):
        if policy[row].any():
            groups[group].append(row)
    advantages = np.zeros_like(rewards)
    for rows in groups.values():
        advantages[rows] = compare_group(rewards[rows], policy[rows], by_std)
    to_go = np.flip(np.cumsum(np.flip(rewards, 1), 1), 1) * policy
    made = (torch.from_numpy(values).to(token_level_rewards) for values in (advantages, to_go))
    return next(made), next(made)
