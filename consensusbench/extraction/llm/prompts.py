"""The prompts, which are text files of this package, and the conversation made of them.

A dataset records :data:`PROMPT_VERSION` and :func:`prompt_digest`: who changes a word of a
prompt gets another digest without having to think of it.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from string import Template

from consensusbench.extraction.llm.quoting import clip_middle
from consensusbench.models import Message

PROMPT_VERSION = "1"
NAMES = ("system", "extract", "again")

# Of a malformed reply that is sent back: enough to see what was meant.
MAX_ECHOED_CHARS = 8_000


def first_messages(quotation: str, max_nodes: int) -> list[Message]:
    """Return the question about one problem.

    Args:
        quotation: problem and rollouts, see :func:`quoting.quote`.
        max_nodes: nodes to ask for at most.
    """
    question = Template(_text("extract")).substitute(quotation=quotation, max_nodes=max_nodes)
    return [Message("system", _text("system")), Message("user", question)]


def again_messages(reply: str, fault: str) -> list[Message]:
    """Return the turns that send a malformed reply back.

    Args:
        reply: as the model gave it.
        fault: what is wrong with it, one clause.
    """
    echoed = clip_middle(reply, MAX_ECHOED_CHARS).encode("utf-8", "replace").decode()
    return [
        # Servers refuse an empty turn.
        Message("assistant", echoed.strip() or "{}"),
        Message("user", Template(_text("again")).substitute(fault=fault)),
    ]


@cache
def prompt_digest() -> str:
    """Return 16 hexadecimal digits that stand for the text of all prompts."""
    whole = "\x00".join(_text(name) for name in NAMES)
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


@cache
def _text(name: str) -> str:
    path = files("consensusbench.extraction.llm") / "prompts" / f"{name}.txt"
    return path.read_text(encoding="utf-8").strip()
