"""verl's agent loops, with the mask of the tokens that the policy wrote in each sample.

verl passes a reward the whole response without ``response_mask``, but with what an agent loop puts
into ``extra_fields``.  So the mask goes there while the reward is computed.

``actor_rollout_ref.rollout.agent.agent_loop_manager_class`` names the manager; our trainers
(:mod:`consensuspr.client.verl.trainer`) set it by default.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import ray
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from consensuspr.client.verl.sample import MASK, ONE_TURN


class MaskingAgentLoopWorker(AgentLoopWorkerTQ.__ray_metadata__.modified_class):  # type: ignore[misc]
    """verl's worker, which hands the mask of a trajectory to its reward."""

    async def _compute_score(self, outputs: list[Any], kwargs: dict[str, Any]) -> None:
        final = outputs[-1]
        if final.num_turns > ONE_TURN or 0 in final.response_mask:
            final.extra_fields[MASK] = np.array(final.response_mask, dtype=np.uint8)
        try:
            await super()._compute_score(outputs, kwargs)
        finally:
            final.extra_fields.pop(MASK, None)


class MaskingAgentLoopManager(AgentLoopManagerTQ):  # type: ignore[misc]
    """verl's manager with workers of ours."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(MaskingAgentLoopWorker)
