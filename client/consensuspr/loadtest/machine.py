"""The machine that sends, as far as figures depend on it."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path

import grpc

from consensuspr.version import VERSION


def describe_machine() -> dict[str, str | int | float]:
    """Return processor, cores, memory, system and versions; nothing that names its owner."""
    facts: dict[str, str | int | float] = {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "grpcio": grpc.__version__,
        "consensuspr": VERSION,
    }
    with contextlib.suppress(OSError, ValueError):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        facts["memory_gib"] = round(memory / (1 << 30), 1)
    return facts


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or "unknown"
