"""The reward service on Ray Serve: replicas behind Serve's gRPC proxies.

::

    client ── gRPC ──▶ proxy of a node (_Front) ── Ray ──▶ RewardReplica, on any node

A replica is one worker of the plain server without its port; ``deploy/ray/serve.yaml`` configures
how many run, and where.  A proxy runs a front, named in ``grpc_servicer_functions``.  Serve
replaces each method's behaviour by its own, which carries the request to a replica.  The front
wraps that, so that clients see the protocol of the plain server:

- Messages pass as bytes, and the caller's deadline travels on to the replica.
- A replica that died, or an application that is not deployed yet, is UNAVAILABLE, which clients
  retry, instead of Serve's INTERNAL or NOT_FOUND.
- A full queue of Serve is RESOURCE_EXHAUSTED with the hint ``retry-after-ms``.

Health (``grpc.health.v1``, ``Check`` alone) is answered by a replica.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2

from consensuspr.errors import InputError
from consensuspr.ray.node import require_ray
from consensuspr.scoring import DatasetIndex, MatcherCache
from consensuspr.server import ServerConfig, load_config
from consensuspr.server.grpc_server import check_access
from consensuspr.server.metrics import Metrics
from consensuspr.server.service import Abort, ScoringService, counted
from consensuspr.v1 import RETRY_AFTER_KEY, SERVICE_NAME, scoring_pb2

Metadata = tuple[tuple[str, str], ...]

# Names in Serve's configuration.  Clients name no application; ours is the one of this name.
DEPLOYMENT, APPLICATION = "RewardReplica", "consensuspr"
METHODS = ("Score", "Explain", "ServerInfo")
# As many requests wait at a replica as are in work (max_concurrent_requests, 16), so that its
# threads do not wait for Serve between two requests.
MAX_ONGOING_REQUESTS = 32
# Waiting in a proxy, of about a mebibyte each; more is refused with a hint.
MAX_QUEUED_REQUESTS = 256
# A full queue of the shipped configuration takes about a second on two cores.
BACKPRESSURE_RETRY_MS = 500
MAX_DETAILS_CHARS = 300
# Configured in Serve instead.
_SERVES_BUSINESS = (
    "address", "metrics_address", "http_address", "workers", "drain_delay_s", "grace_s",
    "log_format", "tls_cert", "tls_key", "tls_client_ca",
)  # fmt: skip
_SERVES_OWN_ENDS = frozenset({grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED})

# From the front (proxy) to a replica.
TIMEOUT_KEY = "consensuspr-timeout-ms"
# From a replica to the front, with every outcome; absent if Serve itself failed.
ANSWERED_KEY = "consensuspr-answered"
_ANSWERED = (ANSWERED_KEY, "1")

# Imported so that Serve's reflection finds the messages.
assert scoring_pb2.DESCRIPTOR.services_by_name["ScoringService"].full_name == SERVICE_NAME


def app(arguments: dict[str, Any]) -> Any:
    """Build the Serve application; ``import_path`` of its configuration.

    Args:
        arguments: ``datasets``, absolute paths by name, readable on every node that may run a
            replica, and any other setting of the server that Serve does not configure.

    Returns:
        The application, to be run by ``serve.run`` or a configuration.

    Raises:
        InputError: Ray Serve is not installed, or a setting is wrong.
    """
    serve = require_ray("ray.serve")
    config = _config(arguments)
    deployment = serve.deployment(
        RewardReplica,
        name=DEPLOYMENT,
        max_ongoing_requests=MAX_ONGOING_REQUESTS,
        max_queued_requests=MAX_QUEUED_REQUESTS,
        ray_actor_options={"num_cpus": 1, "num_gpus": 0},
        # The proxies count requests by code.
        logging_config={"enable_access_log": False},
    )
    return deployment.bind(config.model_dump(mode="json"))


def _config(arguments: Mapping[str, Any]) -> ServerConfig:
    for key in arguments:
        if key in _SERVES_BUSINESS:
            raise InputError(f"{key} has no effect here; configure it in Ray Serve")
    datasets = arguments.get("datasets")
    if not isinstance(datasets, Mapping) or not datasets:
        raise InputError(f"datasets must map names to paths, got {datasets!r}")
    paths = {f"dataset {name}": path for name, path in datasets.items()}
    for name, path in {**paths, "score_log": arguments.get("score_log")}.items():
        if path is not None and not os.path.isabs(str(path)):
            raise InputError(f"{name} must be an absolute path, got {str(path)!r}")
    if not arguments.get("token_file") and not arguments.get("insecure"):
        raise InputError(
            "Serve listens on all addresses of its nodes: set token_file to a path on every node"
            " (`consensuspr token FILE` makes one), or insecure: true on a trusted network"
        )
    # One worker, to which all cores that Serve gives its process belong.
    return load_config(overrides={"threads": 1, **arguments, "workers": 1})


def open_datasets(config: ServerConfig) -> dict[str, DatasetIndex]:
    """Load the datasets of a server's settings; the node's processes share prepared ones."""
    cache = MatcherCache(max_bytes=int(config.matcher_cache_bytes))
    return {
        name: DatasetIndex.load(path, name=name, derive=config.derive, cache=cache)
        for name, path in config.datasets.items()
    }


class _Reply:
    """Bytes where Serve expects a message."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def SerializeToString(self) -> bytes:
        return self._data


