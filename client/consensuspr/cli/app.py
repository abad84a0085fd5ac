"""The commands of ``consensuspr``, put together; ``boundary.py`` runs them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from consensuspr.cli.boundary import make_app, run_app

PROGRAM = "consensuspr"
SUMMARY = "Consensus process rewards: score rollouts by answer and by the nodes they reach."

# In the order of the help.  Each is the function of its name in the module of its name.
COMMANDS = (
    *("serve", "score", "explain", "derive", "launch", "doctor", "watch"),
    *("curves", "replay", "info", "datasets", "health", "token", "loadtest"),
)
app = make_app(
    PROGRAM,
    SUMMARY,
    {name: getattr(import_module(f"consensuspr.cli.{name}"), name) for name in COMMANDS},
)


def run(arguments: Sequence[str] | None) -> int:
    """Run one command of the arguments, None for ``sys.argv``; return its exit code."""
    return run_app(app, PROGRAM, arguments)
