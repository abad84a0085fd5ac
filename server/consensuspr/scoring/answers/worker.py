"""The helper processes behind the slow comparison.

``python -m consensuspr.scoring.answers.worker FD`` is the *template*: it loads SymPy and
math-verify once, never reads model text, and forks a *worker* for each request on its
control socket.  Workers compare answers under a memory limit and are killed without mercy;
a new one costs a fork of some milliseconds instead of a second of imports.  Forking is safe
here, for the template has a single thread and never loads gRPC.

Nothing outlives the pool: the template sees the end of its control socket, kills its
workers and leaves, also if it was stopped when the pool's process died; a worker dies with the
template (PR_SET_PDEATHSIG), and one that is computing when even that fails is ended by its CPU
limit.  All of them ignore SIGINT, SIGTERM and SIGHUP: a terminal or service manager speaks to the
server, and the server to them.

Control protocol, one request at a time: ``F`` with a socket attached asks for a worker on
that socket, answered by its process id (0: the fork failed); ``K`` and a process id in decimal
asks for a kill and a wait, answered by the wait status.

Answers are frames, and so is all that workers are asked: four bytes of length (big endian), then
JSON.  JSON and not pickle: one side has read model text and is not trusted with the other side's
interpreter.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import resource
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from consensuspr.parent_death import on_parent_death

# CPU seconds beyond the budget before the kernel ends a worker that nobody watches.
_ORPHAN_CPU_S = 2
# A comparison that came this near to its memory limit may have failed silently, because
# math-verify turns any exception, MemoryError included, into "not equal".
_MEMORY_DOUBT = 0.5
_FIRST_TO_GO = "1000"
_LENGTH = struct.Struct(">I")
# The letter of a request and a process id.
_REQUEST_BYTES = 16
# A task carries two answers and a clipped tail; a reply one word.
MAX_FRAME_BYTES = 1 << 20


class FrameTimeout(Exception):
    """The other side did not answer in time."""


class FrameClosed(Exception):
    """The other side is gone."""


def send_frame(connection: socket.socket, message: dict[str, Any]) -> None:
    """Send one message.

    Raises:
        FrameClosed: the other side is gone.
    """
    body = json.dumps(message).encode("ascii")
    try:
        connection.sendall(_LENGTH.pack(len(body)) + body)
    except OSError as error:
        raise FrameClosed from error


def receive_frame(connection: socket.socket, timeout_s: float | None = None) -> dict[str, Any]:
    """Receive one message.

    Raises:
        FrameTimeout: it was not complete after ``timeout_s`` seconds.
        FrameClosed: the other side is gone or sent something else.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    (length,) = _LENGTH.unpack(_receive(connection, _LENGTH.size, deadline))
    if length > MAX_FRAME_BYTES:
        raise FrameClosed
    try:
        message = json.loads(_receive(connection, length, deadline))
    except ValueError as error:
        raise FrameClosed from error
    if not isinstance(message, dict):
        raise FrameClosed
    return message


def _receive(connection: socket.socket, size: int, deadline: float | None) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise FrameTimeout
        connection.settimeout(left)
        try:
            part = connection.recv(size - len(parts))
        except TimeoutError as error:
            raise FrameTimeout from error
        except OSError as error:
            raise FrameClosed from error
        if not part:
            raise FrameClosed
        parts += part
    return bytes(parts)


