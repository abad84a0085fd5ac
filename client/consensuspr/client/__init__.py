"""Clients of the reward service: synchronous, asynchronous, and in-process.

::

    from consensuspr.client import RewardClient, RewardSpec, Rollout

    with RewardClient("127.0.0.1:50051") as client:
        scores = client.score([Rollout("p1", "... so the answer is 12.")], RewardSpec.linear(0.5))

``RewardClient`` and ``AsyncRewardClient`` speak to a server; ``LocalClient`` scores here.
All three give equal scores.  Names resolve on first use: a client of a server imports
neither the matcher nor the answer check, and ``LocalClient`` does not import gRPC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consensuspr.lazy import lazy_names

if TYPE_CHECKING:
    from consensuspr.client.interface import ScoredBatch
    from consensuspr.client.local import LocalClient
    from consensuspr.client.retries import RetryPolicy
    from consensuspr.client.rpc import AsyncRewardClient, RewardClient
    from consensuspr.client.transport import Access
    from consensuspr.scoring.guard import GuardBudget
    from consensuspr.scoring.rewards import CodeCredit, NcrKind, RewardKind, RewardSpec, Unanswered
    from consensuspr.scoring.types import (
        AnswerRule,
        Identity,
        InlineNode,
        OnUndecided,
        Rollout,
        Score,
        Status,
    )
    from consensuspr.wire.server_info import DatasetInfo, ServerInfo

__all__ = [
    "Access",
    "AnswerRule",
    "AsyncRewardClient",
    "CodeCredit",
    "DatasetInfo",
    "GuardBudget",
    "Identity",
    "InlineNode",
    "LocalClient",
    "NcrKind",
    "OnUndecided",
    "RetryPolicy",
    "RewardClient",
    "RewardKind",
    "RewardSpec",
    "Rollout",
    "Score",
    "ScoredBatch",
    "ServerInfo",
    "Status",
    "Unanswered",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".interface": "ScoredBatch",
        ".local": "LocalClient",
        ".retries": "RetryPolicy",
        ".rpc": "AsyncRewardClient RewardClient",
        ".transport": "Access",
        "consensuspr.scoring.guard": "GuardBudget",
        "consensuspr.scoring.rewards": "CodeCredit NcrKind RewardKind RewardSpec Unanswered",
        "consensuspr.scoring.types": "AnswerRule Identity InlineNode OnUndecided"
        " Rollout Score Status",
        "consensuspr.wire.server_info": "DatasetInfo ServerInfo",
    },
)
