"""The scoring service of one worker, which gRPC, HTTP and Ray Serve share.

A request is admitted on the event loop and worked on in a scoring thread, from its bytes to the
bytes of its reply.  A request that is wrong as a whole ends in :class:`Abort`; a fault of a single
rollout is a status in the reply.  When a caller leaves or its deadline passes, queued work is
dropped and running work stops at its next piece.

No text of an unexpected exception reaches a client: such an RPC is INTERNAL with an id, and the log
has the traceback under that id.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from consensuspr.errors import (
    ConsensusPRError,
    DatasetMismatch,
    DeadlineExceeded,
    InputError,
    InvalidRequest,
    UnknownDataset,
)
from consensuspr.scoring import DatasetIndex, Limits, Scorer
from consensuspr.scoring.scorer import Chosen
from consensuspr.scoring.types import (
    MAX_LABEL_BYTES,
    Identity,
    Rollout,
    ScoreColumns,
    ScoreOptions,
)
from consensuspr.server.admission import (
    COPIES,
    COPIES_EXPLAINED,
    TRIM_BYTES,
    TRIM_PAUSE_S,
    Admission,
    Job,
    Refusal,
    ScoringThreads,
    available_cores,
    charge,
    field_table,
    trim_memory,
)
from consensuspr.server.config import ServerConfig
from consensuspr.server.logs import LOGGER_NAME
from consensuspr.server.metrics import Metrics, TimedVerifier
from consensuspr.server.security import Denial, Security
from consensuspr.server.tracing import Trace, Tracing
from consensuspr.v1 import DATASET_DIGEST_KEY, PROTOCOL_VERSION, RETRY_AFTER_KEY, RUN_KEY
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire.codec import (
    PIECE_BYTES,
    PIECE_ROLLOUTS,
    cut,
    decode_options,
    decode_rollout,
    decode_rollouts,
    encode_explain_response,
    encode_score_response,
)
from consensuspr.wire.server_info import describe, describe_datasets, encode_server_info

SHUTTING_DOWN = "the server is shutting down"
# Fields of one request, those of its rollouts, nodes and expressions included.
MAX_FIELDS = 262_144
# Of a sentence in a status, which gRPC sends in a header of a few kilobytes.
MAX_SENTENCE_CHARS = 600

M = TypeVar("M", bound=Message)
Q = TypeVar("Q", pb.ScoreRequest, pb.ExplainRequest)
R = TypeVar("R")
# A request: bytes of gRPC, or the buffer of another endpoint.
B = TypeVar("B", bytes, bytes | bytearray)
Context = grpc.aio.ServicerContext[bytes, bytes]

_log = logging.getLogger(LOGGER_NAME)


class Abort(Exception):
    """End the RPC with a status code, one sentence and perhaps a hint in metadata.

    ``retry_after_s`` is when to try again, ``digest`` that of a dataset if another is expected.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        message: str,
        retry_after_s: float | None = None,
        digest: str | None = None,
    ) -> None:
        if len(message) > MAX_SENTENCE_CHARS:  # it quotes text of the client
            message = f"{message[:MAX_SENTENCE_CHARS]}... ({len(message)} characters)"
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s
        self.digest = digest
        super().__init__(self.message)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata sent with the sentence."""
        metadata = []
        if self.retry_after_s is not None:
            metadata.append((RETRY_AFTER_KEY, str(max(1, round(self.retry_after_s * 1000)))))
        if self.digest is not None:
            metadata.append((DATASET_DIGEST_KEY, self.digest))
        return tuple(metadata)


# How failures of the work end an RPC; the first that fits applies.  All others are defects.
_CODES: dict[type[ConsensusPRError], grpc.StatusCode] = {
    UnknownDataset: grpc.StatusCode.NOT_FOUND,
    DatasetMismatch: grpc.StatusCode.FAILED_PRECONDITION,
    InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    InputError: grpc.StatusCode.INVALID_ARGUMENT,
    DeadlineExceeded: grpc.StatusCode.DEADLINE_EXCEEDED,
}


def _failed(error: ConsensusPRError) -> Abort:
    code = next(code for kind, code in _CODES.items() if isinstance(error, kind))
    return Abort(code, str(error), digest=getattr(error, "digest", None))


def denied(denial: Denial) -> Abort:
    """Return how a denied call ends."""
    code = grpc.StatusCode.PERMISSION_DENIED if denial.known else grpc.StatusCode.UNAUTHENTICATED
    return Abort(code, denial.sentence)


def refused(refusal: Refusal) -> Abort:
    """Return how a call ends for which the queue has no room."""
    return Abort(grpc.StatusCode.RESOURCE_EXHAUSTED, refusal.reason, refusal.retry_after_s)


def internal(method: str) -> Abort:
    """Log the exception being handled under an id; return the client's error."""
    incident = uuid.uuid4().hex[:12]
    _log.exception("%s failed, incident %s", method, incident, extra={"incident": incident})
    return Abort(
        grpc.StatusCode.INTERNAL,
        f"internal error; the server logged it as incident {incident}",
    )


