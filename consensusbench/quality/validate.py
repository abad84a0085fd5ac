"""Validate a dataset: its rows, its nodes, and how cheaply nodes can be hit.

Findings come as they are found, in bounded memory.  Rows are read once for the schema and the
checks of each problem.  With rollouts they are read once more, against a bounded sample and one
counter a node.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, TypeAlias

import numpy as np

from consensusbench.evaluation.scored import Bools
from consensusbench.extraction.statements import Truth, states_answer, truth_of
from consensusbench.quality.attacks import LAST_ENUMERATED, enumeration
from consensusbench.quality.findings import (
    DISTINCTIVE_DIGITS,
    LOW_SUPPORT,
    MAX_NODES,
    MIN_NODES,
    Code,
    DatasetFinding,
    Severity,
)
from consensusbench.quality.probes import (
    ProbeReport,
    ProbeSettings,
    chunks_by_source,
    probe_dataset,
)
from consensusbench.quality.survey import (
    RolloutSurvey,
    hit_rates,
    match_unrelated,
    survey_rollouts,
)
from consensusbench.quiet import quiet_readers
from consensuspr.console import count_of
from consensuspr.core import Matcher, match_batch, normalize
from consensuspr.core.expressions import novel_forms
from consensuspr.data import (
    DataError,
    Node,
    OnError,
    Problem,
    Row,
    WholeFile,
    parse_problem,
    read_rows,
)
from consensuspr.data.schema import ROLLOUTS_FOR_PROBLEMS, is_rollout
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.derive import DeriveReport, derive_missing
from consensuspr.scoring.types import DEFAULT_LIMITS

# Share of other problems' rollouts that a node may hit, and how many it takes to tell.
MAX_UNRELATED: Final = 0.05
MIN_UNRELATED: Final = 20
# Rollouts of its problem from which on a node that none hits is reported.
MIN_ROLLOUTS: Final = 3
# Ways to write one node that are matched, so that a hostile dataset cannot make pairs explode.
MAX_TEXTS: Final = 64

_CHUNK_MATCHED: Final = 256
_NO_ROWS: Final = "holds no rows"


@dataclass(frozen=True, slots=True)
class ValidationSettings:
    """Settings of a validation; ``processes`` derive, None for the number of cores."""

    probes: bool = False
    examples: int = 3
    on_error: OnError = "stop"
    threads: int = 0
    processes: int | None = None


@dataclass(slots=True)
class ValidationReport:
    """Counts of what was found, with a few examples; ``rollouts`` is None without rollouts."""

    good_rows: int = 0
    bad_rows: int = 0
    nodes: int = 0
    counts: Counter[Code] = field(default_factory=Counter)
    examples: dict[Code, list[DatasetFinding]] = field(default_factory=lambda: defaultdict(list))
    rollouts: int | None = None
    unknown_rollouts: int = 0
    probes: ProbeReport | None = None

    def total(self, severity: Severity) -> int:
        """Return the number of findings of a severity."""
        return sum(n for code, n in self.counts.items() if code.severity is severity)

    def fails(self, strict: bool = False) -> bool:
        """Return whether there are errors, or warnings if strict."""
        return self.total(Severity.ERROR) > 0 or (strict and self.total(Severity.WARNING) > 0)

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
            "severities": {severity.value: self.total(severity) for severity in Severity},
            "findings": [
                {
                    "code": code.value,
                    "severity": code.severity.value,
                    "count": count,
                    "examples": [finding.to_row() for finding in examples],
                }
                for code, count, examples in self.by_code()
            ],
            "probes": None if self.probes is None else self.probes.to_json(),
        }


def checked_problems(
    path: str | os.PathLike[str], tell: Callable[[DatasetFinding], None]
) -> Iterator[tuple[int, Problem]]:
    """Yield line and problem of every good row; tell the faults of the others.

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
            tell(DatasetFinding(Code.SCHEMA, fault.reason, line, shown))
        else:
            yield line, problem
    if not readable:
        raise DataError(name, None, reason)


# Node id (None for the problem as a whole), code, and values of its message.
Remark: TypeAlias = tuple[str | None, Code, *tuple[object, ...]]

# What a matcher takes off the ends of an expression; nothing left means no pattern.
_SET_ASIDE: Final = " .,;:?"
_BARE: Final = re.compile(r"[=≈]?-?(\d+(?:\.\d+)?(?:/\d+)?)")


