"""The commands of ``consensusbench``, run at the same boundary as those of ``consensuspr``."""

from __future__ import annotations

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
from consensuspr.cli.boundary import make_app

PROGRAM = "consensusbench"
SUMMARY = "ConsensusBench: datasets whose problems carry consensus nodes."

app = make_app(
    PROGRAM,
    SUMMARY,
    {
        "export": export.export,
        "problems": problems.problems,
        "sample": sample.sample,
        "extract": construction.extract,
        "refine": construction.refine,
        "build": construction.build,
        "grow": construction.grow,
        "report": report.report,
        "evaluate": evaluate.evaluate_rollouts,
        "compare": compare.compare_models,
        "agreement": agreement.agreement,
        "validate": validate.validate,
        "stats": stats.stats,
        "diagnose": diagnose.diagnose_rollouts,
    },
)
