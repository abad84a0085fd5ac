"""The gRPC face of a worker: admission, working threads, deadlines, codes, draining.

One event loop receives and replies; the work of each request runs in a thread, a bounded
number at a time, the rest waits in the threads' queue (in order of arrival, bounded in
bytes by the admission).  Matching releases the GIL, so that threads are real parallelism.

A caller that leaves, or whose deadline passes, leaves its work behind: what is queued is
dropped, what runs stops at the next piece.  Its bytes count as unfinished until then.

No Python traceback and no text of an unexpected exception reaches a client: such an RPC is
INTERNAL with an id, and the log has the rest under that id.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NoReturn, TypeVar

import grpc
import grpc.aio

from consensuspr.errors import DeadlineExceeded, InputError, InvalidRequest
from consensuspr.server.admission import REQUEST_OVERHEAD_BYTES, Admission
from consensuspr.server.call import Abort, Call
from consensuspr.server.handlers import Handlers
from consensuspr.server.logs import LOGGER_NAME
from consensuspr.server.metrics import Metrics
from consensuspr.v1 import SERVICE_NAME

RETRY_AFTER_KEY = "retry-after-ms"
# Of threads that score, above the process's: what has to be received, refused and replied to
# must not wait for its turn behind work of the same process.
THREAD_NICENESS = 5
SHUTTING_DOWN = "the server is shutting down"

R = TypeVar("R")
Work = Callable[[bytes, Call], R]
Context = grpc.aio.ServicerContext[bytes, bytes]

_log = logging.getLogger(LOGGER_NAME)


class ScoringService:
    """The RPCs of one worker on its event loop.

    Args:
        handlers: the work.
        admission: the books of unfinished requests.
        threads: requests in work at a time.
        metrics: where outcomes are counted.
    """

    def __init__(
        self, handlers: Handlers, admission: Admission, threads: int, metrics: Metrics
    ) -> None:
        self._work: dict[str, Work[bytes]] = {"Score": handlers.score, "Explain": handlers.explain}
        self._server_info = handlers.server_info
        self._admission = admission
        self._metrics = metrics
        self._threads = ThreadPoolExecutor(
            threads, thread_name_prefix="scoring", initializer=_give_way
        )
        self._draining = False

    def rpc_handler(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        """Return what a gRPC server is to be given; messages pass as bytes."""
        methods = [*self._work, "ServerInfo"]
        return grpc.method_handlers_generic_handler(
            SERVICE_NAME,
            {name: grpc.unary_unary_rpc_method_handler(self._behaviour(name)) for name in methods},
        )

    @property
    def draining(self) -> bool:
        """Whether new requests are refused."""
        return self._draining

    def refuse_new_requests(self) -> None:
        """From now on, answer new requests with UNAVAILABLE."""
        self._draining = True

    async def wait_until_idle(self, timeout_s: float) -> int:
        """Wait until all admitted requests are finished; return how many are not."""
        deadline = time.monotonic() + timeout_s
        while self._admission.unfinished_requests and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        return self._admission.unfinished_requests

    def close(self) -> None:
        """Drop what is queued; what runs stops at its next piece."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _behaviour(self, method: str) -> Callable[[bytes, Context], Awaitable[bytes]]:
        async def behaviour(raw: bytes, context: Context) -> bytes:
            start = time.monotonic()
            code = grpc.StatusCode.CANCELLED
            try:
                reply = await self._serve(method, raw, context)
                code = grpc.StatusCode.OK
                return reply
            except Abort as abort:
                code = abort.code
                await _end(context, abort)
            except asyncio.CancelledError:
                raise
            except Exception:
                code = grpc.StatusCode.INTERNAL
                await _end(context, internal(method))
            finally:
                self._metrics.request(method, code.name, time.monotonic() - start)

        return behaviour

    async def _serve(self, method: str, raw: bytes, context: Context) -> bytes:
        """Let the request in and have it worked on by a thread.

        Raises:
            Abort: it was refused, or ended otherwise than with a reply.
        """
        self._check_open()
        if method == "ServerInfo":
            # At once: a client that asks what the server takes must not wait behind others.
            return self._server_info(raw, Call())
        remaining_s = context.time_remaining()
        deadline = None if remaining_s is None else time.monotonic() + remaining_s
        return await self.submit(self._work[method], raw, deadline)

    async def submit(self, work: Work[R], raw: bytes, deadline: float | None) -> R:
        """Let a request in and have it worked on by a thread; what every front calls.

        Args:
            work: what to do with the request's bytes.
            raw: the request; its size is what the admission counts.
            deadline: ``time.monotonic()`` at which the caller stops waiting; None: never.

        Returns:
            What ``work`` returned.

        Raises:
            Abort: it was refused, or ended otherwise than with a reply.
        """
        self._check_open()
        num_bytes = len(raw) + REQUEST_OVERHEAD_BYTES
        refusal = self._admission.admit(num_bytes)
        if refusal is not None:
            raise Abort(grpc.StatusCode.RESOURCE_EXHAUSTED, refusal.reason, refusal.retry_after_s)
        call = Call(deadline)
        # Emptied as soon as the request is done with: the threads' queue keeps what was
        # cancelled before its turn, and must not keep its bytes.
        request = [raw]
        del raw
        try:
            future = self._threads.submit(_work_on, work, request, call)
        except RuntimeError:  # the threads were shut down while the request came in
            self._admission.finish(num_bytes, served=False)
            raise Abort(grpc.StatusCode.UNAVAILABLE, SHUTTING_DOWN) from None
        self._show_queue()

        def finish(done: Future[R]) -> None:
            # In the working thread, also long after the caller has left.
            request.clear()
            served = not done.cancelled() and done.exception() is None
            self._admission.finish(num_bytes, served=served)
            self._show_queue()

        future.add_done_callback(finish)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                # The work was dropped by close(), not left by its caller.
                raise Abort(grpc.StatusCode.UNAVAILABLE, SHUTTING_DOWN) from None
            call.abandon()
            raise
        except (InputError, InvalidRequest) as error:
            raise Abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
        except DeadlineExceeded as error:
            raise Abort(grpc.StatusCode.DEADLINE_EXCEEDED, str(error)) from None

    def _check_open(self) -> None:
        if self._draining:
            raise Abort(grpc.StatusCode.UNAVAILABLE, SHUTTING_DOWN)

    def _show_queue(self) -> None:
        self._metrics.queue(self._admission.unfinished_bytes, self._admission.unfinished_requests)


def _give_way() -> None:
    """Let the event loop and gRPC's threads go before the calling one, where the system can."""
    # Linux has a priority for each thread; elsewhere it is the process's, and stays as it is.
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), THREAD_NICENESS)


def _work_on(work: Work[R], request: list[bytes], call: Call) -> R:
    return work(request.pop(), call)


async def _end(context: Context, abort: Abort) -> NoReturn:
    metadata: tuple[tuple[str, str], ...] = ()
    if abort.retry_after_s is not None:
        metadata = ((RETRY_AFTER_KEY, str(max(1, round(abort.retry_after_s * 1000)))),)
    await context.abort(abort.code, abort.message, metadata)
    raise AssertionError("abort does not return")


def internal(method: str) -> Abort:
    """Log the exception being handled under an id; return what the client is told."""
    incident = uuid.uuid4().hex[:12]
    _log.exception("%s failed, incident %s", method, incident, extra={"incident": incident})
    return Abort(
        grpc.StatusCode.INTERNAL,
        f"the server failed on a defect of its own; its log has incident {incident}",
    )
