"""The child's side of a process that the supervisor starts (``children.py`` is the other).

A child gets its orders as one line of JSON on standard input, and reports once, as one line
of JSON on a pipe whose number is its argument: that it is ready, or why it cannot be.
Standard input stays open for as long as the supervisor lives; its end is how a child
learns that it was left alone, also where the supervisor was killed outright.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.server import logs
from consensuspr.server.config import ServerConfig
from consensuspr.server.service import SWITCH_INTERVAL_S, Draining

if TYPE_CHECKING:
    from consensuspr.server.service import BuiltServer


_STANDARD_INPUT = 0


class Orders:
    """What the supervisor said, and how to answer it."""

    def __init__(self) -> None:
        self._report_fd = int(sys.argv[1])
        # Processes that this one starts must not keep the pipe open after its death.
        os.set_inheritable(self._report_fd, False)
        self.payload: dict[str, Any] = json.loads(_read_line())

    def report_ready(self) -> None:
        """Tell the supervisor that this process does its work from here on."""
        self._report({"ready": True})

    def report_failure(self, reason: str, *, bad_input: bool) -> None:
        """Tell the supervisor, in one sentence, why this process cannot do its work.

        Args:
            reason: the sentence.
            bad_input: whether the operator gave something wrong.
        """
        self._report({"ready": False, "reason": reason, "bad_input": bad_input})

    def when_left_alone(self, callback: Callable[[], None]) -> None:
        """Call back, from a thread, when the supervisor is gone."""

        def wait() -> None:
            while os.read(_STANDARD_INPUT, 4096):
                pass
            callback()

        threading.Thread(target=wait, name="supervisor-watch", daemon=True).start()

    def _report(self, report: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # gone; when_left_alone tells
            os.write(self._report_fd, json.dumps(report).encode() + b"\n")


def _read_line() -> bytes:
    # Not through sys.stdin: its lock, held by a thread that waits, aborts the interpreter's
    # shutdown.
    line = bytearray()
    while not line.endswith(b"\n"):
        received = os.read(_STANDARD_INPUT, 65536)
        if not received:
            raise EOFError("the supervisor ended before it gave orders")
        line += received
    return bytes(line)


# MERGED A worker process: maps the snapshots, serves until it is told to stop, drains, ends.
#
# Ends with code 0 after draining, for SIGTERM, for SIGINT, and when the supervisor is gone.

_log = logging.getLogger(logs.LOGGER_NAME)

# Past the drain of a worker whose supervisor is gone: a stuck one must not stay for ever.
_LAST_RESORT_S = 10.0


class Front(Protocol):
    """Another face of the server beside gRPC, on the same event loop."""

    async def start(self) -> None:
        """Listen and serve.

        Raises:
            ConsensusPRError: it cannot listen.
        """

    def announce_shutdown(self) -> None:
        """Tell load balancers to look elsewhere, and serve on."""

    async def stop(self) -> None:
        """Let replies that are under way leave, and stop; nothing new is admitted any more."""


# Puts a front together from settings, the built server and what the supervisor ordered.
FrontFactory = Callable[[ServerConfig, "BuiltServer", dict[str, Any]], Front]


def main(front: FrontFactory | None = None) -> int:
    """Serve as ordered; return the exit code of the process.

    Args:
        front: makes what listens beside gRPC; None: nothing does.
    """
    orders = Orders()
    config = ServerConfig.model_validate(orders.payload["config"])
    logs.configure(config.log_format, config.log_level, f"worker {orders.payload['worker']}")
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        dropped = asyncio.run(_serve(orders, config, front))
    except ConsensusPRError as error:
        orders.report_failure(str(error), bad_input=isinstance(error, InputError))
        return 1
    if dropped:
        # An orderly end of the interpreter would wait for the threads of what was dropped.
        logging.shutdown()
        os._exit(0)
    return 0


async def _serve(orders: Orders, config: ServerConfig, make_front: FrontFactory | None) -> int:
    """Serve until told to stop; return how many requests were dropped at the end."""
    from consensuspr.scoring import DatasetIndex, MatcherCache
    from consensuspr.server.metrics import Metrics
    from consensuspr.server.service import build_server

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    how = Draining(config.drain_delay_s, config.grace_s)

    def left_alone() -> None:
        _log.error("the supervisor is gone; draining")
        last_resort = threading.Timer(
            how.delay_s + how.grace_s + _LAST_RESORT_S, os._exit, args=(1,)
        )
        last_resort.daemon = True
        last_resort.start()
        loop.call_soon_threadsafe(stop.set)

    orders.when_left_alone(left_alone)
    cache = MatcherCache(max_bytes=int(config.matcher_cache_bytes))
    datasets = {
        name: DatasetIndex.open(path, name=name, cache=cache)
        for name, path in orders.payload["snapshots"].items()
    }
    built = build_server(config, datasets, Metrics())
    front = None if make_front is None else make_front(config, built, orders.payload)
    try:
        await built.server.start(orders.payload["address"])
        if front is not None:
            await front.start()
        orders.report_ready()
        await stop.wait()
        if front is not None:
            front.announce_shutdown()
        dropped = await built.server.drain(how)
        if front is not None:
            await front.stop()
        return dropped
    finally:
        built.close()


if __name__ == "__main__":
    sys.exit(main())
