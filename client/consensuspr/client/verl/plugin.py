"""What verl loads to know our reward manager and trainers, in every process of a run.

verl 0.9.1 finds it by the entry point ``verl.plugins``; 0.7 and 0.8 by
``VERL_USE_EXTERNAL_MODULES=consensuspr.client.verl.plugin``.
"""

from __future__ import annotations

import importlib.util

from verl.experimental.reward_loop.reward_manager import register

from consensuspr.client.verl.manager import ConsensusRewardManager
from consensuspr.client.verl.run_end import actor_name, tell_reason_last

NAME = "consensuspr"

register(NAME)(ConsensusRewardManager)

_name = actor_name()
if _name is None:
    tell_reason_last()
# Where there is a V1 trainer.  verl's task runner, which asks for it, is an actor without a name;
# for any other worker, all that a trainer imports were 100 MB that nobody uses.
if not _name and importlib.util.find_spec("verl.trainer.ppo.v1") is not None:
    from consensuspr.client.verl import trainer as trainer
