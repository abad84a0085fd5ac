"""The Prometheus endpoint: one address for the numbers of all workers.

Lives in the supervisor, which outlasts every worker, so that a counter does not fall when
a worker is replaced.  Imports prometheus-client and no gRPC.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.server.address import Address

MULTIPROCESS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


class MetricsEndpoint:
    """Serves ``/metrics`` from a thread.

    Args:
        address: where; port 0 takes any free one.
        folder: where the workers keep their numbers.

    Raises:
        ConsensusPRError: another process has the port.
        InputError: the address is not one of this machine's.
    """

    def __init__(self, address: Address, folder: Path) -> None:
        from prometheus_client import CollectorRegistry, Counter, multiprocess, start_http_server

        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry, path=str(folder))  # type: ignore[no-untyped-call]
        self._folder = folder
        self.worker_restarts = Counter(
            "consensuspr_worker_restarts", "Workers that died and were replaced.", registry=registry
        )
        self._mark_dead: Callable[..., None] = multiprocess.mark_process_dead
        self._server: Any
        self._thread: Thread
        try:
            self._server, self._thread = start_http_server(
                address.port, addr=address.host, registry=registry
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise ConsensusPRError(
                    f"metrics address {address} is in use by another process"
                ) from None
            raise InputError(f"cannot serve metrics on {address}: {error}") from None
        host, port = self._server.server_address[:2]
        self.address = Address(host, port)

    def worker_died(self, pid: int) -> None:
        """Take a dead worker out of what counts only while it lives (its queue)."""
        self._mark_dead(pid, path=str(self._folder))

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def multiprocess_environment(folder: Path) -> dict[str, str]:
    """Return the variables that make a worker keep its numbers in ``folder``."""
    return {MULTIPROCESS_VARIABLE: os.fspath(folder)}
