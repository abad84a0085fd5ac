"""The supervisor's side of the processes that it starts (``child.py`` is the other).

Each runs in a session of its own: Ctrl-C in a terminal reaches the supervisor alone, and
killing the session takes along whatever the child has started itself.  Started with a
fresh interpreter and never forked: neither threads nor gRPC would survive a fork.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_STANDARD_ERROR = 2


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


class Child:
    """One process, from its start to its end.

    Args:
        module: run with ``python -m``; must follow ``child.py``.
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
