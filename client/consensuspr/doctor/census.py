"""Which problems the rows name, with what prompts and ground truths; texts are not kept.

A problem takes some 150 bytes, however long its texts are: hashes stand for them, 64 bits
wide, so that two of a million problems are mistaken for one with a probability of 3e-8.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b

_MASK = (1 << 64) - 1


class Side(StrEnum):
    """What rows are for."""

    TRAIN = "train"
    VALIDATION = "val"


@dataclass(slots=True)
class Tally:
    """How often something was met, and where first."""

    count: int = 0
    first: str = ""

    def add(self, example: str) -> None:
        """Count one more."""
        if not self.count:
            self.first = example
        self.count += 1


@dataclass(slots=True)
class Ambiguous:
    """Problem ids that stand for two things.

    Attributes:
        prompts: with two prompts.
        truths: with two ground truths.
        leaked: in training and validation.
    """

    prompts: Tally = field(default_factory=Tally)
    truths: Tally = field(default_factory=Tally)
    leaked: Tally = field(default_factory=Tally)


class Census:
    """Notes problems and finds ids that stand for two; training rows come first."""

    def __init__(self) -> None:
        self.ambiguous = Ambiguous()
        # By hash of the id: hash of prompt, hash of ground truth, and what was said already.
        self._known: dict[Side, dict[int, int]] = {side: {} for side in Side}
        self._told: set[tuple[str, int]] = set()

    def note(self, side: Side, problem_id: str, prompt: str, truth: str | None, place: str) -> bool:
        """Note a row; return whether its problem is new on its side.

        Args:
            side: of the row.
            problem_id: of the row.
            prompt: digest of it.
            truth: the row's ground truth.
            place: file and row, for examples.
        """
        key = _hash(problem_id)
        now = _hash(prompt) << 64 | _hash(truth or "")
        known = self._known[side]
        before = known.get(key)
        if before is None and side is Side.VALIDATION:
            before = self._known[Side.TRAIN].get(key)
            if before is not None:
                self.ambiguous.leaked.add(f"{problem_id!r}, {place}")
        if before is not None and before != now:
            self._compare(key, before, now, f"{problem_id!r}, {place}")
        if key in known:
            return False
        known[key] = now
        return True

    def num_problems(self, side: Side) -> int:
        """Return how many problems a side has."""
        return len(self._known[side])

    def _compare(self, key: int, before: int, now: int, example: str) -> None:
        for what, tally, one, two in (
            ("prompt", self.ambiguous.prompts, before >> 64, now >> 64),
            ("truth", self.ambiguous.truths, before & _MASK, now & _MASK),
        ):
            if one != two and (what, key) not in self._told:
                self._told.add((what, key))
                tally.add(example)


def _hash(text: str) -> int:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")
