"""The server as a Ray actor in the cluster that verl trains in.

The actor belongs to this process's Ray job and takes no GPU.  verl starts a cluster of its own
where it finds none, so that one is started here first, and training is told of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from consensuspr.launch.plan import ServerPlan
from consensuspr.launch.reward_server import Say
from consensuspr.server.settings import load_config

# Which cluster Ray joins; also read by verl's ray.init.
RAY_ADDRESS = "RAY_ADDRESS"


@contextmanager
def ray_server(plan: ServerPlan, say: Say) -> Iterator[str]:
    """Run the server as an actor while the block runs; yield its address.

    ``RAY_ADDRESS`` names the cluster during the block, also where it did not before.

    Raises:
        InputError: Ray is missing, or the server refuses its settings or its dataset.
        ConsensusPRError: it does not start.
    """
    from consensuspr.ray import start_server
    from consensuspr.ray.require import require_ray

    ray = require_ray()
    before = os.environ.get(RAY_ADDRESS)
    ray.init(include_dashboard=False, log_to_driver=False)
    try:
        os.environ[RAY_ADDRESS] = ray.get_runtime_context().gcs_address
        with start_server(plan.dataset, port=plan.listen.port, settings=_settings(plan)) as server:
            say(f"the reward server is a Ray actor, listening on {server.address}")
            yield server.address
    finally:
        if before is None:
            os.environ.pop(RAY_ADDRESS, None)
        else:
            os.environ[RAY_ADDRESS] = before
        ray.shutdown()


def _settings(plan: ServerPlan) -> dict[str, object]:
    """Return what a user gave of the server's settings, but datasets and address."""
    settings: dict[str, object] = {}
    if plan.config is not None:
        given = load_config(file=plan.config, overrides={"datasets": {"default": plan.dataset}})
        settings = given.model_dump(mode="json", exclude_unset=True)
        for name in ("datasets", "address"):
            settings.pop(name, None)
    if plan.workers is not None:
        settings["workers"] = plan.workers
    return settings
