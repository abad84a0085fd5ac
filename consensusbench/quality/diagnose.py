"""Why an outcome reward misjudges rollouts: the mismatches of the paper's figure 1.

::

    from consensusbench.evaluation.scored import score_files
    from consensusbench.quality.diagnose import Diagnosis, diagnose

    scored = score_files(["rollouts.jsonl"], "dataset.jsonl", spans=True)
    diagnose(scored).total[Diagnosis.ALMOST_CORRECT]

Each rollout gets exactly one class.  ``docs/guides/evaluate.md`` defines classes and thresholds.
A format error is a right answer that the rule asked for does not see, so answers are read twice:
by that rule and by rule ``auto``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from statistics import median
from typing import Any, Final, NamedTuple, TypeAlias

from pydantic import Field

from consensusbench.evaluation.scored import UNKNOWN, ScoredRollout, ScoredSet, label_order
from consensusbench.tables import Cell, Row, Table, number, words
from consensuspr.console import one_line
from consensuspr.data import Row as FileRow
from consensuspr.scoring.answers import AnswerVerifier
from consensuspr.scoring.types import AnswerRule, Status
from consensuspr.settings import Settings

# A median of fewer rollouts is no usual length.
MIN_ROLLOUTS: Final = 3
_CHUNK_ROLLOUTS: Final = 2048


class Diagnosis(StrEnum):
    """The class of a rollout."""

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


def _limit(default: float, description: str, highest: float | None = None) -> Any:
    return Field(default, ge=0, le=highest, description=description)


class Thresholds(Settings):
    """Where the classes begin.

    NCR is guarded, and over the nodes that do not state the final answer, if a problem has such
    nodes: a wrong answer misses the others by itself, and a bare answer may hit them.
    """

    almost_ncr: float = _limit(0.75, "NCR from which a wrong rollout is almost correct.", 1)
    almost_hits: int = _limit(2, "Nodes that an almost correct rollout must reach.")
    direct_ncr: float = _limit(0.2, "NCR up to which a correct rollout can be a direct answer.", 1)
    direct_chars: int = _limit(60, "Characters up to which it is a direct answer.")
    direct_chars_per_node: int = _limit(25, "The same, for each node of its problem.")
    redundant_per_node: float = _limit(
        3.0, "Times the median length per node from which a correct rollout is redundant."
    )
    redundant_length: float = _limit(
        4.0, "Times the median length that a redundant rollout must have."
    )
    redundant_tail: float = _limit(
        2.0, "Times the median length after the final node that is redundant too."
    )


DEFAULT_THRESHOLDS: Final = Thresholds()


class Diagnosed(NamedTuple):
    """The class of a rollout, and the reason with the values that decided."""

    diagnosis: Diagnosis
    reason: str


class Usual(NamedTuple):
    """Medians over right rollouts in one unit; ``per_node`` is the length per node hit."""

    length: float
    per_node: float | None


# By unit: characters, and tokens if they are known.
Reference: TypeAlias = Mapping[str, Usual]


class References:
    """Usual lengths of right rollouts, by problem if there are enough of them, else by source."""

    def __init__(self, right: Iterable[ScoredRollout]) -> None:
        groups: dict[tuple[str, str], list[ScoredRollout]] = defaultdict(list)
        for rollout in right:
            groups["problem", rollout.problem_id].append(rollout)
            groups["source", rollout.data_source].append(rollout)
        self._references: dict[tuple[str, str], Reference] = {}
        for key, group in groups.items():
            usual = {
                "characters": _usual([(r.num_chars, r.num_matched) for r in group]),
                "tokens": _usual([(r.num_tokens, r.num_matched) for r in group]),
            }
            if usual["characters"] is not None:
                self._references[key] = {unit: u for unit, u in usual.items() if u is not None}

    def of(self, rollout: ScoredRollout) -> Reference | None:
        """Return the usual lengths for a rollout, if known."""
        by_source = self._references.get(("source", rollout.data_source))
        return self._references.get(("problem", rollout.problem_id), by_source)


def _usual(lengths: list[tuple[int | None, int]]) -> Usual | None:
    known = [(length, hits) for length, hits in lengths if length]
    if len(known) < MIN_ROLLOUTS:
        return None
    per_node = [length / hits for length, hits in known if hits]
    return Usual(
        median(length for length, _ in known),
        median(per_node) if len(per_node) >= MIN_ROLLOUTS else None,
    )


class Reading(NamedTuple):
    """Whether an answer is right by the rule asked for, and leniently; None: undecided."""

    asked: bool | None
    lenient: bool | None


def classify(
    rollout: ScoredRollout,
    reading: Reading,
    reference: Reference | None,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
) -> Diagnosed:
    """Return the class of one rollout, which was scored with spans.

    Args:
        reading: of its answer.
        reference: usual lengths; None if unknown.
    """
    if rollout.status is not Status.OK:
        return Diagnosed(Diagnosis.UNSCORED, f"status {rollout.status}")
    if reading.asked is None or rollout.facts is None or not rollout.matched:
        return Diagnosed(Diagnosis.UNSCORED, "the answer could not be decided")
    counted = rollout.without_final(rollout.matched) or rollout.matched
    ncr, hits = rollout.guard * sum(counted) / len(counted), rollout.num_matched
    if reading.asked:
        if reason := _direct(rollout, ncr, thresholds):
            return Diagnosed(Diagnosis.DIRECT_ANSWER, reason)
        if reference is not None and (reason := _redundant(rollout, reference, thresholds)):
            return Diagnosed(Diagnosis.REDUNDANT_THINKING, reason)
        return Diagnosed(Diagnosis.SOUND, f"right, NCR {ncr:.2f}")
    if reading.lenient:
        reason = "the answer is right, but not in the requested form"
        return Diagnosed(Diagnosis.FORMAT_ERROR, reason)
    if ncr >= thresholds.almost_ncr and hits >= thresholds.almost_hits:
        reason = f"wrong, with NCR {ncr:.2f} (≥ {thresholds.almost_ncr:g}) and {hits} nodes reached"
        return Diagnosed(Diagnosis.ALMOST_CORRECT, reason)
    return Diagnosed(Diagnosis.WRONG, f"wrong, NCR {ncr:.2f}")


def _direct(rollout: ScoredRollout, ncr: float, thresholds: Thresholds) -> str:
    """Return why a right rollout is a direct answer, empty if it is none."""
    nodes = len(rollout.matched)
    limit = max(thresholds.direct_chars, thresholds.direct_chars_per_node * nodes)
    if ncr > thresholds.direct_ncr or rollout.num_chars > limit:
        return ""
    return (
        f"right, with NCR {ncr:.2f} (≤ {thresholds.direct_ncr:g}) in {rollout.num_chars} "
        f"characters (≤ {limit} for {nodes} nodes)"
    )


def _redundant(rollout: ScoredRollout, reference: Reference, thresholds: Thresholds) -> str:
    """Return why a right rollout is redundant, empty if it is not."""
    length, unit = rollout.num_tokens, "tokens"
    if length is None or unit not in reference:
        length, unit = rollout.num_chars, "characters"
    usual = reference[unit]
    longer = length / usual.length
    if usual.per_node is not None and rollout.num_matched:
        per_node = length / rollout.num_matched / usual.per_node
        if per_node >= thresholds.redundant_per_node and longer >= thresholds.redundant_length:
            return (
                f"right, with {per_node:.1f} times the usual {unit} per node "
                f"(≥ {thresholds.redundant_per_node:g}) and {longer:.1f} times the usual length"
            )
    finals = rollout.facts.is_final if rollout.facts else ()
    pairs = zip(rollout.spans or (), finals, strict=False)
    if ends := [span[1] for span, is_final in pairs if is_final and span is not None]:
        tail = (rollout.num_chars - max(ends)) / reference["characters"].length
        if tail >= thresholds.redundant_tail:
            return (
                f"right, and goes on for {tail:.1f} times the usual length "
                f"(≥ {thresholds.redundant_tail:g}) after its final node"
            )
    return ""


def _scored_reading(rollout: ScoredRollout) -> Reading:
    right = None if rollout.acc is None or rollout.undecided else rollout.acc == 1
    return Reading(right, right)


def is_lenient(scored: ScoredSet, rule: AnswerRule | None) -> bool:
    """Return whether rule auto made all scores and is asked for: answers are read leniently."""
    auto = scored.identity is not None and scored.identity.answer_rule is AnswerRule.AUTO
    return rule is None and auto and not scored.num_stored


def read_answers(
    scored: ScoredSet,
    rule: AnswerRule | None = None,
    *,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Reading]:
    """Read the answers of scored rollouts again, in one more pass over their files if needed.

    Args:
        rule: that was asked for; None for the one that the scores were made with.

    Raises:
        DataError: a file has changed since it was scored.
    """
    if is_lenient(scored, rule):
        return [_scored_reading(rollout) for rollout in scored.rollouts]
    readings: list[Reading] = []
    with AnswerVerifier() as verifier:
        rows = scored.rows()
        while chunk := list(islice(rows, _CHUNK_ROLLOUTS)):
            asked = {at: _scored_reading(rollout).asked for at, (rollout, _) in enumerate(chunk)}
            scorable = [at for at, (rollout, _) in enumerate(chunk) if rollout.status is Status.OK]
            if rule is not None:
                asked |= _verdicts(verifier, chunk, scorable, rule)
            wrong = [at for at in scorable if asked[at] is False]
            lenient = asked | _verdicts(verifier, chunk, wrong, AnswerRule.AUTO)
            readings += [Reading(asked[at], lenient[at]) for at in range(len(chunk))]
            progress(len(readings))
    return readings


def _verdicts(
    verifier: AnswerVerifier,
    chunk: Sequence[tuple[ScoredRollout, FileRow]],
    places: list[int],
    rule: AnswerRule,
) -> dict[int, bool | None]:
    truths, texts = [], []
    for rollout, row in (chunk[at] for at in places):
        given = (row.get("ground_truth") or "").strip()
        truths.append(given or (rollout.facts and rollout.facts.ground_truth) or "")
        texts.append(row["response"])
    verdicts = verifier.verify_batch(truths, texts, rule)
    return {at: verdict.correct for at, verdict in zip(places, verdicts, strict=True)}


@dataclass(slots=True)
class DiagnosisReport:
    """The class of each rollout, and counts by (model, data source)."""

    verdicts: list[Diagnosed]
    thresholds: Thresholds
    groups: dict[tuple[str, str], Counter[Diagnosis]] = field(default_factory=dict)
    total: Counter[Diagnosis] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        """Return counts and shares as plain values; shares are of the scored rollouts."""
        return {
            "rollouts": len(self.verdicts),
            "thresholds": self.thresholds.model_dump(),
            "total": _counts_json(self.total),
            "groups": [
                {"model": model, "data_source": source, **_counts_json(counts)}
                for (model, source), counts in self.groups.items()
            ],
        }


def share(counts: Counter[Diagnosis], diagnosis: Diagnosis) -> float | None:
    """Return the share of a class among scored rollouts; of ``UNSCORED`` among all."""
    total = counts.total()
    if diagnosis is not Diagnosis.UNSCORED:
        total -= counts[Diagnosis.UNSCORED]
    return counts[diagnosis] / total if total else None


def _counts_json(counts: Counter[Diagnosis]) -> dict[str, Any]:
    return {
        "counts": {diagnosis.value: counts[diagnosis] for diagnosis in Diagnosis},
        "shares": {diagnosis.value: share(counts, diagnosis) for diagnosis in Diagnosis},
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
    for rollout, reading in pairs:
        verdict = classify(rollout, reading, references.of(rollout), thresholds)
        report.verdicts.append(verdict)
        counts = report.groups.setdefault((rollout.model, rollout.data_source), Counter())
        counts[verdict.diagnosis] += 1
        report.total[verdict.diagnosis] += 1
    return report


def diagnosis_table(report: DiagnosisReport) -> Table:
    """Return the counts of the classes that occur, by model and data source."""
    found = [diagnosis for diagnosis in Diagnosis if report.total[diagnosis]]
    headings = [diagnosis.words.capitalize() for diagnosis in found]
    columns = [words("Model · data source"), *map(number, ("Rollouts", *headings))]
    groups = sorted(report.groups.items(), key=lambda item: [*map(label_order, item[0])])
    rows = [
        _counts_row(f"{model or UNKNOWN} · {source or UNKNOWN}", counts, found)
        for (model, source), counts in groups
    ]
    total = [_counts_row("all", report.total, found)] if len(rows) > 1 else []
    return Table("Classes of rollouts", columns, [rows, total], bold=1)


def _counts_row(label: str, counts: Counter[Diagnosis], found: Sequence[Diagnosis]) -> Row:
    cells = []
    for diagnosis in found:
        part = share(counts, diagnosis) if counts[diagnosis] else None
        cells.append(Cell(counts[diagnosis], note="" if part is None else f"({part:.0%})"))
    return [label, counts.total(), *cells]


def example_rows(
    scored: ScoredSet, report: DiagnosisReport, count: int
) -> dict[str, list[dict[str, str]]]:
    """Return at most ``count`` rollouts of each class, spread over all of them."""
    by_class: dict[str, list[dict[str, str]]] = {diagnosis.value: [] for diagnosis in Diagnosis}
    for rollout, verdict in zip(scored.rollouts, report.verdicts, strict=True):
        row = {name: getattr(rollout, name) for name in ("rollout_id", "problem_id", "model")}
        by_class[verdict.diagnosis.value].append(row | {"reason": verdict.reason})
    return {
        name: [rows[at * len(rows) // count] for at in range(count)] if len(rows) > count else rows
        for name, rows in by_class.items()
    }


def examples_table(examples: dict[str, list[dict[str, str]]]) -> Table:
    """Return the examples of all classes."""
    headings = ("Class", "Rollout", "Model", "Reason")
    rows = [
        [
            Diagnosis(name).words,
            example["rollout_id"] or example["problem_id"],
            example["model"],
            example["reason"],
        ]
        for name, of_class in examples.items()
        for example in of_class
    ]
    return Table("Examples", [*map(words, headings)], [rows])


def diagnosis_notes(
    scored: ScoredSet, report: DiagnosisReport, rule: AnswerRule | None
) -> list[str]:
    """Return the notes below the table."""
    count = report.total.total() - report.total[Diagnosis.UNSCORED]
    notes = [f"shares are of the {count:,} scored rollouts, except for unscored: of all rollouts"]
    if rule is AnswerRule.AUTO or is_lenient(scored, rule):
        notes.append(
            "the rule auto accepts an answer in any form: to find format errors, set the rule that "
            "the prompt asked for, such as --answer-rule dapo"
        )
    first = scored.messages.items()
    return notes + [f"first {status}: {one_line(message, 200)}" for status, message in first]
