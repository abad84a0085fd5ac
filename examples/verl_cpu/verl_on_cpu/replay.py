"""verl's replay buffer, asked more often whether the rollouts are there.

verl looks every two seconds, which is nothing beside a step on a GPU and half of a step here.
`trainer.v1.sampler.custom_sampler` is verl's own key for another buffer.
"""

from __future__ import annotations

from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer


class PromptReplayBuffer(ReplayBuffer):  # type: ignore[misc]
    """The buffer of verl with a poll interval of 50 ms."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs, poll_interval=0.05)