class RewardReplica:
    """One replica; Serve calls the method that has the name of the RPC."""

    async def __init__(self, config: dict[str, Any]) -> None:  # type: ignore[misc]
        settings = ServerConfig.model_validate(config)
        datasets = await asyncio.to_thread(open_datasets, settings)
        self._service = ScoringService(settings, datasets, Metrics())
        self._max_message_bytes = int(settings.max_message_bytes)

    async def Score(self, request: bytes, grpc_context: Any) -> _Reply:
        return await self._serve("Score", request, grpc_context)

    async def Explain(self, request: bytes, grpc_context: Any) -> _Reply:
        return await self._serve("Explain", request, grpc_context)

    async def ServerInfo(self, request: bytes, grpc_context: Any) -> _Reply:
        return await self._serve("ServerInfo", request, grpc_context)

    async def Check(self, request: bytes, grpc_context: Any) -> _Reply:
        """Answer that a replica can be reached."""
        call = _ReplicaCall(grpc_context)
        service = health_pb2.HealthCheckRequest.FromString(request).service
        if service not in ("", SERVICE_NAME):
            call.set(grpc.StatusCode.NOT_FOUND, f"no service is called {service!r}")
        serving = health_pb2.HealthCheckResponse.SERVING
        return _Reply(health_pb2.HealthCheckResponse(status=serving).SerializeToString())

    async def _serve(self, method: str, request: bytes, context: Any) -> _Reply:
        call: Any = _ReplicaCall(context)
        answering = self._answer(method, request, call)
        del request  # as in counted()
        with contextlib.suppress(_Aborted):
            return _Reply(await counted(self._service.metrics, method, answering, call))
        return _Reply(b"")

    async def _answer(self, method: str, request: bytes, call: Any) -> bytes:
        check_access(self._service.security.gate, SERVICE_NAME, method, call)
        if len(request) > self._max_message_bytes:
            # Without a hint: a retry would fail too.
            raise Abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"the request has {len(request)} bytes; the limit is {self._max_message_bytes}",
            )
        return await self._service.answer(method, request, call)

    def __del__(self) -> None:
        # Serve calls this when a replica ends; one that could not start has nothing to close.
        if hasattr(self, "_service"):
            self._service.close()


class _Aborted(Exception):
    """The RPC has its code."""


