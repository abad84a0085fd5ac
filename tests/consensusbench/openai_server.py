"""An OpenAI-compatible server that misbehaves on purpose.

``respond``, a function of the request that a test may replace at any time, decides each answer; it
runs in a thread of the server.  The server keeps what it was asked.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, TypeAlias


@dataclass(slots=True)
class Asked:
    """One request as it arrived, as the ``number``-th from 0."""

    number: int
    body: dict[str, Any]
    key: str
    delivered: bool = False  # the whole answer was sent

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
    """A completion, after a silence."""

    text: str
    reasoning: str = ""
    finish_reason: str | None = "stop"
    usage: bool = True
    after_s: float = 0.0
    choices: bool = True  # False: an empty list of them


@dataclass(frozen=True, slots=True)
class Refuse:
    """A status other than 200."""

    status: int
    message: str = "no"
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Garbage:
    """Status 200 and a body that breaks off."""


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the connection without a word."""


@dataclass(frozen=True, slots=True)
class Trickle:
    """Status 200 and a body of one byte every tenth of a second, for three seconds."""


Behaviour: TypeAlias = Say | Refuse | Garbage | HangUp | Trickle
Respond: TypeAlias = Callable[[Asked], Behaviour]


class OpenAIServer:
    """The server; a context manager.  ``with OpenAIServer() as server: server.url``."""

    def __init__(self) -> None:
        self.respond: Respond = lambda asked: Say("Answer: 0")
        self.asked: list[Asked] = []
        self.at_once = 0
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        handler = type("Handler", (_Handler,), {"server_of_test": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._thread.join()
        self._server.socket.close()

    @property
    def url(self) -> str:
        """What a client takes as base URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def delivered(self) -> list[Asked]:
        """The requests whose completion was sent as a whole."""
        return [asked for asked in self.asked.copy() if asked.delivered]

    def script(self, *behaviours: Behaviour, then: Behaviour | None = None) -> None:
        """Answer the next requests in this way, in order of arrival; all later ones by ``then``."""
        left = list(behaviours)
        last = then or Say("Answer: 0")
        self.respond = lambda asked: left.pop(0) if left else last

    def take(self, body: bytes, key: str) -> tuple[Asked, Behaviour]:
        """Take in a request; return what is answered."""
        with self._lock:
            asked = Asked(len(self.asked), json.loads(body), key)
            self.asked.append(asked)
            self.at_once += 1
            return asked, self.respond(asked)

    def done(self) -> None:
        """Count a request that is answered."""
        with self._lock:
            self.at_once -= 1

    def wait(self, seconds: float) -> None:
        """Be silent, but not past the end of the test."""
        self._stopped.wait(seconds)


def prompt_tokens(asked: Asked) -> int:
    """What it counts: a token for four characters, begun ones included."""
    return -(-sum(len(message["content"]) for message in asked.body["messages"]) // 4)


class _Handler(BaseHTTPRequestHandler):
    server_of_test: OpenAIServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        key = self.headers.get("authorization", "").removeprefix("Bearer ")
        asked, behaviour = self.server_of_test.take(body, key)
        try:
            match behaviour:
                case HangUp():
                    self.close_connection = True
                case Refuse():
                    error = {"message": behaviour.message, "code": behaviour.code}
                    content = json.dumps({"error": error}).encode()
                    self._send(behaviour.status, content, {"retry-after-ms": "1"})
                case Garbage():
                    self._send(200, b'{"choices": [{"mess')
                case Trickle():
                    self._send(200, b"", {"content-length": "30"})
                    for _ in range(30):
                        self.server_of_test.wait(0.1)
                        self.wfile.write(b" ")
                case Say():
                    self.server_of_test.wait(behaviour.after_s)
                    self._send(200, json.dumps(_completion(asked, behaviour)).encode())
                    asked.delivered = True
        except OSError:
            self.close_connection = True
        finally:
            self.server_of_test.done()

    def _send(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        for name, value in {"content-length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def _completion(asked: Asked, say: Say) -> dict[str, Any]:
    message = {"role": "assistant", "content": say.text, "reasoning_content": say.reasoning or None}
    choice = {"index": 0, "message": message, "finish_reason": say.finish_reason}
    tokens = -(-len(say.text + say.reasoning) // 4)
    usage = {"prompt_tokens": prompt_tokens(asked), "completion_tokens": tokens}
    return {
        "id": f"chat-{asked.number}",
        "object": "chat.completion",
        "model": asked.model,
        "choices": [choice] if say.choices else [],
        **({"usage": usage} if say.usage else {}),
    }
