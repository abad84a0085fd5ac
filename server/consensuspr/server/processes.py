"""A process and its parent: messages both ways, and signals to wait for.

The two are joined by a socket, which the child gets as standard input.  Messages are lines of JSON:

=========  ========================================================================================
to child   first all that it needs from the start; later ``order`` and ``id`` (something to do), or
           ``reply`` (the ``id`` of an ``ask``)
to parent  ``report`` (a :class:`Report`, once), ``alive`` (a heartbeat), ``answer`` (the ``id`` of
           an order), or ``ask`` and ``id`` (something that only the parent can do)
=========  ========================================================================================

Neither side waits for the other to read: a bounded buffer keeps what the socket does not take.  The
end of the socket shows a child that its parent is gone.  Each child is a fresh interpreter in a
session of its own: Ctrl-C reaches the parent alone, and killing the session ends whatever the child
has started.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.parent_death import on_parent_death

CAUGHT = (signal.SIGTERM, signal.SIGINT)
# Unread messages of the other side; further ones are dropped, except those named here.
MAX_WAITING_BYTES = 1 << 20
_NEVER_DROPPED = {"alive", "report"}
# Between two looks for a child's report.
_POLL_S = 0.02
# For a killed process to disappear; one that waits for a dead disk may not.
_KILL_S = 5.0
_STANDARD_INPUT = 0
_STANDARD_ERROR = 2

Message = dict[str, Any]


class CaughtSignals:
    """Signals that arrived, in order; ``socket`` is readable while there are any."""

    def __init__(self, arrived: socket.socket) -> None:
        self.socket = arrived

    def take(self) -> list[signal.Signals]:
        """Return the signals that arrived since the last call."""
        try:
            return [signal.Signals(number) for number in self.socket.recv(64)]
        except BlockingIOError:
            return []


@contextmanager
def caught_signals(numbers: Sequence[signal.Signals] = CAUGHT) -> Iterator[CaughtSignals]:
    """Collect signals (SIGTERM and SIGINT) instead of being ended by them; main thread only."""
    arrived, wakeup = socket.socketpair()
    with arrived, wakeup:
        arrived.setblocking(False)
        wakeup.setblocking(False)
        # A handler must be there, for the number to go through the wakeup descriptor.
        before = {number: signal.signal(number, lambda *_: None) for number in numbers}
        previous_fd = signal.set_wakeup_fd(wakeup.fileno())
        try:
            yield CaughtSignals(arrived)
        finally:
            signal.set_wakeup_fd(previous_fd)
            for number, handler in before.items():
                signal.signal(number, handler)


@dataclass(frozen=True, slots=True)
class Report:
    """What a child said of itself.

    Attributes:
        ready: whether it does its work now.
        reason: why not, in one sentence.
        bad_input: whether the operator's input is the reason.
    """

    ready: bool
    reason: str = ""
    bad_input: bool = False

    def error(self) -> ConsensusPRError:
        """Return the reason as the exception that the child met."""
        return InputError(self.reason) if self.bad_input else ConsensusPRError(self.reason)


class _Channel:
    """One end of the socket.  Sends from any thread; one thread reads."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.socket = end
        self.unsent = bytearray()
        self._received = bytearray()
        self._lock = threading.Lock()

    def send(self, message: Message) -> bool:
        """Send a message without waiting; False: it is dropped, the other side reads nothing."""
        self.flush()
        with self._lock:
            full = len(self.unsent) > MAX_WAITING_BYTES
            if full and not _NEVER_DROPPED & message.keys():
                return False
            self.unsent += json.dumps(message).encode() + b"\n"
        self.flush()
        return True

    def flush(self) -> None:
        """Give the socket what it takes now."""
        with self._lock, contextlib.suppress(BlockingIOError):
            try:
                while self.unsent:
                    del self.unsent[: self.socket.send(self.unsent)]
            except (BrokenPipeError, ConnectionResetError):
                self.unsent.clear()  # the other side is gone

    def receive(self) -> list[Message] | None:
        """Return the messages that have come, None if the other side is gone."""
        while True:
            try:
                received = self.socket.recv(65536)
            except BlockingIOError:
                return self._lines()
            except ConnectionResetError:
                received = b""
            if not received:
                return self._lines() or None
            self._received += received

    def _lines(self) -> list[Message]:
        *lines, self._received = self._received.split(b"\n")
        return [json.loads(line) for line in lines]


