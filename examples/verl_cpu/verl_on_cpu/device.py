"""What verl asks of `torch.cuda`, answered for the CPU.

`torch.cpu` itself knows streams and counts but nothing of memory; verl logs memory all the time.
The figures are zero, never guessed: the system knows what a process takes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.cpu import Stream, current_stream, device_count, is_available, stream, synchronize

__all__ = ["Stream", "current_stream", "device_count", "is_available", "stream", "synchronize"]


def get_device_name(device: Any = None) -> str:
    return "cpu"


def set_device(device: Any = None) -> None:
    return


def memory_allocated(device: Any = None) -> int:
    return 0


empty_cache = ipc_collect = set_device
memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return (free, total) bytes of device memory: there is none."""
    return 0, 0


def get_rng_state(device: Any = None) -> torch.Tensor:
    return torch.get_rng_state()


def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    torch.set_rng_state(state)
