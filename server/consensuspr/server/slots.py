"""How many requests of a worker compute at a time; the others wait for their turn.

A worker has more requests in work than cores, because some only wait for an answer process.
If all of them computed at once, each would be as slow as all together, and the event loop,
which receives, refuses and replies, would get a share of a core as small as theirs: under
more load than the worker can do, requests would pile up in front of the admission.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator


def available_cores() -> int:
    """Return how many cores this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Slots:
    """A number of turns to compute; safe to use from any thread.

    Who lent a turn gets the next one: what has begun is finished before anything else begins.

    Args:
        number: of turns, at least 1.
    """

    def __init__(self, number: int) -> None:
        lock = threading.Lock()
        self._free = number
        self._lenders = 0  # who want theirs back
        self._given_back = threading.Condition(lock)
        self._next_turn = threading.Condition(lock)
        self._mine = threading.local()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Wait for a turn and hold it; not to be entered twice by one thread."""
        with self._next_turn:
            self._next_turn.wait_for(lambda: self._free > self._lenders)
            self._free -= 1
        self._mine.held = True
        try:
            yield
        finally:
            self._mine.held = False
            self._release()

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Let another thread have this one's turn meanwhile; nothing where it holds none."""
        if not getattr(self._mine, "held", False):
            yield
            return
        self._release()
        try:
            yield
        finally:
            with self._given_back:
                self._lenders += 1
                self._given_back.wait_for(lambda: self._free > 0)
                self._lenders -= 1
                self._free -= 1

    def _release(self) -> None:
        with self._next_turn:
            self._free += 1
            if self._lenders:
                self._given_back.notify()
            # Also where a lender that was told of an earlier one has not come for it yet.
            if self._free > self._lenders:
                self._next_turn.notify()
