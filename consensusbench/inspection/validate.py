"""Validate a dataset: everything that can be found, told as it is found, in bounded memory.

The rows are read once for the schema and for the checks of each problem, whose nodes are
derived from afresh (in all cores) and matched in batches (likewise).  With rollouts they are
read once more, against a bounded sample and one counter a node.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

from consensusbench.inspection.findings import SEVERITY, Code, Finding, Severity
from consensusbench.inspection.match_checks import Examined, check_matches
from consensusbench.inspection.node_checks import Remark, check_node, pattern_of
from consensusbench.inspection.problem_checks import check_final, check_problem
from consensusbench.inspection.rollout_checks import check_rollouts
from consensusbench.inspection.schema import RowCounts, checked_problems
from consensusbench.probes import ProbeReport, ProbeSettings, probe_dataset
from consensusbench.probes.survey import survey_rollouts
from consensusbench.quiet import quiet_readers
from consensuspr.data import DataError, Node, OnError, Problem, Row
from consensuspr.errors import InputError
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.deriving import DeriveReport, derive_missing

CHUNK_PROBLEMS: Final = 256

# Makes the progress of one stage: what is done, and what is counted.
Progress = Callable[[str, str], AbstractContextManager[Callable[[int], None]]]


@dataclass(frozen=True, slots=True)
class ValidationSettings:
    """How to validate.

    Attributes:
        max_unrelated: share of other problems' rollouts that a node may hit, from 0 to 1.
        min_rollouts: of its own problem, from which on a node that none hits is told.
        probes: run the probes for reward hacking too.
        examples: findings of each code that the report keeps.
        on_error: what a bad row of the rollouts does; bad rows of the dataset are findings.
        threads: of matching, 0 for all cores.
        processes: child processes for deriving, None for the number of cores.

    Raises:
        InputError: max_unrelated is outside [0, 1], or min_rollouts below 1.
    """

    max_unrelated: float = 0.05
    min_rollouts: int = 3
    probes: bool = False
    examples: int = 3
    on_error: OnError = "stop"
    threads: int = 0
    processes: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.max_unrelated <= 1:
            raise InputError(f"max_unrelated must be from 0 to 1, got {self.max_unrelated}")
        if self.min_rollouts < 1:
            raise InputError(f"min_rollouts must be 1 or more, got {self.min_rollouts}")


@dataclass(slots=True)
class ValidationReport:
    """What was found, counted.

    Attributes:
        rows: good and bad rows of the dataset.
        nodes: of the good rows.
        counts: findings by code.
        examples: the first findings of each code.
        rollouts: rollouts looked at; None without rollouts.
        unknown_rollouts: of them, those whose problem the dataset does not have.
        probes: the probes' report where they were asked for.
    """

    rows: RowCounts = field(default_factory=RowCounts)
    nodes: int = 0
    counts: Counter[Code] = field(default_factory=Counter)
    examples: dict[Code, list[Finding]] = field(default_factory=lambda: defaultdict(list))
    rollouts: int | None = None
    unknown_rollouts: int = 0
    probes: ProbeReport | None = None

    def total(self, severity: Severity) -> int:
        """Return the number of findings of a severity."""
        return sum(n for code, n in self.counts.items() if SEVERITY[code] is severity)

    def fails(self, strict: bool = False) -> bool:
        """Say whether the dataset should not be used: errors, or warnings where strict."""
        return self.total(Severity.ERROR) > 0 or (strict and self.total(Severity.WARNING) > 0)

    def by_code(self) -> list[tuple[Code, int, list[Finding]]]:
        """Return code, count and examples, the worst severity and then the largest count first."""
        order = list(Severity)
        codes = sorted(self.counts, key=lambda c: (order.index(SEVERITY[c]), -self.counts[c], c))
        return [(code, self.counts[code], self.examples[code]) for code in codes]

    def to_json(self) -> dict[str, Any]:
        """Return the counts and examples as plain values."""
        return {
            "rows": self.rows.good + self.rows.bad,
            "bad_rows": self.rows.bad,
            "nodes": self.nodes,
            "rollouts": self.rollouts,
            "unknown_rollouts": self.unknown_rollouts,
            "severities": {severity.value: self.total(severity) for severity in Severity},
            "findings": [
                {
                    "code": code.value,
                    "severity": SEVERITY[code].value,
                    "count": count,
                    "examples": [finding.to_row() for finding in examples],
                }
                for code, count, examples in self.by_code()
            ],
            "probes": None if self.probes is None else self.probes.to_json(),
        }


@contextmanager
def _silent(what: str, unit: str) -> Iterator[Callable[[int], None]]:
    yield lambda done: None


def validate_dataset(
    dataset: str | os.PathLike[str],
    rollouts: Sequence[str | os.PathLike[str]] = (),
    settings: ValidationSettings = ValidationSettings(),
    *,
    tell: Callable[[Finding], None] = lambda finding: None,
    progress: Progress = _silent,
) -> ValidationReport:
    """Look a dataset over.

    Args:
        dataset: the file.
        rollouts: files of rollouts of its problems, for what only these can show.
        settings: how to validate.
        tell: takes every finding as it is made; the report keeps a few.
        progress: ``progress(what, unit)`` is the context of one stage.

    Raises:
        DataError: a file as a whole is bad, or a row of the rollouts with ``"stop"``.
    """
    report = ValidationReport()

    def found(finding: Finding) -> None:
        report.counts[finding.code] += 1
        kept = report.examples[finding.code]
        if len(kept) < settings.examples:
            kept.append(finding)
        tell(finding)

    with progress("validating", "problems") as advance_to:
        _check_nodes(dataset, report, settings, found, advance_to)
    if report.rows.good + report.rows.bad == 0:
        raise DataError(os.fspath(dataset), None, "holds no rows")
    if report.rows.unreadable == report.rows.good + report.rows.bad:
        raise DataError(
            os.fspath(dataset),
            None,
            f"is no dataset: none of its {report.rows.unreadable:,} lines is a row (the first "
            f"{report.rows.unreadable_because})",
        )
    if report.rows.good and (rollouts or settings.probes):
        _check_with_rollouts(dataset, rollouts, report, settings, found, progress)
    return report


def _check_nodes(
    dataset: str | os.PathLike[str],
    report: ValidationReport,
    settings: ValidationSettings,
    found: Callable[[Finding], None],
    advance_to: Callable[[int], None],
) -> None:
    examined = _examined(dataset, report.rows, found, settings)
    done = 0
    while chunk := list(islice(examined, CHUNK_PROBLEMS)):
        for one, fresh in chunk:
            report.nodes += len(one.nodes)
            for node_id, (code, message) in _remarks(one, fresh):
                found(Finding(code, message, one.line, one.problem.problem_id, node_id))
        for one, at, (code, message) in check_matches([one for one, _ in chunk], settings.threads):
            found(Finding(code, message, one.line, one.problem.problem_id, at))
        done += len(chunk)
        advance_to(done)


def _examined(
    dataset: str | os.PathLike[str],
    rows: RowCounts,
    found: Callable[[Finding], None],
    settings: ValidationSettings,
) -> Iterator[tuple[Examined, tuple[Node, ...]]]:
    """Yield each good problem with the forms in use, and its nodes derived from afresh."""

    def bare() -> Iterator[tuple[Problem, Row]]:
        for line, problem in checked_problems(dataset, rows, found):
            nodes = tuple(replace(node, derived=None) for node in problem.nodes)
            yield replace(problem, nodes=nodes), {"line": line, "problem": problem}

    for derived, origin in derive_missing(bare(), DeriveReport(), settings.processes):
        problem: Problem = origin["problem"]
        nodes = tuple(
            fresh if node.derived is None else node
            for node, fresh in zip(problem.nodes, derived.nodes, strict=True)
        )
        yield Examined(origin["line"], problem, nodes), derived.nodes


def _remarks(one: Examined, fresh: Sequence[Node]) -> Iterator[tuple[str | None, Remark]]:
    for remark in check_problem(one.problem, one.nodes):
        yield None, remark
    yield from check_final(one.problem, one.nodes)
    for node, used, derived in zip(one.problem.nodes, one.nodes, fresh, strict=True):
        for remark in check_node(node, used.derived or ()):
            yield node.node_id, remark
        for remark in _check_derived(node, derived):
            yield node.node_id, remark


def _check_derived(node: Node, fresh: Node) -> Iterator[Remark]:
    """Yield whether a node lacks the equal forms that this version makes of it."""
    made = {pattern_of(text) for text in fresh.derived or ()}
    if node.derived is None:
        if made:
            yield (
                Code.DERIVED_ABSENT,
                f"stores no derived forms, {len(made)} are made each time the dataset is loaded: "
                "run consensuspr derive once",
            )
        return
    stored = {pattern_of(text) for text in (*node.derived, *node.expressions)}
    missing = made - stored
    if missing:
        yield (
            Code.DERIVED_DIFFER,
            f"stores {len(node.derived)} derived forms and lacks {len(missing)} that this version "
            "makes: run consensuspr derive --again unless they were left out on purpose",
        )


def _check_with_rollouts(
    dataset: str | os.PathLike[str],
    rollouts: Sequence[str | os.PathLike[str]],
    report: ValidationReport,
    settings: ValidationSettings,
    found: Callable[[Finding], None],
    progress: Progress,
) -> None:
    # What the log would say of the dataset is a finding already.
    with quiet_readers():
        index = DatasetIndex.load(dataset, on_error="skip", processes=settings.processes)
    with progress("reading", "rollouts") if rollouts else nullcontext(lambda done: None) as tell:
        survey = survey_rollouts(
            rollouts, index, threads=settings.threads, on_error=settings.on_error, progress=tell
        )
    if rollouts:
        report.rollouts = survey.read.rows
        report.unknown_rollouts = survey.unknown
        done = 0
        with progress("comparing", "problems") as advance_to:
            for count, findings in check_rollouts(
                _indexed(dataset, index),
                survey,
                max_unrelated=settings.max_unrelated,
                min_rollouts=settings.min_rollouts,
                threads=settings.threads,
            ):
                for finding in findings:
                    found(finding)
                done += count
                advance_to(done)
    if settings.probes:
        probing = ProbeSettings(threads=settings.threads, on_error="skip")
        with quiet_readers(), progress("probing", "problems") as advance_to:
            report.probes = probe_dataset(
                dataset, None, probing, index=index, survey=survey, progress=advance_to
            )


def _indexed(dataset: str | os.PathLike[str], index: DatasetIndex) -> Iterable[Examined]:
    """Yield the problems with nodes, with the derived forms that the index holds."""
    for line, problem in checked_problems(dataset, RowCounts(), lambda finding: None):
        entry = index.entry(problem.problem_id)
        assert entry is not None, "the index is of this dataset"
        if entry.num_nodes:
            yield Examined(line, problem, entry.nodes)