class _ReplicaCall:
    """The context of a call as the service sees it, over Serve's."""

    def __init__(self, context: Any) -> None:
        timeout_ms = dict(context.invocation_metadata()).get(TIMEOUT_KEY)
        self._deadline = None if timeout_ms is None else time.monotonic() + int(timeout_ms) / 1000
        self._context = context
        self.invocation_metadata = context.invocation_metadata
        context.set_trailing_metadata([_ANSWERED])

    def time_remaining(self) -> float | None:
        """Return the seconds until the caller stops waiting, None if it never does."""
        return None if self._deadline is None else self._deadline - time.monotonic()

    def peer(self) -> str:
        """Return nothing: all callers share the connection of Serve's proxy."""
        return ""

    def set(self, code: grpc.StatusCode, details: str, metadata: Metadata = ()) -> None:
        """End the RPC with a code."""
        self._context.set_code(code)
        self._context.set_details(details)
        self._context.set_trailing_metadata([_ANSWERED, *metadata])

    async def abort(self, code: grpc.StatusCode, details: str, metadata: Metadata) -> NoReturn:
        """End the RPC with a code, as gRPC's own context does."""
        self.set(code, details, metadata)
        raise _Aborted


def add_scoring_to_server(servicer: object, server: Any) -> None:
    """Register the scoring and the health service with a proxy's server; ignore ``servicer``."""
    server.add_generic_rpc_handlers((_Front(),))


class _Front(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """The methods of one proxy.

    Serve finds them in ``_method_handlers``, under which gRPC's own handlers keep theirs, and
    puts its behaviour in place of each; gRPC gets ours around it.
    """

    def __init__(self) -> None:
        paths = [f"{SERVICE_NAME}/{method}" for method in METHODS] + [
            f"{health.SERVICE_NAME}/Check"
        ]
        self._method_handlers = {
            f"/{path}": grpc.unary_unary_rpc_method_handler(_replaced_by_serve) for path in paths
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        handler: Any = self._method_handlers.get(handler_call_details.method)
        if handler is None:
            return None
        forward: Callable[[bytes, Any], Awaitable[bytes]] = handler.unary_unary

        async def behaviour(request: bytes, context: Any) -> bytes:
            call = _ProxyCall(context)
            reply = await forward(request, call)
            return await call.finish(reply)

        return handler._replace(unary_unary=behaviour)


def _replaced_by_serve(request: bytes, context: object) -> bytes:
    raise AssertionError("Serve puts its own behaviour in the place of this one")


class _ProxyCall:
    """The context of a call as Serve sees it.

    Outcomes are kept here, where they can be translated.  All else is the real context's.
    """

    def __init__(self, context: Any) -> None:
        self._context = context
        self._code = grpc.StatusCode.OK
        self._details = ""
        self._trailing: Metadata = ()
        added = []
        remaining_s = context.time_remaining()
        if remaining_s is not None:
            added.append((TIMEOUT_KEY, str(max(0, int(remaining_s * 1000)))))
        given = [pair for pair in context.invocation_metadata() or () if pair[0] != TIMEOUT_KEY]
        if not any(key == "application" for key, _ in given):
            added.append(("application", APPLICATION))
        self._metadata = (*given, *added)

    def invocation_metadata(self) -> Any:
        return self._metadata

    def code(self) -> Any:
        # Serve asks whether one was set, in the words of gRPC, where OK is 0.
        return 0 if self._code is grpc.StatusCode.OK else self._code

    def set_code(self, code: grpc.StatusCode) -> None:
        self._code = code

    def details(self) -> str:
        return self._details

    def set_details(self, details: str) -> None:
        self._details = details

    def trailing_metadata(self) -> Metadata:
        return self._trailing

    def set_trailing_metadata(self, metadata: Any) -> None:
        self._trailing = tuple(metadata)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def finish(self, reply: bytes) -> bytes:
        """End the call as the replica ended it, or translate Serve's own failure."""
        if _ANSWERED not in self._trailing:
            # It may be a traceback, too large for gRPC.
            self._details = " ".join(self._details.split())[:MAX_DETAILS_CHARS]
            if self._code is grpc.StatusCode.RESOURCE_EXHAUSTED:
                self._trailing = ((RETRY_AFTER_KEY, str(BACKPRESSURE_RETRY_MS)),)
            elif self._code not in _SERVES_OWN_ENDS:
                self._code = grpc.StatusCode.UNAVAILABLE
                self._details = f"no replica answered: {self._details}"
        if self._code is grpc.StatusCode.OK:
            self._context.set_trailing_metadata(self._trailing)
            return reply
        await self._context.abort(self._code, self._details, self._trailing)
        raise AssertionError("abort does not return")
