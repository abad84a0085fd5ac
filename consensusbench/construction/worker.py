"""A process that does the work of one problem after another.

Started as ``python -m consensusbench.construction.worker`` and talked to in pickles: a
:class:`~consensusbench.construction.work.Plan` first, answered by the reason why it cannot be
used or None, then a task for each result.  It ends when its input does.

A problem that takes too long ends the process itself, by a timer of the system that also
reaches code which never returns to Python; what it cannot end is nothing.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from typing import BinaryIO

from consensusbench.construction.time_limit import CLOCK_FACTOR


def main() -> None:
    """Serve tasks until there are no more."""
    # An interrupt of the terminal reaches the whole group; the parent ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tasks = os.fdopen(os.dup(0), "rb")
    results = os.fdopen(os.dup(1), "wb")
    # What an extractor prints must not get between the pickles.
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        _serve(tasks, results)
    except (BrokenPipeError, EOFError):  # the parent is gone
        os._exit(0)


def _serve(tasks: BinaryIO, results: BinaryIO) -> None:
    from consensusbench.construction.work import Plan, run_task

    try:
        plan: Plan = pickle.load(tasks)
    except EOFError:
        return
    except Exception as error:
        _send(results, f"{type(error).__name__}: {error}")
        return
    _send(results, None)
    while True:
        try:
            task = pickle.load(tasks)
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_PROF, plan.time_limit_s)
        signal.setitimer(signal.ITIMER_REAL, CLOCK_FACTOR * plan.time_limit_s)
        result = run_task(plan, task)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(results, result)


def _send(results: BinaryIO, value: object) -> None:
    pickle.dump(value, results, protocol=pickle.HIGHEST_PROTOCOL)
    results.flush()


if __name__ == "__main__":
    main()
    sys.exit()
