"""What can be found in a dataset, and how bad each finding is.

An *error* makes scores wrong or a node worthless: it can never be reached, or is reached by
nearly everything.  A *warning* makes a reward cheaper or noisier than it looks.  A *note* is
what a reader of the figures should know.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from consensusbench.extraction.refine import RefineSettings
from consensusbench.extraction.statements import Truth, states_answer, truth_of
from consensusbench.quality.probes import (
    Attack,
    ProbeReport,
    ProbeSettings,
    RolloutSurvey,
    fixed_attacks,
    match_strangers,
    probe_dataset,
    survey_rollouts,
)
from consensusbench.quiet import quiet_readers
from consensuspr.core import Matcher, match_batch, normalize
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
from consensuspr.errors import InputError
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.derive import DeriveReport, derive_missing
from consensuspr.scoring.types import DEFAULT_LIMITS, Limits


class Severity(StrEnum):
    """How bad a finding is, the worst first."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Code(StrEnum):
    """What was found."""

    SCHEMA = "schema"
    UNMATCHABLE_NODE = "unmatchable_node"
    SINGLE_CHARACTER = "single_character"
    DUPLICATE_NODES = "duplicate_nodes"
    FALSE_EQUALITY = "false_equality"
    EMPTY_EXPRESSION = "empty_expression"
    BARE_VALUE = "bare_value"
    IMPLIED_NODE = "implied_node"
    ECHO = "echo"
    ENUMERABLE = "enumerable"
    UNRELATED_MATCH = "unrelated_match"
    NEVER_MATCHED = "never_matched"
    UNMARKED_FINAL = "unmarked_final"
    INLINE_LIMIT = "inline_limit"
    NO_NODES = "no_nodes"
    NO_GROUND_TRUTH = "no_ground_truth"
    COLLISION = "collision"
    ROUNDED_EQUALITY = "rounded_equality"
    NO_FINAL_NODE = "no_final_node"
    SEVERAL_FINAL_NODES = "several_final_nodes"
    FINAL_NOT_ANSWER = "final_not_answer"
    NODE_COUNT = "node_count"
    LOW_SUPPORT = "low_support"
    DERIVED_ABSENT = "derived_absent"
    DERIVED_DIFFER = "derived_differ"
    NO_PROBLEM_TEXT = "no_problem_text"


_ERRORS = (
    Code.SCHEMA,
    Code.UNMATCHABLE_NODE,
    Code.SINGLE_CHARACTER,
    Code.DUPLICATE_NODES,
    Code.FALSE_EQUALITY,
)
_NOTES = (
    Code.COLLISION,
    Code.ROUNDED_EQUALITY,
    Code.NO_FINAL_NODE,
    Code.SEVERAL_FINAL_NODES,
    Code.FINAL_NOT_ANSWER,
    Code.NODE_COUNT,
    Code.LOW_SUPPORT,
    Code.DERIVED_ABSENT,
    Code.DERIVED_DIFFER,
    Code.NO_PROBLEM_TEXT,
)

