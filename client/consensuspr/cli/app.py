"""The commands of ``consensuspr``, put together; ``boundary.py`` runs them."""

from __future__ import annotations

from collections.abc import Sequence

from consensuspr.cli import curves, derive, doctor, explain, info, launch, loadtest, score, serve
from consensuspr.cli import info as health
from consensuspr.cli.boundary import make_app, run_app

PROGRAM = "consensuspr"
SUMMARY = "Consensus process rewards: score rollouts by answer and by the nodes they reach."

COMMANDS = (
    serve.serve,
    score.score,
    explain.explain,
    derive.derive,
    launch.launch,
    doctor.doctor,
    curves.curves,
    info.info,
    health.health,
    loadtest.loadtest,
)

app = make_app(PROGRAM, SUMMARY)
for command in COMMANDS:
    app.command()(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: the command line without the program's name; None for ``sys.argv``.
    """
    return run_app(app, PROGRAM, arguments)
