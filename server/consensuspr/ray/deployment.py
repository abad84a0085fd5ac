"""The reward service as a Ray Serve application: replicas behind Serve's gRPC proxies.

::

    client ── gRPC ──▶ proxy of a node (front.py) ── Ray ──▶ replica, on any node

A replica is one worker of the plain server without its port: the same service object with
its admission, threads, deadlines and codes (``consensuspr.server.service``).  How many there
are, where, and when more are started is Serve's business and stands in its configuration,
``deploy/ray/serve.yaml``.  A new dataset is a new deployment, which Serve rolls out replica by
replica; ``front.py`` says what clients see of it.

Not covered: our Prometheus metrics (Serve has its own of requests and replicas; those of
rewards are in the training's score log), and the settings that belong to sockets and worker
processes, which are refused.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from typing import Any, NoReturn

import grpc
from grpc_health.v1 import health_pb2

from consensuspr.errors import InputError
from consensuspr.ray.envelope import (
    AT_LEAST_KEY,
    GENERATION_KEY,
    TIMEOUT_KEY,
    Metadata,
    number_in,
)
from consensuspr.ray.require import require_ray
from consensuspr.ray.snapshots import open_datasets
from consensuspr.server import ServerConfig, load_config
from consensuspr.server.build import build_service
from consensuspr.server.metrics import Metrics
from consensuspr.v1 import SERVICE_NAME

# What the deployment is called in Serve's configuration.
DEPLOYMENT = "RewardReplica"

# Beside what is in work (max_concurrent_requests, 16), as much again waits at the replica, so
# that its threads do not wait for Serve between two requests.
MAX_ONGOING_REQUESTS = 32
# Waiting in a proxy, of about a mebibyte each; more is refused with a hint.
MAX_QUEUED_REQUESTS = 256

# Serve is told where to listen, how many processes there are and how they end.
_SERVES_BUSINESS = frozenset(
    {
        "address",
        "metrics_address",
        "http_address",
        "workers",
        "drain_delay_s",
        "grace_s",
        "start_timeout_s",
        "log_format",
    }
)


def app(arguments: dict[str, Any]) -> Any:
    """Build the Serve application; ``import_path`` of its configuration.

    Args:
        arguments: ``datasets``, absolute paths by name, readable on every node that may run a
            replica, and any other setting of the server that is not Serve's business.

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
        # A line a request is work too; the proxies count requests by code.
        logging_config={"enable_access_log": False},
    )
    return deployment.bind(config.model_dump(mode="json"), time.time_ns())


def _config(arguments: Mapping[str, Any]) -> ServerConfig:
    for key in arguments:
        if key in _SERVES_BUSINESS:
            raise InputError(f"{key} cannot be set here, it is the business of Ray Serve")
    datasets = arguments.get("datasets")
    if not isinstance(datasets, Mapping) or not datasets:
        raise InputError(f"datasets must be paths by name, got {datasets!r}")
    for name, path in datasets.items():
        if not os.path.isabs(str(path)):
            raise InputError(f"dataset {name} must have an absolute path, got {str(path)!r}")
    # One worker, to which all cores that Serve gives its process belong.
    return load_config(overrides={"threads": 1, **arguments, "workers": 1})


class Reply:
    """Bytes where Serve expects a message."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def SerializeToString(self) -> bytes:
        """Return the bytes."""
        return self._data


class RewardReplica:
    """One replica; Serve calls the method that has the name of the RPC.

    Args:
        config: settings of the server as JSON values.
        generation: of this version of the application.
    """

    async def __init__(self, config: dict[str, Any], generation: int) -> None:  # type: ignore[misc]
        settings = ServerConfig.model_validate(config)
        datasets = await asyncio.to_thread(open_datasets, settings)
        self._built = build_service(settings, datasets, Metrics())
        self._max_message_bytes = int(settings.max_message_bytes)
        self._generation = generation
        # What the service would do on a server of its own.
        handler: Any = self._built.service.rpc_handler()
        self._behaviours = {
            name: handler.service(_Method(f"/{SERVICE_NAME}/{name}")).unary_unary
            for name in ("Score", "Explain", "ServerInfo")
        }

    async def Score(self, request: bytes, grpc_context: Any) -> Reply:
        return await self._serve("Score", request, grpc_context)

    async def Explain(self, request: bytes, grpc_context: Any) -> Reply:
        return await self._serve("Explain", request, grpc_context)

    async def ServerInfo(self, request: bytes, grpc_context: Any) -> Reply:
        return await self._serve("ServerInfo", request, grpc_context)

    async def Check(self, request: bytes, grpc_context: Any) -> Reply:
        """Say that a request finds a replica, by being one."""
        call = _ReplicaCall(grpc_context, self._generation)
        asked = health_pb2.HealthCheckRequest.FromString(request).service
        if asked not in ("", SERVICE_NAME):
            call.set(grpc.StatusCode.NOT_FOUND, f"no service is called {asked!r}")
        serving = health_pb2.HealthCheckResponse.SERVING
        return Reply(health_pb2.HealthCheckResponse(status=serving).SerializeToString())

    async def _serve(self, method: str, request: bytes, context: Any) -> Reply:
        call = _ReplicaCall(context, self._generation)
        if call.wants_newer:
            call.set(grpc.StatusCode.UNAVAILABLE, "a newer version of the service answers")
            return Reply(b"")
        if len(request) > self._max_message_bytes:
            # Without a hint: it will not go away.
            call.set(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"the request has {len(request)} bytes; the limit is {self._max_message_bytes}",
            )
            return Reply(b"")
        try:
            return Reply(await self._behaviours[method](request, call))
        except _Aborted:
            return Reply(b"")

    def __del__(self) -> None:
        # Serve calls this when a replica ends; one that could not start has nothing to close.
        if hasattr(self, "_built"):
            self._built.close()


class _Method:
    """What names a method to a gRPC handler."""

    invocation_metadata: Metadata = ()

    def __init__(self, method: str) -> None:
        self.method = method


class _Aborted(Exception):
    """The RPC has its code."""


class _ReplicaCall:
    """The context of a call as the service sees it, over Serve's."""

    def __init__(self, context: Any, generation: int) -> None:
        metadata = context.invocation_metadata()
        timeout_ms = number_in(metadata, TIMEOUT_KEY)
        self._deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        self.wants_newer = generation < (number_in(metadata, AT_LEAST_KEY) or 0)
        self._context = context
        self._own: Metadata = ((GENERATION_KEY, str(generation)),)
        context.set_trailing_metadata(list(self._own))

    def time_remaining(self) -> float | None:
        """Return the seconds until the caller stops waiting, None where it never does."""
        return None if self._deadline is None else self._deadline - time.monotonic()

    def peer(self) -> str:
        """Name nobody: all callers share the connection of Serve's proxy."""
        return ""

    def set(self, code: grpc.StatusCode, details: str, metadata: Metadata = ()) -> None:
        """End the RPC with a code."""
        self._context.set_code(code)
        self._context.set_details(details)
        self._context.set_trailing_metadata([*self._own, *metadata])

    async def abort(self, code: grpc.StatusCode, details: str, metadata: Metadata) -> NoReturn:
        """End the RPC with a code, as gRPC's own context does."""
        self.set(code, details, metadata)
        raise _Aborted
