"""Child processes: pools that leave the caller's main module alone, and the death of a parent.

``multiprocessing`` imports the caller's main module in each child: a training script without a main
guard would start over, and one read from standard input cannot be imported.  Forking a process with
threads, such as a gRPC server, may hang.  So children are forked from a server process, which has
imported one module and nothing else and ends with the process that uses it.
"""

from __future__ import annotations

import ctypes
import io
import os
import shutil
import signal
import sys
import tempfile
from functools import lru_cache
from multiprocessing import context, forkserver, popen_forkserver, reduction, util
from multiprocessing.process import BaseProcess, current_process
from typing import Any

# A socket's path has at most 104 bytes on macOS, some 20 of them for the name of the socket.
_MAX_TEMP_DIR = 80
_PR_SET_PDEATHSIG = 1


def on_parent_death(number: signal.Signals) -> None:
    """Have Linux send this process a signal when its parent dies; do nothing elsewhere.

    A process that is stopped (SIGSTOP, a debugger) cannot notice that its parent is gone: SIGCONT
    wakes it.  The signal comes when the *thread* that started the process ends, so SIGKILL is for
    children of single-threaded parents.  A parent that is dead by now sends none.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


class ChildContext(context.ForkServerContext):
    """A context for pools of pebble and :mod:`concurrent.futures`.

    Args:
        preload: module that the server imports, so that it is there in each child.
    """

    def __init__(self, preload: str) -> None:
        super().__init__()
        self._preload = preload

    def Process(self, *arguments: Any, **options: Any) -> BaseProcess:  # type: ignore[override]
        """Return a process that is not started yet."""
        process = _Process(*arguments, **options)
        process.preload = self._preload
        return process


class _Popen(popen_forkserver.Popen):
    _fds: list[int]

    def _launch(self, process_obj: _Process) -> None:
        message = io.BytesIO()
        context.set_spawning_popen(self)
        try:
            # No word of the main module.
            reduction.dump({"sys_path": sys.path}, message)
            reduction.dump(process_obj, message)
        finally:
            context.set_spawning_popen(None)
        server = _fork_server(os.getpid(), process_obj.preload)
        self.sentinel, channel = server.connect_to_new_process(self._fds)
        self.finalizer = util.Finalize(self, os.close, (self.sentinel,))
        with open(channel, "wb") as pipe:
            pipe.write(message.getbuffer())
        self.pid = forkserver.read_signed(self.sentinel)


class _Process(context.ForkServerProcess):
    preload: str

    @staticmethod
    def _Popen(process_obj: BaseProcess) -> _Popen:
        return _Popen(process_obj)


@lru_cache
def _fork_server(process_id: int, preload: str) -> forkserver.ForkServer:
    """Return the fork server of this process; a forked process has its own."""
    _shorten_temp_dir()
    server = forkserver.ForkServer()
    server.set_forkserver_preload([preload])
    return server


def _shorten_temp_dir() -> None:
    """Move the sockets of ``multiprocessing`` to /tmp if TMPDIR makes their paths too long."""
    if len(os.fsencode(util.get_temp_dir())) > _MAX_TEMP_DIR:
        directory = tempfile.mkdtemp(prefix="pymp-", dir="/tmp")
        util.Finalize(None, shutil.rmtree, args=(directory, True), exitpriority=-100)
        current_process()._config["tempdir"] = directory  # type: ignore[attr-defined]
