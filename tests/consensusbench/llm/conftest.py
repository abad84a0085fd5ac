"""A model of this test's server, whose waits are short."""

from __future__ import annotations

from typing import Any

import pytest

from consensusbench.llm import Budget, ChatModel, Message, ModelSettings, Reply
from tests.consensusbench.openai_server import OpenAIServer

HELLO = [Message("user", "hello")]


class ModelBench:
    """Makes models that ask a server, which plays what a test wants."""

    def __init__(self, server: OpenAIServer) -> None:
        self.server = server

    def model(self, budget: Budget | None = None, **changes: Any) -> ChatModel:
        """Return a model; ``changes`` to its settings."""
        settings = {"max_retries": 3, "initial_backoff_s": 0.001, "timeout_s": 5.0, **changes}
        return ChatModel(ModelSettings("toy", base_url=self.server.url, **settings), budget)

    async def ask(self, budget: Budget | None = None, **changes: Any) -> Reply:
        """Greet a model of its own."""
        async with self.model(budget, **changes) as model:
            return await model.ask(HELLO)


@pytest.fixture
def bench(openai_server: OpenAIServer) -> ModelBench:
    """Models and their server, of this test's own."""
    pytest.importorskip("openai", reason="asking a model needs the extra consensusbench")
    return ModelBench(openai_server)
