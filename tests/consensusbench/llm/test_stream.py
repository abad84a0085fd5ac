"""Replies put together from bytes, however the network cuts these up."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Sequence
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.llm import client
from consensusbench.llm.client import (
    AttemptFailed,
    ReplyParts,
    backoff_s,
    read_events,
    read_whole,
    retry_after_s,
)
from consensuspr.errors import ModelRefused


async def blocks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def assembled(*parts: bytes) -> ReplyParts:
    reply = ReplyParts()
    asyncio.run(read_events(blocks(*parts), reply))
    return reply


def event(**choice: object) -> bytes:
    return b"data: " + json.dumps({"choices": [choice]}, ensure_ascii=False).encode() + b"\r\n\r\n"


def test_a_long_line_in_small_blocks_is_not_read_anew_with_each() -> None:
    line = event(delta={"content": "x" * (6 << 20)}, finish_reason="stop")
    started = time.process_time()
    reply = assembled(*(line[at : at + 512] for at in range(0, len(line), 512)))
    assert len(reply.text) == 6 << 20
    assert time.process_time() - started < 2.0


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=5),
    st.lists(st.integers(0, 400), max_size=6),
)
def test_a_reply_does_not_depend_on_where_blocks_end(texts: list[str], cuts: Sequence[int]) -> None:
    content = b": comment\n\nevent: x\n"
    content += b"".join(event(delta={"content": text}) for text in texts)
    content += event(delta={}, finish_reason="stop") + b"data: [DONE]\n\nafter"
    edges = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    parts = [content[a:b] for a, b in itertools.pairwise(edges)]
    reply = assembled(*parts)
    assert (reply.text, reply.finish_reason) == ("".join(texts), "stop")


@pytest.mark.parametrize(
    "line",
    [
        b'data: {"choices": null}',
        b'data: {"choices": "x"}',
        b'data: {"choices": [3]}',
        b'data: {"choices": [{"delta": 3}]}',
        b'data: {"choices": [{"delta": {"content": 3}, "finish_reason": 4}]}',
        b'data: {"usage": {"prompt_tokens": "3", "completion_tokens": -1}}',
        b'data: {"usage": {"prompt_tokens": true, "completion_tokens": null}}',
        b'data: {"model": 3, "id": []}',
        b"data:",
        b"id: 3",
    ],
)
def test_what_is_of_the_wrong_kind_is_passed_over(line: bytes) -> None:
    reply = assembled(line + b"\n", event(delta={"content": "5"}, finish_reason="stop"))
    assert (reply.text, reply.finish_reason, reply.completion_tokens) == ("5", "stop", None)


def test_a_last_line_without_an_end_counts() -> None:
    assert assembled(event(delta={"content": "5"}, finish_reason="stop").rstrip()).text == "5"


def test_deep_nesting_is_a_broken_reply() -> None:
    with pytest.raises(AttemptFailed, match="broken JSON"):
        assembled(b"data: " + b"[" * 100_000 + b"\n")


def test_what_a_server_can_make_it_hold_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(client, "MAX_TEXT_CHARS", 100)
    with pytest.raises(AttemptFailed, match="a line of over 1,000 bytes"):
        assembled(*[b"data: "] + [b"x" * 100] * 20)
    with pytest.raises(AttemptFailed, match="longer than 100 characters") as failure:
        assembled(*[event(delta={"content": "x" * 30})] * 5)
    assert failure.value.kind is ModelRefused and not failure.value.is_transient
    with pytest.raises(AttemptFailed, match="over 1,000 bytes"):
        asyncio.run(read_whole(blocks(*[b"x" * 100] * 20), ReplyParts()))


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        ({"message": "m", "code": 500}, True),
        ({"message": "m", "code": 429}, True),
        ({"message": "m"}, True),
        ("overloaded", True),
        ({"message": "m", "code": 400}, False),
    ],
)
def test_an_error_in_a_stream_is_one(error: object, transient: bool) -> None:
    with pytest.raises(AttemptFailed, match="the stream reports an error: ") as failure:
        assembled(b"data: " + json.dumps({"error": error}).encode() + b"\n")
    assert failure.value.is_transient is transient


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": formatdate(1060, usegmt=True)}, 60.0),
        ({"retry-after": formatdate(10, usegmt=True)}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_hints_to_wait_are_read_in_all_their_forms(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after_s(headers, lambda: 1000.0) == seconds


def test_waits_double_up_to_a_bound_after_the_hint() -> None:
    def most(low: float, high: float) -> float:
        return high

    failure = AttemptFailed("busy")
    assert [backoff_s(failure, n, 0.5, most) for n in (1, 2, 3, 9, 500)] == [0.5, 1, 2, 60, 60]
    assert backoff_s(AttemptFailed("busy", retry_after_s=7.0), 1, 0.5, most) == 7.5