class RunningCall:
    """The part of an RPC that work depends on; set on the event loop, read by a thread.

    ``deadline`` is the ``time.monotonic()`` at which the caller stops waiting.
    """

    def __init__(self, deadline: float | None = None, trace: Trace | None = None) -> None:
        self.deadline = deadline
        self.trace = trace
        self._abandoned = False

    def abandon(self) -> None:
        """Note that nobody waits for the result any more."""
        self._abandoned = True

    def check(self) -> None:
        """Raise Abort if the deadline has passed or the caller has left."""
        if self._abandoned:
            raise Abort(grpc.StatusCode.CANCELLED, "the client cancelled the call")
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise Abort(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                "the client's deadline passed before the work was done",
            )


Work = Callable[[B, RunningCall], R]


class ScoringService:
    """Scores requests with some datasets, and counts and logs them; made on the event loop.

    Addresses and datasets of ``config`` do not count.  While it is ``draining``, new requests are
    UNAVAILABLE.
    """

    def __init__(
        self, config: ServerConfig, datasets: Mapping[str, DatasetIndex], metrics: Metrics
    ) -> None:
        self.security = Security.of(config)
        self.admission = Admission(int(config.queue_limit_bytes))
        # All cores, not this worker's share: one busy client is one connection, to one worker.
        self._threads = ScoringThreads(
            config.max_concurrent_requests, available_cores(), self.admission
        )
        self.verifier = TimedVerifier(
            workers=config.answer_workers,
            budget_s=config.answer_budget_s,
            # While an answer is waited for, another request may compute.
            while_waiting=self._threads.core_lent,
        )
        limits = Limits(max_response_bytes=int(config.max_response_bytes))
        self.scorer = Scorer(
            datasets, verifier=self.verifier, threads=config.match_threads, limits=limits
        )
        self._info = describe(self.scorer, int(config.max_message_bytes), config.max_rollouts)
        self.score_log = None
        if config.score_log is not None:
            from consensuspr.score_log import ScoreLog  # loads Arrow

            self.score_log = ScoreLog(
                config.score_log,
                "server",
                text_bytes=int(config.score_log_bytes),
                on_drop=metrics.score_log_dropped,
            )
        self.tracing = None if config.trace_endpoint is None else Tracing(config.trace_endpoint)
        self.metrics = metrics
        metrics.caches = self._cache_counts
        metrics.queue = lambda: (
            self.admission.unfinished_bytes,
            self.admission.unfinished_requests,
        )
        metrics.serving(datasets)
        self.draining = False
        self._freed_bytes, self._trimmed_at = 0, 0.0
        self._methods: dict[str, tuple[Work[bytes, bytes], bytes, int]] = {
            "Score": (self.score, field_table(pb.ScoreRequest.DESCRIPTOR), COPIES),
            "Explain": (self.explain, field_table(pb.ExplainRequest.DESCRIPTOR), COPIES_EXPLAINED),
        }

    def serve(self, datasets: Mapping[str, DatasetIndex]) -> None:
        """Score new requests with these datasets."""
        self.scorer.serve(datasets)
        self.metrics.serving(datasets)

    async def wait_until_idle(self, timeout_s: float) -> int:
        """Wait until all admitted requests have their replies; return how many do not."""
        deadline = time.monotonic() + timeout_s
        while (unfinished := self.admission.unfinished_requests) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        return unfinished

    def drop_requests(self) -> None:
        """Drop queued requests; running ones stop at their next piece."""
        self._threads.close()

    def close(self) -> None:
        """Drop requests, end the answer processes, and close the score log."""
        self.drop_requests()
        if self.tracing is not None:
            self.tracing.close()
        self.verifier.close()
        if self.score_log is not None:
            self.score_log.close()

    # -- on the event loop

    def check_open(self) -> None:
        """Raise Abort if the server shuts down."""
        if self.draining:
            raise Abort(grpc.StatusCode.UNAVAILABLE, SHUTTING_DOWN)

    async def answer(self, method: str, raw: bytes, context: Context) -> bytes:
        """Answer a request of gRPC; raise Abort if it does not end with a reply."""
        self.check_open()
        if method == "ServerInfo":
            # At once: a client that asks for the limits must not wait behind scoring.
            return self.server_info(raw)
        work, table, copies = self._methods[method]
        try:
            num_bytes = charge(raw, table, MAX_FIELDS, copies)
        except InvalidRequest as error:
            raise Abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
        remaining_s = context.time_remaining()
        deadline = None if remaining_s is None else time.monotonic() + remaining_s
        headers = context.invocation_metadata() or ()
        with self.begin_trace(method, headers) as trace:
            return await self.submit(work, raw, num_bytes, deadline, run_of(context), trace)

    def begin_trace(
        self, method: str, headers: Iterable[tuple[str, Any]]
    ) -> contextlib.AbstractContextManager[Trace | None]:
        """Return a context that traces a request; it gives None if the request is not traced."""
        trace = None if self.tracing is None else self.tracing.begin(method, headers)
        return trace or contextlib.nullcontext()

    async def submit(
        self,
        work: Work[B, R],
        raw: B,
        num_bytes: int,
        deadline: float | None,
        run: str,
        trace: Trace | None,
    ) -> R:
        """Admit a request and have a thread work on it.

        Args:
            work: a function of the request's bytes.
            raw: the request.
            num_bytes: memory that the request counts with.
            deadline: ``time.monotonic()`` at which the caller stops waiting; None: never.
            run: name of the training run; empty: none.
            trace: gets the stages.

        Raises:
            Abort: it was refused, or did not end with a reply.
        """
        self.check_open()
        call = RunningCall(deadline, trace)
        admitted = time.monotonic()
        # Emptied when the work is over: exceptions and callbacks refer to this frame.
        request = [raw]
        del raw

        def work_on() -> R:
            self.metrics.queued(time.monotonic() - admitted)
            if trace is not None:
                trace.stage_ended("queue")
            result = work(request.pop(), call)
            if trace is not None:
                trace.stage_ended("score")
            return result

        job = Job(work_on, num_bytes, run)
        refusal = self.admission.admit(job)
        if refusal is not None:
            raise refused(refusal)
        job.add_done_callback(lambda _: request.clear())
        task = asyncio.current_task()
        assert task is not None, "a coroutine is run by one"
        # It ends when gRPC has sent the reply.
        task.add_done_callback(partial(self._call_ended, job))
        try:
            self._threads.run_next()
        except RuntimeError:  # the threads were closed while the request came in
            job.cancel()
            raise Abort(grpc.StatusCode.UNAVAILABLE, SHUTTING_DOWN) from None
        try:
            result: R = await asyncio.wrap_future(job)
            return result
        except asyncio.CancelledError:
            call.abandon()
            if not task.cancelling():  # the server dropped the work, the caller did not leave
                raise Abort(grpc.StatusCode.UNAVAILABLE, SHUTTING_DOWN) from None
            raise
        except tuple(_CODES) as error:
            raise _failed(error) from None
        finally:
            # Its failure refers to this frame, and by the frames of the work to the request.
            del job, task

    def _call_ended(self, job: Job, _: asyncio.Task[Any]) -> None:
        self.admission.call_ended(job)
        self._freed_bytes += job.num_bytes
        now = time.monotonic()
        if self._freed_bytes >= TRIM_BYTES and now >= self._trimmed_at + TRIM_PAUSE_S:
            self._freed_bytes, self._trimmed_at = 0, now
            asyncio.get_running_loop().run_in_executor(None, trim_memory)

    # -- in a scoring thread

    def score(self, raw: bytes, call: RunningCall) -> bytes:
        """Answer ``Score``."""
        call.check()
        request = _parse_request(pb.ScoreRequest, raw)
        options = decode_options(request)
        rollouts = decode_rollouts(request, with_samples=self.score_log is not None)
        del request  # it holds a copy of every response
        chosen = self.scorer.dataset(options)
        if len(rollouts) > self._info.max_rollouts:
            raise Abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"a request has at most {self._info.max_rollouts} rollouts, got {len(rollouts)}",
            )
        if not options.probe:
            self.metrics.request_rollouts(len(rollouts))
        if call.trace is not None:
            call.trace.describe(rollouts=len(rollouts), dataset=chosen[0], run=options.run or "")
        columns: ScoreColumns | None = None
        pieces = iter((rollouts,))  # nearly always: a client's request is a piece
        if len(raw) > PIECE_BYTES or len(rollouts) > PIECE_ROLLOUTS:
            pieces = cut(rollouts, lambda r: len(r.response), PIECE_BYTES, PIECE_ROLLOUTS)
        for piece in pieces:
            call.check()
            part, identity = self.score_piece(piece, options, call.deadline, chosen)
            self.log(piece, part, identity, options, chosen)
            if columns is None:
                columns = part
            else:
                columns.extend(part)
        # A reply that comes too late would be thrown away; encoding it is work too.
        call.check()
        assert columns is not None, "no rollouts are one empty piece"
        return encode_score_response(columns, identity)

    def score_piece(
        self,
        rollouts: Sequence[Rollout],
        options: ScoreOptions,
        deadline: float | None,
        chosen: Chosen,
    ) -> tuple[ScoreColumns, Identity]:
        """Score and count some rollouts; call :meth:`log` when their request succeeds."""
        self.verifier.take_seconds()
        start = time.perf_counter()
        scores, identity = self.scorer.score_columns(rollouts, options, deadline, chosen)
        total_s, answers_s = time.perf_counter() - start, self.verifier.take_seconds()
        if rollouts and not options.probe:
            stored = {rollout.problem_id for rollout in rollouts if not rollout.data_source}
            known = {name: chosen[1].data_source(name) for name in stored}
            sources = [rollout.data_source or known[rollout.problem_id] for rollout in rollouts]
            self.metrics.batch(
                rollouts, sources, scores, run=options.run, total_s=total_s, answers_s=answers_s
            )
        return scores, identity

    def log(
        self,
        rollouts: Sequence[Rollout],
        scores: ScoreColumns,
        identity: Identity,
        options: ScoreOptions,
        chosen: Chosen,
    ) -> None:
        """Write scored rollouts to the score log, if there is one."""
        if self.score_log is not None and rollouts and not options.probe:
            self.score_log.put_batch(rollouts, scores, identity, options, chosen[1])

    def explain(self, raw: bytes, call: RunningCall) -> bytes:
        """Answer ``Explain``."""
        call.check()
        request = _parse_request(pb.ExplainRequest, raw)
        options = decode_options(request)
        if not request.HasField("rollout"):
            raise Abort(grpc.StatusCode.INVALID_ARGUMENT, "the request has no rollout")
        rollout = decode_rollout(request.rollout)
        explanation = self.scorer.explain(rollout, options, call.deadline)
        call.check()
        return encode_explain_response(explanation).SerializeToString()

    def server_info(self, raw: bytes) -> bytes:
        """Answer ``ServerInfo`` for clients of any protocol version."""
        parse_message(pb.ServerInfoRequest, raw)
        info = replace(self._info, datasets=describe_datasets(self.scorer.datasets))
        return encode_server_info(info).SerializeToString()

    def _cache_counts(self) -> tuple[int, int]:
        caches = {id(index.cache): index.cache for index in self.scorer.datasets.values()}
        hits = sum(cache.hits for cache in caches.values())
        return hits, sum(cache.misses for cache in caches.values())


