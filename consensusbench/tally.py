"""Counts by reason, each with its first example."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

ReasonT = TypeVar("ReasonT", bound=str)


class Tally(Counter[ReasonT]):
    """Counts of reasons; ``examples`` has the first example of each."""

    def __init__(self) -> None:
        super().__init__()
        self.examples: dict[ReasonT, str] = {}

    def note(self, reason: ReasonT, example: str) -> None:
        """Count one case of a reason."""
        self[reason] += 1
        self.examples.setdefault(reason, example)
