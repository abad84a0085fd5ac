"""The reward service in verl: a reward manager, and a custom reward function.

``reward.reward_manager.name=consensuspr`` (verl 0.9.1), or ``source=importlib`` with
``module.path=pkg://consensuspr.client.verl`` and ``name=ConsensusRewardManager`` (any version).
Names resolve on first use, because ``compute_score`` needs nothing of verl.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from consensuspr.client.verl.function import compute_score
    from consensuspr.client.verl.manager import ConsensusRewardManager

_HOME_OF = {
    "ConsensusRewardManager": "consensuspr.client.verl.manager",
    "compute_score": "consensuspr.client.verl.function",
}

__all__ = ["ConsensusRewardManager", "compute_score"]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
