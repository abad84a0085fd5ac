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
    from consensuspr.scoring.dataset_index import DatasetIndex
    from consensuspr.scoring.matchers import MatcherCache
    from consensuspr.scoring.rewards import RewardSpec, curriculum, linear, maximum
    from consensuspr.scoring.scorer import Scorer
    from consensuspr.scoring.types import (
        SCORED_TYPES,
        AnswerRule,
        Explanation,
        Identity,
        InlineNode,
        Limits,
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
    "AnswerRule",
    "AnswerStatus",
    "AnswerVerifier",
    "DatasetIndex",
    "Explanation",
    "Identity",
    "InlineNode",
    "Limits",
    "MatcherCache",
    "OnUndecided",
    "RewardSpec",
    "Rollout",
    "Score",
    "ScoreOptions",
    "Scorer",
    "Status",
    "Verdict",
    "curriculum",
    "linear",
    "maximum",
    "rollout_from_row",
    "scored_row",
    "verify_answer",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".answers": "ANSWER_VERSION AnswerStatus AnswerVerifier Verdict verify_answer",
        ".dataset_index": "DatasetIndex",
        ".matchers": "MatcherCache",
        ".rewards": "RewardSpec curriculum linear maximum",
        ".scorer": "Scorer",
        ".types": "SCORED_TYPES AnswerRule Explanation Identity InlineNode Limits OnUndecided"
        " Rollout Score ScoreOptions Status rollout_from_row scored_row",
    },
)
