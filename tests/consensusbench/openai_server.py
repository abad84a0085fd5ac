"""An OpenAI-compatible server that misbehaves on purpose.

It speaks HTTP/1.1 over a plain socket, because that is where connections are cut and bytes are
late.  What it does with each request is decided by ``respond``, a function of the request that a
test may replace at any time; it runs in a thread of its own, so that commands in other processes
can be pointed at it.  It keeps what it was asked and what it would have charged for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

CHUNK_CHARS = 16


@dataclass(slots=True)
class Asked:
    """One request as it arrived, as the ``number``-th from 0."""

    number: int
    body: dict[str, Any]
    key: str
    charged: int | None = None  # tokens that were generated; None where no completion began
    delivered: bool = False  # the completion reached its end

    @property
    def model(self) -> str:
        return str(self.body["model"])

    @property
    def prompt(self) -> str:
        """The last message."""
        return str(self.body["messages"][-1]["content"])

    @property
    def seed(self) -> int | None:
        return self.body.get("seed")


@dataclass(frozen=True, slots=True)
class Say:
    """A completion; ``*_s`` are silences, ``*_after`` count chunks."""

    text: str
    reasoning: str = ""
    finish_reason: str | None = "stop"  # None: the stream ends without one
    usage: bool = True
    first_byte_s: float = 0.0  # headers included
    chunk_s: float = 0.0
    cut_after: int | None = None
    broken_after: int | None = None
    error_after: int | None = None
    whole: bool = False  # one JSON body although a stream was asked for
    choices: bool = True  # False: an empty list of them
    hang_s: float = 0.0  # before the end mark


@dataclass(frozen=True, slots=True)
class Refuse:
    """A status other than 200."""

    status: int
    message: str = "no"
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Garbage:
    """Status 200 and a body that is no reply."""

    body: bytes = b'{"choices": [{"mess'
    content_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the connection without a word."""


Behaviour: TypeAlias = Say | Refuse | Garbage | HangUp
Respond: TypeAlias = Callable[[Asked], Behaviour]


class _Cut(Exception):
    """Close the connection now."""


