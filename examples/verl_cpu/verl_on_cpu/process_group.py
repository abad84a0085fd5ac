"""The process group of the one training worker, made before verl makes one.

verl asks torch for the backends "cpu:gloo,<device>:<backend>", which torch refuses where the device
is the CPU itself, because it is then named twice.  verl makes no group where there is one already.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch.distributed


def join(environment: Mapping[str, str] = os.environ) -> None:
    """Make the group, if verl started this process as a training worker.

    Args:
        environment: Where verl leaves the worker's rank and the number of workers.

    Raises:
        ValueError: There is more than one worker.
    """
    if "WG_PREFIX" not in environment or torch.distributed.is_initialized():
        return
    workers = int(environment["WORLD_SIZE"])
    if workers != 1:
        raise ValueError(f"training on a CPU has one worker, not {workers}: n_gpus_per_node=1")
    # A store in memory: one worker has nobody to meet, so no port is opened.
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
