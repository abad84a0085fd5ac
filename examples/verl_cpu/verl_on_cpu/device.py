"""The interface of `torch.cuda` for the CPU, as far as verl uses it.

`torch.cpu` knows streams and counts but nothing of memory, which verl logs all the time: zero here.
"""

from __future__ import annotations

from typing import Any

from torch import get_rng_state, set_rng_state
from torch.cpu import Stream, current_stream, device_count, is_available, stream, synchronize

__all__ = ["Stream", "current_stream", "device_count", "get_rng_state", "is_available"]
__all__ += ["set_rng_state", "stream", "synchronize"]


def get_device_name(device: Any = None) -> str:
    return "cpu"


def set_device(device: Any = None) -> None:
    return


def memory_allocated(device: Any = None) -> int:
    return 0


empty_cache = ipc_collect = set_device
memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return (free, total) bytes of device memory."""
    return 0, 0
