"""The page of some runs, served by the real command and asked over real HTTP."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.score_logs import wait_until

SAMPLE = Path(__file__).resolve().parents[1] / "examples" / "sample"
DATASET = SAMPLE / "dataset.jsonl"


class Reply(NamedTuple):
    """What came back: code, headers in small letters, body."""

    code: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass
class Watched:
    """A page that is served.

    Attributes:
        url: ``http://HOST:PORT``.
        pid: of its process.
    """

    url: str
    pid: int

    def ask(
        self, path: str, data: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Return the reply to a request, whatever its code."""
        request = urllib.request.Request(self.url + path, data, dict(headers or {}))
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return _reply(reply)
        except urllib.error.HTTPError as error:
            with error:
                return _reply(error)

    def get(self, path: str, **query: object) -> Any:
        """Return a document, which must be there."""
        told = urllib.parse.urlencode(query)
        reply = self.ask(f"/api/{path}{'?' + told if told else ''}")
        assert reply.code == 200, reply
        return reply.json

    def wait_for(self, condition: Callable[[Any], object]) -> None:
        """Wait until ``state`` is as wanted."""
        wait_until(lambda: condition(self.get("state")))

    def wait_read(self) -> None:
        """Wait until all runs are read, and datasets too."""
        self.wait_for(
            lambda state: (
                not state["datasets_loading"] and all(run["read"] == 1 for run in state["runs"])
            )
        )


def _reply(reply: Any) -> Reply:
    headers = {name.lower(): value for name, value in reply.headers.items()}
    return Reply(reply.status, headers, reply.read())


@contextmanager
def watching(*arguments: object) -> Iterator[Watched]:
    """Run ``consensuspr watch`` on a free port until the block is left."""
    command = [sys.executable, "-m", "consensuspr.cli", "watch", *map(str, arguments)]
    if "--address" not in command:
        command += ["--address", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("watching on http"), line
            yield Watched(line.split()[-1], process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
