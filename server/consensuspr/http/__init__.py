"""The HTTP endpoint: remote-reward requests of OpenRLHF and slime, answered by this server.

A worker listens on a second port beside gRPC and answers from the same scorer, through the
same admission, into the same metrics.  Importing this package imports neither gRPC nor a web
framework: the supervisor must not have them loaded.
"""

from __future__ import annotations

from importlib.util import find_spec

from consensuspr.errors import InputError
from consensuspr.server.config import ServerConfig
from consensuspr.server.supervisor import run as run_supervisor

__all__ = ["run"]


def run(config: ServerConfig) -> int:
    """Serve gRPC and HTTP until SIGTERM or SIGINT, then drain.

    Arguments, returns and errors are those of :func:`consensuspr.server.run`.

    Raises:
        InputError: also if the packages of the extra ``http`` are not installed.
    """
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise InputError(
            f"http_address needs {' and '.join(missing)}, which are not installed:"
            ' pip install "consensuspr[http]"'
        )
    return run_supervisor(config, worker_module="consensuspr.http.worker")
