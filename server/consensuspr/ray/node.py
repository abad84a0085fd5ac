"""Code for every process of ours on a Ray node: Ray itself, datasets, the user's folder."""

from __future__ import annotations

import importlib
import os
import tempfile
from pathlib import Path
from typing import Any

from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.scoring import DatasetIndex, MatcherCache
from consensuspr.server.config import ServerConfig


def require_ray(module: str = "ray") -> Any:
    """Import Ray or a part of it, such as ``ray.data``; raise InputError without it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"{module} cannot be imported ({error}); install it with: pip install"
            " 'consensuspr[ray]'"
        ) from None


def open_datasets(config: ServerConfig) -> dict[str, DatasetIndex]:
    """Load the datasets of a server's settings; the node's processes share prepared ones."""
    cache = MatcherCache(max_bytes=int(config.matcher_cache_bytes))
    return {
        name: DatasetIndex.load(path, name=name, derive=config.derive, cache=cache)
        for name, path in config.datasets.items()
    }


def user_folder() -> Path:
    """Return this user's own folder on this node, closed to others."""
    folder = Path(tempfile.gettempdir()) / f"consensuspr-ray-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise ConsensusPRError(f"{folder} belongs to another user")
    return folder
