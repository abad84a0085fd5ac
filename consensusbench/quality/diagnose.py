"""Why an outcome reward misjudges rollouts: the mismatches of the paper's figure 1.

Each rollout is put into exactly one class, by thresholds that are documented and adjustable::

    from consensusbench.quality.diagnose import diagnose
    from consensusbench.evaluation.scored import score_files

    scored = score_files(["rollouts.jsonl"], "problems.jsonl", spans=True)
    report = diagnose(scored)
    report.total[Diagnosis.ALMOST_CORRECT]

The classes, the thresholds and what they were chosen on: ``docs/diagnosis.md``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from itertools import islice
from statistics import median
from typing import Any, Final

from consensusbench.evaluation.scored import ProblemFacts, ScoredRollout, ScoredSet
from consensusbench.quiet import quiet_readers
from consensuspr.data import Row, read_rollouts
from consensuspr.errors import DataError, InputError
from consensuspr.scoring.answers import AnswerVerifier
from consensuspr.scoring.types import AnswerRule, Status

# MERGED The classes of the paper's figure 1, as a pure function of one scored rollout.
#
# The paper (section 1) defines four mismatches of an outcome-only reward in prose and gives no
# thresholds.  Ours, and what speaks for them, are in ``docs/diagnosis.md``.  A rollout that is
# no mismatch is *sound* or *wrong*.  Where several classes fit, the first of this order is told:
# unscored; format error, almost correct, wrong; direct answer, redundant thinking, sound.


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


# MERGED What is usual for a right rollout of a problem: the length that redundancy is held against.
#
# Medians, because one runaway must not move what is usual.  They are over the right rollouts of
# the problem at hand where there are enough of them, else over those of its data source.

# A median of fewer says nothing about what is usual.
MIN_ROLLOUTS: Final = 3


@dataclass(frozen=True, slots=True)
class Usual:
    """Medians in one unit: of the length, and of the length per node hit (None where unknown)."""

    length: float
    per_node: float | None


@dataclass(frozen=True, slots=True)
class Reference:
    """What right rollouts of a problem are like.

    Attributes:
        in_chars: over all of them.
        in_tokens: over those whose tokens are known; None where they are too few.
    """

    in_chars: Usual
    in_tokens: Usual | None


class References:
    """References of all problems of a set of rollouts."""

    def __init__(self, right: Iterable[ScoredRollout]) -> None:
        """Take the rollouts that are right."""
        by_problem: dict[str, list[ScoredRollout]] = defaultdict(list)
        by_source: dict[str, list[ScoredRollout]] = defaultdict(list)
        for rollout in right:
            by_problem[rollout.problem_id].append(rollout)
            by_source[rollout.data_source].append(rollout)
        self._problems = {name: _reference(group) for name, group in by_problem.items()}
        self._sources = {name: _reference(group) for name, group in by_source.items()}

    def of(self, rollout: ScoredRollout) -> Reference | None:
        """Return what is usual for a rollout's problem, else for its source, else None."""
        return self._problems.get(rollout.problem_id) or self._sources.get(rollout.data_source)


def _reference(group: list[ScoredRollout]) -> Reference | None:
    in_chars = _usual(group, lambda one: one.num_chars)
    if in_chars is None:
        return None
    return Reference(in_chars, _usual(group, lambda one: one.num_tokens))


def _usual(
    group: list[ScoredRollout], length: Callable[[ScoredRollout], int | None]
) -> Usual | None:
    known = [(size, one.num_matched) for one in group if (size := length(one))]
    if len(known) < MIN_ROLLOUTS:
        return None
    per_node = [size / hits for size, hits in known if hits]
    return Usual(
        length=median(size for size, _ in known),
        per_node=median(per_node) if len(per_node) >= MIN_ROLLOUTS else None,
    )


# MERGED The answers of rollouts read twice: by the rule that was asked for, and leniently.
#
# A format error is a right answer that the rule asked for does not see, so that it takes both
# readings.  The lenient one is rule ``auto``: on 2,826 wrong rollouts of GSM8K a still more
# lenient one (the last number of the text) found one more answer, by accident.

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


# MERGED All rollouts of a set put into their classes and counted by model and data source.


@dataclass(slots=True)
class DiagnosisReport:
    """What the rollouts of a set are.

    Attributes:
        verdicts: one for each rollout, in order.
        groups: counts by (model, data source), in the order of first appearance.
        total: counts of all.
        thresholds: that decided.
    """

    verdicts: list[Verdict]
    thresholds: Thresholds
    groups: dict[tuple[str, str], Counter[Diagnosis]] = field(default_factory=dict)
    total: Counter[Diagnosis] = field(default_factory=Counter)

    def examples(self, diagnosis: Diagnosis, count: int) -> list[int]:
        """Return places of at most ``count`` rollouts of a class, spread over all of them."""
        places = [at for at, one in enumerate(self.verdicts) if one.diagnosis is diagnosis]
        if len(places) <= count:
            return places
        return [places[at * len(places) // count] for at in range(count)]

    def to_json(self) -> dict[str, Any]:
        """Return counts and shares as plain values; shares are of the scored rollouts."""
        return {
            "rollouts": len(self.verdicts),
            "thresholds": asdict(self.thresholds),
            "total": counts_to_json(self.total),
            "groups": [
                {"model": model, "data_source": source, **counts_to_json(counts)}
                for (model, source), counts in self.groups.items()
            ],
        }


def scored_count(counts: Counter[Diagnosis]) -> int:
    """Return how many rollouts of a group have a class other than unscored."""
    return counts.total() - counts[Diagnosis.UNSCORED]


def share(counts: Counter[Diagnosis], diagnosis: Diagnosis) -> float | None:
    """Return the share of a class among the scored rollouts of a group.

    Of ``UNSCORED`` it is the share among all; None where there is nothing to be a share of.
    """
    of = counts.total() if diagnosis is Diagnosis.UNSCORED else scored_count(counts)
    return counts[diagnosis] / of if of else None


def counts_to_json(counts: Counter[Diagnosis]) -> dict[str, Any]:
    """Return counts and shares of a group by class."""
    return {
        "counts": {one.value: counts[one] for one in Diagnosis},
        "shares": {one.value: share(counts, one) for one in Diagnosis},
    }


def diagnose(
    scored: ScoredSet,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
    readings: Sequence[Reading] | None = None,
) -> DiagnosisReport:
    """Put every rollout of a set into its class.

    Args:
        scored: with spans; without them no tail is known.
        thresholds: where the classes begin.
        readings: of :func:`~consensusbench.quality.diagnose.read_answers`; None for what the
            scores say, which knows no format errors.
    """
    if readings is None:
        readings = [scored_reading(rollout) for rollout in scored.rollouts]
    references = References(
        rollout
        for rollout, reading in zip(scored.rollouts, readings, strict=True)
        if reading.asked or reading.lenient
    )
    report = DiagnosisReport([], thresholds)
    for rollout, reading in zip(scored.rollouts, readings, strict=True):
        verdict = classify(
            rollout,
            scored.facts(rollout),
            right=reading.asked,
            right_leniently=reading.lenient,
            reference=references.of(rollout),
            thresholds=thresholds,
        )
        report.verdicts.append(verdict)
        _count(report, rollout, verdict.diagnosis)
    return report


def _count(report: DiagnosisReport, rollout: ScoredRollout, diagnosis: Diagnosis) -> None:
    group = (rollout.model, rollout.data_source)
    report.groups.setdefault(group, Counter())[diagnosis] += 1
    report.total[diagnosis] += 1
