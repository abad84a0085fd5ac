"""The answers of rollouts read twice: by the rule that was asked for, and leniently.

A format error is a right answer that the rule asked for does not see, so that it takes both
readings.  The lenient one is rule ``auto``: on 2,826 wrong rollouts of GSM8K a still more
lenient one (the last number of the text) found one more answer, by accident.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice

from consensusbench.evaluation.scored import ScoredRollout, ScoredSet
from consensusbench.quiet import quiet_readers
from consensuspr.data import Row, read_rollouts
from consensuspr.errors import DataError
from consensuspr.scoring.answers import AnswerVerifier
from consensuspr.scoring.types import AnswerRule, Status

CHUNK_ROLLOUTS = 2048


@dataclass(frozen=True, slots=True)
class Reading:
    """Whether an answer is right: by the rule asked for, and leniently; None: undecided."""

    asked: bool | None
    lenient: bool | None


def scored_reading(rollout: ScoredRollout) -> Reading:
    """Return the one reading that a score holds, as both."""
    right = None if rollout.acc is None or rollout.undecided else rollout.acc == 1
    return Reading(right, right)


def read_answers(
    scored: ScoredSet,
    rule: AnswerRule | None = None,
    *,
    verifier: AnswerVerifier | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Reading]:
    """Read the answers of scored rollouts again, in one more pass over their files.

    Args:
        scored: from files that are still there.
        rule: that was asked for; None for the one that the scores were made with.
        verifier: checks the answers; None for one of our own.
        progress: told how many rollouts are done.

    Returns:
        One reading for each rollout.  What is right by the rule asked for is not read again.

    Raises:
        DataError: a file has changed since it was scored.
    """
    readings = [scored_reading(rollout) for rollout in scored.rollouts]
    with AnswerVerifier() if verifier is None else nullcontext(verifier) as checker:
        done = 0
        for start, rows in _chunks(scored):
            rollouts = scored.rollouts[start : start + len(rows)]
            _check(scored, rows, rollouts, start, rule, checker, readings)
            done += len(rows)
            progress(done)
    return readings


def rows_of(scored: ScoredSet) -> Iterator[Row]:
    """Yield the rows of all rollouts of a set, in its order.

    Raises:
        DataError: a file has changed since it was scored.
    """
    expected = iter(scored.rollouts)
    with quiet_readers():  # bad rows were named and counted when the files were read first
        for file, path in enumerate(scored.files):
            for row in read_rollouts(path, scored.on_error):
                rollout = next(expected, None)
                if (
                    rollout is None
                    or (rollout.file, rollout.problem_id) != (file, row["problem_id"])
                    or rollout.num_chars != len(row["response"])
                ):
                    raise DataError(path, None, "has changed since its rollouts were scored")
                yield row
        if next(expected, None) is not None:
            raise DataError(scored.files[-1], None, "has changed since its rollouts were scored")


def _chunks(scored: ScoredSet) -> Iterator[tuple[int, list[Row]]]:
    rows = rows_of(scored)
    start = 0
    while chunk := list(islice(rows, CHUNK_ROLLOUTS)):
        yield start, chunk
        start += len(chunk)


def _check(
    scored: ScoredSet,
    rows: list[Row],
    rollouts: list[ScoredRollout],
    start: int,
    rule: AnswerRule | None,
    verifier: AnswerVerifier,
    readings: list[Reading],
) -> None:
    """Fill in the readings of one chunk."""
    asked = {at: readings[start + at].asked for at in range(len(rows))}
    scorable = [at for at, one in enumerate(rollouts) if one.status is Status.OK]
    truths = {at: _truth(scored, rows[at], rollouts[at]) for at in scorable}

    def verdicts(places: list[int], by: AnswerRule) -> list[bool | None]:
        found = verifier.verify_batch(
            [truths[at] for at in places], [rows[at]["response"] for at in places], by
        )
        return [one.correct for one in found]

    if rule is not None:
        asked.update(zip(scorable, verdicts(scorable, rule), strict=True))
    lenient = dict(asked)
    again = [at for at in scorable if asked[at] is False]
    lenient.update(zip(again, verdicts(again, AnswerRule.AUTO), strict=True))
    for at in range(len(rows)):
        readings[start + at] = Reading(asked[at], lenient[at])


def _truth(scored: ScoredSet, row: Row, rollout: ScoredRollout) -> str:
    truth: str = row.get("ground_truth") or ""
    if truth.strip():
        return truth
    facts = scored.facts(rollout)
    return (facts.ground_truth if facts is not None else None) or ""
