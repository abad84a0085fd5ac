"""Language models behind OpenAI-compatible servers, asked carefully and paid for once.

:class:`ChatModel` asks one model and survives what servers do; a :class:`Budget` shared by
several limits what they spend; a :class:`Journal` keeps every reply on disk, so that a run that
was killed goes on where it was.  What is asked, and what a reply means, is the caller's.
"""

from consensusbench.models.asking import ask_once, write_down
from consensusbench.models.budget import Budget, Spent, spent_on
from consensusbench.models.client import ChatModel
from consensusbench.models.journal import Journal, ask_key, digest
from consensusbench.models.models_file import read_models
from consensusbench.models.settings import Message, ModelSettings, Reply
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
