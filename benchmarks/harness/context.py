"""What a suite is told: how much to measure, with which seed, on which data."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Context:
    """The settings of one run of one suite.

    ``data`` is the folder that holds ``rollouts/`` and ``problems/``, None where there is none:
    generated text stands in.  ``scratch`` exists, is empty and is removed after the suite.
    """

    full: bool
    seed: int
    rounds: int
    data: Path | None
    scratch: Path

    def say(self, text: str) -> None:
        """Write one line of progress to standard error."""
        print(f"  {text}", file=sys.stderr, flush=True)
