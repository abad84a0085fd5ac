"""What the kernel does to a process when the one that started it dies.

A process learns from the end of a socket that it was left alone, but only while it runs: one that
is stopped (SIGSTOP, a debugger, a suspended job) would stay for ever, with its port and its memory.
Linux sends a signal of the process's own choice (``PR_SET_PDEATHSIG``).  It comes when the *thread*
ends that started the process, so that SIGKILL is for children of single-threaded parents alone.

Elsewhere than on Linux nothing is done.
"""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1


def on_parent_death(number: signal.Signals) -> None:
    """Have this process sent a signal when its parent dies.

    SIGCONT wakes it if it is stopped, and does nothing otherwise.  A parent that is dead by now
    sends none: look for that afterwards.  A sandbox that refuses leaves all as it was.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
