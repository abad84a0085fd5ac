"""The ``consensusbench`` command: arguments and tables over the dataset tools.

``main`` is the console script.  Each command lives in a module of its own and imports what it
needs when it runs.  Exit codes are those of ``consensuspr``: 0 done, 1 the work failed, 2 bad
usage or bad input.
"""

from collections.abc import Sequence

from consensuspr.console import load_core


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: the command line without the program's name; None for ``sys.argv``.
    """
    load_core()  # the commands import it
    from consensusbench.cli.app import PROGRAM, app
    from consensuspr.cli.boundary import run_app

    return run_app(app, PROGRAM, arguments)
