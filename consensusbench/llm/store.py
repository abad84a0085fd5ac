"""Asking through a journal: nothing that was replied once is paid for again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from consensusbench.llm.client import ChatModel
from consensusbench.llm.types import Message, ModelSettings, Reply
from consensusbench.store import Journal, digest, write_down


def ask_key(
    settings: ModelSettings,
    messages: Sequence[Message],
    *,
    temperature: float | None = None,
    json_schema: Mapping[str, Any] | None = None,
    seed: int | None = None,
    sample: object = 0,
) -> str:
    """Return the key of a question: equal keys were asked the same of the same model.

    Args:
        settings: who is asked; address, limits and prices do not count.
        messages: what is asked.
        temperature: as given to ``ask``.
        json_schema: as given to ``ask``.
        seed: as given to ``ask``.
        sample: tells apart samples of the same question; any JSON value.
    """
    asked = settings.sampling() | ({} if temperature is None else {"temperature": temperature})
    turns = [[message.role, message.content] for message in messages]
    return digest([settings.name, asked, turns, json_schema, seed, sample])


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
