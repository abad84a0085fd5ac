"""What every process of ours on a Ray node needs: Ray itself, and the node's datasets."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from consensuspr.core import NORMAL_FORM_VERSION
from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.scoring import DatasetIndex, MatcherCache
from consensuspr.server.config import ServerConfig
from consensuspr.version import VERSION

# An index that nobody has opened for so long is removed; a mapped file lives on without its name.
KEEP_S = 24 * 3600.0
_SUFFIX = ".index"


def require_ray(module: str = "ray") -> Any:
    """Import Ray or a part of it, for example ``ray.data``.

    Raises:
        InputError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"{module} cannot be imported ({error}); install it with: pip install"
            " 'consensuspr[ray]'"
        ) from None


def open_datasets(config: ServerConfig) -> dict[str, DatasetIndex]:
    """Open the datasets of a server's settings, mapped from files that the node's processes share.

    Raises:
        InputError: a file cannot be read.
        DataError: a row of one is bad.
    """
    cache = MatcherCache(max_bytes=int(config.matcher_cache_bytes))
    return {name: _open_shared(config, name, path, cache) for name, path in config.datasets.items()}


def _open_shared(config: ServerConfig, name: str, path: Path, cache: MatcherCache) -> DatasetIndex:
    try:
        found = path.stat()
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    # The number of a file that was replaced differs even if time and size do not.
    written = (found.st_mtime_ns, found.st_ino, found.st_size)
    key = repr((str(path), *written, config.derive, NORMAL_FORM_VERSION, VERSION))
    folder = user_folder()
    shared = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}{_SUFFIX}"
    if not shared.exists():
        _remove_old(folder)
        # Processes that start together may each do this; the files are the same.
        DatasetIndex.load(path, name=name, derive=config.derive).save(shared)
    os.utime(shared)
    return DatasetIndex.open(shared, name=name, cache=cache)


def user_folder() -> Path:
    """Return this user's own folder on this node, closed to others.

    Raises:
        ConsensusPRError: somebody else has made it.
    """
    folder = Path(tempfile.gettempdir()) / f"consensuspr-ray-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise ConsensusPRError(f"{folder} belongs to another user")
    return folder


def _remove_old(folder: Path) -> None:
    oldest = time.time() - KEEP_S
    for path in folder.glob(f"*{_SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < oldest:
                path.unlink()
