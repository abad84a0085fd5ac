"""A process and the one that started it: orders in, one report out, and signals to wait for.

A child gets its orders as one line of JSON on standard input, and reports once, as one line
of JSON on a pipe whose number is its argument: that it is ready, or why it cannot be.
Standard input stays open for as long as the parent lives; its end is how a child learns that
it was left alone, also where the parent was killed outright.  :class:`Child` is the parent's
side, :class:`Parent` the child's.

Each child runs in a session of its own: Ctrl-C in a terminal reaches the parent alone, and
killing the session takes along whatever the child has started itself.  Started with a
fresh interpreter and never forked: neither threads nor gRPC would survive a fork.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from consensuspr.errors import ConsensusPRError, InputError

CAUGHT = (signal.SIGTERM, signal.SIGINT)

# Between two looks for a child's report, where nothing else is waited for.
_POLL_S = 0.02

_STANDARD_INPUT = 0
_STANDARD_ERROR = 2


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
        before = {number: signal.signal(number, _ignore) for number in numbers}
        previous_fd = signal.set_wakeup_fd(wakeup.fileno())
        try:
            yield CaughtSignals(arrived)
        finally:
            signal.set_wakeup_fd(previous_fd)
            for number, handler in before.items():
                signal.signal(number, handler)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing: the number is on its way through the wakeup descriptor."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a child said of itself.

    Attributes:
        ready: whether it does its work now.
        reason: why not, in one sentence.
        bad_input: whether that is for the operator to mend.
    """

    ready: bool
    reason: str = ""
    bad_input: bool = False

    def error(self) -> ConsensusPRError:
        """Return the reason as what the child met."""
        return InputError(self.reason) if self.bad_input else ConsensusPRError(self.reason)


class Child:
    """One process, from its start to its end.

    Args:
        module: run with ``python -m``; makes a :class:`Parent` first.
        payload: its orders, as JSON.
        environment: variables to set in addition to this process's own.
    """

    def __init__(
        self, module: str, payload: Mapping[str, Any], environment: Mapping[str, str]
    ) -> None:
        reports, report_fd = os.pipe()
        try:
            # -P: what lies in the working directory must not shadow a module of ours.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(report_fd)],
                stdin=subprocess.PIPE,
                stdout=_STANDARD_ERROR,  # standard output is for the supervisor's one line
                pass_fds=(report_fd,),
                start_new_session=True,
                env={**os.environ, **environment},
            )
        except BaseException:
            os.close(reports)
            raise
        finally:
            os.close(report_fd)
        os.set_blocking(reports, False)
        self.reports_fd = reports
        self._received = b""
        self._report: Report | None = None
        with contextlib.suppress(BrokenPipeError):  # it is dead; its exit code tells
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(payload).encode() + b"\n")
            self._process.stdin.flush()

    @property
    def pid(self) -> int:
        """Number of the process, and of its session."""
        return self._process.pid

    def report(self) -> Report | None:
        """Return what the child has said, None while it has said nothing."""
        while self._report is None:
            try:
                received = os.read(self.reports_fd, 65536)
            except BlockingIOError:
                break
            if not received:
                break
            self._received += received
            line, newline, _ = self._received.partition(b"\n")
            if newline:
                self._report = Report(**json.loads(line))
        return self._report

    def first_report(self) -> Report | None:
        """Wait until the child has reported or ended; None: it ended without a word."""
        while (report := self.report()) is None and self.exit_code() is None:
            time.sleep(_POLL_S)
        return report or self.report()

    def exit_code(self) -> int | None:
        """Return how it ended, None while it runs; negative: the signal that ended it."""
        return self._process.poll()

    def describe_exit(self) -> str:
        """Say in a few words how it ended."""
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
        """End it at once with all that it started; release what is held for it."""
        # Also when it is dead already: processes of its own may live on in its session.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.stdin = None
        if self.reports_fd >= 0:
            os.close(self.reports_fd)
            self.reports_fd = -1


class Parent:
    """The process that started this one: what it ordered, and how to answer it."""

    def __init__(self) -> None:
        self._report_fd = int(sys.argv[1])
        # Processes that this one starts must not keep the pipe open after its death.
        os.set_inheritable(self._report_fd, False)
        self.payload: dict[str, Any] = json.loads(_read_line())

    def report_ready(self) -> None:
        """Say that this process does its work from here on."""
        self._report(ready=True)

    def report_failure(self, error: ConsensusPRError) -> None:
        """Say why this process cannot do its work."""
        self._report(ready=False, reason=str(error), bad_input=isinstance(error, InputError))

    def when_gone(self, callback: Callable[[], None]) -> None:
        """Call back, from a thread, when the parent is gone."""

        def wait() -> None:
            while os.read(_STANDARD_INPUT, 4096):
                pass
            callback()

        threading.Thread(target=wait, name="parent-watch", daemon=True).start()

    def _report(self, **report: object) -> None:
        with contextlib.suppress(BrokenPipeError):  # gone; when_gone tells
            os.write(self._report_fd, json.dumps(report).encode() + b"\n")


def _read_line() -> bytes:
    # Not through sys.stdin: its lock, held by a thread that waits, aborts the interpreter's
    # shutdown.
    line = bytearray()
    while not line.endswith(b"\n"):
        received = os.read(_STANDARD_INPUT, 65536)
        if not received:
            raise EOFError("the parent ended before it gave orders")
        line += received
    return bytes(line)
