"""What every process of ours on a Ray node needs: Ray itself, and the node's datasets.

Replicas and scoring tasks are processes of their own, and each may need every problem.  The
first of a node that asks for a snapshot makes it, the others wait for it and map the same
file, so that a dataset is in a node's memory once, as in the plain server.

Snapshots lie in a folder of this user under the temporary directory and stay there, because the
next process that wants one may come at any time; what nobody has opened for a day is removed
by whoever makes a new one (a mapped file lives on without its name).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from consensuspr.core import NORMAL_FORM_VERSION
from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.scoring import DatasetIndex, MatcherCache
from consensuspr.server.config import ServerConfig
from consensuspr.server.processes import Child
from consensuspr.version import VERSION

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
    """Open the datasets of a server's settings; they share one cache of matchers.

    Raises:
        InputError: one cannot be read, or a row of it is bad.
        ConsensusPRError: its process died.
    """
    cache = MatcherCache(max_bytes=int(config.matcher_cache_bytes))
    return {
        name: open_shared(_key(path, config.derive), name, _loader(config, name, path), cache)
        for name, path in config.datasets.items()
    }


def open_shared(
    key: str, name: str, make: Callable[[Path], None], cache: MatcherCache | None = None
) -> DatasetIndex:
    """Open the snapshot of a key, having made it where this node has none.

    Args:
        key: of its content; two contents must not have one key.
        name: of the dataset.
        make: writes the snapshot to a path; called by one process of the node at a time.
        cache: for its matchers.
    """
    folder = user_folder()
    path = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}{_SUFFIX}"
    with _locked(path.with_suffix(".lock")):
        if not path.exists():
            _remove_old(folder)
            make(path)
        os.utime(path)
        return DatasetIndex.open(path, name=name, cache=cache)


def _key(path: Path, derive: str) -> str:
    try:
        found = path.stat()
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    # The number of a file that was replaced differs also where time and size do not.
    written = (found.st_mtime_ns, found.st_ino, found.st_size)
    return repr((str(path), *written, derive, NORMAL_FORM_VERSION, VERSION))


def _loader(config: ServerConfig, name: str, path: Path) -> Callable[[Path], None]:
    """Return what loads a dataset in a process of its own, whose memory ends with it."""

    def load(snapshot: Path) -> None:
        alone = config.model_copy(update={"datasets": {name: path}})
        payload = {"config": alone.model_dump(mode="json"), "snapshots": {name: str(snapshot)}}
        child = Child("consensuspr.server.worker", payload, {})
        try:
            report = child.first_report()
            if report is None:
                raise ConsensusPRError(
                    f"loading {path} failed: its process {child.describe_exit()}"
                )
            if not report.ready:
                raise report.error()
        finally:
            child.kill()

    return load


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


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock among the processes of this node; it ends with its process."""
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _remove_old(folder: Path) -> None:
    oldest = time.time() - KEEP_S
    for path in folder.glob(f"*{_SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < oldest:
                path.unlink()
