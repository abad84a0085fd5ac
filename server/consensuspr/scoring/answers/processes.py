"""The pool's side of its helper processes: start, ask, kill.

Started with ``subprocess`` and ``-m``, never with ``multiprocessing``: no fork of a process
that may run gRPC or threads, no second import of the user's main module, no inherited
sockets.  What the processes do is told in :mod:`.worker`.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from consensuspr.errors import VerifierUnavailable
from consensuspr.scoring.answers.frames import (
    FrameClosed,
    FrameTimeout,
    receive_frame,
    send_frame,
)

_NUMBER = struct.Struct(">i")
# Loading SymPy takes a second; on a cold network file system it can take many.
START_TIMEOUT_S = 60.0
# The template only forks and waits; where it does not answer, it is not there any more.
_CONTROL_TIMEOUT_S = 10.0
# CPU clocks tick every 10 ms; looking more often tells nothing.
_POLL_S = 0.01
# A start that failed is not tried again at once for each of a thousand answers.
_RETRY_S = 5.0
_STOP_TIMEOUT_S = 5.0
# The limit must leave room for more than the libraries themselves.
_MIN_HEADROOM_BYTES = 64 << 20


class TemplateGone(Exception):
    """The template ended although nobody asked it to; its workers ended with it."""


class Worker:
    """One worker process, asked one thing at a time."""

    def __init__(self, template: Template, connection: socket.socket, pid: int) -> None:
        self._template = template
        self._connection = connection
        self.pid = pid

    def ask(self, task: dict[str, Any], cpu_s: float, wall_s: float) -> dict[str, Any]:
        """Send a task and return the reply.

        Args:
            task: what the worker shall compare.
            cpu_s: CPU seconds that it may use; on a busy machine they take longer.
            wall_s: seconds after which the wait ends whatever it used.

        Raises:
            FrameTimeout: no reply within the limits; the worker is still busy.
            FrameClosed: the worker is gone.
        """
        send_frame(self._connection, task)
        end_cpu, end = self.cpu_seconds() + cpu_s, time.monotonic() + wall_s
        while (left_cpu := end_cpu - self.cpu_seconds()) > 0:
            left = min(max(left_cpu, _POLL_S), end - time.monotonic())
            if left <= 0:
                break
            if self._readable(left):
                return receive_frame(self._connection, _CONTROL_TIMEOUT_S)
        raise FrameTimeout

    def _readable(self, timeout_s: float) -> bool:
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        return bool(poll.poll(math.ceil(timeout_s * 1000)))

    def alive(self) -> bool:
        """Tell whether the process still has its end of the connection open."""
        self._connection.setblocking(False)
        try:
            return self._connection.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def cpu_seconds(self) -> float:
        """Return the CPU time used so far; where the system does not tell, the wall time."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return time.monotonic()
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def forget(self) -> None:
        """Let go of a worker that belongs to the process this one was forked from."""
        self._connection.close()

    def interrupt(self) -> None:
        """Make a running :meth:`ask` of another thread end with FrameClosed."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def kill(self) -> int:
        """End the process, wait for it, and return the signal that ended it, else 0.

        Raises:
            TemplateGone: the template died, and the worker with it.
        """
        self._connection.close()
        status = self._template.end(self.pid)
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


class Template:
    """The process that has SymPy loaded and forks workers; started at first use.

    Thread-safe.  A template that died is replaced at the next fork.
    """

    def __init__(self, memory_limit_bytes: int) -> None:
        self._memory_limit_bytes = memory_limit_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._failure: VerifierUnavailable | None = None
        self._retry_at = 0.0
        self._lock = threading.Lock()

    def fork(self) -> Worker:
        """Return a new worker.

        Raises:
            VerifierUnavailable: the environment allows no process, or libraries are missing.
        """
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise VerifierUnavailable(f"the answer workers cannot be reached: {error}") from error
        with self._lock, theirs:
            try:
                pid = self._fork(theirs) or self._fork(theirs)
            except VerifierUnavailable:
                ours.close()
                raise
        if not pid:
            ours.close()
            raise VerifierUnavailable(
                "the answer workers cannot fork: the limit on processes or memory is reached"
            )
        return Worker(self, ours, pid)

    def _fork(self, connection: socket.socket) -> int:
        """Ask for a worker on ``connection``; 0 where the template failed or is gone."""
        control = self._running()
        try:
            socket.send_fds(control, [b"F"], [connection.fileno()])
            return self._reply(control)
        except (OSError, TemplateGone):
            self._stop()
            return 0

    def end(self, pid: int) -> int:
        """Kill a worker and return its wait status.

        Raises:
            TemplateGone: the template is gone, and the worker with it.
        """
        with self._lock:
            if self._control is None:
                raise TemplateGone
            try:
                self._control.sendall(b"K" + _NUMBER.pack(pid))
                return self._reply(self._control)
            except OSError as error:
                # A late reply would be taken for the next one's.
                self._stop()
                raise TemplateGone from error

    def close(self) -> None:
        """End the template and all its workers."""
        with self._lock:
            self._stop()

    def forget(self) -> None:
        """Let go of a template that belongs to the process this one was forked from."""
        if self._control is not None:
            self._control.close()
        self._process = self._control = None
        self._lock = threading.Lock()

    def _reply(self, control: socket.socket) -> int:
        control.settimeout(_CONTROL_TIMEOUT_S)
        reply = b""
        while len(reply) < _NUMBER.size:
            part = control.recv(_NUMBER.size - len(reply))
            if not part:
                raise TemplateGone
            reply += part
        number: int = _NUMBER.unpack(reply)[0]
        return number

    def _running(self) -> socket.socket:
        if self._control is not None:
            return self._control
        if self._failure is not None and time.monotonic() < self._retry_at:
            raise VerifierUnavailable(str(self._failure))
        try:
            self._start()
        except VerifierUnavailable as error:
            self._failure, self._retry_at = error, time.monotonic() + _RETRY_S
            raise
        assert self._control is not None
        return self._control

    def _start(self) -> None:
        interpreter = _interpreter()
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise VerifierUnavailable(f"the answer workers cannot be reached: {error}") from error
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [*interpreter, str(theirs.fileno()), str(self._memory_limit_bytes)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=_environment(),
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # a terminal's SIGINT is not for them
                )
            except OSError as error:
                ours.close()
                raise VerifierUnavailable(
                    f"the answer workers cannot be started with {sys.executable!r}: {error}"
                ) from error
        self._control = ours
        try:
            hello = receive_frame(ours, START_TIMEOUT_S)
        except (FrameTimeout, FrameClosed) as error:
            code = self._stop()
            raise VerifierUnavailable(
                "the answer workers' template process did not come up within "
                f"{START_TIMEOUT_S:.0f} s (exit status {code})"
            ) from error
        if "error" in hello:
            self._stop()
            raise VerifierUnavailable(
                f"the answer workers cannot load math-verify and SymPy: {hello['error']}"
            )
        self._check_headroom(int(hello["ready"]))

    def _check_headroom(self, used_bytes: int) -> None:
        if used_bytes + _MIN_HEADROOM_BYTES > self._memory_limit_bytes:
            self._stop()
            raise VerifierUnavailable(
                f"memory_limit_bytes {self._memory_limit_bytes} leaves no room beside the "
                f"{used_bytes} bytes of address space that the libraries take"
            )

    def _stop(self) -> int | None:
        """End the process, if any, and return its exit status."""
        if self._control is not None:
            self._control.close()
        process, self._process, self._control = self._process, None, None
        if process is None:
            return None
        try:
            return process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            return process.wait()


def _interpreter() -> list[str]:
    """Return the command of a template without its arguments."""
    if not sys.executable:
        raise VerifierUnavailable("the answer workers need sys.executable, which is empty")
    # -P: the working directory must not shadow a module.
    return [sys.executable, "-P", "-m", f"{__package__}.worker"]


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        # The child finds the same packages, however this process came by them.
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONWARNINGS": "ignore",
        # SymPy orders by hash in places; the same answers shall meet the same path.
        "PYTHONHASHSEED": "0",
        # Should numpy be imported: its threads would stand in the way of fork and limit.
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
