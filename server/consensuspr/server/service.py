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
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from typing import Any, NoReturn, TypeVar

import grpc
import grpc.aio

from consensuspr.errors import DeadlineExceeded, InputError, InvalidRequest
from consensuspr.server.admission import REQUEST_OVERHEAD_BYTES, Admission, Refusal
from consensuspr.server.call import Abort, Call
from consensuspr.server.handlers import Handlers
from consensuspr.server.logs import LOGGER_NAME
from consensuspr.server.metrics import Metrics
from consensuspr.server.threads import WorkingThreads
from consensuspr.v1 import SERVICE_NAME

RETRY_AFTER_KEY = "retry-after-ms"
# So soon threads give Python's lock away when it is asked for; 5 ms are Python's own choice,
# which the event loop would wait for several times a request.
SWITCH_INTERVAL_S = 0.0005
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
        threads: what requests are worked on in.
        metrics: where outcomes are counted.
    """

    def __init__(
        self,
        handlers: Handlers,
        admission: Admission,
        threads: WorkingThreads,
        metrics: Metrics,
    ) -> None:
        self._work: dict[str, Work[bytes]] = {"Score": handlers.score, "Explain": handlers.explain}
        self._server_info = handlers.server_info
        self._admission = admission
        self._metrics = metrics
        self._threads = threads
        self._draining = False

    def rpc_handler(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        """Return what a gRPC server is to be given; messages pass as bytes."""
        return _Front(self, [*self._work, "ServerInfo"])

    def guards(self, method: str) -> bool:
        """Whether some requests of a method end now without their bytes being received."""
        return method in self._work and (self._draining or self._admission.refusing)

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
        self._threads.close()

    def behaviour(self, method: str) -> Callable[[bytes, Context], Awaitable[bytes]]:
        """Return what carries out a method."""

        async def behaviour(raw: bytes, context: Context) -> bytes:
            return await self._counted(method, self._serve(method, raw, context), context)

        return behaviour

    def guarded(self, method: str) -> Callable[[AsyncIterator[bytes], Context], Awaitable[bytes]]:
        """Return what carries out a method, and receives only what will not be refused."""

        async def serve(messages: AsyncIterator[bytes], context: Context) -> bytes:
            self._check_open()
            refusal = self._admission.closed(context.peer())
            if refusal is not None:
                raise _refused(refusal)
            async for raw in messages:
                return await self._serve(method, raw, context)
            raise Abort(grpc.StatusCode.INVALID_ARGUMENT, "the call brought no request")

        async def behaviour(messages: AsyncIterator[bytes], context: Context) -> bytes:
            return await self._counted(method, serve(messages, context), context)

        return behaviour

    async def _counted(self, method: str, work: Awaitable[bytes], context: Context) -> bytes:
        """Return what ``work`` returns, or end the RPC as it raises; either is counted."""
        start = time.monotonic()
        code = grpc.StatusCode.CANCELLED
        try:
            reply = await work
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
        return await self.submit(self._work[method], raw, deadline, context.peer())

    async def submit(
        self, work: Work[R], raw: bytes, deadline: float | None, sender: str = ""
    ) -> R:
        """Let a request in and have it worked on by a thread; what every front calls.

        Args:
            work: what to do with the request's bytes.
            raw: the request; its size is what the admission counts.
            deadline: ``time.monotonic()`` at which the caller stops waiting; None: never.
            sender: names the connection that the request came by, for the admission.

        Returns:
            What ``work`` returned.

        Raises:
            Abort: it was refused, or ended otherwise than with a reply.
        """
        self._check_open()
        num_bytes = len(raw) + REQUEST_OVERHEAD_BYTES
        refusal = self._admission.admit(num_bytes, sender)
        if refusal is not None:
            raise _refused(refusal)
        call = Call(deadline)
        # Emptied as soon as the request is done with: the threads' queue keeps what was
        # cancelled before its turn, and must not keep its bytes.
        request = [raw]
        del raw

        def work_on() -> R:
            if self._admission.refusing:
                _give_way()
            self._admission.begin(num_bytes, sender)
            return work(request.pop(), call)

        try:
            future = self._threads.submit(work_on)
        except RuntimeError:  # the threads were shut down while the request came in
            self._admission.finish(num_bytes, sender, begun=False, served=False)
            raise Abort(grpc.StatusCode.UNAVAILABLE, SHUTTING_DOWN) from None
        self._show_queue()

        def finish(done: Future[R]) -> None:
            # In the working thread, also long after the caller has left.
            begun = not request
            request.clear()
            served = not done.cancelled() and done.exception() is None
            self._admission.finish(num_bytes, sender, begun=begun, served=served)
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


class _Front(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """The methods of a service by name; asked by gRPC for each request before its body is read.

    What is refused then costs no receiving: a handler of streams is not given the body.
    """

    def __init__(self, service: ScoringService, methods: list[str]) -> None:
        self._service = service
        self._methods = {f"/{SERVICE_NAME}/{name}": name for name in methods}
        self._handlers = {
            name: grpc.unary_unary_rpc_method_handler(service.behaviour(name)) for name in methods
        }
        self._guarded = {
            name: grpc.stream_unary_rpc_method_handler(service.guarded(name)) for name in methods
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        name = self._methods.get(handler_call_details.method)
        if name is None:
            return None
        return (self._guarded if self._service.guards(name) else self._handlers)[name]


def _give_way() -> None:
    """Let what waits for this core go first.

    A thread that goes from one request to the next without a pause keeps its core for several
    milliseconds, and all that arrives meanwhile waits to be refused, or to be let in.
    """
    if hasattr(os, "sched_yield"):
        os.sched_yield()


def _refused(refusal: Refusal) -> Abort:
    return Abort(grpc.StatusCode.RESOURCE_EXHAUSTED, refusal.reason, refusal.retry_after_s)


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
