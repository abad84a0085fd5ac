"""The ordinary reward server as a process below a Ray actor.

Its own process, because the supervisor needs a main thread and signals of its own.  It ends fast
when the actor is gone: the actor that Ray starts in its place wants the same port.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from consensuspr.errors import ConsensusPRError
from consensuspr.server import ServerConfig, run
from consensuspr.server.processes import Parent

# For the requests in work, once the actor is gone; clients retry the others.
LEFT_ALONE_S = 1.0


def main() -> int:
    """Serve as ordered; return the exit code of the process."""
    parent = Parent()
    parent.listen(_end)
    config = ServerConfig.model_validate(parent.payload["config"])
    try:
        return run(config, lambda address: parent.report_ready())
    except ConsensusPRError as error:
        parent.report_failure(error)
        return 1


def _end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LEFT_ALONE_S)
    # An interrupted drain kills the workers at once.
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
