"""Why an outcome reward misjudges rollouts: the mismatches of the paper's figure 1.

::

    from consensusbench.evaluation.scored import score_files
    from consensusbench.quality.diagnose import Diagnosis, diagnose

    scored = score_files(["rollouts.jsonl"], "dataset.jsonl", spans=True)
    diagnose(scored).total[Diagnosis.ALMOST_CORRECT]

Each rollout gets exactly one class.  ``docs/evaluate.md`` defines the classes and the thresholds.
A format error is a right answer that the rule asked for does not see, so answers are read twice:
by that rule and by rule ``auto``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from statistics import median
from typing import Any, Final, NamedTuple

from pydantic import Field

from consensusbench.evaluation.scored import (
    UNKNOWN,
    ProblemFacts,
    ScoredRollout,
    ScoredSet,
    label_order,
)
from consensusbench.tables import Cell, Row, Table, Value, number, words
from consensuspr.console import one_line
from consensuspr.data import Row as FileRow
from consensuspr.scoring.answers import AnswerVerifier
from consensuspr.scoring.types import AnswerRule, Status
from consensuspr.settings import Settings

# A median of fewer rollouts says nothing about what is usual.
MIN_ROLLOUTS: Final = 3
_CHUNK_ROLLOUTS: Final = 2048


class Diagnosis(StrEnum):
    """What a rollout is."""

    SOUND = "sound"
    DIRECT_ANSWER = "direct_answer"
    REDUNDANT_THINKING = "redundant_thinking"
    ALMOST_CORRECT = "almost_correct"
    FORMAT_ERROR = "format_error"
    WRONG = "wrong"
    UNSCORED = "unscored"

    @property
    def words(self) -> str:
        """The class as a person reads it."""
        return self.value.replace("_", " ")


class Thresholds(Settings):
    """Where the classes begin.

    NCR is guarded, and over the nodes that do not state the final answer, where a problem has
    such nodes: a wrong answer misses the others by itself, and a bare answer may hit them.
    """

    almost_ncr: float = Field(
        0.75, ge=0, le=1, description="NCR from which a wrong rollout is almost correct."
    )
    almost_hits: int = Field(
        2, ge=0, description="Nodes that it has to hit for that: one hit of one is no path."
    )
    direct_ncr: float = Field(
        0.2, ge=0, le=1, description="NCR up to which a right rollout may be a direct answer."
    )
    direct_chars: int = Field(60, ge=0, description="Characters up to which it is one.")
    direct_chars_per_node: int = Field(
        25, ge=0, description="Or characters for each node of its problem."
    )
    redundant_per_node: float = Field(
        3.0,
        ge=0,
        description="Times the usual length per node from which a right rollout is redundant.",
    )
    redundant_length: float = Field(
        4.0, ge=0, description="Times the usual length that it has to have for that."
    )
    redundant_tail: float = Field(
        2.0,
        ge=0,
        description="Times the usual length after the final node that is redundant too.",
    )


DEFAULT_THRESHOLDS: Final = Thresholds()


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """The class of a rollout and, in one clause with the values that decided, why."""

    diagnosis: Diagnosis
    reason: str


@dataclass(frozen=True, slots=True)
class Usual:
    """Medians over right rollouts in one unit; ``per_node`` is the length per node hit."""

    length: float
    per_node: float | None


class Reference(NamedTuple):
    """Usual lengths of right rollouts, in characters and, if known, in tokens."""

    in_chars: Usual
    in_tokens: Usual | None


class References:
    """Usual lengths of right rollouts, by problem if there are enough of them, else by source."""

    def __init__(self, right: Iterable[ScoredRollout]) -> None:
        """Take the rollouts that are right."""
        groups: dict[tuple[str, str], list[ScoredRollout]] = defaultdict(list)
        for rollout in right:
            groups["problem", rollout.problem_id].append(rollout)
            groups["source", rollout.data_source].append(rollout)
        self._chars = {key: _usual(group, lambda one: one.num_chars)
                       for key, group in groups.items()}  # fmt: skip
        self._tokens = {key: _usual(group, lambda one: one.num_tokens)
                        for key, group in groups.items()}  # fmt: skip

    def of(self, rollout: ScoredRollout) -> Reference | None:
        """Return the usual lengths for a rollout, if known."""
        for key in (("problem", rollout.problem_id), ("source", rollout.data_source)):
            if (chars := self._chars.get(key)) is not None:
                return Reference(chars, self._tokens.get(key))
        return None


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


def classify(
    rollout: ScoredRollout,
    facts: ProblemFacts | None,
    *,
    right: bool | None,
    right_leniently: bool | None,
    reference: Reference | None,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
) -> Diagnosed:
    """Return the class of one rollout.

    Args:
        rollout: scored, with spans.
        right: by the rule that was asked for, None if undecided.
        right_leniently: by rule ``auto``.
        reference: usual lengths; None if unknown.
    """
    if rollout.status is not Status.OK:
        return Diagnosed(Diagnosis.UNSCORED, f"status {rollout.status}")
    if right is None or facts is None or not rollout.matched:
        return Diagnosed(Diagnosis.UNSCORED, "the answer was not decided under the rule asked for")
    hits_of = rollout.matched_without_final(facts) or rollout.matched
    ncr = rollout.guard * sum(hits_of) / len(hits_of)
    if right:
        return (
            _direct(rollout, ncr, thresholds)
            or (None if reference is None else _redundant(rollout, facts, reference, thresholds))
            or Diagnosed(Diagnosis.SOUND, f"right, NCR {ncr:.2f}")
        )
    if right_leniently:
        reason = "the answer is right, and not where or as it was asked for"
        return Diagnosed(Diagnosis.FORMAT_ERROR, reason)
    hits = rollout.num_matched
    if ncr >= thresholds.almost_ncr and hits >= thresholds.almost_hits:
        return Diagnosed(
            Diagnosis.ALMOST_CORRECT,
            f"wrong, with NCR {ncr:.2f} (≥ {thresholds.almost_ncr:g}) from {hits} hits",
        )
    return Diagnosed(Diagnosis.WRONG, f"wrong, NCR {ncr:.2f}")


def _direct(rollout: ScoredRollout, ncr: float, thresholds: Thresholds) -> Diagnosed | None:
    nodes = len(rollout.matched)
    limit = max(thresholds.direct_chars, thresholds.direct_chars_per_node * nodes)
    if ncr > thresholds.direct_ncr or rollout.num_chars > limit:
        return None
    return Diagnosed(
        Diagnosis.DIRECT_ANSWER,
        f"right, with NCR {ncr:.2f} (≤ {thresholds.direct_ncr:g}) in {rollout.num_chars} "
        f"characters (≤ {limit} for {nodes} nodes)",
    )


def _redundant(
    rollout: ScoredRollout,
    facts: ProblemFacts,
    reference: Reference,
    thresholds: Thresholds,
) -> Diagnosed | None:
    usual, in_tokens = reference
    length, unit = rollout.num_chars, "characters"
    if in_tokens is not None and rollout.num_tokens is not None:
        usual, length, unit = in_tokens, rollout.num_tokens, "tokens"
    longer = length / usual.length
    if usual.per_node is not None and rollout.num_matched:
        per_node = length / rollout.num_matched / usual.per_node
        if per_node >= thresholds.redundant_per_node and longer >= thresholds.redundant_length:
            return Diagnosed(
                Diagnosis.REDUNDANT_THINKING,
                f"right, with {per_node:.1f} times the usual {unit} per node "
                f"(≥ {thresholds.redundant_per_node:g}) and {longer:.1f} times the usual length",
            )
    tail = _tail(rollout, facts)
    if tail is not None and tail >= thresholds.redundant_tail * reference[0].length:
        return Diagnosed(
            Diagnosis.REDUNDANT_THINKING,
            f"right, and goes on for {tail / reference[0].length:.1f} times the usual length "
            f"(≥ {thresholds.redundant_tail:g}) after its final node",
        )
    return None


def _tail(rollout: ScoredRollout, facts: ProblemFacts) -> int | None:
    """Return the characters after all final nodes that were hit; None if none was."""
    if rollout.spans is None:
        return None
    ends = [
        span[1]
        for span, final in zip(rollout.spans, facts.is_final, strict=True)
        if final and span is not None
    ]
    return rollout.num_chars - max(ends) if ends else None


class Reading(NamedTuple):
    """Whether an answer is right by the rule asked for, and leniently; None: undecided."""

    asked: bool | None
    lenient: bool | None


def _scored_reading(rollout: ScoredRollout) -> Reading:
    right = None if rollout.acc is None or rollout.undecided else rollout.acc == 1
    return Reading(right, right)


def read_leniently(scored: ScoredSet, rule: AnswerRule | None) -> bool:
    """Return whether rule auto made all scores and is asked for: no second reading is needed."""
    identity = scored.identity
    auto = identity is not None and identity.answer_rule is AnswerRule.AUTO
    return rule is None and auto and not scored.num_stored


def read_answers(
    scored: ScoredSet,
    rule: AnswerRule | None = None,
    *,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Reading]:
    """Read the answers of scored rollouts again, in one more pass over their files.

    Args:
        rule: that was asked for; None for the one that the scores were made with.

    Raises:
        DataError: a file has changed since it was scored.
    """
    readings: list[Reading] = []
    with AnswerVerifier() as verifier:
        rows = scored.rows()
        while chunk := list(islice(rows, _CHUNK_ROLLOUTS)):
            readings += _read_chunk(scored, chunk, rule, verifier)
            progress(len(readings))
    return readings


def _read_chunk(
    scored: ScoredSet,
    chunk: Sequence[tuple[ScoredRollout, FileRow]],
    rule: AnswerRule | None,
    verifier: AnswerVerifier,
) -> list[Reading]:
    asked = [_scored_reading(rollout).asked for rollout, _ in chunk]

    def read(places: list[int], by: AnswerRule) -> list[bool | None]:
        truths = [_truth(scored, *chunk[at]) for at in places]
        found = verifier.verify_batch(truths, [chunk[at][1]["response"] for at in places], by)
        return [verdict.correct for verdict in found]

    scorable = [at for at, (rollout, _) in enumerate(chunk) if rollout.status is Status.OK]
    if rule is not None:
        for at, right in zip(scorable, read(scorable, rule), strict=True):
            asked[at] = right
    lenient = asked[:]
    wrong = [at for at in scorable if asked[at] is False]
    for at, right in zip(wrong, read(wrong, AnswerRule.AUTO), strict=True):
        lenient[at] = right
    return [Reading(*pair) for pair in zip(asked, lenient, strict=True)]


def _truth(scored: ScoredSet, rollout: ScoredRollout, row: FileRow) -> str:
    truth: str = row.get("ground_truth") or ""
    if truth.strip():
        return truth
    facts = scored.facts(rollout)
    return (facts.ground_truth if facts is not None else None) or ""


@dataclass(slots=True)
class DiagnosisReport:
    """The class of each rollout, and counts by (model, data source)."""

    verdicts: list[Diagnosed]
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
            "thresholds": self.thresholds.model_dump(),
            "total": counts_to_json(self.total),
            "groups": [
                {"model": model, "data_source": source, **counts_to_json(counts)}
                for (model, source), counts in self.groups.items()
            ],
        }


def share(counts: Counter[Diagnosis], diagnosis: Diagnosis) -> float | None:
    """Return the share of a class among scored rollouts; of ``UNSCORED`` among all."""
    of = counts.total()
    if diagnosis is not Diagnosis.UNSCORED:
        of -= counts[Diagnosis.UNSCORED]
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
    """Return the class of every rollout of a set.

    Args:
        scored: with spans.
        readings: of :func:`read_answers`; None for the scores alone, without format errors.
    """
    if readings is None:
        readings = [_scored_reading(rollout) for rollout in scored.rollouts]
    pairs = list(zip(scored.rollouts, readings, strict=True))
    references = References(rollout for rollout, read in pairs if read.asked or read.lenient)
    report = DiagnosisReport([], thresholds)
    for rollout, read in pairs:
        found = classify(
            rollout,
            scored.facts(rollout),
            right=read.asked,
            right_leniently=read.lenient,
            reference=references.of(rollout),
            thresholds=thresholds,
        )
        report.verdicts.append(found)
        group = (rollout.model, rollout.data_source)
        report.groups.setdefault(group, Counter())[found.diagnosis] += 1
        report.total[found.diagnosis] += 1
    return report


def diagnosis_table(report: DiagnosisReport) -> Table:
    """Return the counts of classes by model and data source."""
    headings = [one.words.capitalize() for one in Diagnosis]
    columns = [words("Model"), words("Data source"), *map(number, ("Rollouts", *headings))]
    named = [((m or UNKNOWN, s or UNKNOWN), counts) for (m, s), counts in report.groups.items()]
    ordered = sorted(named, key=lambda one: tuple(map(label_order, one[0])))
    groups = [[_counts_row(*names, counts) for names, counts in ordered]]
    if len(ordered) > 1:
        groups.append([_counts_row("all", "", report.total)])
    return Table("Classes", columns, groups, bold=1)


def _counts_row(model: str, source: str, counts: Counter[Diagnosis]) -> Row:
    cells: list[Value] = [model, source, counts.total()]
    for diagnosis in Diagnosis:
        part = share(counts, diagnosis) if counts[diagnosis] else None
        note = "" if part is None else f"({100 * part:.1f} %)"
        cells.append(Cell(counts[diagnosis], note=note))
    return cells


def example_rows(
    scored: ScoredSet, report: DiagnosisReport, count: int
) -> dict[str, list[dict[str, str]]]:
    """Return at most ``count`` rollouts of each class, spread over all of them."""
    found: dict[str, list[dict[str, str]]] = {one.value: [] for one in Diagnosis}
    for diagnosis in Diagnosis:
        for at in report.examples(diagnosis, count):
            rollout = scored.rollouts[at]
            found[diagnosis.value].append(
                {
                    "rollout_id": rollout.rollout_id,
                    "problem_id": rollout.problem_id,
                    "model": rollout.model,
                    "reason": report.verdicts[at].reason,
                }
            )
    return found


def examples_table(examples: dict[str, list[dict[str, str]]]) -> Table:
    """Return the examples of all classes."""
    headings = ("Class", "Rollout", "Problem", "Model", "Reason")
    rows = [[Diagnosis(name).words, *one.values()] for name, of in examples.items() for one in of]
    return Table("Examples", [*map(words, headings)], [rows])


def diagnosis_notes(
    scored: ScoredSet, report: DiagnosisReport, rule: AnswerRule | None
) -> list[str]:
    """Return the notes below the table."""
    count = report.total.total() - report.total[Diagnosis.UNSCORED]
    notes = [f"shares are of the {count:,} scored rollouts; of unscored ones, of all"]
    if rule is AnswerRule.AUTO or read_leniently(scored, rule):
        notes.append(
            "rule auto takes answers anywhere: to see format errors, name the rule that rollouts "
            "were asked to follow, such as --answer-rule dapo"
        )
    first = scored.messages.items()
    return notes + [f"first {status}: {one_line(message, 200)}" for status, message in first]