@dataclass(frozen=True, slots=True)
class Examined:
    """A problem, its line, and its nodes with the derived forms that they are matched by."""

    line: int
    problem: Problem
    nodes: tuple[Node, ...]

    @property
    def patterns(self) -> list[tuple[str, ...]]:
        """The expressions of each node, derived ones included."""
        return [node.expressions + (node.derived or ()) for node in self.nodes]

    def finding(self, node_id: str | None, code: Code, *values: object) -> DatasetFinding:
        """Return a remark about this problem as a finding."""
        message = code.message.format(*values)
        return DatasetFinding(code, message, self.line, self.problem.problem_id, node_id)


def check_problem(one: Examined, fresh: Sequence[Node]) -> Iterator[Remark]:
    """Yield what can be said without matching; ``fresh`` nodes have newly derived forms."""
    problem, nodes = one.problem, one.nodes
    if not nodes:
        yield None, Code.NO_NODES
    if problem.ground_truth is None:
        yield None, Code.NO_GROUND_TRUTH
    if not problem.problem.strip():
        yield None, Code.NO_PROBLEM_TEXT
    if nodes and not MIN_NODES <= len(nodes) <= MAX_NODES:
        yield None, Code.NODE_COUNT, count_of(len(nodes), "node"), 1 / len(nodes)
    yield from _check_limits(nodes)
    yield from _check_final(problem, nodes)
    yield from _check_weights(nodes)
    for node, used, derived in zip(problem.nodes, nodes, fresh, strict=True):
        yield from _check_patterns(node, used.derived or ())
        yield from _check_arithmetic(node)
        yield from _check_derived(node, derived)
        if node.support is not None and node.support < LOW_SUPPORT:
            yield node.node_id, Code.LOW_SUPPORT, node.support


def _check_limits(nodes: Sequence[Node]) -> Iterator[Remark]:
    """Yield the first limit for nodes that travel with a request which these nodes exceed."""
    limits = DEFAULT_LIMITS
    texts = [(*node.expressions, *(node.derived or ())) for node in nodes]
    sizes = [len(text.encode("utf-8", "surrogatepass")) for of in texts for text in of]
    for what, value, limit in (
        ("nodes", len(nodes), limits.max_inline_nodes),
        ("expressions in one node", max(map(len, texts), default=0),
         limits.max_expressions_per_node),
        ("bytes in one expression", max(sizes, default=0), limits.max_expression_bytes),
        ("bytes of expressions", sum(sizes), limits.max_inline_bytes),
    ):  # fmt: skip
        if value > limit:
            yield None, Code.INLINE_LIMIT, value, what, limit
            return


def _check_final(problem: Problem, nodes: Sequence[Node]) -> Iterator[Remark]:
    """Yield which nodes state the final answer and are not marked so, and the reverse."""
    finals = [node.node_id for node in nodes if node.is_final]
    unmarked = False
    for node in nodes if problem.ground_truth is not None else ():
        states = any(states_answer(text, problem.ground_truth) for text in node.expressions)
        answer = f"the ground truth {problem.ground_truth!r:.60}"
        if states and not node.is_final:
            unmarked = True
            yield node.node_id, Code.UNMARKED_FINAL, answer
        elif node.is_final and not states:
            yield node.node_id, Code.FINAL_NOT_ANSWER, answer
    if nodes and not finals and not unmarked:
        yield None, Code.NO_FINAL_NODE
    if len(finals) > 1:
        yield None, Code.SEVERAL_FINAL_NODES, len(finals), ", ".join(finals)


def _check_weights(nodes: Sequence[Node]) -> Iterator[Remark]:
    weighted = [node for node in nodes if node.weight is not None]
    if 0 < len(weighted) < len(nodes):
        yield None, Code.PARTIAL_WEIGHTS, len(weighted), len(nodes)
    inner = [node.weight for node in weighted if not node.is_final]
    if inner and not any(inner):
        yield None, Code.ZERO_WEIGHTS


def _check_patterns(node: Node, derived: Sequence[str]) -> Iterator[Remark]:
    patterns = {text: normalize(text).strip(_SET_ASIDE) for text in (*node.expressions, *derived)}
    if not any(patterns.values()):
        yield node.node_id, Code.UNMATCHABLE_NODE, _quoted(node.expressions[0])
        return
    if empty := [text for text in node.expressions if not patterns[text]]:
        yield node.node_id, Code.EMPTY_EXPRESSION, _quoted(empty[0])
    if single := [text for text, pattern in patterns.items() if len(pattern) == 1]:
        yield node.node_id, Code.SINGLE_CHARACTER, _quoted(single[0])
    if bare := [text for text, made in patterns.items() if len(made) > 1 and _is_small(made)]:
        yield node.node_id, Code.BARE_VALUE, _quoted(bare[0])


def _is_small(pattern: str) -> bool:
    found = _BARE.fullmatch(pattern)
    if found is None:
        return False
    digits = found[1].replace(".", "").replace("/", "").lstrip("0")
    return len(digits) < DISTINCTIVE_DIGITS


