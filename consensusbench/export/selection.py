"""Which problems are exported, and on which side: training or validation.

A problem's ``split`` decides (``test`` is validation), else a share of the problem ids that
depends on nothing but the id and a seed, so that a dataset may grow, shrink or be reordered
and no problem changes sides.

What must not be in the files is found by text (:mod:`consensusbench.same_text`), because public
math sets hold the same problem under many ids: a repetition, a training problem whose text is
also in validation, a text that comes with two ground truths.  Near-copies are not looked for.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from consensusbench.same_text import digest, text_key
from consensuspr.data import Problem
from consensuspr.errors import InputError

_HASHES = 1 << 64


class Side(StrEnum):
    """Where a problem goes."""

    TRAIN = "train"
    VALIDATION = "val"


class LeftOut(StrEnum):
    """Why a problem goes nowhere; the value is the end of a sentence about several."""

    NO_TEXT = "without text"
    NO_GROUND_TRUTH = "without ground truth"
    NO_NODES = "without nodes"
    INVALID_NODES = "with nodes past the limits for inline nodes"
    NOT_UTF8 = "with characters that UTF-8 cannot hold"
    CONFLICTING = "whose text comes with two ground truths"
    REPEATED = "whose text was there before"
    HELD_OUT = "of training whose text is in validation too"


@dataclass(frozen=True, slots=True)
class SidePolicy:
    """Puts problems on a side.

    Args:
        val_fraction: share of the problems without a split that goes to validation, [0, 1).
        seed: another seed, another share.

    Raises:
        InputError: the fraction is outside [0, 1).
    """

    val_fraction: float
    seed: int

    def __post_init__(self) -> None:
        if not 0 <= self.val_fraction < 1:
            raise InputError(
                f"the validation fraction must be at least 0 and below 1, got {self.val_fraction}"
            )

    def side_of(self, problem: Problem) -> Side:
        """Return the side of a problem; the same for the same id, seed and fraction."""
        if problem.split is not None:
            return Side.VALIDATION if problem.split == "test" else Side.TRAIN
        key = f"{self.seed}:{problem.problem_id}".encode("utf-8", "surrogatepass")
        place = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest())
        return Side.VALIDATION if place < self.val_fraction * _HASHES else Side.TRAIN


def text_digest(text: str) -> bytes:
    """Return 16 bytes that are equal for texts that are the same problem."""
    return digest(text_key(text))


@dataclass(slots=True)
class _Text:
    """What is known of one text."""

    ground_truth: bytes
    in_validation: bool = False
    conflicting: bool = False
    written: bool = False


class TextCensus:
    """Knows every text of an export; about 300 bytes a text.

    All problems are counted first (:meth:`count`), then each is judged (:meth:`judge`): whether
    a text is also in validation, or comes with another answer, is known only at the end.
    """

    def __init__(self) -> None:
        self._texts: dict[bytes, _Text] = {}

    def count(self, text: bytes, ground_truth: str, side: Side) -> None:
        """Take note of a problem that could be exported, by the digest of its text."""
        truth = digest(" ".join(ground_truth.split()))
        known = self._texts.setdefault(text, _Text(truth))
        known.conflicting |= known.ground_truth != truth
        known.in_validation |= side is Side.VALIDATION

    def rows(self, side: Side) -> int:
        """Return how many problems of a side will be written, once all have been counted."""
        in_validation = side is Side.VALIDATION
        return sum(
            text.in_validation is in_validation and not text.conflicting
            for text in self._texts.values()
        )

    def judge(self, text: bytes, side: Side) -> LeftOut | None:
        """Return why a counted problem must be left out; None where it is to be written."""
        known = self._texts[text]
        if known.conflicting:
            return LeftOut.CONFLICTING
        if side is Side.TRAIN and known.in_validation:
            return LeftOut.HELD_OUT
        if known.written:
            return LeftOut.REPEATED
        known.written = True
        return None
