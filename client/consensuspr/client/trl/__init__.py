"""The reward service in TRL: a reward function for ``GRPOTrainer``.

::

    from consensuspr.client.trl import consensus_reward

    trainer = GRPOTrainer(
        model=..., train_dataset=..., args=...,
        reward_funcs=consensus_reward(address="127.0.0.1:50051", reward="linear", alpha=0.5),
    )

Nothing of TRL is imported; ``docs/trl.md`` describes settings and columns.
"""

from consensuspr.client.trl.reward import RewardFunction, consensus_reward

__all__ = ["RewardFunction", "consensus_reward"]
