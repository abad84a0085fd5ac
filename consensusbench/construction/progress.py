"""What a build tells while it runs; silent unless somebody listens."""

from __future__ import annotations


class Progress:
    """Listens to a build; the base of what shows it."""

    def read(self, rollouts: int) -> None:
        """Hear how many rollouts are read."""

    def begin(self, problems: int | None) -> None:
        """Hear that reading is over, and how many problems there are where that is known."""

    def work(self, problems: int) -> None:
        """Hear how many problems are done."""

    def note(self, sentence: str) -> None:
        """Hear something that a person should know now."""