class OpenAIServer:
    """The server; a context manager.  ``with OpenAIServer(respond) as server: server.url``."""

    def __init__(self, respond: Respond | None = None) -> None:
        self.respond: Respond = respond or (lambda asked: Say("Answer: 0"))
        self.asked: list[Asked] = []
        self.connections = 0
        self.at_once = 0
        self.most_at_once = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *exception: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    @property
    def url(self) -> str:
        """What a client takes as base URL."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def charged(self) -> list[Asked]:
        """The requests for which something was generated."""
        return [asked for asked in self.asked.copy() if asked.charged is not None]

    @property
    def delivered(self) -> list[Asked]:
        """The requests whose completion reached its end."""
        return [asked for asked in self.asked.copy() if asked.delivered]

    def script(self, *behaviours: Behaviour, then: Behaviour | None = None) -> None:
        """Answer the next requests in this way, in order of arrival; all later ones by ``then``."""
        left = list(behaviours)
        last = then or Say("Answer: 0")
        self.respond = lambda asked: left.pop(0) if left else last

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while (asked := await self._read(reader)) is not None:
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
                try:
                    await self._answer(asked, writer)
                finally:
                    self.at_once -= 1
        except (_Cut, ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader) -> Asked | None:
        if not await reader.readline():
            return None
        headers: dict[str, str] = {}
        while (line := await reader.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        asked = Asked(
            len(self.asked),
            json.loads(body or b"{}"),
            headers.get("authorization", "").removeprefix("Bearer "),
        )
        self.asked.append(asked)
        return asked

    async def _answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        behaviour = self.respond(asked)
        match behaviour:
            case HangUp():
                raise _Cut
            case Refuse():
                error = {"error": {"message": behaviour.message, "code": behaviour.code}}
                body = json.dumps(error).encode()
                _head(writer, behaviour.status, "application/json", len(body), behaviour.headers)
                writer.write(body)
            case Garbage():
                _head(writer, 200, behaviour.content_type, len(behaviour.body), {})
                writer.write(behaviour.body)
            case Say():
                await self._say(asked, behaviour, writer)
        await writer.drain()

    async def _say(self, asked: Asked, say: Say, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(say.first_byte_s)
        asked.charged = 0
        if say.whole or not asked.body.get("stream"):
            body = json.dumps(_whole(asked, say)).encode()
            _head(writer, 200, "application/json", len(body), {})
            writer.write(body)
            asked.charged = num_tokens(say)
        else:
            _head(writer, 200, "text/event-stream", None, {"x-request-id": f"req-{asked.number}"})
            async for event in _events(asked, say):
                # An event is one chunk of the transfer encoding, as servers send it.
                line = b"data: " + event + b"\n\n"
                writer.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                await writer.drain()
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        asked.delivered = True


def num_tokens(say: Say) -> int:
    """What it counts and charges: a token for four characters, begun ones included."""
    return -(-len(say.text + say.reasoning) // 4)


def prompt_tokens(asked: Asked) -> int:
    """The same for a prompt."""
    return -(-sum(len(message["content"]) for message in asked.body["messages"]) // 4)


async def _events(asked: Asked, say: Say) -> AsyncIterator[bytes]:
    """Yield the events of a stream; count what they cost as they go."""
    parts = [("reasoning_content", part) for part in _parts(say.reasoning)]
    parts += [("content", part) for part in _parts(say.text)]
    base = {"id": f"chat-{asked.number}", "model": asked.model, "object": "chat.completion.chunk"}
    if not say.choices:
        yield json.dumps({**base, "choices": []}).encode()
        parts = []
    for number, (name, part) in enumerate(parts):
        await asyncio.sleep(say.chunk_s)
        if number == say.cut_after:
            raise _Cut
        if number == say.broken_after:
            yield b'{"choices": [{"delta": {"con'
        if number == say.error_after:
            yield json.dumps({"error": {"message": "engine died", "code": 500}}).encode()
        delta = {name: part} if number else {"role": "assistant", name: part}
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        # As some servers do: no escapes, so that any character may stand in a line.
        yield json.dumps({**base, "choices": [choice]}, ensure_ascii=False).encode()
        asked.charged = (asked.charged or 0) + -(-len(part) // 4)
    if say.choices and say.finish_reason is not None:
        last = {"index": 0, "delta": {}, "finish_reason": say.finish_reason}
        yield json.dumps({**base, "choices": [last]}).encode()
    if say.usage and (asked.body.get("stream_options") or {}).get("include_usage"):
        yield json.dumps({**base, "choices": [], "usage": _usage(asked, say)}).encode()
    await asyncio.sleep(say.hang_s)
    yield b"[DONE]"


def _whole(asked: Asked, say: Say) -> dict[str, Any]:
    message = {"role": "assistant", "content": say.text, "reasoning_content": say.reasoning or None}
    choice = {"index": 0, "message": message, "finish_reason": say.finish_reason}
    return {
        "id": f"chat-{asked.number}",
        "object": "chat.completion",
        "model": asked.model,
        "choices": [choice] if say.choices else [],
        **({"usage": _usage(asked, say)} if say.usage else {}),
    }


def _usage(asked: Asked, say: Say) -> dict[str, int]:
    return {"prompt_tokens": prompt_tokens(asked), "completion_tokens": num_tokens(say)}


def _parts(text: str) -> list[str]:
    return [text[start : start + CHUNK_CHARS] for start in range(0, len(text), CHUNK_CHARS)]


def _head(
    writer: asyncio.StreamWriter,
    status: int,
    content_type: str,
    length: int | None,
    more: dict[str, str],
) -> None:
    framing = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    lines = [f"HTTP/1.1 {status} X", f"content-type: {content_type}", framing]
    lines += [f"{name}: {value}" for name, value in more.items()]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
