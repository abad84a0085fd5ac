"""Scoring: a dataset index, answers, rewards and the scorer that joins them.

Names resolve on first use: a client that only describes rollouts imports neither the
matcher nor the answer check.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from consensuspr.scoring.answers import (
        ANSWER_VERSION,
        AnswerStatus,
        AnswerVerifier,
        Verdict,
        verify_answer,
    )
    from consensuspr.scoring.dataset_index import (
        CacheStats,
        DatasetIndex,
        Entry,
        IndexInfo,
        MatcherCache,
    )
    from consensuspr.scoring.derive import derive_dataset
    from consensuspr.scoring.rewards import (
        RewardKind,
        RewardSpec,
        curriculum,
        linear,
        maximum,
        outcome,
    )
    from consensuspr.scoring.scorer import Scorer
    from consensuspr.scoring.types import (
        SCORED_TYPES,
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

_NAMES_OF = {
    "answers": "ANSWER_VERSION AnswerStatus AnswerVerifier Verdict verify_answer",
    "dataset_index": "CacheStats DatasetIndex Entry IndexInfo MatcherCache",
    "derive": "derive_dataset",
    "rewards": "RewardKind RewardSpec curriculum linear maximum outcome",
    "scorer": "Scorer",
    "types": "SCORED_TYPES AnswerRule Explanation Identity InlineNode Limits NodeExplanation"
    " OnUndecided Rollout Score ScoreOptions Status rollout_from_row scored_row",
}
_HOME_OF = {name: home for home, names in _NAMES_OF.items() for name in names.split()}

__all__ = [
    "ANSWER_VERSION",
    "SCORED_TYPES",
    "AnswerRule",
    "AnswerStatus",
    "AnswerVerifier",
    "CacheStats",
    "DatasetIndex",
    "Entry",
    "Explanation",
    "Identity",
    "IndexInfo",
    "InlineNode",
    "Limits",
    "MatcherCache",
    "NodeExplanation",
    "OnUndecided",
    "RewardKind",
    "RewardSpec",
    "Rollout",
    "Score",
    "ScoreOptions",
    "Scorer",
    "Status",
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


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
