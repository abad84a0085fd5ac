"""Signals as something to wait for, together with other file descriptors."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

CAUGHT = (signal.SIGTERM, signal.SIGINT)


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
def caught_signals() -> Iterator[CaughtSignals]:
    """Collect SIGTERM and SIGINT instead of being ended by them; main thread only."""
    arrived, wakeup = socket.socketpair()
    with arrived, wakeup:
        arrived.setblocking(False)
        wakeup.setblocking(False)
        before = {number: signal.signal(number, _ignore) for number in CAUGHT}
        previous_fd = signal.set_wakeup_fd(wakeup.fileno())
        try:
            yield CaughtSignals(arrived)
        finally:
            signal.set_wakeup_fd(previous_fd)
            for number, handler in before.items():
                signal.signal(number, handler)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing: the number is on its way through the wakeup descriptor."""
