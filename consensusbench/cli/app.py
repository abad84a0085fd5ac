"""The commands of ``consensusbench``, run at the same boundary as those of ``consensuspr``."""

from __future__ import annotations

from collections.abc import Sequence

from consensusbench.cli import (
    agreement,
    compare,
    construction,
    diagnose,
    evaluate,
    export,
    problems,
    report,
    sample,
    stats,
    validate,
)
from consensuspr.cli.boundary import make_app, run_app

PROGRAM = "consensusbench"
SUMMARY = "ConsensusBench: datasets whose problems carry consensus nodes."

app = make_app(PROGRAM, SUMMARY)
app.command()(export.export)
app.command()(problems.problems)
app.command()(sample.sample)
app.command()(construction.extract)
app.command()(construction.refine)
app.command("build")(construction.build_build)
app.command()(report.report)
app.command("evaluate")(evaluate.evaluate_rollouts)
app.command("compare")(compare.compare_models)
app.command()(agreement.agreement)
app.command()(validate.validate)
app.command()(stats.stats)
app.command("diagnose")(diagnose.diagnose_rollouts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: the command line without the program's name; None for ``sys.argv``.
    """
    return run_app(app, PROGRAM, arguments)
