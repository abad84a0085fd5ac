"""The reward service inside a Ray cluster: an actor, replicas on Ray Serve, files on Ray Data.

All of them score with the code of the plain server, and clients notice no difference.  Importing
this package does not import Ray, which the extra
``consensuspr[ray]`` installs.  ``import ray`` in here is Ray: imports are absolute.
"""

from __future__ import annotations

from consensuspr.ray.actor import RewardServer, start_server

__all__ = ["RewardServer", "start_server"]
