"""Validate a dataset: its rows, its nodes, and how cheaply nodes can be hit.

Findings come as they are found, in bounded memory.  Rows are read once for the schema and the
checks of each problem.  With rollouts they are read once more, against a bounded sample and one
counter a node.

An *error* makes scores wrong or a node worthless.  A *warning* makes a reward cheaper or noisier
than it looks.  A *note* matters to a reader of the figures.  ``docs/guides/check-nodes.md``
lists the remedies.
"""

from __future__ import annotations

import os
import re
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from fractions import Fraction
from itertools import islice
from typing import Any, Final, NamedTuple, Self, TypeAlias

import numpy as np

from consensusbench import quiet_readers
from consensusbench.evaluation.scored import Bools
from consensusbench.extraction.statements import states_answer
from consensusbench.extraction.wordings import Fault, fault_of, merged_values, named_value
from consensusbench.quality.attacks import LAST_ENUMERATED, numbers_in, prose, values
from consensusbench.quality.probes import ProbeReport, chunks_by_source, probe_dataset
from consensusbench.quality.survey import (
    RolloutSurvey,
    Sources,
    match_unrelated,
    survey_rollouts,
)
from consensuspr.core import Matcher, match_batch, normalize
from consensuspr.data import DataError, Node, OnError, Problem, Row, parse_problem, read_rows
from consensuspr.data.readers import WholeFile
from consensuspr.data.schema import ROLLOUTS_FOR_PROBLEMS, is_rollout
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.derive import DeriveReport, derive_missing
from consensuspr.scoring.matchers import matcher_of

# A bare number of fewer digits hits every twentieth solution of another GSM8K problem.
# Code.BARE_VALUE names the limit.
DISTINCTIVE_DIGITS: Final = 3
# Share of other problems' rollouts that a node may hit, and how many are needed.
MAX_UNRELATED: Final = 0.05
MIN_UNRELATED: Final = 20
# Held-out right rollouts of its problem from which on a node that none hits is reported.
MIN_ROLLOUTS: Final = 3
# A number of the problem that a node names; a digit may well be a conclusion.
MIN_GIVEN: Final = 10
# Ways to write one node that are matched, so that a hostile dataset cannot make pairs explode.
MAX_TEXTS: Final = 64

_CHUNK_MATCHED: Final = 256
_NO_ROWS: Final = "holds no rows"
# Stripped from the ends of an expression; nothing left means no pattern.
_SET_ASIDE: Final = " .,;:?"
_BARE: Final = re.compile(r"[=≈]?-?(\d+(?:\.\d+)?(?:/\d+)?)")
# Cheap texts that must hit no node, and their names in a finding.
_PRINTED: Final = [
    (prose(values()), 'lines such as "=96"'),
    (", ".join(map(str, range(LAST_ENUMERATED + 1))), "0, 1, … 300"),
]


