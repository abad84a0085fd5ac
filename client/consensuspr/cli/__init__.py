"""The ``consensuspr`` command: arguments, tables and progress over client and server.

``main`` is the console script.  Each command lives in a module of its own and imports what
it needs when it runs, so that ``consensuspr --help`` does not wait for gRPC or Arrow.

Exit codes: 0 done, 1 the work failed, 2 bad usage or bad input.
"""

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: the command line without the program's name; None for ``sys.argv``.
    """
    # Here, so that who takes an option of ours does not import all commands.
    from consensuspr.cli.app import run

    return run(arguments)