class Child:
    """One process, from its start to its end.

    Args:
        module: run with ``python -m``; makes a :class:`Parent` first.
        payload: what it needs from the start, as JSON.
        environment: variables to set in addition to this process's own.

    Attributes:
        heartbeats: how many have come so far.
    """

    def __init__(
        self, module: str, payload: Mapping[str, Any], environment: Mapping[str, str]
    ) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                # -P: the working directory must not shadow our modules.
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", module],
                    stdin=theirs.fileno(),
                    stdout=_STANDARD_ERROR,  # standard output is for the supervisor's one line
                    start_new_session=True,
                    env={**os.environ, **environment},
                )
            except BaseException:
                ours.close()
                raise
        self._channel = _Channel(ours)
        self._report: Report | None = None
        self._messages: list[Message] = []
        self.heartbeats = 0
        self._channel.send(dict(payload))

    @property
    def pid(self) -> int:
        """Number of the process, and of its session."""
        return self._process.pid

    @property
    def socket(self) -> socket.socket:
        """Readable when the child has sent something or ended."""
        return self._channel.socket

    @property
    def unsent(self) -> bool:
        """Whether something waits for the socket to become writable."""
        return bool(self._channel.unsent)

    def send(self, message: Message) -> bool:
        """Send a message without waiting; False: it was dropped, the child reads nothing."""
        killed = self._channel.socket.fileno() < 0
        return not killed and self._channel.send(message)

    def take(self) -> list[Message]:
        """Return what the child has sent since the last call, its report and heartbeats aside."""
        self._look()
        messages, self._messages = self._messages, []
        return messages

    def report(self) -> Report | None:
        """Return the child's report, None while there is none."""
        self._look()
        return self._report

    def first_report(self) -> Report | None:
        """Wait until the child has reported or ended; None: it ended without a report."""
        while (report := self.report()) is None and self.exit_code() is None:
            time.sleep(_POLL_S)
        return report or self.report()

    def exit_code(self) -> int | None:
        """Return how it ended, None while it runs; negative: the signal that ended it."""
        return self._process.poll()

    def describe_exit(self) -> str:
        """Return in a few words how it ended."""
        code = self._process.returncode
        if code is None:
            return "is running"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"was ended by {signal.Signals(-code).name}"
            return f"was ended by signal {-code}"
        return f"exited with code {code}"

    def terminate(self) -> None:
        """Ask it to finish its work and end."""
        if self.exit_code() is None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once with all that it started, and close the socket."""
        # Also if it is dead already: its children may live on in its session.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILL_S)
        self._channel.socket.close()

    def _look(self) -> None:
        if self._channel.socket.fileno() < 0:
            return
        self._channel.flush()
        for message in self._channel.receive() or []:
            if "report" in message:
                self._report = Report(**message["report"])
            elif "alive" in message:
                self.heartbeats += 1
            else:
                self._messages.append(message)


class Parent:
    """The process that started this one, as this one sees it.

    Standard input is empty from then on: the socket belongs to this object.
    """

    def __init__(self) -> None:
        # Wakes this process if it is stopped when its parent dies.
        on_parent_death(signal.SIGCONT)
        # A copy, which children of this process do not inherit.
        self._channel = _Channel(socket.socket(fileno=os.dup(_STANDARD_INPUT)))
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), _STANDARD_INPUT)
        self._early: list[Message] = []
        while not self._early:
            received = self._wait()
            if received is None:
                raise EOFError("the parent ended before it gave orders")
            self._early = received
        self.payload: Message = self._early.pop(0)

    def report_ready(self) -> None:
        """Report that this process does its work from here on."""
        self.send({"report": asdict(Report(ready=True))})

    def report_failure(self, error: ConsensusPRError) -> None:
        """Report why this process cannot do its work."""
        report = Report(False, str(error), isinstance(error, InputError))
        self.send({"report": asdict(report)})

    @property
    def socket(self) -> socket.socket:
        """Writable when the parent takes more."""
        return self._channel.socket

    @property
    def unsent(self) -> bool:
        """Whether something waits for the socket to become writable."""
        return bool(self._channel.unsent)

    def send(self, message: Message) -> bool:
        """Send a message without waiting, from any thread; False: it was dropped."""
        return self._channel.send(message)

    def flush(self) -> None:
        """Send what the socket takes now."""
        self._channel.flush()

    def wait_until_sent(self) -> None:
        """Wait until the parent has read enough for the rest to be sent, or is gone."""
        poll = select.poll()
        poll.register(self._channel.socket, select.POLLOUT)
        while self.unsent:
            poll.poll()
            self.flush()

    def listen(
        self, when_gone: Callable[[], None], on_order: Callable[[Message], None] | None = None
    ) -> None:
        """Call back, from a thread, with each order and when the parent is gone."""

        def run() -> None:
            orders: list[Message] | None = self._early
            while orders is not None:
                for order in orders:
                    if on_order is not None:
                        on_order(order)
                orders = self._wait()
            when_gone()

        threading.Thread(target=run, name="parent-watch", daemon=True).start()

    def _wait(self) -> list[Message] | None:
        """Wait for messages; None: the parent is gone."""
        poll = select.poll()
        poll.register(self._channel.socket, select.POLLIN)
        poll.poll()
        return self._channel.receive()
