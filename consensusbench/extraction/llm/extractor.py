"""``LlmExtractor``: stage 2 of construction by asking a model (paper, section 3.2).

One question a problem: the model sees the problem and some of its correct rollouts and
lists nodes with their wordings and rewritten forms.  The paper's second step, rewriting, is
part of the same question: the model has the rollouts before it, and half the questions
halve what can fail.

A malformed reply goes back with its fault, a bounded number of times.  With a journal a run
that was killed pays nothing twice, and another threshold is tried out without asking anybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from consensusbench.extraction.llm.asking import Asker, Turn
from consensusbench.extraction.llm.checking import check_nodes
from consensusbench.extraction.llm.prompts import (
    PROMPT_VERSION,
    again_messages,
    first_messages,
    prompt_digest,
)
from consensusbench.extraction.llm.quoting import choose_rollouts, quote
from consensusbench.extraction.llm.reply import ClaimedNode, MalformedReplyError, read_reply
from consensusbench.extraction.llm.settings import LlmSettings
from consensusbench.extraction.types import CorrectRollout, Extraction
from consensusbench.models import ChatModel, Journal, Message
from consensusbench.models.tokens import likely_tokens
from consensuspr.core import NORMAL_FORM_VERSION
from consensuspr.data import Problem, Row
from consensuspr.errors import UnusableReply
from consensuspr.scoring.answers import ANSWER_VERSION

# A change of the checks that can change a candidate changes this.
VERSION = "1"


class LlmExtractor:
    """Extracts nodes by asking a model.  Belongs to the event loop of its model.

    Any number of problems may be in flight; the model's own limit on concurrency paces them.

    Args:
        model: who is asked; opened and closed by the caller.
        settings: thresholds and limits.
        journal: where replies are kept; opened and closed by the caller.  None: nowhere.
    """

    name = "llm"

    def __init__(
        self,
        model: ChatModel,
        settings: LlmSettings | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._model = model
        self._settings = LlmSettings() if settings is None else settings
        self._asker = Asker(model, self._settings, journal)

    def provenance(self) -> Row:
        """Return name, model, prompts, versions and thresholds."""
        return {
            "name": self.name,
            "version": VERSION,
            "prompt_version": PROMPT_VERSION,
            "prompt_digest": prompt_digest(),
            "normal_form_version": NORMAL_FORM_VERSION,
            "answer_version": ANSWER_VERSION,
            "model": self._model.settings.provenance(),
            "settings": self._settings.provenance(),
        }

    def messages(self, problem: Problem, rollouts: Sequence[CorrectRollout]) -> list[Message]:
        """Return the question about one problem, as it is sent."""
        settings = self._settings
        shown = choose_rollouts(rollouts, settings.max_prompt_rollouts)
        quotation = quote(problem, shown, settings.max_prompt_chars)
        return first_messages(quotation, settings.max_nodes)

    def prompt_tokens(self, problem: Problem, rollouts: Sequence[CorrectRollout]) -> int:
        """Return how many tokens the question will take, an estimate on the high side."""
        return sum(likely_tokens(one.content) for one in self.messages(problem, rollouts))

    async def extract(self, problem: Problem, rollouts: Sequence[CorrectRollout]) -> Extraction:
        """Return the candidates of one problem from its correct rollouts.

        Nobody is asked where there are fewer rollouts than a node needs for its support.

        Raises:
            UnusableReply: every reply was malformed.
            ModelError: the model gave no reply.
            ConsensusPRError: the journal cannot be written.
        """
        if len(rollouts) < self._settings.min_support:
            return Extraction(())
        claims = await self._claims(problem.problem_id, self.messages(problem, rollouts))
        # Milliseconds of pure computation; other problems' replies come in meanwhile.
        return await asyncio.to_thread(check_nodes, claims, problem, rollouts, self._settings)

    async def _claims(self, problem_id: str, question: Sequence[Message]) -> list[ClaimedNode]:
        """Return the nodes of the first reply that has the form asked for.

        A run of which the journal knows nothing but malformed replies was given up by an
        earlier process; it is passed over, and the model is asked anew.
        """
        run = 0
        while True:
            messages = list(question)
            asked = False
            fault = ""
            for _ in range(1 + self._settings.re_asks):
                reply, fresh = await self._asker.ask(Turn(problem_id, run, messages))
                asked = asked or fresh
                try:
                    return read_reply(reply, self._settings.max_reply_chars)
                except MalformedReplyError as error:
                    fault = str(error)
                    messages = [*messages, *again_messages(reply.text, fault)]
            if asked:
                raise UnusableReply(
                    f"{self._model.settings.name} gave no usable nodes for problem "
                    f"{problem_id!r} in {1 + self._settings.re_asks} replies; the last one: "
                    f"{fault}"
                )
            run += 1