class Severity(StrEnum):
    """How bad a finding is, the worst first."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


_E, _W, _N = Severity


class Unit(StrEnum):
    """What a finding is about."""

    ROW = "row"
    PROBLEM = "problem"
    NODE = "node"
    DATASET = "dataset"


_DATA, _ROW, _PROBLEM, _NODE = Unit.DATASET, Unit.ROW, Unit.PROBLEM, Unit.NODE


class Code(StrEnum):
    """A kind of finding: its severity, what it is about, and its message for ``str.format``."""

    severity: Severity
    unit: Unit
    message: str

    def __new__(cls, value: str, severity: Severity, unit: Unit, message: str) -> Self:
        code = str.__new__(cls, value)
        code._value_ = value
        code.severity = severity
        code.unit = unit
        code.message = message
        return code

    SCHEMA = "schema", _E, _ROW, "{}"
    UNMATCHABLE_NODE = (
        "unmatchable_node",
        _E,
        _NODE,
        "cannot match: every expression is empty in normal form",
    )
    SINGLE_CHARACTER = "single_character", _E, _NODE, "has an expression of one character"
    DUPLICATE_NODES = "duplicate_nodes", _E, _NODE, "states the same as {}"
    FALSE_EQUALITY = "false_equality", _E, _NODE, "has a false expression"
    GARBLED = "garbled", _W, _NODE, "has an expression with {}"
    MERGED_VALUES = "merged_values", _W, _NODE, "merges expressions that share only a small value"
    ECHO = "echo", _W, _NODE, "restates the problem"
    BARE_VALUE = "bare_value", _W, _NODE, "has a bare value of one or two digits"
    ENUMERABLE = "enumerable", _W, _NODE, "is matched by printing {}"
    IMPLIED_NODE = "implied_node", _W, _NODE, "is matched by every expression of {}"
    NEVER_MATCHED = "never_matched", _W, _NODE, "is matched by none of {} held-out right rollouts"
    UNRELATED_MATCH = "unrelated_match", _W, _NODE, "is matched by {:.1f} % of other rollouts"
    UNMARKED_FINAL = "unmarked_final", _W, _NODE, "states {} and is not final"
    FINAL_NOT_ANSWER = "final_not_answer", _W, _NODE, "is final and does not state {}"
    NO_FINAL_NODE = "no_final_node", _W, _PROBLEM, "has no node that states the answer"
    NO_NODES = "no_nodes", _W, _PROBLEM, "has no nodes"
    NO_GROUND_TRUTH = "no_ground_truth", _W, _PROBLEM, "has no ground_truth"
    PARTIAL_WEIGHTS = "partial_weights", _W, _PROBLEM, "has weights for {} of {} nodes"
    CHEAP_ATTACK = "cheap_attack", _W, _DATA, "{}"
    SEVERAL_FINAL_NODES = "several_final_nodes", _N, _PROBLEM, "has {} final nodes"
    NO_PROBLEM_TEXT = "no_problem_text", _N, _PROBLEM, "has no text"


@dataclass(frozen=True, slots=True)
class DatasetFinding:
    """One finding.

    Attributes:
        code: its kind.
        message: what is found, of the node or the problem.
        line: of the dataset; 0 stands for the dataset itself.
        problem_id, node_id: None if it is of no problem, or of no single node.
        text: what it is about: wordings, or the first wording of the node.
        weight: how bad it is among its kind; the worst are the report's examples.
    """

    code: Code
    message: str
    line: int
    problem_id: str | None = None
    node_id: str | None = None
    text: str = ""
    weight: float = 0.0

    def to_row(self) -> Row:
        """Return the finding as a row of ``validate --output``."""
        row: Row = {"severity": self.code.severity.value} | asdict(self)
        del row["weight"]
        return row | {"code": self.code.value}


# Takes each finding as it is made.
OnFinding: TypeAlias = Callable[[DatasetFinding], None]
# Makes the progress bar of one stage, from its name and the unit that it counts.
Progress: TypeAlias = Callable[[str, str], AbstractContextManager[Callable[[int], None]]]


class Remark(NamedTuple):
    """A finding in the making: ``node`` is None for the problem as a whole."""

    node: Node | None
    code: Code
    values: tuple[object, ...] = ()
    text: str = ""
    weight: float = 0.0


@dataclass(slots=True)
class ValidationReport:
    """Counts of findings, with the worst examples of each.

    ``rollouts`` is None without rollouts; ``compared`` are the nodes of problems that have enough
    held-out ones.
    """

    good_rows: int = 0
    bad_rows: int = 0
    nodes: int = 0
    counts: Counter[Code] = field(default_factory=Counter)
    examples: dict[Code, list[DatasetFinding]] = field(default_factory=lambda: defaultdict(list))
    rollouts: int | None = None
    unknown_rollouts: int = 0
    compared: int = 0
    probes: ProbeReport | None = None

    def total(self, severity: Severity) -> int:
        """Return the number of findings of a severity."""
        return sum(n for code, n in self.counts.items() if code.severity is severity)

    def fails(self, strict: bool = False) -> bool:
        """Return whether there are errors, or warnings if strict."""
        return self.total(Severity.ERROR) > 0 or (strict and self.total(Severity.WARNING) > 0)

    def add(self, finding: DatasetFinding, examples: int) -> None:
        """Count a finding, and keep it if it is among so many worst ones."""
        self.counts[finding.code] += 1
        self.bad_rows += finding.code is Code.SCHEMA
        kept = self.examples[finding.code]
        # Of equally bad ones the first are kept.
        kept.insert(bisect(kept, -finding.weight, key=lambda one: -one.weight), finding)
        del kept[examples:]

    def of(self, code: Code) -> int | None:
        """Return out of how many nodes or problems there are findings of a kind."""
        if code is Code.NEVER_MATCHED:
            return self.compared
        totals = {Unit.NODE: self.nodes, Unit.PROBLEM: self.good_rows}
        return totals.get(code.unit)

    def by_code(self) -> list[tuple[Code, int, list[DatasetFinding]]]:
        """Return code, count and examples, the worst severity and then the largest count first."""
        order = list(Severity)
        codes = sorted(self.counts, key=lambda c: (order.index(c.severity), -self.counts[c], c))
        return [(code, self.counts[code], self.examples[code]) for code in codes]

    def to_json(self) -> dict[str, Any]:
        """Return the counts and examples as plain values."""
        return {
            "rows": self.good_rows + self.bad_rows,
            "bad_rows": self.bad_rows,
            "nodes": self.nodes,
            "rollouts": self.rollouts,
            "unknown_rollouts": self.unknown_rollouts,
            "nodes_compared": self.compared,
            "severities": {severity.value: self.total(severity) for severity in Severity},
            "findings": [
                {
                    "code": code.value,
                    "severity": code.severity.value,
                    "count": count,
                    "of": self.of(code),
                    "examples": [finding.to_row() for finding in examples],
                }
                for code, count, examples in self.by_code()
            ],
            "probes": None if self.probes is None else self.probes.to_json(),
        }


def validate_dataset(
    dataset: str | os.PathLike[str],
    rollouts: Sequence[str | os.PathLike[str]] = (),
    *,
    probes: bool = False,
    examples: int = 3,
    on_error: OnError = "stop",
    processes: int | None = None,
    on_finding: OnFinding = lambda finding: None,
    progress: Progress = lambda stage, unit: nullcontext(lambda done: None),
) -> ValidationReport:
    """Validate a dataset.

    Args:
        rollouts: files of rollouts of its problems.
        probes: also measure attacks.
        examples: of each kind, the worst ones that the report keeps.
        on_error: about bad rows of rollouts.
        processes: that derive forms; None for the number of cores.
        on_finding: takes every finding as it is made; the report keeps a few.
        progress: ``progress(stage, unit)`` is the context of one stage.

    Raises:
        DataError: a file as a whole is bad, or a row of the rollouts with ``"stop"``.
    """
    report = ValidationReport()

    def add(finding: DatasetFinding) -> None:
        report.add(finding, examples)
        on_finding(finding)

    sources: dict[str, Sources] = {}

    with progress("validating", "problems") as advance_to:
        rows = ((problem, {"line": line}) for line, problem in checked_problems(dataset, add))
        derived = derive_missing(rows, DeriveReport(), processes)
        while chunk := [Examined(row["line"], p) for p, row in islice(derived, _CHUNK_MATCHED)]:
            for examined in chunk:
                report.nodes += len(examined.problem.nodes)
                if rollouts:
                    sources[examined.problem.problem_id] = Sources.of(examined.problem)
                for remark in check_problem(examined.problem):
                    add(examined.finding(remark))
            for finding in check_matches(chunk):
                add(finding)
            report.good_rows += len(chunk)
            advance_to(report.good_rows)
    if not report.good_rows or not (rollouts or probes):
        return report

    with quiet_readers():  # bad rows are findings already
        index = DatasetIndex.load(dataset, on_error="skip", processes=processes)
    with progress("reading", "rollouts") if rollouts else nullcontext(lambda done: None) as read:
        survey = survey_rollouts(rollouts, index, sources=sources, on_error=on_error, progress=read)
    if rollouts:
        report.rollouts, report.unknown_rollouts = survey.rows, survey.unknown
        done = 0
        with progress("comparing", "problems") as advance_to:
            for source, chunk in chunks_by_source(_with_nodes(dataset, index)):
                for finding in check_rollouts(chunk, source, survey):
                    add(finding)
                report.compared += sum(
                    len(one.problem.nodes)
                    for one in chunk
                    if (own := survey.own.get(one.problem.problem_id)) is not None
                    and own.rollouts >= MIN_ROLLOUTS
                )
                done += len(chunk)
                advance_to(done)
    if probes:
        with quiet_readers(), progress("probing", "problems") as advance_to:
            report.probes = probe_dataset(
                dataset, on_error="skip", index=index, survey=survey, progress=advance_to
            )
        for attack in report.probes.cheap:
            add(DatasetFinding(Code.CHEAP_ATTACK, attack.sentence(), 0))
    return report


def checked_problems(
    path: str | os.PathLike[str], on_finding: OnFinding
) -> Iterator[tuple[int, Problem]]:
    """Yield line and problem of every good row; report the faults of the others.

    Raises:
        DataError: the file as a whole is bad.
    """
    name = os.fspath(path)
    whole = WholeFile()
    readable, reason = False, _NO_ROWS
    for line, row in read_rows(name, ("problem_id", "nodes")):
        try:
            if isinstance(row, DataError):
                raise row
            if is_rollout(row) and not readable:
                reason = ROLLOUTS_FOR_PROBLEMS
                break
            readable = True
            problem = parse_problem(row, name, line)
            whole.check(problem, name, line)
        except DataError as fault:
            problem_id = row.get("problem_id") if isinstance(row, dict) else None
            shown = problem_id[:1024] if isinstance(problem_id, str) and problem_id else None
            if reason == _NO_ROWS:
                reason = f"is not a dataset: no line is a row (the first {fault.reason})"
            on_finding(DatasetFinding(Code.SCHEMA, fault.reason, line, shown))
        else:
            yield line, problem
    if not readable:
        raise DataError(name, None, reason)


@dataclass(frozen=True, slots=True)
class Examined:
    """A problem with the derived forms that its nodes are matched by, and its line."""

    line: int
    problem: Problem

    @property
    def patterns(self) -> list[tuple[str, ...]]:
        """The expressions of each node, derived ones included."""
        return [node.expressions + (node.derived or ()) for node in self.problem.nodes]

    def finding(self, remark: Remark) -> DatasetFinding:
        """Return a remark about this problem as a finding."""
        node, code, values, text, weight = remark
        node_id = None if node is None else node.node_id
        text = text or ("" if node is None else node.expressions[0])
        message = code.message.format(*values)
        problem_id = self.problem.problem_id
        return DatasetFinding(code, message, self.line, problem_id, node_id, text, weight)


def check_problem(problem: Problem) -> Iterator[Remark]:
    """Yield the remarks that need no matching."""
    nodes = problem.nodes
    if not nodes:
        yield Remark(None, Code.NO_NODES)
    if problem.ground_truth is None:
        yield Remark(None, Code.NO_GROUND_TRUTH)
    if not problem.problem.strip():
        yield Remark(None, Code.NO_PROBLEM_TEXT)
    yield from _check_final(problem)
    weighted = sum(node.weight is not None for node in nodes)
    if 0 < weighted < len(nodes):
        yield Remark(None, Code.PARTIAL_WEIGHTS, (weighted, len(nodes)))
    for node in nodes:
        yield from _check_patterns(node)
        yield from _check_wordings(node)


def _check_final(problem: Problem) -> Iterator[Remark]:
    """Yield which nodes state the final answer and are not marked so, and the reverse."""
    nodes, truth = problem.nodes, problem.ground_truth
    finals = [node.node_id for node in nodes if node.is_final]
    unmarked = False
    for node in nodes if truth is not None else ():
        states = [text for text in node.expressions if states_answer(text, truth)]
        answer = (f"the answer {truth!r:.40}",)
        if states and not node.is_final:
            unmarked = True
            yield Remark(node, Code.UNMARKED_FINAL, answer, states[0])
        elif node.is_final and not states:
            yield Remark(node, Code.FINAL_NOT_ANSWER, answer)
    if nodes and not finals and not unmarked:
        yield Remark(None, Code.NO_FINAL_NODE, text=truth or "")
    if len(finals) > 1:
        yield Remark(None, Code.SEVERAL_FINAL_NODES, (len(finals),), ", ".join(finals))


def _check_patterns(node: Node) -> Iterator[Remark]:
    texts = (*node.expressions, *(node.derived or ()))
    patterns = {text: normalize(text).strip(_SET_ASIDE) for text in texts}
    if not any(patterns.values()):
        yield Remark(node, Code.UNMATCHABLE_NODE)
        return
    # A box holds the answer alone, whatever it is.
    patterns = {text: made for text, made in patterns.items() if "\\boxed" not in text}
    if single := [text for text, pattern in patterns.items() if len(pattern) == 1]:
        yield Remark(node, Code.SINGLE_CHARACTER, text=single[0])
    if bare := [text for text, made in patterns.items() if len(made) > 1 and _is_small(made)]:
        yield Remark(node, Code.BARE_VALUE, text=bare[0])


def _is_small(pattern: str) -> bool:
    if (value := _BARE.fullmatch(pattern)) is None:
        return False
    return len(re.sub("[./]", "", value[1]).lstrip("0")) < DISTINCTIVE_DIGITS


def _check_wordings(node: Node) -> Iterator[Remark]:
    """Yield which wordings are false or garbled, and whether they are of one conclusion."""
    faults = {text: fault for text in node.expressions if (fault := fault_of(text)) is not None}
    share = len(faults) / len(node.expressions)
    false = [text for text, fault in faults.items() if fault is Fault.FALSE]
    if false:
        yield Remark(node, Code.FALSE_EQUALITY, (), false[0], share)
    if garbled := [text for text in faults if text not in false]:
        yield Remark(node, Code.GARBLED, (faults[garbled[0]],), garbled[0], share)
    if (pair := merged_values(node.expressions)) is not None:
        yield Remark(node, Code.MERGED_VALUES, (), " | ".join(pair), len(node.expressions))


def check_matches(chunk: Sequence[Examined]) -> Iterator[DatasetFinding]:
    """Yield which nodes the texts of their problems hit, all matched in one batch.

    Every node is looked for in its problem's text, in cheap texts, and in all expressions of the
    problem's nodes.
    """
    jobs: list[tuple[Matcher, str]] = []
    for examined in chunk:
        matcher = matcher_of(examined.problem.nodes)
        jobs.append((matcher, examined.problem.problem))
        jobs += [(matcher, text) for text, _ in _PRINTED]
        jobs += [(matcher, text) for node in examined.patterns for text in node[:MAX_TEXTS]]
    found = match_batch([job[0] for job in jobs], [job[1] for job in jobs])
    results = (found.matched(row) for row in range(len(jobs)))
    for examined in chunk:
        nodes = examined.problem.nodes
        echoed, *printed = islice(results, 1 + len(_PRINTED))
        hits = [np.array(list(islice(results, min(len(n), MAX_TEXTS)))) for n in examined.patterns]
        given = set(numbers_in(examined.problem.problem))
        for place, node in enumerate(nodes):
            if echoed[place]:
                hit = matcher_of([node]).hits(examined.problem.problem)[0]
                yield examined.finding(Remark(node, Code.ECHO, text=hit.expression if hit else ""))
            elif _names_given(node, given):
                yield examined.finding(Remark(node, Code.ECHO))
            by = [shown for (_, shown), hit in zip(_PRINTED, printed, strict=True) if hit[place]]
            if by:
                yield examined.finding(Remark(node, Code.ENUMERABLE, (by[0],)))
        for remark in _same_nodes(nodes, hits):
            yield examined.finding(remark)


def _names_given(node: Node, given: Container[Fraction]) -> bool:
    """Tell whether a node names numbers of the problem, as ``R = 11`` does; a digit may be new."""
    values = [named_value(text) for text in node.expressions[:MAX_TEXTS]]
    return all(value is not None and value >= MIN_GIVEN and value in given for value in values)


def _same_nodes(nodes: Sequence[Node], hits: Sequence[Bools]) -> Iterator[Remark]:
    """Yield which nodes are hit by every expression of others.

    Args:
        nodes: of one problem.
        hits: for each node (texts, nodes): which nodes each way to write it hits.
    """
    always = np.array([of_node.all(axis=0) for of_node in hits])
    # Rollouts mostly write a node as its expressions do, not as its derived forms.
    written: Bools = np.array(
        [hit[: len(node.expressions)].all(axis=0) for node, hit in zip(nodes, hits, strict=True)]
    )
    for place, node in enumerate(nodes):
        for at, other in enumerate(nodes):
            if at == place or not written[at, place]:
                continue
            if not (always[at, place] and always[place, at]):
                yield Remark(node, Code.IMPLIED_NODE, (other.node_id,))
            elif at < place:
                yield Remark(node, Code.DUPLICATE_NODES, (other.node_id,))


def check_rollouts(
    chunk: Sequence[Examined], source: str, survey: RolloutSurvey
) -> Iterator[DatasetFinding]:
    """Yield which nodes of one source others' rollouts hit, and which no right one of their own."""
    sample = survey.samples.get(source, [])
    problems = [(one.problem.problem_id, one.problem.nodes) for one in chunk]
    for examined, hits in zip(chunk, match_unrelated(problems, sample), strict=True):
        nodes = examined.problem.nodes
        if len(hits) >= MIN_UNRELATED:
            for node, rate in zip(nodes, hits.mean(axis=0).tolist(), strict=True):
                if rate > MAX_UNRELATED:
                    remark = Remark(node, Code.UNRELATED_MATCH, (100 * rate,), weight=rate)
                    yield examined.finding(remark)
        own = survey.own.get(examined.problem.problem_id)
        if own is not None and own.rollouts >= MIN_ROLLOUTS:
            for node, times in zip(nodes, own.hits, strict=True):
                if not times:
                    count = own.rollouts
                    yield examined.finding(Remark(node, Code.NEVER_MATCHED, (count,), weight=count))


def _with_nodes(
    dataset: str | os.PathLike[str], index: DatasetIndex
) -> Iterator[tuple[str, Examined]]:
    """Yield the problems with nodes, with the index's derived forms, and their sources."""
    for line, problem in checked_problems(dataset, lambda finding: None):
        entry = index.entry(problem.problem_id)
        assert entry is not None, "the index is of this dataset"
        if entry.num_nodes:
            problem.nodes = entry.nodes
            yield problem.data_source, Examined(line, problem)
