"""The reward server as a Ray actor that takes no GPU: started, watched and ended by a job.

::

    from consensuspr.ray import start_server

    with start_server("/data/math.parquet", node="head", settings={"workers": 4}) as server:
        train(server.address, server.token)     # "10.0.0.5:43117", for clients on any node

The actor runs the ordinary server as a process of its own on the chosen node, bound to that node's
IP.  A server that dies takes the actor along, and Ray starts both again on the same node and port;
clients retry meanwhile.  The actor belongs to the job that started it and ends with its driver.  A
server whose node dies stays away, because its clients know one address: use Ray Serve to survive
the loss of a node.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeAlias

from consensuspr.credentials import new_token, write_token
from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.ray.node import require_ray
from consensuspr.server import ServerConfig, load_config
from consensuspr.server.config import DEFAULT_DATASET, Address, claim
from consensuspr.server.processes import (
    describe_exit,
    encode,
    error_of,
    kill_session,
    start_process,
)

PathLike: TypeAlias = str | os.PathLike[str]

HEAD = "head"
# Before a restart that failed is tried again; Ray itself waits for nothing.
RESTART_PAUSE_S = 2.0
# What a server may take to stop past its own grace.
STOP_MARGIN_S = 10.0


@dataclass(frozen=True, slots=True)
class RewardServer:
    """A running server and the actor that keeps it; made by :func:`start_server`."""

    address: str  # for clients on any node
    node_id: str
    actor: Any
    # Made for it; None if settings have a token file or "insecure".
    token: str | None = field(default=None, repr=False)

    def stop(self) -> None:
        """Let the server finish admitted requests, and end it and its actor; twice does no harm."""
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
        node: where it runs: ``"head"``, a node's id or IP; None: the node of this process.
        port: to listen on, on the node's IP; 0: any free one, kept over restarts.
        settings: other settings of the server by name (``consensuspr serve --list-settings``).
        num_cpus: CPUs that the actor reserves in Ray; ``settings["workers"]`` is the number
            of its worker processes.
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
    keeper = ray.remote(_ServerKeeper).options(
        num_cpus=num_cpus,
        num_gpus=0,
        max_restarts=-1,
        # What is asked of a server that is being restarted waits for it.
        max_task_retries=-1,
        max_concurrency=4,
        scheduling_strategy=pinned,
    )
    actor = keeper.remote(config.model_dump(mode="json"), token)
    try:
        error = ray.get(actor.error.remote(), timeout=ready_timeout_s)
    except ray.exceptions.GetTimeoutError:
        reason = f"was not ready after ready_timeout_s={ready_timeout_s}"
        error = ConsensusPRError(f"the server on {config.address} {reason}")
    except ray.exceptions.RayActorError as lost:
        reason = f"lost its actor before it was ready: {lost}"
        error = ConsensusPRError(f"the server on {config.address} {reason}")
    if error is not None:
        ray.kill(actor, no_restart=True)
        raise error
    return RewardServer(config.address, node_id, actor, token)


def _config(
    datasets: PathLike | Mapping[str, PathLike], address: Address, settings: Mapping[str, object]
) -> ServerConfig:
    for given in ("datasets", "address"):
        if given in settings:
            raise InputError(f"pass {given} as an argument of its own, not in settings")
    by_name = datasets if isinstance(datasets, Mapping) else {DEFAULT_DATASET: datasets}
    # A Ray worker has another working directory.
    absolute = {name: os.path.abspath(path) for name, path in by_name.items()}
    return load_config(overrides={**settings, "datasets": absolute, "address": str(address)})


def _find_node(ray: Any, node: str | None) -> tuple[str, str]:
    """Return id and IP of the living node that is meant, or raise InputError."""
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
    with claim(Address(host, 0)) as claimed:
        return Address.of(claimed).port


class _ServerKeeper:
    """The actor: starts the server of a configuration (JSON), watches it, and dies with it."""

    def __init__(self, config: Mapping[str, Any], token: str | None) -> None:
        settings = ServerConfig.model_validate(config)
        if token is not None:
            file = _user_folder() / f"server-{Address.parse(settings.address).port}.token"
            write_token(file, token)
            settings = settings.model_copy(update={"token_file": file})
        self._stop_s = settings.drain_delay_s + settings.grace_s + STOP_MARGIN_S
        self._stopping = False
        self._process, self._socket = start_process("consensuspr.ray.server_process", {})
        with contextlib.suppress(OSError):  # it has ended: no report comes
            self._socket.sendall(encode({"config": settings.model_dump(mode="json")}))
        self._error = self._read_report(settings.address)
        if self._error is None:
            threading.Thread(target=self._watch, daemon=True).start()
        elif _is_restart():
            # It has served before, and the obstacle may pass: the processes of the server before
            # hold the port for a moment.
            print(f"the reward server cannot restart: {self._error}", flush=True)
            time.sleep(RESTART_PAUSE_S)
            os._exit(1)

    def _read_report(self, address: str) -> ConsensusPRError | None:
        """Return why the server does not serve, and end it; None: it serves."""
        line = self._socket.makefile("rb").readline()
        error = error_of(json.loads(line)["report"]) if line else None
        if line and error is None:
            return None
        kill_session(self._process)
        if isinstance(error, InputError):
            return error
        ended = describe_exit(self._process.returncode)
        reason = ended if error is None else f"cannot start: {error}"
        return ConsensusPRError(f"the server on {address} {reason}")

    def error(self) -> ConsensusPRError | None:
        """Return why the server could not start; None: it serves."""
        return self._error

    def stop(self) -> None:
        """End the server in order."""
        self._stopping = True
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.terminate()
            self._process.wait(self._stop_s)
        kill_session(self._process)

    def _watch(self) -> None:
        """Wait until the server is dead, and end this process, which Ray replaces."""
        code = self._process.wait()
        if not self._stopping:
            kill_session(self._process)
            print(f"the reward server {describe_exit(code)}; restarting it", flush=True)
            os._exit(1)


def _user_folder() -> Path:
    """Return this user's own folder on this node, closed to others."""
    folder = Path(tempfile.gettempdir()) / f"consensuspr-ray-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise ConsensusPRError(f"{folder} belongs to another user")
    return folder


def _is_restart() -> bool:
    """Say whether this actor was there before and has served."""
    with warnings.catch_warnings():
        # Ray's own way to this answer goes through a name that it has deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        return bool(require_ray().get_runtime_context().was_current_actor_reconstructed)
