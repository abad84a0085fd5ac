"""The child's side of a process that the supervisor starts (``children.py`` is the other).

A child gets its orders as one line of JSON on standard input, and reports once, as one line
of JSON on a pipe whose number is its argument: that it is ready, or why it cannot be.
Standard input stays open for as long as the supervisor lives; its end is how a child
learns that it was left alone, also where the supervisor was killed outright.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

_STANDARD_INPUT = 0


class Orders:
    """What the supervisor said, and how to answer it."""

    def __init__(self) -> None:
        self._report_fd = int(sys.argv[1])
        # Processes that this one starts must not keep the pipe open after its death.
        os.set_inheritable(self._report_fd, False)
        self.payload: dict[str, Any] = json.loads(_read_line())

    def report_ready(self) -> None:
        """Tell the supervisor that this process does its work from here on."""
        self._report({"ready": True})

    def report_failure(self, reason: str, *, bad_input: bool) -> None:
        """Tell the supervisor, in one sentence, why this process cannot do its work.

        Args:
            reason: the sentence.
            bad_input: whether the operator gave something wrong.
        """
        self._report({"ready": False, "reason": reason, "bad_input": bad_input})

    def when_left_alone(self, callback: Callable[[], None]) -> None:
        """Call back, from a thread, when the supervisor is gone."""

        def wait() -> None:
            while os.read(_STANDARD_INPUT, 4096):
                pass
            callback()

        threading.Thread(target=wait, name="supervisor-watch", daemon=True).start()

    def _report(self, report: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # gone; when_left_alone tells
            os.write(self._report_fd, json.dumps(report).encode() + b"\n")


def _read_line() -> bytes:
    # Not through sys.stdin: its lock, held by a thread that waits, aborts the interpreter's
    # shutdown.
    line = bytearray()
    while not line.endswith(b"\n"):
        received = os.read(_STANDARD_INPUT, 65536)
        if not received:
            raise EOFError("the supervisor ended before it gave orders")
        line += received
    return bytes(line)
