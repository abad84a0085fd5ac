"""The CPU as one of verl's platforms.

verl asks its platform for the device's name, for a module that looks like `torch.cuda`, for the
collective backend and for the Ray resource that a worker takes.  A CPU has no such resource, and
Ray counts CPUs in another way than verl, so the worker takes one "GPU" that exists only in Ray's
books (`ray_kwargs.ray_init.num_gpus=1`).

Not covered: more than one worker.  Two workers of one machine's cores would be slower.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
import torch.distributed
from verl.plugin.platform import PlatformBase, PlatformRegistry

from . import device


@PlatformRegistry.register(platform="cpu")
class CPUPlatform(PlatformBase):  # type: ignore[misc]
    """One device, the CPU: every question about its memory or its streams has a trivial answer."""

    device_name = vendor_name = "cpu"

    @property
    def device_module(self) -> ModuleType:
        return device

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:
        """Name the device: torch would read a bare number as that CUDA device."""
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, *_: Any) -> None:
        return

    synchronize = set_allocator_settings = empty_cache = set_device
    profiler_start = profiler_stop = cudart = set_device

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield


def join_process_group() -> None:
    """Make the process group, if verl started this process as its one training worker.

    verl would ask torch for the backends "cpu:gloo,<device>:<backend>", which torch refuses for the
    CPU, because it is then named twice.  verl makes no group if there is one already.

    Raises:
        ValueError: there is more than one worker.
    """
    if "WG_PREFIX" not in os.environ or torch.distributed.is_initialized():
        return
    workers = int(os.environ["WORLD_SIZE"])
    if workers != 1:
        raise ValueError(f"training on a CPU has one worker, not {workers}: n_gpus_per_node=1")
    # A store in memory: one worker opens no port.
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