def parse_message(message: type[M], raw: bytes) -> M:
    """Return a request of its bytes; other bytes end the RPC with INVALID_ARGUMENT."""
    try:
        return message.FromString(raw)
    except DecodeError:
        raise Abort(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"the request of {len(raw)} bytes is not a {message.DESCRIPTOR.full_name}",
        ) from None


def _parse_request(message: type[Q], raw: bytes) -> Q:
    """Return a request; end the RPC if it was written for another version, or for none."""
    request = parse_message(message, raw)
    version = request.protocol_version
    if version != PROTOCOL_VERSION:
        raise Abort(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"the client speaks protocol version {version or '0 (unset)'},"
            f" this server speaks version {PROTOCOL_VERSION}",
        )
    return request


def run_of(context: Context) -> str:
    """Return the name of the training run, which the head of a request may have."""
    for key, value in context.invocation_metadata() or ():
        if key == RUN_KEY and isinstance(value, bytes):
            return value[:MAX_LABEL_BYTES].decode("utf-8", "replace")
    return ""


async def counted(metrics: Metrics, method: str, work: Awaitable[bytes], context: Context) -> bytes:
    """Return the result of ``work``, or end the RPC as it raises; count either."""
    start = time.monotonic()
    code = grpc.StatusCode.CANCELLED
    try:
        reply = await work
        code = grpc.StatusCode.OK
        return reply
    except Abort as abort:
        code, end = abort.code, (abort.message, abort.metadata())
    except asyncio.CancelledError:
        raise
    except Exception:
        defect = internal(method)
        code, end = defect.code, (defect.message, defect.metadata())
    finally:
        metrics.request(method, code.name, time.monotonic() - start)
    # Outside of the handlers: gRPC's exception refers to the call, and would keep the frames of the
    # one before it, the request above all, until the garbage collector runs.
    await context.abort(code, *end)
    raise AssertionError("abort does not return")
