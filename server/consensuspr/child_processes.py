"""Child processes that leave the caller's main module and its threads alone.

``multiprocessing`` imports the caller's main module in each child: a training script without a main
guard would start over, and one read from standard input cannot be imported.  Forking a process with
threads, such as a gRPC server, may hang.  So children are forked from a server process, which has
imported one module and nothing else and ends with the process that uses it.
"""

from __future__ import annotations

import io
import os
import sys
from functools import lru_cache
from multiprocessing import context, forkserver, popen_forkserver, reduction, util
from multiprocessing.process import BaseProcess
from typing import Any


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
    server = forkserver.ForkServer()
    server.set_forkserver_preload([preload])
    return server
