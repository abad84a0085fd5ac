"""Asking through a journal: nothing that was replied once is paid for again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from consensusbench.models.client import ChatModel
from consensusbench.models.journal import Journal, ask_key
from consensusbench.models.settings import Message, Reply
from consensuspr.data import Row


async def ask_once(
    model: ChatModel,
    journal: Journal,
    messages: Sequence[Message],
    *,
    temperature: float | None = None,
    json_schema: Mapping[str, Any] | None = None,
    seed: int | None = None,
    sample: object = 0,
) -> Reply:
    """Return the journal's reply to a question, or ask it and write the reply down.

    The record is that of :meth:`Reply.to_row`.  A reply that was received is written down even
    if this is cancelled meanwhile.

    Args:
        model: who is asked.
        journal: where replies are.
        messages: what is asked.
        temperature: see :meth:`ChatModel.ask`.
        json_schema: see :meth:`ChatModel.ask`.
        seed: see :meth:`ChatModel.ask`.
        sample: tells apart samples of the same question; any JSON value.

    Raises:
        ModelError: see :meth:`ChatModel.ask`.
        ConsensusPRError: the journal cannot be written.
    """
    key = ask_key(
        model.settings,
        messages,
        temperature=temperature,
        json_schema=json_schema,
        seed=seed,
        sample=sample,
    )
    record = journal.get(key)
    if record is not None:
        return Reply.from_row(record)

    async def keep(reply: Reply) -> None:
        await write_down(journal, key, reply.to_row())

    return await model.ask(
        messages, temperature=temperature, json_schema=json_schema, seed=seed, keep=keep
    )


async def write_down(journal: Journal, key: str, record: Row, *, durable: bool = True) -> None:
    """Append a record without holding up the event loop; done when this returns or is cancelled.

    Raises:
        ConsensusPRError: the journal cannot be written.
    """
    writing = asyncio.ensure_future(asyncio.to_thread(journal.append, key, record, durable=durable))
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        # What is in hand was paid for.
        await writing
        raise