def main() -> None:
    """Run the template until its control socket is closed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    on_parent_death(signal.SIGCONT)
    control = socket.socket(fileno=int(sys.argv[1]))
    memory_limit_bytes = int(sys.argv[2])
    try:
        from consensuspr.scoring.answers import symbolic

        symbolic.warm_up()
        symbolic.harden()
    except Exception as error:
        send_frame(control, {"error": f"{type(error).__name__}: {error}"})
        sys.exit(1)
    gc.collect()
    # Keep the collector from touching, hence copying, pages shared with the workers.
    gc.freeze()
    with contextlib.suppress(FrameClosed):  # who asked for it is gone, as the loop finds out too
        send_frame(control, {"ready": _address_space_bytes()})
    _serve_forks(control, memory_limit_bytes)


def _serve_forks(control: socket.socket, memory_limit_bytes: int) -> NoReturn:
    workers: set[int] = set()
    control.setblocking(True)
    while True:
        try:
            request, sockets, _, _ = socket.recv_fds(control, _REQUEST_BYTES, 1)
        except ConnectionResetError:  # its end came before it had read all
            request, sockets = b"", []
        if request[:1] == b"F" and sockets:
            reply = _fork_worker(control, sockets[0], memory_limit_bytes)
            if reply:
                workers.add(reply)
        elif request[:1] == b"K":
            pid = int(request[1:])
            reply = _end_worker(pid) if pid in workers else 0
            workers.discard(pid)
        else:  # end of the socket: the pool is closed or its process is gone
            for pid in workers:
                _end_worker(pid)
            os._exit(0)
        with contextlib.suppress(FrameClosed):
            send_frame(control, {"reply": reply})


def _fork_worker(control: socket.socket, connection_fd: int, memory_limit_bytes: int) -> int:
    template = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        os.close(connection_fd)
        return 0
    if pid:
        os.close(connection_fd)
        return pid
    try:
        control.close()
        _confine(template, memory_limit_bytes)
        _serve_tasks(socket.socket(fileno=connection_fd), memory_limit_bytes)
    finally:
        os._exit(0)


def _end_worker(pid: int) -> int:
    # The worker stays a zombie until here, so that its number cannot mean another process.
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return status


def _confine(template: int, memory_limit_bytes: int) -> None:
    """Bind the worker's life to the template's and take away what it does not need."""
    on_parent_death(signal.SIGKILL)
    if os.getppid() != template:
        os._exit(0)
    with contextlib.suppress(OSError):  # not Linux, or not allowed
        # Where memory runs out, the kernel ends this process and not the server or a trainer.
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO, encoding="ascii")
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory_limit_bytes, memory_limit_bytes))
    sys.addaudithook(_refuse_side_effects)


# Beside the parser that cannot evaluate: a worker that is talked into something has no way
# to start a process, reach the network or touch a file.  Modules are still imported.
_FORBIDDEN_EVENTS = (
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.kill", "os.remove",
    "os.rename", "os.rmdir", "os.mkdir", "os.chmod", "os.link", "os.symlink", "os.truncate",
    "subprocess.Popen", "socket.connect", "socket.bind", "socket.getaddrinfo", "shutil.",
    "pty.spawn", "ctypes.dlopen",
)  # fmt: skip


def _refuse_side_effects(event: str, arguments: tuple[Any, ...]) -> None:
    if event.startswith(_FORBIDDEN_EVENTS):
        raise PermissionError(f"{event} is not available to an answer worker")
    if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        raise PermissionError("an answer worker does not write files")


def _serve_tasks(connection: socket.socket, memory_limit_bytes: int) -> None:
    from consensuspr.scoring.answers import symbolic

    while True:
        try:
            task = receive_frame(connection)
        except FrameClosed:
            return
        _limit_cpu(float(task["seconds"]))
        reply: dict[str, Any]
        try:
            is_equal = symbolic.equal(task["ground_truth"], task["answer"], task["context"])
            doubtful = not is_equal and _peak_bytes() > _MEMORY_DOUBT * memory_limit_bytes
            reply = {"limit": "memory"} if doubtful else {"equal": is_equal}
        except (MemoryError, symbolic.OutOfMemory):
            reply = {"limit": "memory"}
        send_frame(connection, reply)
        if "limit" in reply:
            return


def _limit_cpu(seconds: float) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(used.ru_utime + used.ru_stime + seconds) + _ORPHAN_CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


def _peak_bytes() -> int:
    return _status_bytes("VmPeak:")


def _address_space_bytes() -> int:
    return _status_bytes("VmSize:")


def _status_bytes(field: str) -> int:
    """Return a size from /proc/self/status, 0 where there is none (not Linux)."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field)), 0)


if __name__ == "__main__":
    main()
