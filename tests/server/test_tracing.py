"""Traces, as a collector gets them from real servers."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp_grpc

from tests.server.conftest import RIGHT, Serve, request_of


class Collector(otlp_grpc.TraceServiceServicer):
    """Keeps the spans that it is sent."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []

    def Export(self, request: Any, context: Any) -> Any:
        for of_resource in request.resource_spans:
            attributes = of_resource.resource.attributes
            self.resources.append({one.key: one.value.string_value for one in attributes})
            for scope in of_resource.scope_spans:
                self.spans.extend(scope.spans)
        return otlp.ExportTraceServiceResponse()

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]


@pytest.fixture
def collector() -> Iterator[tuple[Collector, str]]:
    """A collector, and where it listens."""
    kept = Collector()
    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        otlp_grpc.add_TraceServiceServicer_to_server(kept, server)  # type: ignore[no-untyped-call]
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield kept, f"http://127.0.0.1:{port}"
        server.stop(None).wait()


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


def test_a_request_is_a_span_of_its_caller(
    serve: Serve, collector: tuple[Collector, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    kept, endpoint = collector
    server = serve(trace_endpoint=endpoint)
    trace, caller = secrets.token_hex(16), secrets.token_hex(8)
    sent = (("traceparent", f"00-{trace}-{caller}-01"),)
    server.stub.Score(request_of(RIGHT, RIGHT, run="r1"), metadata=sent)
    server.stub.Score(request_of(RIGHT))  # of no trace, and none is begun
    assert server.service.tracing is not None
    server.service.tracing.close()
    [request] = kept.named("Score")
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == (trace, caller)
    assert attributes(request) == {
        "consensuspr.rollouts": 2, "consensuspr.dataset": "default", "consensuspr.run": "r1",
    }  # fmt: skip
    stages = [span for span in kept.spans if span.parent_span_id == request.span_id]
    assert [span.name for span in stages] == ["queue", "score"]
    assert kept.resources[0]["service.name"] == "consensuspr"


def test_a_request_that_ends_otherwise_says_how(
    serve: Serve, collector: tuple[Collector, str]
) -> None:
    kept, endpoint = collector
    server = serve(trace_endpoint=endpoint)
    with pytest.raises(grpc.RpcError):
        server.stub.Score(request_of(RIGHT, dataset="nobody's"))
    assert server.service.tracing is not None
    server.service.tracing.close()
    [request] = kept.named("Score")
    assert attributes(request)["rpc.response.status_code"] == "NOT_FOUND"
    assert request.status.code == 2  # error
