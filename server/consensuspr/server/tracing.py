"""Traces of requests, handed to an OpenTelemetry collector; off unless ``trace_endpoint`` is set.

One span a request, its parent the client's own where the request brings a ``traceparent`` (W3C),
and below it one for each stage: ``queue`` (waits for its turn), ``parse``, for each piece of the
batch ``match`` (with the reward) and ``answers``, and ``reply``.  Stages follow one another
without a gap, so that a span ends where the next begins.

Nothing of OpenTelemetry is imported where traces are off.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from consensuspr.errors import InputError
from consensuspr.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

# What a collector calls the server; OTEL_SERVICE_NAME says otherwise.
SERVICE = "consensuspr"


class Trace:
    """The spans of one request, from its arrival on; told of stages by one thread after another.

    A context manager, which ends the request's span: with the status that it was left by.
    """

    def __init__(self, tracer: Tracer, span: Span) -> None:
        from opentelemetry.trace import set_span_in_context

        self._tracer = tracer
        self._span = span
        self._parent = set_span_in_context(span)
        self._since_ns = time.time_ns()

    def stage_ended(self, stage: str, ago_s: float = 0.0) -> None:
        """Say that a stage that began at the end of the last one has ended, so long ago."""
        end_ns = max(self._since_ns, time.time_ns() - round(ago_s * 1e9))
        self._tracer.start_span(stage, self._parent, start_time=self._since_ns).end(end_ns)
        self._since_ns = end_ns

    def describe(self, **attributes: str | int) -> None:
        """Add to what the request's span says."""
        self._span.set_attributes({f"consensuspr.{key}": each for key, each in attributes.items()})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        from opentelemetry import trace

        if error is not None:
            # Of ours: its code; else a defect, or the caller left.
            code = getattr(error, "code", None)
            name = getattr(code, "name", type(error).__name__)
            self._span.set_attribute("rpc.response.status_code", name)
            self._span.set_status(trace.Status(trace.StatusCode.ERROR, name))
        self._span.end()


class Tracing:
    """Makes the traces of one process; safe to use from any thread.

    Args:
        endpoint: the collector, ``http://HOST:PORT`` or ``https://HOST:PORT``, by OTLP over gRPC.
        share: of the requests that come without a ``traceparent`` to trace, 0 to 1; the others
            say themselves.

    Raises:
        InputError: OpenTelemetry is not installed.
    """

    def __init__(self, endpoint: str, share: float) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError:
            raise InputError(
                "trace_endpoint needs OpenTelemetry: pip install 'consensuspr[otel]'"
            ) from None
        resource = Resource.create(
            {
                "service.name": SERVICE,
                "service.version": VERSION,
                "service.instance.id": f"{socket.gethostname()}-{os.getpid()}",
            }
        )
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(share)), resource=resource
        )
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
        self._tracer = self._provider.get_tracer(SERVICE, VERSION)
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, method: str, headers: Iterable[tuple[str, Any]]) -> Trace | None:
        """Begin the trace of a request; None where it is none of the share."""
        from opentelemetry.trace import SpanKind

        parent = self._propagator.extract(dict(headers))
        span = self._tracer.start_span(method, parent, SpanKind.SERVER)
        return Trace(self._tracer, span) if span.is_recording() else None

    def close(self) -> None:
        """Hand over what waits, for at most a few seconds, and end."""
        self._provider.shutdown()
