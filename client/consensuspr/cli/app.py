"""The commands of ``consensuspr``, put together; ``boundary.py`` runs them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from consensuspr.cli.boundary import make_app, run_app

PROGRAM = "consensuspr"
SUMMARY = "Score rollouts by their final answer and by the intermediate results they reach."

# In the order of the help.  Each command is the function of its name in the module of its name.
PANELS = {
    "Serve and train": ("score", "serve", "launch", "doctor"),
    "Look at results": ("watch", "explain", "curves", "replay"),
    "Datasets": ("derive", "datasets"),
    "Tools": ("info", "health", "token", "loadtest"),
}
app = make_app(
    PROGRAM,
    SUMMARY,
    {
        panel: {name: getattr(import_module(f"consensuspr.cli.{name}"), name) for name in names}
        for panel, names in PANELS.items()
    },
)


def run(arguments: Sequence[str] | None) -> int:
    """Run one command of the arguments, None for ``sys.argv``; return its exit code."""
    return run_app(app, PROGRAM, arguments)
