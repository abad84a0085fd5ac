"""Asking the model for nodes: structured where the server can, on record where there is a journal.

Every reply is in the journal before it is looked at, malformed ones included, so that a
conversation that was interrupted goes on where it was.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from consensusbench.extraction.llm.reply import REPLY_SCHEMA
from consensusbench.extraction.llm.settings import LlmSettings
from consensusbench.models import ChatModel, Journal, Message, Reply, ask_key, ask_once
from consensuspr.errors import ModelRefused

# Of a conversation that is begun anew because every reply to it was malformed: at temperature
# 0 the model would only repeat itself.
RERUN_TEMPERATURE = 0.7

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Turn:
    """One question of one conversation.

    Attributes:
        problem_id: whom it is about; two problems never share a reply.
        run: how many earlier runs ended without a usable reply.
        messages: the conversation so far.
    """

    problem_id: str
    run: int
    messages: Sequence[Message]


class Asker:
    """Asks one model, through one journal.

    Args:
        model: who is asked.
        settings: temperature, seed, and whether the schema is sent.
        journal: where replies are kept; None: nowhere.
    """

    def __init__(self, model: ChatModel, settings: LlmSettings, journal: Journal | None) -> None:
        self._model = model
        self._settings = settings
        self._journal = journal
        self._sends_schema = True
        # A server that took it once refuses a question for something else.
        self._schema_taken = False

    async def ask(self, turn: Turn) -> tuple[Reply, bool]:
        """Return the reply, and whether the model was asked for it now.

        Raises:
            ModelError: the model gave no reply.
            ConsensusPRError: the journal cannot be written.
        """
        structured = self._settings.structured
        if structured != "auto":
            return await self._ask(turn, None if structured == "off" else REPLY_SCHEMA)
        # What is on record counts, in whichever way it was asked for.
        if not self._knows(turn, REPLY_SCHEMA) and (
            not self._sends_schema or self._knows(turn, None)
        ):
            return await self._ask(turn, None)
        try:
            reply, fresh = await self._ask(turn, REPLY_SCHEMA)
        except ModelRefused:
            return await self._ask_without(turn)
        self._schema_taken = self._schema_taken or fresh
        return reply, fresh

    async def _ask_without(self, turn: Turn) -> tuple[Reply, bool]:
        """Ask a refused question for plain JSON, and the later ones if the schema is at fault."""
        answer = await self._ask(turn, None)
        if self._sends_schema and not self._schema_taken:
            self._sends_schema = False
            logger.warning(
                "%s refuses the JSON schema; from now on it is asked for plain JSON",
                self._model.settings.name,
            )
        return answer

    async def _ask(self, turn: Turn, schema: Mapping[str, Any] | None) -> tuple[Reply, bool]:
        how = self._how(turn, schema)
        if self._journal is None:
            return await self._model.ask(turn.messages, **how), True
        known = self._knows(turn, schema)
        sample = [turn.problem_id, turn.run]
        reply = await ask_once(self._model, self._journal, turn.messages, **how, sample=sample)
        return reply, not known

    def _knows(self, turn: Turn, schema: Mapping[str, Any] | None) -> bool:
        """Tell whether the reply is on record."""
        if self._journal is None:
            return False
        how = self._how(turn, schema)
        sample = [turn.problem_id, turn.run]
        return ask_key(self._model.settings, turn.messages, **how, sample=sample) in self._journal

    def _how(self, turn: Turn, schema: Mapping[str, Any] | None) -> dict[str, Any]:
        temperature, seed = self._settings.temperature, self._settings.seed
        if turn.run and temperature is not None:
            temperature = max(temperature, RERUN_TEMPERATURE)
        return {
            "temperature": temperature,
            "json_schema": schema,
            "seed": None if seed is None else seed + turn.run,
        }
