"""A process and its parent, joined by a socket that carries lines of JSON both ways.

=========  ========================================================================================
to child   first its payload; later ``order`` and ``id`` (something to do), or ``reply`` (the number
           of an ``ask``)
to parent  ``report`` (once: ready, or why not), ``alive`` (a heartbeat), ``answer`` (the ``id`` of
           an order), or ``ask`` (a number) and ``change`` (of datasets, by the supervisor)
=========  ========================================================================================

The parent never waits for a child to read: the event loop buffers unread messages, up to a
limit.  The end of the socket shows a child that its parent is gone.  Each child is a fresh
interpreter in a session of its own: Ctrl-C reaches the parent alone, and killing the session ends
whatever the child has started.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Self

from consensuspr.child_processes import on_parent_death
from consensuspr.errors import ConsensusPRError, InputError

# Unread by a child; further messages to it are dropped.
MAX_UNREAD_BYTES = 1 << 20
# Of one line; the metrics of a worker take some megabytes.
MAX_LINE_BYTES = 1 << 30
# Between two looks whether a process has ended: while its socket is open, and after.
_OPEN_POLL_S = 0.2
_CLOSED_POLL_S = 0.02
# For a killed process to disappear; one that waits for a dead disk may not.
_KILL_S = 5.0
_STANDARD_INPUT, _STANDARD_ERROR = 0, 2

Message = dict[str, Any]


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as a line."""
    return json.dumps(message).encode() + b"\n"


def start_process(
    module: str, environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Run ``python -m module``, which makes a :class:`Parent` first; return it and our socket."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = subprocess.Popen(
                # -P: the working directory must not shadow our modules.
                [sys.executable, "-P", "-m", module],
                stdin=theirs.fileno(),
                stdout=_STANDARD_ERROR,  # standard output is for the supervisor's one line
                start_new_session=True,
                env={**os.environ, **environment},
            )
        except BaseException:
            ours.close()
            raise
    return process, ours


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """End a process at once with all that it started."""
    # Also if it is dead already: its children may live on in its session.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_KILL_S)


def describe_exit(code: int | None) -> str:
    """Return in a few words how a process with this exit code ended."""
    if code is None:
        return "did not end"
    if code >= 0:
        return f"exited with code {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"


def error_of(report: Message) -> ConsensusPRError | None:
    """Return why a child cannot do its work; None: it does."""
    if not report:
        return None
    return (InputError if report["bad_input"] else ConsensusPRError)(report["reason"])


class ChildEnded(ConsensusPRError):
    """A child ended before it was ready."""


