"""The ``consensuspr`` command: arguments, tables and progress over client and server.

``main`` is the console script.  Each command lives in a module of its own and imports what
it needs when it runs, so that ``consensuspr --help`` does not wait for gRPC or Arrow.

Exit codes: 0 done, 1 the work failed, 2 bad usage or bad input.
"""

from consensuspr.cli.app import main

__all__ = ["main"]
