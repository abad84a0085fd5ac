"""The supervisor's HTTP endpoint: ``/metrics`` of all workers, and ``/healthz`` for probes.

It runs in the process that outlasts every worker, so that a counter does not fall when a worker is
replaced.  Metrics take a token of scope ``read`` if the server has tokens; ``/healthz`` takes none.
The number of connections is bounded, and a new one takes the place of the oldest, so that silent
callers lock no probe out.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from socketserver import ThreadingMixIn
from typing import Any, TypeAlias
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, make_wsgi_app
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from consensuspr.credentials import Scope
from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.server.config import Address
from consensuspr.server.security import Security

# For a caller to send or receive something.
TIMEOUT_S = 10.0
# Prometheus and probes come one by one.  A connection keeps its place for KEPT_S at least.
MAX_CONNECTIONS = 32
KEPT_S = 0.5
_TEXT = ("Content-Type", "text/plain; charset=utf-8")


# Name, names of labels, their values.
_Series: TypeAlias = tuple[str, tuple[str, ...], tuple[str, ...]]


class WorkerMetrics(Collector):
    """The metrics of all workers together.

    The counters of a worker that died stay, so that a sum never falls; its gauges go.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._about: dict[str, tuple[str, str, str]] = {}  # text, kind, how workers become one
        self._of: dict[int, dict[str, dict[_Series, float]]] = {}  # by process, by metric
        self._of_dead: dict[str, dict[_Series, float]] = {}

    def update(self, pid: int, metrics: Mapping[str, Any]) -> None:
        """Take the latest :meth:`Metrics.samples` of a worker."""
        with self._lock:
            found = self._of[pid] = {}
            for metric, (text, kind, merged, samples) in metrics.items():
                self._about[metric] = text, kind, merged
                found[metric] = {(n, tuple(ls), tuple(vs)): value for n, ls, vs, value in samples}

    def died(self, pid: int) -> None:
        """Keep the counters of a dead worker."""
        with self._lock:
            for metric, samples in self._of.pop(pid, {}).items():
                if self._about[metric][1] != "gauge":
                    _merge(self._of_dead.setdefault(metric, {}), samples, "sum")

    def collect(self) -> Iterable[Metric]:
        """Return all metrics, each summed over the workers."""
        with self._lock:
            collected = []
            for name, (text, kind, merged) in self._about.items():
                total = dict(self._of_dead.get(name, {}))
                for metrics in self._of.values():
                    _merge(total, metrics.get(name, {}), merged)
                metric = Metric(name, text, kind)
                for (sample, labels, values), value in total.items():
                    metric.add_sample(sample, dict(zip(labels, values, strict=True)), value)
                collected.append(metric)
            return collected


def _merge(total: dict[_Series, float], samples: Mapping[_Series, float], rule: str) -> None:
    for series, value in samples.items():
        before = total.get(series, 0.0)
        total[series] = max(before, value) if rule == "max" else before + value


class MetricsEndpoint:
    """Serves from a thread of its own until it is closed; port 0 takes any free one.

    ``serving`` returns how many of the ``workers`` take requests now, in any thread.
    """

    def __init__(
        self, address: Address, security: Security, *, workers: int, serving: Callable[[], int]
    ) -> None:
        self.registry = registry = CollectorRegistry()
        self.workers = WorkerMetrics()
        registry.register(self.workers)
        self.worker_restarts = Counter(
            "consensuspr_worker_restarts",
            "Workers that died or hung and were restarted.",
            registry=registry,
        )
        wanted = Gauge("consensuspr_workers", "Configured workers.", registry=registry)
        wanted.set(workers)
        now = Gauge("consensuspr_workers_serving", "Workers that serve now.", registry=registry)
        now.set_function(serving)
        text = "Changes of datasets by result: done or failed."
        self.dataset_changes = Counter(
            "consensuspr_dataset_changes", text, ["result"], registry=registry
        )
        for result in ("done", "failed"):
            self.dataset_changes.labels(result)  # from the start: an alert needs to see it rise
        text = "1 for a dataset that is not served, because its file in dataset_folder is bad."
        self.dataset_bad = Gauge("consensuspr_dataset_bad", text, ["dataset"], registry=registry)
        self._metrics: Any = make_wsgi_app(registry)
        self._gate = security.gate
        self._serving = serving
        context = None if security.tls is None else security.tls.context()
        try:
            self._server = _Server(address, context)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise ConsensusPRError(
                    f"metrics address {address} is in use by another process"
                ) from None
            raise InputError(f"cannot serve metrics on {address}: {error}") from None
        self._server.set_app(self._answer)
        self.address = Address.of(self._server.socket)
        serve = self._server.serve_forever
        self._thread = threading.Thread(target=serve, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, request: dict[str, Any], respond: Any) -> Iterable[bytes]:
        if request["PATH_INFO"] == "/healthz":
            serving = self._serving() > 0
            respond("200 OK" if serving else "503 Service Unavailable", [_TEXT])
            return [b"SERVING\n" if serving else b"NOT_SERVING\n"]
        denial = self._gate.denial(Scope.READ, request.get("HTTP_AUTHORIZATION"))
        if denial is None:
            answered: Iterable[bytes] = self._metrics(request, respond)
            return answered
        if denial.known:
            respond("403 Forbidden", [_TEXT])
        else:
            respond("401 Unauthorized", [_TEXT, ("WWW-Authenticate", "Bearer")])
        return [f"{denial.sentence}\n".encode()]


class _Server(ThreadingMixIn, WSGIServer):
    """A thread a connection, of a bounded number; the handshake is the thread's work too."""

    daemon_threads = True

    def __init__(self, address: Address, context: ssl.SSLContext | None) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._open: dict[socket.socket, float] = {}  # since when, the oldest first
        self.address_family, _, _, _, target = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        super().__init__(target, _Handler)  # type: ignore[arg-type]

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, caller = super().get_request()
        connection.settimeout(TIMEOUT_S)
        if self._context is not None:
            connection = self._context.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        return connection, caller

    def verify_request(self, request: Any, client_address: Any) -> bool:
        now = time.monotonic()
        with self._lock:
            if len(self._open) >= MAX_CONNECTIONS:
                oldest, since = next(iter(self._open.items()))
                if now - since < KEPT_S:
                    return False
                del self._open[oldest]
                with contextlib.suppress(OSError):  # its caller has left
                    # The TLS socket's own method is for its thread alone.
                    socket.socket.shutdown(oldest, socket.SHUT_RDWR)
            self._open[request] = now
        return True

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing about a caller that left, was silent, or speaks no HTTP."""


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Log no requests."""
