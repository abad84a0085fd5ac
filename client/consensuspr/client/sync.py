"""The synchronous client: each call runs in a new event loop, in the calling thread.

One client serves any number of threads.  It does not survive ``fork``, because gRPC's threads are
not in the child: make it there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from consensuspr.client.calls import Calls, ServerClient
from consensuspr.client.interface import BlockingClient, Explained, OwnOptions, ScoredBatch
from consensuspr.client.retries import RetryPolicy
from consensuspr.client.transport import Access
from consensuspr.wire.server_info import ServerInfo

T = TypeVar("T")


class RewardClient(ServerClient[ScoredBatch, Explained, ServerInfo], BlockingClient):
    """Scores rollouts by a reward server, or by several of the same datasets.

    Args:
        address: ``HOST:PORT`` of the server, several of them with commas, or a name behind which
            they are (``dns:///rewards:50051``).
        timeout_s: default timeout per call, including retries.
        max_in_flight: requests of one call at a time to each of the addresses.
        retry: when failed attempts are repeated.
        run: name of the training run, for its share of the server and for metrics.
        expect_digest: of the dataset; if the server has another, calls raise
            :class:`~consensuspr.errors.DatasetMismatch`.
        access: token and TLS; None: from the environment.

    Raises:
        InputError: a setting is out of range, or a file of the environment cannot be used.
            Nothing is connected before the first call.
    """

    def __init__(
        self,
        address: str,
        timeout_s: float = 30.0,
        *,
        max_in_flight: int = 8,
        retry: RetryPolicy | None = None,
        run: str | None = None,
        expect_digest: str | None = None,
        access: Access | None = None,
    ) -> None:
        own = OwnOptions(run, expect_digest)
        self._calls = Calls(address, timeout_s, max_in_flight, retry, own, access)

    def close(self) -> None:
        self._calls.close()

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:  # in a notebook, say: a thread runs one loop at a time
            with ThreadPoolExecutor(1) as thread:
                return thread.submit(self._run, call).result()
        # A loop that is kept would be shared with a forked child, which breaks it by closing it.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(call)