def _check_arithmetic(node: Node) -> Iterator[Remark]:
    truths = {text: truth_of(text) for text in node.expressions}
    if false := [text for text, truth in truths.items() if truth is Truth.FALSE]:
        yield node.node_id, Code.FALSE_EQUALITY, _quoted(false[0])
    rounded = [text for text, truth in truths.items() if truth is Truth.ROUNDED]
    if rounded and Truth.TRUE not in truths.values():
        yield node.node_id, Code.ROUNDED_EQUALITY, _quoted(rounded[0])


def _check_derived(node: Node, fresh: Node) -> Iterator[Remark]:
    made = fresh.derived or ()
    if node.derived is None:
        if made:
            yield node.node_id, Code.DERIVED_ABSENT, len(made)
    elif missing := [*novel_forms((*node.expressions, *node.derived), made)]:
        yield node.node_id, Code.DERIVED_DIFFER, len(node.derived), len(missing)


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:59] + "…")


# Cheap texts that no node may be hit by, and their names in a finding.
_PRINTED: Final = [
    (enumeration(1 << 12), '"=0" to "=300"'),
    (", ".join(map(str, range(LAST_ENUMERATED + 1))), "0, 1, … 300"),
]


def check_matches(chunk: Sequence[Examined], threads: int) -> Iterator[DatasetFinding]:
    """Yield what matching says about the nodes of problems, matched in one batch.

    Every node is looked for in its problem's text, in cheap texts, and in all expressions of the
    problem's nodes.
    """
    jobs: list[tuple[Matcher, str]] = []
    for one in chunk:
        matcher = Matcher(one.patterns)
        jobs.append((matcher, one.problem.problem))
        jobs += [(matcher, text) for text, _ in _PRINTED]
        jobs += [(matcher, text) for node in one.patterns for text in node[:MAX_TEXTS]]
    found = match_batch([job[0] for job in jobs], [job[1] for job in jobs], threads=threads)
    results = (found.matched(row) for row in range(len(jobs)))
    for one in chunk:
        echoed, *printed = islice(results, 1 + len(_PRINTED))
        hits = [np.array(list(islice(results, min(len(n), MAX_TEXTS)))) for n in one.patterns]
        for place, node in enumerate(one.nodes):
            if echoed[place]:
                yield one.finding(node.node_id, Code.ECHO)
            by = [shown for (_, shown), hit in zip(_PRINTED, printed, strict=True) if hit[place]]
            if by:
                yield one.finding(node.node_id, Code.ENUMERABLE, by[0])
        for remark in _collisions(one.nodes, hits):
            yield one.finding(*remark)


def _collisions(nodes: Sequence[Node], hits: Sequence[Bools]) -> Iterator[Remark]:
    """Yield which nodes are hit by the text of others.

    Args:
        nodes: of one problem.
        hits: for each node (texts, nodes): which nodes each way to write it hits.
    """
    always = np.array([of_one.all(axis=0) for of_one in hits])
    # Rollouts mostly write a node as its expressions do: derived forms must not hide that an
    # expression contains another node.
    written = [of_one[: len(node.expressions)] for node, of_one in zip(nodes, hits, strict=True)]
    for place, node in enumerate(nodes):
        for other, text in enumerate(nodes):
            hit = written[other][:, place]
            if other == place or not hit.any():
                continue
            if always[other, place] and always[place, other]:
                if other < place:
                    yield node.node_id, Code.DUPLICATE_NODES, text.node_id
            elif hit.all():
                yield node.node_id, Code.IMPLIED_NODE, text.node_id
            else:
                which = text.expressions[int(hit.argmax())]
                yield node.node_id, Code.COLLISION, which[:60], text.node_id


def check_rollouts(
    chunk: Sequence[Examined], survey: RolloutSurvey, threads: int
) -> Iterator[DatasetFinding]:
    """Yield which nodes of one source others' rollouts hit, and which none of their own does."""
    sample = survey.sample.of(chunk[0].problem.data_source)
    problems = [(one.problem.problem_id, one.patterns) for one in chunk]
    for one, hits in zip(chunk, match_unrelated(problems, sample, threads), strict=True):
        if len(hits) >= MIN_UNRELATED:
            for node, rate in zip(one.nodes, hit_rates(hits).tolist(), strict=True):
                if rate > MAX_UNRELATED:
                    values = 100 * rate, len(hits), 100 * MAX_UNRELATED
                    yield one.finding(node.node_id, Code.UNRELATED_MATCH, *values)
        own = survey.own.get(one.problem.problem_id)
        if own is not None and own.rollouts >= MIN_ROLLOUTS:
            for node, times in zip(one.nodes, own.hits, strict=True):
                if not times:
                    yield one.finding(node.node_id, Code.NEVER_MATCHED, own.rollouts)


