"""Traces of requests for an OpenTelemetry collector; off unless ``trace_endpoint`` is set.

A request is one span, the child of the client's span if it brings a ``traceparent`` (W3C).  Below
it are two: ``queue``, the wait for a thread, and ``score``.  The variables of OpenTelemetry apply,
such as ``OTEL_SERVICE_NAME`` and ``OTEL_TRACES_SAMPLER``.
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


class Trace:
    """The spans of one request; a context manager that ends the request's span with its status."""

    def __init__(self, tracer: Tracer, span: Span) -> None:
        from opentelemetry.trace import set_span_in_context

        self._tracer = tracer
        self._span = span
        self._parent = set_span_in_context(span)
        self._since_ns = time.time_ns()

    def stage_ended(self, stage: str) -> None:
        """Note the end of a stage, which began when the last one ended."""
        end_ns = max(self._since_ns, time.time_ns())
        self._tracer.start_span(stage, self._parent, start_time=self._since_ns).end(end_ns)
        self._since_ns = end_ns

    def describe(self, **attributes: str | int) -> None:
        """Add attributes to the request's span."""
        self._span.set_attributes({f"consensuspr.{key}": each for key, each in attributes.items()})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        from opentelemetry.trace import Status, StatusCode

        if error is not None:
            # The gRPC code of a rejection; otherwise a defect, or the caller left.
            name = getattr(getattr(error, "code", None), "name", type(error).__name__)
            self._span.set_attribute("rpc.response.status_code", name)
            self._span.set_status(Status(StatusCode.ERROR, name))
        self._span.end()


class Tracing:
    """Makes the traces of one process, for a collector at ``http(s)://HOST:PORT``.  Thread-safe."""

    def __init__(self, endpoint: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError:
            raise InputError(
                "trace_endpoint needs OpenTelemetry: pip install 'consensuspr[otel]'"
            ) from None
        resource = Resource.create(
            {
                "service.name": os.environ.get("OTEL_SERVICE_NAME", "consensuspr"),
                "service.version": VERSION,
                "service.instance.id": f"{socket.gethostname()}-{os.getpid()}",
            }
        )
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
        self._tracer = self._provider.get_tracer("consensuspr", VERSION)
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, method: str, headers: Iterable[tuple[str, Any]]) -> Trace | None:
        """Begin the trace of a request; None if the sampler does not take it."""
        from opentelemetry.trace import SpanKind

        parent = self._propagator.extract(dict(headers))
        span = self._tracer.start_span(method, parent, SpanKind.SERVER)
        return Trace(self._tracer, span) if span.is_recording() else None

    def close(self) -> None:
        """Send the spans that wait, for a few seconds at most."""
        self._provider.shutdown()
