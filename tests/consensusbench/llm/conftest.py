"""Models whose waits are short."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from consensusbench.llm import Budget, ChatModel, Message, ModelSettings
from tests.consensusbench.openai_server import OpenAIServer

MakeModel = Callable[..., ChatModel]
HELLO = [Message("user", "hello")]


@pytest.fixture
def make_model(openai_server: OpenAIServer) -> MakeModel:
    """Make a model of this test's server."""
    pytest.importorskip("openai", reason="asking a model needs the extra consensusbench")

    def make(budget: Budget | None = None, **changes: Any) -> ChatModel:
        values = {
            "base_url": openai_server.url,
            "max_retries": 3,
            "initial_backoff_s": 0.001,
            "timeout_s": 5.0,
            **changes,
        }
        return ChatModel(ModelSettings("toy", **values), budget)

    return make
