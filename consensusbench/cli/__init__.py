"""The ``consensusbench`` command: arguments and tables over the dataset tools.

``main`` is the console script.  Each command lives in a module of its own and imports what it
needs when it runs.  Exit codes are those of ``consensuspr``: 0 done, 1 the work failed, 2 bad
usage or bad input.
"""

from consensusbench.cli.app import main

__all__ = ["main"]
