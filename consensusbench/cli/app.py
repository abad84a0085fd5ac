"""The commands of ``consensusbench``, run at the same boundary as those of ``consensuspr``."""

from __future__ import annotations

from collections.abc import Sequence

from consensusbench.cli import export
from consensuspr.cli.boundary import make_app, run_app

PROGRAM = "consensusbench"
SUMMARY = "ConsensusBench: datasets whose problems carry consensus nodes."

app = make_app(PROGRAM, SUMMARY)
app.command()(export.export)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: the command line without the program's name; None for ``sys.argv``.
    """
    return run_app(app, PROGRAM, arguments)