class Child:
    """One process, from its start to its end; belongs to the running event loop.

    Made by :meth:`start`; ``heartbeats`` counts those that have come so far.
    """

    _writer: asyncio.StreamWriter
    _reading: asyncio.Task[None]

    def __init__(
        self, process: subprocess.Popen[bytes], on_message: Callable[[Child, Message], None]
    ) -> None:
        self._process = process
        self._on_message = on_message
        self._report: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers: dict[int, asyncio.Future[Message | None]] = {}
        self._ids = itertools.count(1)
        self._closed = asyncio.Event()
        self.heartbeats = 0

    @classmethod
    async def start(
        cls,
        module: str,
        payload: Message,
        environment: Mapping[str, str],
        on_message: Callable[[Child, Message], None],
    ) -> Self:
        """Start ``python -m module``, which makes a :class:`Parent` first.

        Args:
            payload: its first message.
            environment: variables to set in addition to this process's own.
            on_message: called with each message but reports, heartbeats and answers.

        Raises:
            OSError: it cannot be started.
        """
        process, ours = start_process(module, environment)
        child = cls(process, on_message)
        try:
            reader, child._writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE_BYTES)
        except BaseException:
            kill_session(process)
            ours.close()
            raise
        child._reading = asyncio.create_task(child._read(reader))
        child.send(payload)
        return child

    @property
    def pid(self) -> int:
        """Number of the process, and of its session."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """Return how it ended, None while it runs; negative: the signal that ended it."""
        return self._process.poll()

    def send(self, message: Message) -> bool:
        """Send a message without waiting; False: it was dropped, the child reads nothing."""
        transport = self._writer.transport
        if transport.is_closing() or transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            return False
        self._writer.write(encode(message))
        return True

    async def ready(self) -> None:
        """Wait until it does its work; raise its error, or ChildEnded, if it does not."""
        first: set[asyncio.Future[Any]] = {self._report, self._reading}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if not self._report.done():
            await self.ended()
            raise ChildEnded(f"{self.describe_exit()} before it was ready")
        error = error_of(self._report.result())
        if error is not None:
            raise error

    async def order(self, order: Message) -> Message | None:
        """Order something; return the answer, None if the child ends without one."""
        if self._closed.is_set():
            return None
        number = next(self._ids)
        answer: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            self.send({**order, "id": number})
            return await answer
        finally:
            self._answers.pop(number, None)

    async def ended(self, most_s: float = float("inf")) -> bool:
        """Wait until it has ended, or for so long; return whether it has."""
        deadline = time.monotonic() + most_s
        while self.exit_code() is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            if self._closed.is_set():
                await asyncio.sleep(min(left_s, _CLOSED_POLL_S))
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left_s, _OPEN_POLL_S)):
                        await self._closed.wait()
        return True

    def describe_exit(self) -> str:
        """Return in a few words how it ended."""
        return describe_exit(self._process.returncode)

    def terminate(self) -> None:
        """Ask it to finish its work and end."""
        if self.exit_code() is None:
            self._process.terminate()

    def kill(self) -> None:
        """End it at once with all that it started, and close the socket."""
        kill_session(self._process)
        self._writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            with contextlib.suppress(OSError):
                async for line in reader:
                    if line.endswith(b"\n"):
                        self._take(json.loads(line))
        finally:  # nobody waits for a child whose message had a defect
            self._closed.set()
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_result(None)

    def _take(self, message: Message) -> None:
        if "report" in message:
            self._report.set_result(message["report"])
        elif "alive" in message:
            self.heartbeats += 1
        elif "answer" in message:
            answer = self._answers.get(message["answer"])
            if answer is not None and not answer.done():
                answer.set_result(message)
        else:
            self._on_message(self, message)


class Parent:
    """The process that started this one, as this one sees it.

    Standard input is empty from then on: the socket belongs to this object.  Sending waits until
    the parent reads, so an event loop sends from another thread.
    """

    def __init__(self) -> None:
        # Wakes this process if it is stopped when its parent dies.
        on_parent_death(signal.SIGCONT)
        # A copy, which children of this process do not inherit.
        self._socket = socket.socket(fileno=os.dup(_STANDARD_INPUT))
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), _STANDARD_INPUT)
        self._lines = self._socket.makefile("rb")
        self._lock = threading.Lock()
        first = self._lines.readline()
        if not first:
            raise EOFError("the parent ended before it sent a payload")
        self.payload: Message = json.loads(first)

    def report_ready(self) -> None:
        """Report that this process does its work from here on."""
        self.send({"report": {}})

    def report_failure(self, error: ConsensusPRError) -> None:
        """Report why this process cannot do its work."""
        report = {"reason": str(error), "bad_input": isinstance(error, InputError)}
        self.send({"report": report})

    def send(self, message: Message) -> None:
        """Send a message, from any thread; do nothing if the parent is gone."""
        with self._lock, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(encode(message))

    def listen(
        self, when_gone: Callable[[], None], on_message: Callable[[Message], object] | None = None
    ) -> None:
        """Call back, from a thread, with each message and when the parent is gone."""

        def run() -> None:
            with contextlib.suppress(OSError):
                for line in self._lines:
                    if on_message is not None:
                        on_message(json.loads(line))
            when_gone()

        threading.Thread(target=run, name="parent-watch", daemon=True).start()
