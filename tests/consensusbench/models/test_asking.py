"""Asking through a journal: what was replied once is not paid for again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from consensusbench.llm import Journal, Reply, ask_once
from tests.consensusbench.models.conftest import HELLO
from tests.consensusbench.openai_server import Say

if TYPE_CHECKING:
    from tests.consensusbench.models.conftest import MakeModel
    from tests.consensusbench.openai_server import OpenAIServer


async def test_a_question_is_asked_once_over_runs(
    make_model: MakeModel, openai_server: OpenAIServer, tmp_path: Path
) -> None:
    openai_server.respond = lambda asked: Say(f"reply {asked.number}", reasoning="hm")
    replies: list[list[Reply]] = []
    for _ in range(2):
        with Journal(tmp_path / "j", "nodes", {}) as journal:
            async with make_model(price_in=1.0, price_out=1.0) as model:
                first = await ask_once(model, journal, HELLO)
                other = await ask_once(model, journal, HELLO, sample=1)
                replies.append([first, other])
    assert replies[0] == replies[1] and replies[0][0].text != replies[0][1].text
    assert len(openai_server.asked) == 2


async def test_a_reply_that_came_is_kept_although_nobody_waits_any_more(
    make_model: MakeModel,
    openai_server: OpenAIServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Journal(tmp_path / "j", "nodes", {}) as journal:
        slow = journal.append

        def append(*record: object, **options: object) -> None:
            import time

            time.sleep(0.3)
            slow(*record, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(journal, "append", append)
        async with make_model() as model:
            task = asyncio.ensure_future(ask_once(model, journal, HELLO))
            while not openai_server.delivered:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert len(journal) == 1