# Makes the progress bar of one stage: what is done, and what is counted.
Progress: TypeAlias = Callable[[str, str], AbstractContextManager[Callable[[int], None]]]


def validate_dataset(
    dataset: str | os.PathLike[str],
    rollouts: Sequence[str | os.PathLike[str]] = (),
    settings: ValidationSettings = ValidationSettings(),
    *,
    tell: Callable[[DatasetFinding], None] = lambda finding: None,
    progress: Progress = lambda what, unit: nullcontext(lambda done: None),
) -> ValidationReport:
    """Validate a dataset.

    Args:
        rollouts: files of rollouts of its problems.
        tell: takes every finding as it is made; the report keeps a few.
        progress: ``progress(what, unit)`` is the context of one stage.

    Raises:
        DataError: a file as a whole is bad, or a row of the rollouts with ``"stop"``.
    """
    report = ValidationReport()

    def found(finding: DatasetFinding) -> None:
        report.counts[finding.code] += 1
        kept = report.examples[finding.code]
        if len(kept) < settings.examples:
            kept.append(finding)
        report.bad_rows += finding.code is Code.SCHEMA
        tell(finding)

    with progress("validating", "problems") as advance_to:
        examined = _examined(dataset, found, settings.processes)
        while chunk := list(islice(examined, _CHUNK_MATCHED)):
            for one, fresh in chunk:
                report.nodes += len(one.nodes)
                for remark in check_problem(one, fresh):
                    found(one.finding(*remark))
            for finding in check_matches([one for one, _ in chunk], settings.threads):
                found(finding)
            report.good_rows += len(chunk)
            advance_to(report.good_rows)
    if report.good_rows and (rollouts or settings.probes):
        _check_with_rollouts(dataset, rollouts, report, settings, found, progress)
    return report


def _examined(
    dataset: str | os.PathLike[str],
    found: Callable[[DatasetFinding], None],
    processes: int | None,
) -> Iterator[tuple[Examined, tuple[Node, ...]]]:
    """Yield each good problem with the forms in use, and its nodes with newly derived forms."""

    def bare() -> Iterator[tuple[Problem, Row]]:
        for line, problem in checked_problems(dataset, found):
            nodes = tuple(replace(node, derived=None) for node in problem.nodes)
            yield replace(problem, nodes=nodes), {"line": line, "problem": problem}

    for derived, origin in derive_missing(bare(), DeriveReport(), processes):
        problem: Problem = origin["problem"]
        nodes = tuple(
            fresh if node.derived is None else node
            for node, fresh in zip(problem.nodes, derived.nodes, strict=True)
        )
        yield Examined(origin["line"], problem, nodes), derived.nodes


def _check_with_rollouts(
    dataset: str | os.PathLike[str],
    rollouts: Sequence[str | os.PathLike[str]],
    report: ValidationReport,
    settings: ValidationSettings,
    found: Callable[[DatasetFinding], None],
    progress: Progress,
) -> None:
    with quiet_readers():  # bad rows are findings already
        index = DatasetIndex.load(dataset, on_error="skip", processes=settings.processes)
    with progress("reading", "rollouts") if rollouts else nullcontext(lambda done: None) as tell:
        survey = survey_rollouts(
            rollouts, index, threads=settings.threads, on_error=settings.on_error, progress=tell
        )
    if rollouts:
        report.rollouts, report.unknown_rollouts = survey.rows, survey.unknown
        done = 0
        with progress("comparing", "problems") as advance_to:
            for chunk in chunks_by_source(_with_nodes(dataset, index)):
                for finding in check_rollouts(chunk, survey, settings.threads):
                    found(finding)
                done += len(chunk)
                advance_to(done)
    if settings.probes:
        probing = ProbeSettings(threads=settings.threads, on_error="skip")
        with quiet_readers(), progress("probing", "problems") as advance_to:
            report.probes = probe_dataset(
                dataset, None, probing, index=index, survey=survey, progress=advance_to
            )
        for one in report.probes.cheap:
            found(DatasetFinding(Code.CHEAP_ATTACK, one.sentence(), 0))


def _with_nodes(
    dataset: str | os.PathLike[str], index: DatasetIndex
) -> Iterator[tuple[str, Examined]]:
    """Yield the problems with nodes, with the index's derived forms, and their sources."""
    for line, problem in checked_problems(dataset, lambda finding: None):
        entry = index.entry(problem.problem_id)
        assert entry is not None, "the index is of this dataset"
        if entry.num_nodes:
            yield problem.data_source, Examined(line, problem, entry.nodes)
