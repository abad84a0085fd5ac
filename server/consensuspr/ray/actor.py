"""The reward server as a Ray actor that takes no GPU: started, watched and ended by a job.

::

    from consensuspr.ray import start_server

    server = start_server(
        {"math": "/data/math.parquet"},     # as on the server's node; or one path
        node="head",                        # None: this node; "head"; a node's id or IP
        port=50051,                         # 0: any free one
        settings={"workers": 4},            # any of ServerConfig but datasets and address
    )
    server.address                          # "10.0.0.5:50051", for clients on any node
    server.token                            # what they show: Access(token=server.token)
    ...
    server.stop()                           # or `with start_server(...) as server:`

The actor runs the ordinary server (``consensuspr serve``: supervisor and workers) as a
process of its own on the chosen node, bound to that node's IP alone.  That IP is reachable from
elsewhere, so that each server has a token of its own, unless ``settings`` hold a ``token_file``
(on the server's node) or ``insecure``.

- ``start_server`` returns when all workers serve, and raises the server's own sentence where
  it cannot: a bad dataset, a port in use.
- A server that dies, or whose health check fails three times in a row, takes the actor along,
  and Ray starts the actor anew: same node, same port, some seconds later.  Clients retry
  meanwhile.
- The actor belongs to the job that started it.  When that job's driver ends, also by a
  crash, so does the server.
- It asks Ray for ``num_cpus`` (1) and never for a GPU.

Not covered: moving to another node.  A server whose node dies stays away, since its clients
know one address; Ray Serve (``serve.py``) is the way to survive a node.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

from consensuspr.credentials import new_token, write_token
from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.ray.node import require_ray, user_folder
from consensuspr.server import ServerConfig, load_config
from consensuspr.server.config import DEFAULT_DATASET, Address, claim
from consensuspr.server.processes import Child

PathLike: TypeAlias = str | os.PathLike[str]

HEAD = "head"

# Between two looks at the server's process, and between two questions for its health.
WATCH_S = 0.5
HEALTH_PERIOD_S = 5.0
HEALTH_TIMEOUT_S = 5.0
MAX_FAILED_CHECKS = 3
# How long a new server waits for the port of the one before it, whose processes are ending.
PORT_LIMIT_S = 60.0
# Before a restart that failed is tried again; Ray itself waits for nothing.
RESTART_PAUSE_S = 5.0
# What a server may take to stop past its own grace.
STOP_MARGIN_S = 10.0


@dataclass(frozen=True, slots=True)
class RewardServer:
    """A running server and the actor that keeps it; made by :func:`start_server`.

    Attributes:
        address: ``HOST:PORT`` for clients on any node.
        node_id: of the node that it runs on.
        actor: handle of the actor.
        token: made for it; None where it has none, or those of a file.
    """

    address: str
    node_id: str
    actor: Any
    token: str | None = field(default=None, repr=False)

    def is_serving(self, timeout_s: float = 10.0) -> bool:
        """Ask the actor whether the server's health is SERVING.

        Returns False also where the actor is being restarted or does not answer in time.
        """
        ray = require_ray()
        try:
            return bool(ray.get(self.actor.is_serving.remote(), timeout=timeout_s))
        except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
            return False

    def stop(self) -> None:
        """Let the server finish what it has admitted, and end it and its actor.

        May be called twice, and after the job's other parts have ended.
        """
        ray = require_ray()
        try:
            ray.get(self.actor.stop.remote())
        except ray.exceptions.RayActorError:
            return  # it is gone, and its server with it
        ray.kill(self.actor, no_restart=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start_server(
    datasets: PathLike | Mapping[str, PathLike],
    *,
    node: str | None = None,
    port: int = 0,
    settings: Mapping[str, object] | None = None,
    num_cpus: float = 1.0,
    ready_timeout_s: float | None = None,
) -> RewardServer:
    """Start a server as an actor of this job and wait until it serves.

    Ray must be initialised (``ray.init``) in this process.

    Args:
        datasets: path of the dataset, or of each by name, readable on the server's node; a
            relative one is relative to this process.
        node: where it runs; None: the node of this process.
        port: to listen on, on the node's IP; 0: any free one, kept over restarts.
        settings: other settings of the server by name, see ``docs/serve.md``.
        num_cpus: what the actor takes of the node's CPUs in Ray's books; its worker processes
            are as many as ``settings["workers"]`` says.
        ready_timeout_s: how long to wait, loading the datasets included; None: for ever.

    Raises:
        InputError: Ray is not installed, no living node is the one that was named, or a
            setting or dataset is wrong.
        ConsensusPRError: the server cannot start, or not in time.
    """
    ray = require_ray()
    node_id, host = _find_node(ray, node)
    pinned = require_ray("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy(
        node_id, soft=False
    )
    if port == 0:
        pick = ray.remote(num_cpus=0)(_free_port).options(scheduling_strategy=pinned)
        port = ray.get(pick.remote(host))
    config = _config(datasets, Address(host, port), settings or {})
    token = new_token() if config.token_file is None and not config.insecure else None
    # What is asked of a server that is being restarted waits for it.
    actor = (
        ray.remote(_ServerKeeper)
        .options(
            num_cpus=num_cpus,
            num_gpus=0,
            max_restarts=-1,
            max_task_retries=-1,
            max_concurrency=4,
            scheduling_strategy=pinned,
        )
        .remote(config.model_dump(mode="json"), token)
    )
    try:
        failure = ray.get(actor.failure.remote(), timeout=ready_timeout_s)
    except ray.exceptions.GetTimeoutError:
        ray.kill(actor, no_restart=True)
        raise ConsensusPRError(
            f"the server on {config.address} was not ready after"
            f" ready_timeout_s={ready_timeout_s:g}"
        ) from None
    except ray.exceptions.RayActorError as error:
        raise ConsensusPRError(
            f"the server's actor on {config.address} died before it served: {error}"
        ) from error
    if failure is not None:
        ray.kill(actor, no_restart=True)
        reason, bad_input = failure
        raise InputError(reason) if bad_input else ConsensusPRError(reason)
    return RewardServer(config.address, node_id, actor, token)


def _config(
    datasets: PathLike | Mapping[str, PathLike], address: Address, settings: Mapping[str, object]
) -> ServerConfig:
    for given in ("datasets", "address"):
        if given in settings:
            raise InputError(f"{given} is an argument of its own, not one of settings")
    by_name = datasets if isinstance(datasets, Mapping) else {DEFAULT_DATASET: datasets}
    # A Ray worker has another working directory.
    absolute = {name: os.path.abspath(path) for name, path in by_name.items()}
    return load_config(overrides={**settings, "datasets": absolute, "address": str(address)})


def _find_node(ray: Any, node: str | None) -> tuple[str, str]:
    """Return id and IP of the living node that is meant.

    Raises:
        InputError: there is none.
    """
    if node is None:
        node = ray.get_runtime_context().get_node_id()
    living = [entry for entry in ray.nodes() if entry["Alive"]]
    for entry in living:
        is_head = "node:__internal_head__" in entry["Resources"]
        if node in (entry["NodeID"], entry["NodeManagerAddress"]) or (node == HEAD and is_head):
            return entry["NodeID"], entry["NodeManagerAddress"]
    known = ", ".join(f"{entry['NodeID']} ({entry['NodeManagerAddress']})" for entry in living)
    raise InputError(f"no living node is {node!r}; there are {known}")


def _free_port(host: str) -> int:
    """Return a port that is free on this node; runs there."""
    claimed = claim(Address(host, 0))
    claimed.close()
    return claimed.address.port


class _ServerKeeper:
    """The actor: starts the server of a configuration (JSON), watches it, and dies with it.

    ``token`` is written to a file on this node, the same one for each start of the server.
    """

    def __init__(self, config: Mapping[str, Any], token: str | None) -> None:
        self._config = ServerConfig.model_validate(config)
        self._stopping = False
        self._failure: tuple[str, bool] | None = None
        self._child: Child | None = None
        try:
            address = Address.parse(self._config.address)
            if token is not None:
                file = user_folder() / f"server-{address.port}.token"
                write_token(file, token)
                self._config = self._config.model_copy(update={"token_file": file})
            _wait_for_port(address)
            self._child = _start(self._config)
        except ConsensusPRError as error:
            if _is_restart():
                # It has served before: whatever is in its way may pass.
                print(f"the reward server cannot be restarted: {error}", flush=True)
                time.sleep(RESTART_PAUSE_S)
                os._exit(1)
            self._failure = str(error), isinstance(error, InputError)
            return
        threading.Thread(target=self._watch, name="server-watch", daemon=True).start()

    def failure(self) -> tuple[str, bool] | None:
        """Return why the server could not start and whether by wrong input; None: it serves."""
        return self._failure

    def is_serving(self) -> bool:
        """Say whether the server's health is SERVING."""
        return _is_serving(self._config)

    def stop(self) -> None:
        """End the server in order."""
        self._stopping = True
        if self._child is None:
            return
        self._child.terminate()
        config = self._config
        deadline = time.monotonic() + config.drain_delay_s + config.grace_s + STOP_MARGIN_S
        while self._child.exit_code() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        self._child.kill()

    def _watch(self) -> None:
        """Wait until the server is dead or sick, and end this process, which Ray replaces."""
        assert self._child is not None
        failed = 0
        checked = time.monotonic()
        while self._child.exit_code() is None and failed < MAX_FAILED_CHECKS:
            time.sleep(WATCH_S)
            if time.monotonic() - checked >= HEALTH_PERIOD_S:
                failed = 0 if _is_serving(self._config) else failed + 1
                checked = time.monotonic()
        if self._stopping:
            return
        how = f"failed {failed} health checks" if failed else self._child.describe_exit()
        self._child.kill()
        print(f"the reward server on {self._config.address} {how}; it is restarted", flush=True)
        os._exit(1)


