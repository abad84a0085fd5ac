"""What verl loads to know ``reward.reward_manager.name=consensuspr``.

verl 0.9.1 finds it by the entry point ``verl.plugins`` in every process; 0.7 and 0.8 by
``VERL_USE_EXTERNAL_MODULES=consensuspr.client.verl.plugin``.
"""

from __future__ import annotations

from verl.experimental.reward_loop.reward_manager import register

from consensuspr.client.verl.manager import ConsensusRewardManager

NAME = "consensuspr"

register(NAME)(ConsensusRewardManager)
