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
SUMMARY = "Build datasets of consensus nodes, check them, and evaluate rollouts with them."

app = make_app(
    PROGRAM,
    SUMMARY,
    {
        "Build a dataset": {
            "problems": problems.problems,
            "sample": sample.sample,
            "build": construction.build,
            "extract": construction.extract,
            "refine": construction.refine,
            "grow": construction.grow,
        },
        "Check and export a dataset": {
            "validate": validate.validate,
            "stats": stats.stats,
            "agreement": agreement.agreement,
            "export": export.export,
        },
        "Look at results": {
            "evaluate": evaluate.evaluate_rollouts,
            "compare": compare.compare_models,
            "diagnose": diagnose.diagnose_rollouts,
            "report": report.report,
        },
    },
)
