"""Language models behind OpenAI-compatible servers, asked carefully and paid for once.

:class:`ChatModel` asks one model and survives what servers do; a :class:`Budget` shared by
several limits what they spend; a :class:`Journal` keeps every reply on disk, so that a run that
was killed goes on where it was.  What is asked, and what a reply means, is the caller's.
"""

from __future__ import annotations

from consensusbench.llm.client import ChatModel, ask_key, ask_once
from consensusbench.llm.limits import Budget, Spent, spent_on
from consensusbench.llm.types import Message, ModelSettings, Reply, read_models
from consensusbench.store import Journal
from consensuspr.errors import (
    BudgetSpent,
    ModelError,
    ModelNoAccess,
    ModelRefused,
    ModelUnavailable,
)

__all__ = [
    "Budget",
    "BudgetSpent",
    "ChatModel",
    "Journal",
    "Message",
    "ModelError",
    "ModelNoAccess",
    "ModelRefused",
    "ModelSettings",
    "ModelUnavailable",
    "Reply",
    "Spent",
    "ask_key",
    "ask_once",
    "read_models",
    "spent_on",
]