SEVERITY: Final = {
    code: Severity.ERROR
    if code in _ERRORS
    else Severity.NOTE
    if code in _NOTES
    else Severity.WARNING
    for code in Code
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    Attributes:
        code: what it is; decides the severity.
        message: one sentence with what was found and what to do.
        line: row of the dataset, counted from 1.
        problem_id: None where the row has none.
        node_id: None where the problem as a whole is meant.
    """

    code: Code
    message: str
    line: int
    problem_id: str | None = None
    node_id: str | None = None

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return SEVERITY[self.code]

    def to_row(self) -> Row:
        """Return the finding as a row of ``validate --output``."""
        return {"severity": self.severity.value} | asdict(self) | {"code": self.code.value}


# MERGED Rows against the schema, every fault of every row.
#
# The schema is :func:`consensuspr.data.parse_problem`, which stops at the first fault of a row.
# A bad row is therefore taken apart here and each part parsed alone, so that one run names
# everything that has to be mended.  A good row is parsed once.

_COLUMNS = ("problem_id", "nodes")
# In which a sound node stands where only one key of a node is on trial.
_SOUND_NODE: Row = {"expressions": ["1+1=2"]}


@dataclass(slots=True)
class RowCounts:
    """Rows of a dataset: good ones, and ones with a fault of their own or between rows.

    Of the bad ones, ``unreadable`` are no rows at all, and ``unreadable_because`` is what is
    wrong with the first of these.
    """

    good: int = 0
    bad: int = 0
    unreadable: int = 0
    unreadable_because: str = ""


def checked_problems(
    path: str | os.PathLike[str], counts: RowCounts, tell: Callable[[Finding], None]
) -> Iterator[tuple[int, Problem]]:
    """Yield line and problem of every good row; tell the faults of the others.

    Raises:
        DataError: the file as a whole is bad.
    """
    name = os.fspath(path)
    whole = WholeFile()
    for line, row in read_rows(name, _COLUMNS):
        faults: list[str] = []
        problem = None
        if isinstance(row, DataError):
            faults = [row.reason]
            counts.unreadable += 1
            counts.unreadable_because = counts.unreadable_because or row.reason
        else:
            try:
                problem = parse_problem(row, name, line)
                whole.check(problem, name, line)
            except DataError as fault:
                faults = [fault.reason] if problem is not None else row_faults(row)
        if faults or problem is None:
            counts.bad += 1
            problem_id = row.get("problem_id") if isinstance(row, dict) else None
            shown = problem_id[:1024] if isinstance(problem_id, str) and problem_id else None
            for reason in faults:
                message = f"{reason}; the row is not usable until this is mended"
                tell(Finding(Code.SCHEMA, message, line, shown))
        else:
            counts.good += 1
            yield line, problem


def row_faults(row: Row) -> list[str]:
    """Return every fault of a row that is no problem, in the order of its keys."""
    faults = [] if (own := _fault({"problem_id": row.get("problem_id")})) is None else [own]
    for key, value in row.items():
        if key not in ("problem_id", "nodes"):
            _collect(faults, {key: value})
    nodes = row.get("nodes")
    if nodes is None:
        return faults
    if type(nodes) is not list:
        return _collect(faults, {"nodes": nodes})
    before = len(faults)
    for position, node in enumerate(nodes):
        faults += [
            reason.replace("nodes[0]", f"nodes[{position}]", 1) for reason in _node_faults(node)
        ]
    if len(faults) == before:
        _collect(faults, {"nodes": nodes})  # what is wrong is between nodes
    return faults


def _node_faults(node: object) -> list[str]:
    if type(node) is not dict:
        return _collect([], {"nodes": [node]})
    faults = _collect([], {"nodes": [{"expressions": node.get("expressions")}]})
    for key, value in node.items():
        if key != "expressions":
            _collect(faults, {"nodes": [_SOUND_NODE | {key: value}]})
    return faults


def _collect(faults: list[str], part: Row) -> list[str]:
    reason = _fault({"problem_id": "p"} | part)
    if reason is not None:
        faults.append(reason)
    return faults


def _fault(row: Row) -> str | None:
    try:
        parse_problem(row)
    except DataError as fault:
        return fault.reason
    return None


# MERGED What can be said of one node by looking at it alone.

# Text of a finding that is about this node.
Remark = tuple[Code, str]

# What a matcher takes off the ends of an expression; nothing left means no pattern.
_SET_ASIDE: Final = " .,;:?"
_BARE: Final = re.compile(r"[=≈]?-?(\d+(?:\.\d+)?(?:/\d+)?)")

# Below this many digits a value alone is met by chance: of 5,276 solutions of GSM8K a bare
# number hits every twentieth of another problem.
DISTINCTIVE_DIGITS: Final = 3
LOW_SUPPORT: Final = 2


def pattern_of(expression: str) -> str:
    """Return what a matcher looks for, empty where it looks for nothing."""
    return normalize(expression).strip(_SET_ASIDE)


def check_node(node: Node, derived: Sequence[str]) -> Iterator[Remark]:
    """Yield what is wrong with a node.

    Args:
        node: as the dataset has it.
        derived: the forms that it is matched by besides its expressions.
    """
    patterns = {text: pattern_of(text) for text in (*node.expressions, *derived)}
    yield from _check_patterns(node, patterns)
    yield from _check_arithmetic(node.expressions)
    if node.support is not None and node.support < LOW_SUPPORT:
        yield (
            Code.LOW_SUPPORT,
            f"has support {node.support}: a consensus takes at least {LOW_SUPPORT} rollouts",
        )


def _check_patterns(node: Node, patterns: dict[str, str]) -> Iterator[Remark]:
    empty = [text for text in node.expressions if not patterns[text]]
    if not any(patterns.values()):
        yield (
            Code.UNMATCHABLE_NODE,
            f"can never be matched, {_quoted(node.expressions[0])} is empty in normal form; "
            "write it with numbers, letters or a formula, or drop the node",
        )
        return
    if empty:
        yield (
            Code.EMPTY_EXPRESSION,
            f"the expression {_quoted(empty[0])} is empty in normal form and never matches; drop "
            "it",
        )
    single = [text for text, pattern in patterns.items() if len(pattern) == 1]
    if single:
        yield (
            Code.SINGLE_CHARACTER,
            f"{_quoted(single[0])} is one character in normal form and stands in nearly every "
            "response; use the equation that it is the result of",
        )
    bare = [text for text, pattern in patterns.items() if len(pattern) > 1 and _is_small(pattern)]
    if bare:
        yield (
            Code.BARE_VALUE,
            f"{_quoted(bare[0])} is a value of fewer than {DISTINCTIVE_DIGITS} digits alone, which "
            "is met by chance; use the equation that it is the result of",
        )


def _is_small(pattern: str) -> bool:
    found = _BARE.fullmatch(pattern)
    if found is None:
        return False
    digits = found[1].replace(".", "").replace("/", "").lstrip("0")
    return len(digits) < DISTINCTIVE_DIGITS


def _check_arithmetic(expressions: Sequence[str]) -> Iterator[Remark]:
    truths = {text: truth_of(text) for text in expressions}
    for text, truth in truths.items():
        if truth is Truth.FALSE:
            yield (
                Code.FALSE_EQUALITY,
                f"{_quoted(text)} is false, and a response is rewarded for it; correct or drop it",
            )
            break
    rounded = [text for text, truth in truths.items() if truth is Truth.ROUNDED]
    if rounded and Truth.TRUE not in truths.values():
        yield (
            Code.ROUNDED_EQUALITY,
            f"{_quoted(rounded[0])} is rounded; a response that keeps other digits is not matched: "
            "add the exact value",
        )


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:59] + "…")


# MERGED What can be said of one problem and its nodes without matching anything.

# The bounds that construction keeps to unless it is told otherwise.
MIN_NODES: Final = RefineSettings().min_nodes
MAX_NODES: Final = RefineSettings().max_nodes


def check_problem(problem: Problem, nodes: Sequence[Node]) -> Iterator[Remark]:
    """Yield what is wrong with a problem as a whole.

    Args:
        problem: as the dataset has it.
        nodes: its nodes with the derived forms in use.
    """
    if not nodes:
        yield (
            Code.NO_NODES,
            "has no nodes and gives no process reward; build its nodes or leave it out",
        )
    if problem.ground_truth is None:
        yield Code.NO_GROUND_TRUTH, "has no ground_truth, so that no answer can be checked; add it"
    if not problem.problem.strip():
        yield (
            Code.NO_PROBLEM_TEXT,
            "has no text: whether its nodes restate it cannot be checked, and it cannot be "
            "exported; add it",
        )
    if nodes and not MIN_NODES <= len(nodes) <= MAX_NODES:
        yield (
            Code.NODE_COUNT,
            f"has {len(nodes)} node{'s' * (len(nodes) > 1)}, construction keeps {MIN_NODES} to "
            f"{MAX_NODES}: one hit moves its NCR by {1 / len(nodes):.2f}",
        )
    yield from _check_limits(nodes, DEFAULT_LIMITS)


def check_final(problem: Problem, nodes: Sequence[Node]) -> Iterator[tuple[str | None, Remark]]:
    """Yield node id (None: the problem) and remark on which nodes state the final answer."""
    finals = [node.node_id for node in nodes if node.is_final]
    unmarked = 0
    for node in nodes if problem.ground_truth is not None else ():
        states = any(states_answer(text, problem.ground_truth) for text in node.expressions)
        if states == node.is_final:
            continue
        answer = f"the ground truth {problem.ground_truth!r:.60}"
        unmarked += states
        if states:
            code = Code.UNMARKED_FINAL
            said = f"states {answer} and is not marked: set is_final, or figures without "
            said += "final-answer nodes leak the answer"
        else:
            code = Code.FINAL_NOT_ANSWER
            said = f"is marked as the final answer and does not say {answer}: look whether it does"
        yield node.node_id, (code, said)
    if nodes and not finals and not unmarked:
        yield (
            None,
            (
                Code.NO_FINAL_NODE,
                "has no node that states the final answer; its NCR is the same with and without",
            ),
        )
    if len(finals) > 1:
        yield (
            None,
            (
                Code.SEVERAL_FINAL_NODES,
                f"has {len(finals)} nodes that state the final answer ({', '.join(finals)[:80]}): "
                "the answer counts so many times; keep the most specific one if that is not meant",
            ),
        )


def _check_limits(nodes: Sequence[Node], limits: Limits) -> Iterator[Remark]:
    """Yield the first limit for nodes that travel with a request which these nodes exceed."""
    sizes = [
        len(text.encode("utf-8", "surrogatepass"))
        for node in nodes
        for text in (*node.expressions, *(node.derived or ()))
    ]
    most = max((len(node.expressions) + len(node.derived or ()) for node in nodes), default=0)
    for what, value, limit in (
        ("nodes", len(nodes), limits.max_inline_nodes),
        ("expressions in one node", most, limits.max_expressions_per_node),
        ("bytes in one expression", max(sizes, default=0), limits.max_expression_bytes),
        ("bytes of expressions", sum(sizes), limits.max_inline_bytes),
    ):
        if value > limit:
            yield (
                Code.INLINE_LIMIT,
                f"has {value:,} {what}, nodes sent with a request may have {limit:,}; serve the "
                "dataset instead of exporting with --inline-nodes",
            )
            return


# MERGED What matching says about a problem's nodes: among each other, and against cheap texts.

# Of one node; far above any real one, so that a hostile dataset cannot make pairs explode.
MAX_TEXTS: Final = 64

_PLAIN: Final = {
    attack: text
    for attack, text in fixed_attacks(budget=1 << 12).items()
    if attack in (Attack.ENUMERATION, Attack.LIST)
}


@dataclass(frozen=True, slots=True)
class Examined:
    """A problem whose nodes have the derived forms that they are matched by."""

    line: int
    problem: Problem
    nodes: tuple[Node, ...]

    @property
    def patterns(self) -> list[tuple[str, ...]]:
        """For each node what it is matched by."""
        return [node.expressions + (node.derived or ()) for node in self.nodes]


def check_matches(
    chunk: Sequence[Examined], threads: int
) -> Iterator[tuple[Examined, str, Remark]]:
    """Yield problem, node id and remark for the problems of a chunk, matched in one batch."""
    jobs: list[tuple[Matcher, str]] = []
    for one in chunk:
        matcher = Matcher(one.patterns)
        jobs.append((matcher, one.problem.problem))
        jobs += [(matcher, text) for text in _PLAIN.values()]
        jobs += [(matcher, text) for node in one.patterns for text in node[:MAX_TEXTS]]
    found = match_batch([job[0] for job in jobs], [job[1] for job in jobs], threads=threads)
    at = 0
    for one in chunk:
        echoed, *printed = (found.matched(at + row) for row in range(1 + len(_PLAIN)))
        at += 1 + len(_PLAIN)
        for node_id, remark in _cheap(one, echoed, printed):
            yield one, node_id, remark
        hits = []
        for node in one.patterns:
            texts = min(len(node), MAX_TEXTS)
            hits.append(np.array([found.matched(at + row) for row in range(texts)]))
            at += texts
        for node_id, remark in _collisions(one.nodes, hits):
            yield one, node_id, remark


def _cheap(
    one: Examined, echoed: npt.NDArray[np.bool_], printed: Sequence[npt.NDArray[np.bool_]]
) -> Iterator[tuple[str, Remark]]:
    for place, node in enumerate(one.nodes):
        if echoed[place]:
            yield (
                node.node_id,
                (Code.ECHO, "stands in the problem's own text: restating it earns it; drop it"),
            )
        for attack, hit in zip(_PLAIN, printed, strict=True):
            if hit[place]:
                shown = '"=0" to "=300"' if attack is Attack.ENUMERATION else "0, 1, … 300"
                yield (
                    node.node_id,
                    (
                        Code.ENUMERABLE,
                        f"is hit by printing {shown}; use the equation that its value is the "
                        "result of",
                    ),
                )
                break


def _collisions(
    nodes: Sequence[Node], hits: Sequence[npt.NDArray[np.bool_]]
) -> Iterator[tuple[str, Remark]]:
    """Yield which nodes are hit by the text of others.

    Args:
        nodes: of one problem.
        hits: for each node (texts, nodes): which nodes each way to write it hits.
    """
    always = np.array([of_one.all(axis=0) for of_one in hits])
    # Whoever reaches a node mostly writes it as its expressions do: derived forms with the sides
    # swapped must not hide that its value alone is another node.
    written = [of_one[: len(node.expressions)] for node, of_one in zip(nodes, hits, strict=True)]
    for place, node in enumerate(nodes):
        for other, text in enumerate(nodes):
            hit = written[other][:, place]
            if other == place or not hit.any():
                continue
            if always[other, place] and always[place, other]:
                if other < place:
                    yield (
                        node.node_id,
                        (
                            Code.DUPLICATE_NODES,
                            f"is node {text.node_id!r} in other words, each is hit wherever the "
                            "other is: make one node of the two",
                        ),
                    )
            elif hit.all():
                yield (
                    node.node_id,
                    (
                        Code.IMPLIED_NODE,
                        f"is hit by every expression of node {text.node_id!r} and counts without "
                        "being reached: drop it, or write it so that it stands apart",
                    ),
                )
            else:
                which = text.expressions[int(hit.argmax())]
                yield (
                    node.node_id,
                    (
                        Code.COLLISION,
                        f"is hit by {which[:60]!r} of node {text.node_id!r}, not by all of that "
                        "node's expressions: look whether both are meant",
                    ),
                )


# MERGED What rollouts say about nodes: hit by rollouts of other problems, or by none of their own.

CHUNK_PROBLEMS: Final = 512
# Fewer strangers do not tell a rate of some per cent from an accident.
MIN_STRANGERS: Final = 20


def check_rollouts(
    problems: Iterable[Examined],
    survey: RolloutSurvey,
    *,
    max_unrelated: float,
    min_rollouts: int,
    threads: int,
) -> Iterator[tuple[int, list[Finding]]]:
    """Yield how many problems of a chunk are done, and what was found.

    Args:
        problems: of the dataset, derived forms in use.
        survey: of the rollouts.
        max_unrelated: share of other problems' rollouts that a node may hit.
        min_rollouts: of its own problem, from which on a node that none hits is told.
        threads: of the scan, 0 for all cores.
    """
    waiting: dict[str, list[Examined]] = defaultdict(list)
    for one in problems:
        source = one.problem.data_source
        waiting[source].append(one)
        if len(waiting[source]) == CHUNK_PROBLEMS:
            chunk = waiting.pop(source)
            yield len(chunk), list(_check(chunk, survey, max_unrelated, min_rollouts, threads))
    for chunk in waiting.values():
        yield len(chunk), list(_check(chunk, survey, max_unrelated, min_rollouts, threads))


def _check(
    chunk: Sequence[Examined],
    survey: RolloutSurvey,
    max_unrelated: float,
    min_rollouts: int,
    threads: int,
) -> Iterator[Finding]:
    strangers = survey.sample.strangers(chunk[0].problem.data_source)
    problems = [(one.problem.problem_id, one.patterns) for one in chunk]
    for one, found in zip(chunk, match_strangers(problems, strangers, threads), strict=True):
        if found.num_strangers >= MIN_STRANGERS:
            for node, rate in zip(one.nodes, found.rates, strict=True):
                if rate > max_unrelated:
                    yield _finding(
                        one,
                        node.node_id,
                        Code.UNRELATED_MATCH,
                        f"is hit by {100 * rate:.1f} % of {found.num_strangers} rollouts of other "
                        f"problems, the limit is {100 * max_unrelated:.1f} %: make it more "
                        "specific or drop it",
                    )
        own = survey.own.get(one.problem.problem_id)
        if own is not None and own.rollouts >= min_rollouts:
            for node, hits in zip(one.nodes, own.hits, strict=True):
                if not hits:
                    yield _finding(
                        one,
                        node.node_id,
                        Code.NEVER_MATCHED,
                        f"is hit by none of {own.rollouts} rollouts of its problem: add the "
                        "wordings that rollouts use, or drop it",
                    )


def _finding(one: Examined, node_id: str, code: Code, message: str) -> Finding:
    return Finding(code, message, one.line, one.problem.problem_id, node_id)


# MERGED Validate a dataset: everything that can be found, told as it is found, in bounded memory.
#
# The rows are read once for the schema and for the checks of each problem, whose nodes are
# derived from afresh (in all cores) and matched in batches (likewise).  With rollouts they are
# read once more, against a bounded sample and one counter a node.

VALIDATE_CHUNK_PROBLEMS: Final = 256

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
    while chunk := list(islice(examined, VALIDATE_CHUNK_PROBLEMS)):
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
