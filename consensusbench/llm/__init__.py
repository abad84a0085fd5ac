"""Language models behind OpenAI-compatible servers, asked carefully and paid for once.

:class:`ChatModel` asks one model and survives what servers do; a :class:`Budget` shared by
several limits what they spend; a :class:`Journal` keeps every reply on disk, so that a run that
was killed goes on where it was.  What is asked, and what a reply means, is the caller's.
"""

from __future__ import annotations

from consensusbench.llm.client import ChatModel
from consensusbench.llm.store import ask_key, ask_once
from consensusbench.llm.types import (
    Budget,
    Message,
    ModelSettings,
    Reply,
    Spent,
    read_models,
    spent_on,
)
from consensusbench.store import Journal, digest, write_down
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
    "digest",
    "read_models",
    "spent_on",
    "write_down",
]
