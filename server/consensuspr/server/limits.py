"""What the system lets a server have: open files, address space, threads.

Looked at once, before anything is started.  Later nobody could say it in one sentence: gRPC crashes
where it gets no descriptor for its event loop, and threads that cannot be started are told of one
by one.  Limits of a container (cgroups) are not looked at: what exceeds those is ended by the
kernel, and replaced.
"""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

from consensuspr.errors import InputError
from consensuspr.server.config import GIB, ServerConfig

# A worker has 25 files open without connections; each connection is one more.
MIN_OPEN_FILES = 256
# More connections than a worker can serve.
ENOUGH_OPEN_FILES = 65_536
# A busy worker of two cores has 450 MB mapped, most of it reserved and never touched.
MIN_ADDRESS_SPACE = GIB
# A busy worker has 24 and 3 for answers, and 3 answer processes.
THREADS_OF_A_WORKER = 32
# The supervisor, and the process that loads the datasets.
THREADS_BESIDE = 16


def check_limits(config: ServerConfig) -> None:
    """Raise the limit on open files as far as this process may, and see that all suffice.

    Raises:
        InputError: one does not.
    """
    open_files = _raised_open_files()
    if open_files < MIN_OPEN_FILES:
        raise InputError(
            f"the limit on open files (ulimit -n) is {open_files};"
            f" a server needs at least {MIN_OPEN_FILES}"
        )
    needed = max(MIN_ADDRESS_SPACE, int(config.answer_memory_bytes))
    address_space = _known(resource.getrlimit(resource.RLIMIT_AS)[0])
    if address_space is not None and address_space < needed:
        raise InputError(
            f"the limit on address space (ulimit -v) is {address_space // 1024} KiB;"
            f" a worker and its answer processes need at least {needed // 1024} KiB"
        )
    most = _known(resource.getrlimit(resource.RLIMIT_NPROC)[0])
    if most is not None and os.geteuid() != 0:  # root has no such limit
        threads = THREADS_BESIDE + config.workers * THREADS_OF_A_WORKER
        running = _threads_of_this_user()
        if running + threads > most:
            raise InputError(
                f"the limit on processes and threads of this user (ulimit -u) is {most}, of which"
                f" {running} run; a server with workers={config.workers} needs {threads} more"
            )


def _raised_open_files() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(_known(hard) or ENOUGH_OPEN_FILES, ENOUGH_OPEN_FILES)
    if _known(soft) is None or soft >= wanted:
        return _known(soft) or ENOUGH_OPEN_FILES
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def _known(limit: int) -> int | None:
    """Return a limit, None where there is none."""
    return None if limit == resource.RLIM_INFINITY else limit


def _threads_of_this_user() -> int:
    """Count them as far as this process can see; 0 where the system does not tell."""
    threads = 0
    user = os.geteuid()
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir("/proc"):
            # A process may end while it is looked at.
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and entry.stat().st_uid == user:
                    threads += len(os.listdir(Path(entry.path, "task")))
    return threads
