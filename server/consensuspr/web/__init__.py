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

from consensuspr.errors import InputError

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
