"""The worker process of a server that also listens for HTTP."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from consensuspr.server.config import ServerConfig
from consensuspr.server.worker import main

if TYPE_CHECKING:
    from consensuspr.http.app import HttpFront
    from consensuspr.server.service import BuiltService


def make_front(config: ServerConfig, built: BuiltService, payload: dict[str, Any]) -> HttpFront:
    """Return the HTTP endpoint, to listen at the address that the supervisor claimed."""
    from consensuspr.http.app import HttpFront

    return HttpFront(config, built, payload["http_address"])


if __name__ == "__main__":
    sys.exit(main(make_front))
