"""The plugin by which verl finds our reward manager and trainers, in every process of a run.

verl 0.9.1 finds it by the entry point ``verl.plugins``; 0.7 and 0.8 by
``VERL_USE_EXTERNAL_MODULES=consensuspr.client.verl.plugin``.
"""

from __future__ import annotations

import importlib.util

from verl.experimental.reward_loop.reward_manager import register

from consensuspr.client.verl.manager import ConsensusRewardManager
from consensuspr.client.verl.run_end import actor_name, print_reason_last

NAME = "consensuspr"

register(NAME)(ConsensusRewardManager)

_name = actor_name()
if _name is None:
    print_reason_last()
# verl's task runner, which makes the V1 trainer, is an actor without a name.  In any other worker
# the trainer's imports would be 100 MB for nothing.
if not _name and importlib.util.find_spec("verl.trainer.ppo.v1") is not None:
    from consensuspr.client.verl import trainer as trainer
