"""The inside of an answer process.  Import it there only: it takes SymPy's parser away.

The process that answer processes are forked from imports this module once (:mod:`.pool`), so that a
new one starts in some ten milliseconds with SymPy loaded.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from consensuspr.child_processes import on_parent_death
from consensuspr.scoring.answers import symbolic

# Above this share of its memory limit, "not equal" may be a MemoryError that math-verify swallowed.
_MEMORY_DOUBT = 0.5
# The limit must leave room for more than the libraries themselves.
_MIN_HEADROOM_BYTES = 64 << 20
# A worker never starts a process, opens a connection or writes a file, whatever a text makes of it.
_FORBIDDEN_EVENTS = (
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.kill", "os.remove",
    "os.rename", "os.rmdir", "os.mkdir", "os.symlink", "os.truncate", "subprocess.Popen",
    "socket.connect", "socket.bind", "socket.getaddrinfo", "shutil.", "pty.spawn", "ctypes.dlopen",
)  # fmt: skip

_PARENT = os.getppid()


def _end_with_parent(*_: object) -> None:
    if os.getppid() != _PARENT:
        os._exit(0)


# A fork server notices the end of its parent by itself, but not while it is stopped.
signal.signal(signal.SIGCONT, _end_with_parent)
on_parent_death(signal.SIGCONT)
symbolic.warm_up()
symbolic.harden()
gc.collect()
# Keep the collector from touching, hence copying, pages shared with the processes forked from here.
gc.freeze()


def confine(memory_limit_bytes: int) -> None:
    """Limit the memory of this process, end it with the one it was forked from, and shut it in."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a handler waits for C code to return
    signal.signal(signal.SIGCONT, signal.SIG_DFL)
    on_parent_death(signal.SIGKILL)
    with contextlib.suppress(OSError):  # not Linux, or not allowed
        # Where memory runs out, the kernel ends this process and not the server or a trainer.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    used_bytes = _status_bytes("VmSize:")
    if used_bytes + _MIN_HEADROOM_BYTES > memory_limit_bytes:
        raise ValueError(
            f"memory_limit_bytes {memory_limit_bytes} leaves no room beside the {used_bytes} bytes"
            " of address space that SymPy takes"
        )
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory_limit_bytes, memory_limit_bytes))
    sys.addaudithook(_refuse_side_effects)


def compare(ground_truth: str, answer: str, context: str, cpu_s: float) -> bool | None:
    """Return whether math-verify finds the answer equal, None if the memory limit was met.

    The kernel ends the process with SIGPROF after ``cpu_s`` seconds of CPU time, in the middle of C
    code too.
    """
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        equal = symbolic.equal(ground_truth, answer, context)
    except (MemoryError, symbolic.OutOfMemory):
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    doubtful = not equal and _status_bytes("VmPeak:") > _MEMORY_DOUBT * limit
    return None if doubtful else equal


def _refuse_side_effects(event: str, arguments: tuple[Any, ...]) -> None:
    if event.startswith(_FORBIDDEN_EVENTS):
        raise PermissionError(f"{event} is not available to an answer process")
    if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        raise PermissionError("an answer process does not write files")


def _status_bytes(field: str) -> int:
    """Return a size from /proc/self/status, 0 if there is none (not Linux)."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field)), 0)
