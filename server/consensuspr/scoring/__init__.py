"""Scoring: a dataset index, answers, rewards and the scorer that joins them.

Names resolve on first use: a client that only describes rollouts imports neither the
matcher nor the answer check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consensuspr.lazy import lazy_names

if TYPE_CHECKING:
    from consensuspr.scoring.answers import (
        ANSWER_VERSION,
        AnswerStatus,
        AnswerVerifier,
        Verdict,
        verify_answer,
    )
    from consensuspr.scoring.dataset_index import DatasetIndex, Entry, IndexInfo
    from consensuspr.scoring.derive import derive_dataset
    from consensuspr.scoring.guard import GuardBudget, GuardFigures
    from consensuspr.scoring.matcher_cache import CacheStats, MatcherCache
    from consensuspr.scoring.rewards import (
        CodeCredit,
        NcrKind,
        RewardKind,
        RewardSpec,
        Unanswered,
        curriculum,
        linear,
        maximum,
        outcome,
    )
    from consensuspr.scoring.scorer import Scorer
    from consensuspr.scoring.types import (
        SCORED_TYPES,
        SCORING_VERSION,
        AnswerRule,
        Explanation,
        Identity,
        InlineNode,
        Limits,
        NodeExplanation,
        OnUndecided,
        Rollout,
        Score,
        ScoreOptions,
        Status,
        rollout_from_row,
        scored_row,
    )

__all__ = [
    "ANSWER_VERSION",
    "SCORED_TYPES",
    "SCORING_VERSION",
    "AnswerRule",
    "AnswerStatus",
    "AnswerVerifier",
    "CacheStats",
    "CodeCredit",
    "DatasetIndex",
    "Entry",
    "Explanation",
    "GuardBudget",
    "GuardFigures",
    "Identity",
    "IndexInfo",
    "InlineNode",
    "Limits",
    "MatcherCache",
    "NcrKind",
    "NodeExplanation",
    "OnUndecided",
    "RewardKind",
    "RewardSpec",
    "Rollout",
    "Score",
    "ScoreOptions",
    "Scorer",
    "Status",
    "Unanswered",
    "Verdict",
    "curriculum",
    "derive_dataset",
    "linear",
    "maximum",
    "outcome",
    "rollout_from_row",
    "scored_row",
    "verify_answer",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".answers": "ANSWER_VERSION AnswerStatus AnswerVerifier Verdict verify_answer",
        ".dataset_index": "DatasetIndex Entry IndexInfo",
        ".matcher_cache": "CacheStats MatcherCache",
        ".derive": "derive_dataset",
        ".guard": "GuardBudget GuardFigures",
        ".rewards": "CodeCredit NcrKind RewardKind RewardSpec Unanswered"
        " curriculum linear maximum outcome",
        ".scorer": "Scorer",
        ".types": "SCORED_TYPES SCORING_VERSION AnswerRule Explanation Identity InlineNode Limits"
        " NodeExplanation OnUndecided Rollout Score ScoreOptions Status rollout_from_row"
        " scored_row",
    },
)
