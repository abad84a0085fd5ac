"""The reward service inside a Ray cluster.

::

    from consensuspr.ray import start_server        # a server beside training, as an actor

    with start_server("/data/math.parquet", port=50051) as server:
        train(reward_address=server.address)

    serve run deploy/ray/serve.yaml                 # replicas behind Ray Serve: serve.py
    consensuspr score … --engine ray                # a file on all cores: data.py

Which of them is for what: ``docs/serve.md``.  All of them score with the code of the plain
server, and clients notice no difference.  Importing this package does not import Ray, which
the extra ``consensuspr[ray]`` installs.

In here ``import ray`` is Ray: imports are absolute, and this package is ``consensuspr.ray``.
"""

from __future__ import annotations

from consensuspr.ray.actor import RewardServer, start_server

__all__ = ["RewardServer", "start_server"]
