"""The reward service in verl: a reward manager, and a custom reward function.

``reward.reward_manager.name=consensuspr`` (verl 0.9.1), or ``source=importlib`` with
``module.path=pkg://consensuspr.client.verl`` and ``name=ConsensusRewardManager`` (any version).
Names resolve on first use, because ``compute_score`` needs nothing of verl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consensuspr.lazy import lazy_names

if TYPE_CHECKING:
    from consensuspr.client.verl.function import compute_score
    from consensuspr.client.verl.manager import ConsensusRewardManager

__all__ = ["ConsensusRewardManager", "compute_score"]

__getattr__, __dir__ = lazy_names(
    __name__, {".function": "compute_score", ".manager": "ConsensusRewardManager"}
)
