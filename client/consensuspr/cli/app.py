"""The commands of ``consensuspr``, put together; ``boundary.py`` runs them."""

from __future__ import annotations

from collections.abc import Sequence

from consensuspr.cli import (
    curves,
    datasets,
    derive,
    doctor,
    explain,
    health,
    info,
    launch,
    loadtest,
    replay,
    score,
    serve,
    token,
    watch,
)
from consensuspr.cli.boundary import make_app, run_app

PROGRAM = "consensuspr"
SUMMARY = "Consensus process rewards: score rollouts by answer and by the nodes they reach."

app = make_app(
    PROGRAM,
    SUMMARY,
    {
        "serve": serve.serve,
        "score": score.score,
        "explain": explain.explain,
        "derive": derive.derive,
        "launch": launch.launch,
        "doctor": doctor.doctor,
        "watch": watch.watch,
        "curves": curves.curves,
        "replay": replay.replay,
        "info": info.info,
        "datasets": datasets.datasets,
        "health": health.health,
        "token": token.token,
        "loadtest": loadtest.loadtest,
    },
)


def run(arguments: Sequence[str] | None) -> int:
    """Run one command of the arguments, None for ``sys.argv``; return its exit code."""
    return run_app(app, PROGRAM, arguments)
