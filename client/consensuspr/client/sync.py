"""The synchronous client.

What happens during a call is decided by its course and its pipelines; here is only the
carrying out: attempts are started as futures on the channel of their server, their ends arrive
through a queue.

Thread safety: one client serves any number of threads; they share its channels.  A client
does not survive ``fork``, because gRPC's threads are not in the child: make it there.  (It
connects on first use, so one that was made before and not used yet is fine.)
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from consensuspr.client.calls import Attempt, Calls, Course, Pipeline, ServerClient, open_method
from consensuspr.client.interface import BlockingClient, Explained, OwnOptions, ScoredBatch
from consensuspr.client.retries import RetryPolicy, RpcFailure
from consensuspr.client.transport import Access, Connector, keep_freed_memory
from consensuspr.errors import RewardServiceError
from consensuspr.wire.server_info import ServerInfo

T = TypeVar("T")
R = TypeVar("R", bound=Message | bytes)


class RewardClient(ServerClient[ScoredBatch, Explained, ServerInfo], BlockingClient):
    """Scores rollouts by a reward server, or by several of the same datasets.

    Args:
        address: ``HOST:PORT`` of the server; of several, with commas between, or a name behind
            which they are (``dns:///rewards:50051``).
        timeout_s: for a whole call, retries included, where the call is given none.
        max_in_flight: requests of one call at a time to each of the addresses.
        retry: when failed attempts are repeated.
        run: name of the training run that asks, for its fair share and for metrics.
        expect_digest: of the dataset; where the server has another, calls end with
            :class:`~consensuspr.errors.DatasetMismatch`.
        access: token and TLS; None: what the environment says.

    Raises:
        InputError: a setting is out of range, or a file that the environment names cannot be
            used.  Nothing is connected before the first call.
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
        self._connector = Connector(access)
        self._calls = Calls(address, timeout_s, retry or RetryPolicy(), max_in_flight, own=own)
        self._lock = threading.Lock()
        self._channels = _Channels()
        self._pid = 0
        self._closed = False

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._pid == os.getpid():
                for channel in self._channels:
                    channel.close()

    def _open_channels(self) -> _Channels:
        with self._lock:
            if self._closed:
                raise RuntimeError("the client is closed")
            if not self._channels or (self._pid == os.getpid() and self._connector.renewed()):
                keep_freed_memory()
                # Calls that use those before finish on them.
                weakref.finalize(self._channels, _close, [*self._channels]).atexit = False
                self._channels = _Channels(
                    self._connector.open(address) for address in self._calls.balancer.addresses
                )
                self._pid = os.getpid()
            elif self._pid != os.getpid():
                raise RuntimeError(
                    f"the client was used in process {self._pid} and cannot be used in its"
                    f" child {os.getpid()}; make a client in each process"
                )
            return self._channels

    def _carry_out(self, course: Course[T]) -> T:
        try:
            rpc = next(course)
            while True:
                try:
                    self._run(*rpc)
                except RewardServiceError as error:
                    rpc = course.throw(error)
                else:
                    rpc = next(course)
        except StopIteration as end:
            result: T = end.value
            return result

    def _run(self, method: str, pipeline: Pipeline[R]) -> None:
        """Carry out an RPC: start what is due, pass on what ended, until all is done.

        Raises:
            RewardServiceError: the pipeline gave up, or the client was closed.
        """
        channels = self._open_channels()  # kept while any of them is used
        calls = channels.method(method)
        ended: SimpleQueue[tuple[Attempt[R], Any]] = SimpleQueue()
        in_flight: set[Any] = set()
        try:
            while True:
                due = pipeline.due()
                if due and pipeline.on_last:
                    self._wait_for(due[0], calls[due[0].server], method, pipeline)
                    continue
                for attempt in due:
                    call = calls[attempt.server]
                    future = call.future(
                        attempt.pending.request,
                        timeout=attempt.timeout_s,
                        metadata=self._connector.metadata(pipeline.run),
                    )
                    in_flight.add(future)
                    future.add_done_callback(
                        lambda future, attempt=attempt: ended.put((attempt, future))
                    )
                if pipeline.done:
                    return
                try:
                    attempt, future = ended.get(timeout=pipeline.wait_s())
                except Empty:
                    continue
                in_flight.discard(future)
                if future.code() is grpc.StatusCode.OK:
                    pipeline.succeeded(attempt, future.result())
                else:
                    self._failed(attempt, RpcFailure.of(future), method, pipeline)
        finally:
            for future in in_flight:
                future.cancel()

    def _wait_for(self, attempt: Attempt[R], call: Any, method: str, pipeline: Pipeline[R]) -> None:
        """Carry out one attempt in this thread; no other thread has to be woken for its reply."""
        try:
            reply = call(
                attempt.pending.request,
                timeout=attempt.timeout_s,
                metadata=self._connector.metadata(pipeline.run),
            )
        except grpc.RpcError as error:
            failure = RpcFailure.of(error)
        else:
            pipeline.succeeded(attempt, reply)
            return
        self._failed(attempt, failure, method, pipeline)

    def _failed(
        self, attempt: Attempt[R], failure: RpcFailure, method: str, pipeline: Pipeline[R]
    ) -> None:
        """Take the failure of an attempt; only what this client did not cause is repeated."""
        if self._closed:
            raise failure.exception(f"{method}, the client was closed")
        if failure.hangs_up:
            address = self._calls.balancer.addresses[attempt.server]
            failure = failure.explained(self._connector.told_by_handshake(address))
        pipeline.failed(attempt, failure)


class _Channels(list[grpc.Channel]):
    """The channels of a client, one to each of its servers, and what was opened on them."""

    def __init__(self, channels: Iterable[grpc.Channel] = ()) -> None:
        super().__init__(channels)
        self._methods: dict[str, list[Any]] = {}

    def method(self, name: str) -> list[Any]:
        """Return a method of each server; gRPC takes half as long to make one as for a call."""
        if name not in self._methods:
            self._methods[name] = [open_method(channel, name) for channel in self]
        return self._methods[name]


def _close(channels: list[grpc.Channel]) -> None:
    for channel in channels:
        channel.close()
