"""The reward server: configuration, processes, the gRPC service, limits and metrics.

::

    from consensuspr.server import load_config, run

    code = run(load_config(overrides={"datasets": {"default": "dataset.jsonl"}}))

Importing this package does not import gRPC: the supervisor must never have it loaded.
"""

from __future__ import annotations

from consensuspr.server.config import ServerConfig, load_config, parse_datasets
from consensuspr.server.supervisor import run

__all__ = ["ServerConfig", "load_config", "parse_datasets", "run"]
