"""The classes of the paper's figure 1, as a pure function of one scored rollout.

The paper (section 1) defines four mismatches of an outcome-only reward in prose and gives no
thresholds.  Ours, and what speaks for them, are in ``docs/diagnosis.md``.  A rollout that is
no mismatch is *sound* or *wrong*.  Where several classes fit, the first of this order is told:
unscored; format error, almost correct, wrong; direct answer, redundant thinking, sound.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final

from consensusbench.diagnosis.references import Reference
from consensusbench.evaluation.scored import ProblemFacts, ScoredRollout
from consensuspr.errors import InputError
from consensuspr.scoring.types import Status


class Diagnosis(StrEnum):
    """What a rollout is."""

    ALMOST_CORRECT = "almost_correct"
    FORMAT_ERROR = "format_error"
    DIRECT_ANSWER = "direct_answer"
    REDUNDANT_THINKING = "redundant_thinking"
    SOUND = "sound"
    WRONG = "wrong"
    UNSCORED = "unscored"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Where the classes begin.

    NCR is over the nodes that do not state the final answer, where a problem has such nodes:
    a wrong answer misses the others by itself, and a bare answer may hit them.

    Attributes:
        almost_ncr: a wrong rollout is almost correct from this NCR on.
        almost_hits: and from so many nodes hit: one hit of one is no path.
        direct_ncr: a right rollout may be a direct answer up to this NCR.
        direct_chars: and up to so many characters.
        direct_chars_per_node: or up to so many for each node of the problem.
        redundant_per_node: a right rollout is redundant from so many times the usual length
            per node on,
        redundant_length: if it has so many times the usual length in all;
        redundant_tail: or if it goes on for so many times the usual length after the node
            that states the final answer.

    Raises:
        InputError: a threshold is negative, or an NCR above 1.
    """

    almost_ncr: float = 0.75
    almost_hits: int = 2
    direct_ncr: float = 0.2
    direct_chars: int = 60
    direct_chars_per_node: int = 25
    redundant_per_node: float = 3.0
    redundant_length: float = 4.0
    redundant_tail: float = 2.0

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            limit = 1.0 if one.name.endswith("_ncr") else float("inf")
            if not 0 <= value <= limit:
                raise InputError(
                    f"threshold {one.name} must be from 0 to {limit:g}, got {value}"
                    if limit == 1
                    else f"threshold {one.name} must be 0 or more, got {value}"
                )


DEFAULT_THRESHOLDS: Final = Thresholds()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The class of a rollout and, in one clause with the values that decided, why."""

    diagnosis: Diagnosis
    reason: str


def classify(
    rollout: ScoredRollout,
    facts: ProblemFacts | None,
    *,
    right: bool | None,
    right_leniently: bool | None,
    reference: Reference | None,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
) -> Verdict:
    """Put one rollout into its class.

    Args:
        rollout: scored, with spans.
        facts: of its problem, None where the dataset does not have it.
        right: by the rule that was asked for, None where undecided.
        right_leniently: by rule ``auto``; looked at where ``right`` is False.
        reference: what is usual for right rollouts of its problem, None where unknown: then
            nothing is redundant.
        thresholds: where the classes begin.
    """
    if rollout.status is not Status.OK:
        return Verdict(Diagnosis.UNSCORED, f"status {rollout.status}")
    if right is None or facts is None or not rollout.matched:
        return Verdict(Diagnosis.UNSCORED, "the answer was not decided under the rule asked for")
    ncr, hits = _ncr(rollout, facts)
    if not right:
        return _wrong(rollout, ncr, hits, right_leniently, thresholds)
    return (
        _direct(rollout, ncr, thresholds)
        or (None if reference is None else _redundant(rollout, facts, reference, thresholds))
        or Verdict(Diagnosis.SOUND, f"right, NCR {ncr:.2f}")
    )


def _ncr(rollout: ScoredRollout, facts: ProblemFacts) -> tuple[float, int]:
    """Return NCR without final-answer nodes, where there are others, and the hits it is of."""
    hits = rollout.matched_without_final(facts) or rollout.matched
    return sum(hits) / len(hits), sum(hits)


def _wrong(
    rollout: ScoredRollout,
    ncr: float,
    hits: int,
    right_leniently: bool | None,
    thresholds: Thresholds,
) -> Verdict:
    if right_leniently:
        return Verdict(
            Diagnosis.FORMAT_ERROR, "the answer is right, and not where or as it was asked for"
        )
    if ncr >= thresholds.almost_ncr and max(hits, rollout.num_matched) >= thresholds.almost_hits:
        return Verdict(
            Diagnosis.ALMOST_CORRECT,
            f"wrong, with NCR {ncr:.2f} (≥ {thresholds.almost_ncr:g}) from "
            f"{rollout.num_matched} hits",
        )
    return Verdict(Diagnosis.WRONG, f"wrong, NCR {ncr:.2f}")


def _direct(rollout: ScoredRollout, ncr: float, thresholds: Thresholds) -> Verdict | None:
    nodes = len(rollout.matched)
    limit = max(thresholds.direct_chars, thresholds.direct_chars_per_node * nodes)
    if ncr > thresholds.direct_ncr or rollout.num_chars > limit:
        return None
    return Verdict(
        Diagnosis.DIRECT_ANSWER,
        f"right, with NCR {ncr:.2f} (≤ {thresholds.direct_ncr:g}) in {rollout.num_chars} "
        f"characters (≤ {limit} for {nodes} nodes)",
    )


def _redundant(
    rollout: ScoredRollout, facts: ProblemFacts, reference: Reference, thresholds: Thresholds
) -> Verdict | None:
    usual = reference.in_tokens if rollout.num_tokens is not None else None
    length: int = rollout.num_chars
    unit = "characters"
    if usual is not None and rollout.num_tokens is not None:
        length, unit = rollout.num_tokens, "tokens"
    else:
        usual = reference.in_chars
    longer = length / usual.length
    if usual.per_node is not None and rollout.num_matched:
        per_node = length / rollout.num_matched / usual.per_node
        if per_node >= thresholds.redundant_per_node and longer >= thresholds.redundant_length:
            return Verdict(
                Diagnosis.REDUNDANT_THINKING,
                f"right, with {per_node:.1f} times the usual {unit} per node "
                f"(≥ {thresholds.redundant_per_node:g}) and {longer:.1f} times the usual length",
            )
    tail = _tail(rollout, facts)
    if tail is not None and tail >= thresholds.redundant_tail * reference.in_chars.length:
        times = tail / reference.in_chars.length
        return Verdict(
            Diagnosis.REDUNDANT_THINKING,
            f"right, and goes on for {times:.1f} times the usual length "
            f"(≥ {thresholds.redundant_tail:g}) after its final node",
        )
    return None


def _tail(rollout: ScoredRollout, facts: ProblemFacts) -> int | None:
    """Return the characters after all final nodes that were hit; None where none was."""
    if rollout.spans is None:
        return None
    ends = [
        span[1]
        for span, final in zip(rollout.spans, facts.is_final, strict=True)
        if final and span is not None
    ]
    return rollout.num_chars - max(ends) if ends else None
