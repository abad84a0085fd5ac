"""A reply put together from the body of a streamed response.

Streaming is what survives slow models: a silent connection is told from a slow one, proxies see
traffic, and a cut is noticed because no ``finish_reason`` came.  The events are read here and
not by openai's own reader, which builds a validated object for every token (a hundred times the
work) and believes what servers send; only its bytes are used.

Lines end at LF alone: readers that split where Unicode sees a line end break JSON that holds
U+2028 unescaped.  What a hostile or broken server can make this hold is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from consensusbench.models.failures import AttemptFailed, from_event
from consensuspr.errors import ModelRefused

MAX_LINE_BYTES = 16 << 20
MAX_TEXT_CHARS = 16 << 20
DONE = b"[DONE]"
# For the few bytes that end a body; a connection that brings none is closed instead.
DRAIN_S = 2.0


class Assembly:
    """The parts of one reply as they come in."""

    def __init__(self) -> None:
        self.model = ""
        self.reply_id: str | None = None
        self.finish_reason: str | None = None
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._chars = 0

    @property
    def text(self) -> str:
        """What was said so far."""
        return "".join(self._text)

    @property
    def reasoning(self) -> str | None:
        """What was thought so far, None where nothing was sent."""
        return "".join(self._reasoning) or None

    def add(self, event: object) -> None:
        """Take in one event of a stream, or a whole reply.

        Raises:
            AttemptFailed: it is no such thing, it reports an error, or the reply has no end.
        """
        if not isinstance(event, dict):
            raise AttemptFailed("the reply holds something that is no JSON object")
        if event.get("error"):
            raise from_event(event["error"])
        self.model = _string(event.get("model")) or self.model
        self.reply_id = _string(event.get("id")) or self.reply_id
        self._count(event.get("usage"))
        choices = event.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            self._choice(choices[0])

    def _choice(self, choice: dict[str, Any]) -> None:
        said = choice.get("delta") or choice.get("message")
        if isinstance(said, dict):
            self._keep(self._text, _string(said.get("content")) or _string(said.get("refusal")))
            thought = _string(said.get("reasoning_content")) or _string(said.get("reasoning"))
            self._keep(self._reasoning, thought)
        self.finish_reason = _string(choice.get("finish_reason")) or self.finish_reason

    def _keep(self, parts: list[str], part: str) -> None:
        if part:
            parts.append(part)
            self._chars += len(part)
            if self._chars > MAX_TEXT_CHARS:
                raise AttemptFailed(
                    f"the reply is longer than {MAX_TEXT_CHARS:,} characters", ModelRefused
                )

    def _count(self, usage: object) -> None:
        if isinstance(usage, dict):
            prompt = _whole(usage.get("prompt_tokens"))
            completion = _whole(usage.get("completion_tokens"))
            self.prompt_tokens = self.prompt_tokens if prompt is None else prompt
            self.completion_tokens = self.completion_tokens if completion is None else completion


async def read_events(body: AsyncIterator[bytes], assembly: Assembly) -> None:
    """Take in a stream of server-sent events up to its end.

    Raises:
        AttemptFailed: broken JSON, a line that is too long, an error event.
    """
    rest = bytearray()
    async for block in body:
        # Only the block is searched: a line that comes in a thousand pieces is not read anew
        # with each.
        first, *others = block.split(b"\n")
        rest += first
        for other in others:
            line, rest = rest, bytearray(other)
            if _take_line(line, assembly):
                await _drain(body)
                return
        if len(rest) > MAX_LINE_BYTES:
            raise AttemptFailed(f"the reply has a line of over {MAX_LINE_BYTES:,} bytes")
    _take_line(rest, assembly)


async def read_whole(body: AsyncIterator[bytes], assembly: Assembly) -> None:
    """Take in the body of a server that answers in one piece although it was asked to stream."""
    whole = bytearray()
    async for block in body:
        whole += block
        if len(whole) > MAX_LINE_BYTES:
            raise AttemptFailed(f"the reply has over {MAX_LINE_BYTES:,} bytes", ModelRefused)
    assembly.add(_parse(whole))


async def _drain(body: AsyncIterator[bytes]) -> None:
    """Read past the end mark: a connection is used again only once its body is over."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_S):
            async for _ in body:
                pass


def _take_line(line: bytearray, assembly: Assembly) -> bool:
    """Take in one line; say whether it was the end mark."""
    if not line.startswith(b"data:"):
        return False  # comments that keep a connection alive, event names, blank lines
    data = line[len(b"data:") :].strip()
    if data == DONE:
        return True
    if data:
        assembly.add(_parse(data))
    return False


def _parse(data: bytearray) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        start = data[:60].decode("utf-8", "replace")
        raise AttemptFailed(f"the reply is broken JSON: {start!r}") from None


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: object) -> int | None:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40
    return value if good and isinstance(value, int) else None
