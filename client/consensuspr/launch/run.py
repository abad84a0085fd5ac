"""Trainings run as planned, with the server beside them; all of it ends together.

Before the first training ``consensuspr doctor`` looks at its very command, with the server up,
and nothing is trained where it finds a fault.

Server and training run in sessions of their own, so that Ctrl-C in a terminal reaches this
process alone, which passes it on to the training first: rewards are needed until it has ended.
A training that does not end within a minute, or after a second Ctrl-C, is killed with all that
it started.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from types import FrameType

from consensuspr.launch.plan import Plan
from consensuspr.launch.reward_server import Say, reward_server
from consensuspr.server.signals import CaughtSignals, caught_signals

# For a checkpoint that is being written, and for Ray to take its cluster down.
GRACE_S = 60.0

_POLL_S = 0.2


def launch(plan: Plan, say: Say, *, examine: bool = True) -> int:
    """Run a plan and return its exit code.

    Args:
        plan: what is run.
        say: told what a person must know, a sentence at a time.
        examine: let the doctor look at the first training before it starts.

    Returns:
        0 where every training ended well; the code of the first that did not, or of the doctor,
        after which no other is started; 128 + its number where a signal ended it or this process.

    Raises:
        InputError: the server refuses its settings or its dataset.
        ConsensusPRError: it does not start.
    """
    with (
        _ended_by_signals(),
        reward_server(plan, say) as address,
        _caught() as signals,
    ):
        if examine:
            code = _run(_examination(plan.trainings[0].command(address)), signals, say)
            if code:
                say("the doctor found a fault (above), so that nothing is trained")
                return code
        for number, training in enumerate(plan.trainings, start=1):
            say(f"training {number} of {len(plan.trainings)}: {training.name}")
            code = _run(training.command(address), signals, say)
            if code:
                say(f"training {training.name} ended with code {code}")
                return code
    return 0


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise SystemExit, so that what has been started by then is ended.

    It counts while the server starts and stops; in between signals are caught.  SIGHUP, because
    what is started lives in sessions of its own and would outlast the terminal; under nohup it
    stays ignored.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _caught() -> Iterator[CaughtSignals]:
    """Catch SIGTERM and SIGINT, and SIGHUP where it is not ignored."""
    with caught_signals() as signals:
        before = signal.getsignal(signal.SIGHUP)
        if before is not signal.SIG_IGN:
            # Python writes the number of every signal with a handler to the same socket.
            signal.signal(signal.SIGHUP, lambda number, frame: None)
        try:
            yield signals
        finally:
            signal.signal(signal.SIGHUP, before)


def _examination(command: Sequence[str]) -> list[str]:
    """Return the command that looks at a training's command."""
    return [sys.executable, "-m", "consensuspr.cli", "doctor", "--no-progress", "--", *command]


def _run(command: Sequence[str], signals: CaughtSignals, say: Say) -> int:
    """Run one command to its end, or to a signal's."""
    process = subprocess.Popen(command, start_new_session=True)
    ended_by: signal.Signals | None = None
    kill_at = float("inf")
    while process.poll() is None:
        select.select([signals.socket], [], [], _POLL_S)
        for number in signals.take():
            if ended_by is None:
                say(f"{number.name}: ending what runs, then the server")
                # SIGHUP would end Python at once, with nothing written.
                process.send_signal(signal.SIGTERM if number == signal.SIGHUP else number)
                ended_by, kill_at = number, time.monotonic() + GRACE_S
            else:
                kill_at = 0.0
        if time.monotonic() >= kill_at:
            say("it does not end; it is killed")
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if ended_by is not None:
        return 128 + ended_by
    code = process.returncode
    return code if code >= 0 else 128 - code