def _start(config: ServerConfig) -> Child:
    """Start the server's process and return it when it serves.

    Raises:
        InputError: by something that was given.
        ConsensusPRError: it cannot serve.
    """
    payload = {"config": config.model_dump(mode="json")}
    child = Child("consensuspr.ray.server_process", payload, {})
    report = child.first_report()
    if report is not None and report.ready:
        return child
    child.kill()
    if report is None:
        raise ConsensusPRError(f"the server's process {child.describe_exit()} before it served")
    raise report.error()


def _wait_for_port(address: Address) -> None:
    """Return when the port is free.

    Raises:
        InputError: the address is not one of this machine's.
        ConsensusPRError: another process keeps the port.
    """
    deadline = time.monotonic() + PORT_LIMIT_S
    restarted = _is_restart()
    while True:
        try:
            claim(address).close()
            return
        except InputError:
            raise
        except ConsensusPRError:
            if not restarted or time.monotonic() >= deadline:
                raise
        time.sleep(0.1)


def _is_restart() -> bool:
    """Say whether this actor was there before and has served."""
    with warnings.catch_warnings():
        # Ray's own way to this answer goes through a name that it has deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        return bool(require_ray().get_runtime_context().was_current_actor_reconstructed)


def _is_serving(config: ServerConfig) -> bool:
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    if config.tls_cert is not None:
        return _shakes_hands(Address.parse(config.address))
    with grpc.insecure_channel(config.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            reply = stub.Check(health_pb2.HealthCheckRequest(), timeout=HEALTH_TIMEOUT_S)
        except grpc.RpcError:
            return False
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


def _shakes_hands(address: Address) -> bool:
    """Tell whether a worker takes TLS connections: no certificate at hand says who we are."""
    context = ssl.create_default_context()
    # It is asked whether it lives, not who it is.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((address.host, address.port), HEALTH_TIMEOUT_S) as plain,
            context.wrap_socket(plain),
        ):
            return True
    except OSError:
        return False
