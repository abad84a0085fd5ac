"""The page: what runs look like while they train and afterwards, in a browser.

::

    sources   where samples come from: score logs, files of scored rollouts, datasets
    store     the light columns of all samples in DuckDB; texts stay where they are
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


def require_web(what: str) -> None:
    """Refuse what needs the page where its packages are not installed.

    Args:
        what: as the user called it.

    Raises:
        InputError: says what to install.
    """
    missing = [name for name in _REQUIRED if find_spec(name) is None]
    if missing:
        raise InputError(
            f'{what} needs {", ".join(missing)}, not installed here: pip install "consensuspr[web]"'
        )


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".app": "serve_page",
        ".sources": "FileSource LogSource open_source",
        ".store": "Filter Store",
    },
)
