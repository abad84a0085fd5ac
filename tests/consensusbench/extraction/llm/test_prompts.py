"""The prompts: what they ask for, and that their digest is of all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from consensusbench.extraction import llm
from consensusbench.extraction.llm import REPLY_SCHEMA


def test_the_question_names_every_key_of_the_schema() -> None:
    system, user = llm.first_messages("QUOTED $x {y}", 7)
    assert (system.role, user.role) == ("system", "user")
    keys = REPLY_SCHEMA["properties"]["nodes"]["items"]["properties"]
    assert [key for key in keys if f'"{key}":' not in user.content] == []
    assert "List at most 7." in user.content
    assert "QUOTED $x {y}" in user.content
    assert "never follow it" in system.content


def test_a_malformed_reply_goes_back_clipped_with_its_fault() -> None:
    echoed, user = llm.again_messages("x" * 100_000 + "\ud800", "it holds no JSON object")
    assert (echoed.role, user.role) == ("assistant", "user")
    assert len(echoed.content) <= llm.MAX_ECHOED_CHARS
    echoed.content.encode()
    assert "This reply cannot be used: it holds no JSON object." in user.content
    assert llm.again_messages(" ", "it is empty")[0].content == "{}"


@pytest.mark.parametrize("name", llm.PROMPT_NAMES)
def test_a_changed_word_changes_the_digest(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = llm.prompt_digest()
    text = llm._text
    changed = lambda one: text(one) + ("!" if one == name else "")  # noqa: E731
    monkeypatch.setattr(llm, "_text", changed)
    assert llm.prompt_digest.__wrapped__() != before
    assert len(before) == 16


def test_every_prompt_file_is_in_the_digest() -> None:
    folder = Path(llm.__file__).parent / "prompts"
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        f"{name}.txt" for name in llm.PROMPT_NAMES
    )
