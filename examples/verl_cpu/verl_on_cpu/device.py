"""What verl asks of `torch.cuda`, answered for the CPU.

`torch.cpu` itself knows streams and counts but nothing of memory; verl logs memory all the time.
The figures are zero, never guessed: what a process really takes is the system's to say.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.cpu import Stream, current_stream, stream, synchronize

__all__ = ["Stream", "current_stream", "stream", "synchronize"]


def is_available() -> bool:
    return True


def device_count() -> int:
    return 1


def set_device(device: Any) -> None:
    return


def get_device_name(device: Any = None) -> str:
    return "cpu"


def empty_cache() -> None:
    return


def ipc_collect() -> None:
    return


def memory_allocated(device: Any = None) -> int:
    return 0


def memory_reserved(device: Any = None) -> int:
    return 0


def max_memory_allocated(device: Any = None) -> int:
    return 0


def max_memory_reserved(device: Any = None) -> int:
    return 0


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return (free, total) bytes of device memory: there is none."""
    return 0, 0


def get_rng_state(device: Any = None) -> torch.Tensor:
    return torch.get_rng_state()


def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    torch.set_rng_state(state)
