"""The page: runs in a browser, while they train and afterwards.

::

    sources   where samples come from: score logs and files of scored rollouts
    store     the light columns of all samples in DuckDB; texts stay in their files
    views     the documents that the page shows, plain JSON values
    app       HTTP: routes, headers, who may ask
    assets    the page itself

Importing this package loads neither DuckDB nor a web framework.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from consensuspr.errors import InputError
from consensuspr.lazy import lazy_names

if TYPE_CHECKING:
    from consensuspr.web.app import serve_page
    from consensuspr.web.sources import FileSource, LogSource, open_source
    from consensuspr.web.store import Filter, Store

__all__ = ["FileSource", "Filter", "LogSource", "Store", "open_source", "require_web", "serve_page"]

_REQUIRED = ("duckdb", "starlette", "uvicorn")


def require_web(feature: str) -> None:
    """Check that the packages of the page are installed.

    Args:
        feature: that needs them, as the user called it.

    Raises:
        InputError: they are not; the message has the command that installs them.
    """
    missing = [name for name in _REQUIRED if find_spec(name) is None]
    if missing:
        raise InputError(
            f"{feature} needs {', '.join(missing)}, not installed here:"
            ' pip install "consensuspr[web]"'
        )


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".app": "serve_page",
        ".sources": "FileSource LogSource open_source",
        ".store": "Filter Store",
    },
)
