"""A dataset looked over: what is wrong with its rows, its nodes, and how cheaply these are hit.

An *error* makes scores wrong or a node worthless: it can never be reached, or is reached by
nearly everything.  A *warning* makes a reward cheaper or noisier than it looks.  A *note* is
what a reader of the figures should know.

Findings are told as they are found, in bounded memory.  The rows are read once for the schema and
for the checks of each problem, whose nodes are derived from afresh (in all cores) and matched in
batches (likewise).  With rollouts they are read once more, against a bounded sample and one counter
a node.  Every finding and what to do about it: ``docs/build-datasets.md``.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import Any, Final, Self, TypeAlias

import numpy as np

from consensusbench.extraction.refine import RefineSettings
from consensusbench.extraction.statements import Truth, states_answer, truth_of
from consensusbench.quality.probes import (
    LAST_ENUMERATED,
    Bools,
    ProbeReport,
    ProbeSettings,
    RolloutSurvey,
    chunks_by_source,
    enumeration,
    hit_rates,
    match_unrelated,
    probe_dataset,
    survey_rollouts,
)
from consensusbench.quiet import quiet_readers
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
from consensuspr.errors import InputError
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.derive import DeriveReport, derive_missing
from consensuspr.scoring.types import DEFAULT_LIMITS, Limits

# The bounds that construction keeps to unless it is told otherwise.
MIN_NODES: Final = RefineSettings().min_nodes
MAX_NODES: Final = RefineSettings().max_nodes
LOW_SUPPORT: Final = 2
# Below this many digits a value alone is met by chance: of 5,276 solutions of GSM8K a bare
# number hits every twentieth of another problem.
DISTINCTIVE_DIGITS: Final = 3
# Fewer rollouts of others do not tell a rate of some per cent from an accident.
MIN_UNRELATED: Final = 20
# Ways to write one node; far above any real one, so that a hostile dataset cannot make pairs
# explode.
MAX_TEXTS: Final = 64

_CHUNK_MATCHED: Final = 256


class Severity(StrEnum):
    """How bad a finding is, the worst first."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Code(StrEnum):
    """What was found, how bad that is, and what is said of it: what it is and what to do."""

    severity: Severity
    message: str

    def __new__(cls, value: str, severity: Severity, message: str) -> Self:
        """Return a code with its severity, and its message for ``str.format``."""
        code = str.__new__(cls, value)
        code._value_ = value
        code.severity = severity
        code.message = message
        return code

    SCHEMA = "schema", Severity.ERROR, "{}; the row is not usable until this is mended"
    UNMATCHABLE_NODE = (
        "unmatchable_node",
        Severity.ERROR,
        "can never be matched, {} is empty in normal form; write it with numbers, letters or a "
        "formula, or drop the node",
    )
    SINGLE_CHARACTER = (
        "single_character",
        Severity.ERROR,
        "{} is one character in normal form and stands in nearly every response; use the equation "
        "that it is the result of",
    )
    DUPLICATE_NODES = (
        "duplicate_nodes",
        Severity.ERROR,
        "is node {!r} in other words, each is hit wherever the other is: make one node of the two",
    )
    FALSE_EQUALITY = (
        "false_equality",
        Severity.ERROR,
        "{} is false, and a response is rewarded for it; correct or drop it",
    )
    EMPTY_EXPRESSION = (
        "empty_expression",
        Severity.WARNING,
        "the expression {} is empty in normal form and never matches; drop it",
    )
    BARE_VALUE = (
        "bare_value",
        Severity.WARNING,
        f"{{}} is a value of fewer than {DISTINCTIVE_DIGITS} digits alone, which is met by chance; "
        "use the equation that it is the result of",
    )
    IMPLIED_NODE = (
        "implied_node",
        Severity.WARNING,
        "is hit by every expression of node {!r} and counts without being reached: drop it, or "
        "write it so that it stands apart",
    )
    ECHO = (
        "echo",
        Severity.WARNING,
        "stands in the problem's own text: restating it earns it; drop it",
    )
    ENUMERABLE = (
        "enumerable",
        Severity.WARNING,
        "is hit by printing {}; use the equation that its value is the result of",
    )
    UNRELATED_MATCH = (
        "unrelated_match",
        Severity.WARNING,
        "is hit by {:.1f} % of {} rollouts of other problems, the limit is {:.1f} %: make it more "
        "specific or drop it",
    )
    NEVER_MATCHED = (
        "never_matched",
        Severity.WARNING,
        "is hit by none of {} rollouts of its problem: add the wordings that rollouts use, or drop "
        "it",
    )
    UNMARKED_FINAL = (
        "unmarked_final",
        Severity.WARNING,
        "states {} and is not marked: set is_final, or figures without final-answer nodes leak the "
        "answer",
    )
    INLINE_LIMIT = (
        "inline_limit",
        Severity.WARNING,
        "has {:,} {}, nodes sent with a request may have {:,}; serve the dataset instead of "
        "exporting with --inline-nodes",
    )
    CHEAP_ATTACK = (
        "cheap_attack",
        Severity.WARNING,
        "attack `{}` scores {:.1f} % NCR on {}; wrong rollouts score {:.1f} %: store budgets if "
        "problems have none (consensusbench build --budgets), or drop nodes that need no reasoning",
    )
    PARTIAL_WEIGHTS = (
        "partial_weights",
        Severity.WARNING,
        "has weights for {} of {} nodes, so that ncr=weighted counts its nodes alike: give each a "
        "weight, or none",
    )
    ZERO_WEIGHTS = (
        "zero_weights",
        Severity.NOTE,
        "has the weight 0 for all nodes that do not state the final answer: wrong rollouts reach "
        "them as often as right ones",
    )
    NO_NODES = (
        "no_nodes",
        Severity.WARNING,
        "has no nodes and gives no process reward; build its nodes or leave it out",
    )
    NO_GROUND_TRUTH = (
        "no_ground_truth",
        Severity.WARNING,
        "has no ground_truth, so that no answer can be checked; add it",
    )
    COLLISION = (
        "collision",
        Severity.NOTE,
        "is hit by {!r} of node {!r}, not by all of that node's expressions: look whether both are "
        "meant",
    )
    ROUNDED_EQUALITY = (
        "rounded_equality",
        Severity.NOTE,
        "{} is rounded; a response that keeps other digits is not matched: add the exact value",
    )
    NO_FINAL_NODE = (
        "no_final_node",
        Severity.NOTE,
        "has no node that states the final answer; its NCR is the same with and without",
    )
    SEVERAL_FINAL_NODES = (
        "several_final_nodes",
        Severity.NOTE,
        "has {} nodes that state the final answer ({:.80}): the answer counts so many times; keep "
        "the most specific one if that is not meant",
    )
    FINAL_NOT_ANSWER = (
        "final_not_answer",
        Severity.NOTE,
        "is marked as the final answer and does not say {}: look whether it does",
    )
    NODE_COUNT = (
        "node_count",
        Severity.NOTE,
        f"has {{}}, construction keeps {MIN_NODES} to {MAX_NODES}: one hit moves its NCR by "
        "{:.2f}",
    )
    LOW_SUPPORT = (
        "low_support",
        Severity.NOTE,
        f"has support {{}}: a consensus takes at least {LOW_SUPPORT} rollouts",
    )
    DERIVED_ABSENT = (
        "derived_absent",
        Severity.NOTE,
        "stores no derived forms, {} are made each time the dataset is loaded: run consensuspr "
        "derive once",
    )
    DERIVED_DIFFER = (
        "derived_differ",
        Severity.NOTE,
        "stores {} derived forms and lacks {} that this version makes: run consensuspr derive "
        "--again unless they were left out on purpose",
    )
    NO_PROBLEM_TEXT = (
        "no_problem_text",
        Severity.NOTE,
        "has no text: whether its nodes restate it cannot be checked, and it cannot be exported; "
        "add it",
    )


@dataclass(frozen=True, slots=True)
class DatasetFinding:
    """One thing that was found.

    Attributes:
        line: of the dataset; 0 where the dataset as a whole is meant.
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
        return self.code.severity

    def to_row(self) -> Row:
        """Return the finding as a row of ``validate --output``."""
        return {"severity": self.severity.value} | asdict(self) | {"code": self.code.value}


@dataclass(frozen=True, slots=True)
class ValidationSettings:
    """How to validate.

    Attributes:
        max_unrelated: share of other problems' rollouts that a node may hit, from 0 to 1.
        min_rollouts: of its own problem, from which on a node that none hits is told.
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
class RowCounts:
    """Rows of a dataset: good ones, and ones with a fault of their own or between rows.

    Of the bad ones, ``unreadable`` are no rows at all, and ``unreadable_because`` is what is
    wrong with the first of these.
    """

    good: int = 0
    bad: int = 0
    unreadable: int = 0
    unreadable_because: str = ""


@dataclass(slots=True)
class ValidationReport:
    """What was found, counted.

    Attributes:
        rollouts: rollouts looked at; None without rollouts.
        unknown_rollouts: of them, those whose problem the dataset does not have.
    """

    rows: RowCounts = field(default_factory=RowCounts)
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
        """Say whether the dataset should not be used: errors, or warnings where strict."""
        return self.total(Severity.ERROR) > 0 or (strict and self.total(Severity.WARNING) > 0)

    def by_code(self) -> list[tuple[Code, int, list[DatasetFinding]]]:
        """Return code, count and examples, the worst severity and then the largest count first."""
        order = list(Severity)
        codes = sorted(self.counts, key=lambda c: (order.index(c.severity), -self.counts[c], c))
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
                    "severity": code.severity.value,
                    "count": count,
                    "examples": [finding.to_row() for finding in examples],
                }
                for code, count, examples in self.by_code()
            ],
            "probes": None if self.probes is None else self.probes.to_json(),
        }


# A good row is parsed once.  The schema, :func:`consensuspr.data.parse_problem`, stops at the first
# fault of a row: a bad one is taken apart here and each part parsed alone, so that one run names
# everything that has to be mended.
_COLUMNS = ("problem_id", "nodes")


def checked_problems(
    path: str | os.PathLike[str], counts: RowCounts, tell: Callable[[DatasetFinding], None]
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
        elif is_rollout(row) and not counts.good + counts.bad:
            raise DataError(name, line, ROLLOUTS_FOR_PROBLEMS)
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
                tell(DatasetFinding(Code.SCHEMA, Code.SCHEMA.message.format(reason), line, shown))
        else:
            counts.good += 1
            yield line, problem


def row_faults(row: Row) -> list[str]:
    """Return every fault of a row that is no problem, in the order of its keys."""
    if is_rollout(row):
        return [ROLLOUTS_FOR_PROBLEMS]
    others = [{key: row[key]} for key in row if key not in _COLUMNS]
    faults = _faults({"problem_id": row.get("problem_id")}, *others)
    nodes = row.get("nodes")
    if nodes is None:
        return faults
    if type(nodes) is not list:
        return faults + _faults({"nodes": nodes})
    of_nodes = [
        reason.replace("nodes[0]", f"nodes[{position}]", 1)
        for position, node in enumerate(nodes)
        for reason in _node_faults(node)
    ]
    # Where no node has a fault of its own, it is between nodes.
    return faults + (of_nodes or _faults({"nodes": nodes}))


def _node_faults(node: object) -> list[str]:
    if type(node) is not dict:
        return _faults({"nodes": [node]})
    # One key is on trial at a time, the others being those of a sound node.
    sound: Row = {"expressions": ["1+1=2"]}
    tries: list[Row] = [{"expressions": node.get("expressions")}]
    tries += [sound | {key: node[key]} for key in node if key != "expressions"]
    return _faults(*({"nodes": [one]} for one in tries))


def _faults(*parts: Row) -> list[str]:
    """Return the fault of each part of a row that has one."""
    faults = []
    for part in parts:
        try:
            parse_problem({"problem_id": "p", "nodes": []} | part)
        except DataError as fault:
            faults.append(fault.reason)
    return faults


# What a check says: node id (None for the problem as a whole), code, and values of its message.
Remark: TypeAlias = tuple[str | None, Code, *tuple[object, ...]]

# What a matcher takes off the ends of an expression; nothing left means no pattern.
_SET_ASIDE: Final = " .,;:?"
_BARE: Final = re.compile(r"[=≈]?-?(\d+(?:\.\d+)?(?:/\d+)?)")


@dataclass(frozen=True, slots=True)
class Examined:
    """A problem, its row (from 1), and its nodes with derived forms that they are matched by."""

    line: int
    problem: Problem
    nodes: tuple[Node, ...]

    @property
    def patterns(self) -> list[tuple[str, ...]]:
        """For each node what it is matched by."""
        return [node.expressions + (node.derived or ()) for node in self.nodes]

    def finding(self, node_id: str | None, code: Code, *values: object) -> DatasetFinding:
        """Return a remark about this problem as a finding."""
        message = code.message.format(*values)
        return DatasetFinding(code, message, self.line, self.problem.problem_id, node_id)


def pattern_of(expression: str) -> str:
    """Return what a matcher looks for, empty where it looks for nothing."""
    return normalize(expression).strip(_SET_ASIDE)


def check_problem(one: Examined, fresh: Sequence[Node]) -> Iterator[Remark]:
    """Yield what can be said without matching; ``fresh`` nodes are derived from by this version."""
    problem, nodes = one.problem, one.nodes
    if not nodes:
        yield None, Code.NO_NODES
    if problem.ground_truth is None:
        yield None, Code.NO_GROUND_TRUTH
    if not problem.problem.strip():
        yield None, Code.NO_PROBLEM_TEXT
    if nodes and not MIN_NODES <= len(nodes) <= MAX_NODES:
        counted = f"{len(nodes)} node{'s' * (len(nodes) > 1)}"
        yield None, Code.NODE_COUNT, counted, 1 / len(nodes)
    yield from _check_limits(nodes, DEFAULT_LIMITS)
    yield from _check_final(problem, nodes)
    yield from _check_weights(nodes)
    for node, used, derived in zip(problem.nodes, nodes, fresh, strict=True):
        yield from _check_patterns(node, used.derived or ())
        yield from _check_arithmetic(node)
        yield from _check_derived(node, derived)
        if node.support is not None and node.support < LOW_SUPPORT:
            yield node.node_id, Code.LOW_SUPPORT, node.support


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
    patterns = {text: pattern_of(text) for text in (*node.expressions, *derived)}
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
    """Yield whether a node lacks equal forms that this version makes of it.

    Of forms that reach the same, which one is kept is a matter of the order of the wordings.
    """
    made = fresh.derived or ()
    if node.derived is None:
        if made:
            yield node.node_id, Code.DERIVED_ABSENT, len(made)
    elif missing := [*novel_forms((*node.expressions, *node.derived), made)]:
        yield node.node_id, Code.DERIVED_DIFFER, len(node.derived), len(missing)


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:59] + "…")


# Cheap texts that no node may be hit by, and how a finding calls them.
_PRINTED: Final = [
    (enumeration(budget=1 << 12), '"=0" to "=300"'),
    (", ".join(map(str, range(LAST_ENUMERATED + 1))), "0, 1, … 300"),
]


def check_matches(chunk: Sequence[Examined], threads: int) -> Iterator[DatasetFinding]:
    """Yield what matching says about the nodes of problems, matched in one batch.

    Every node is looked for in its problem's text, in cheap texts, and in all that the problem's
    nodes are matched by.
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
        for remark in (*_cheap(one.nodes, echoed, printed), *_collisions(one.nodes, hits)):
            yield one.finding(*remark)


def _cheap(nodes: Sequence[Node], echoed: Bools, printed: Sequence[Bools]) -> Iterator[Remark]:
    for place, node in enumerate(nodes):
        if echoed[place]:
            yield node.node_id, Code.ECHO
        by = [shown for (_, shown), hit in zip(_PRINTED, printed, strict=True) if hit[place]]
        if by:
            yield node.node_id, Code.ENUMERABLE, by[0]


def _collisions(nodes: Sequence[Node], hits: Sequence[Bools]) -> Iterator[Remark]:
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
                    yield node.node_id, Code.DUPLICATE_NODES, text.node_id
            elif hit.all():
                yield node.node_id, Code.IMPLIED_NODE, text.node_id
            else:
                which = text.expressions[int(hit.argmax())]
                yield node.node_id, Code.COLLISION, which[:60], text.node_id


def check_rollouts(
    chunk: Sequence[Examined], survey: RolloutSurvey, settings: ValidationSettings
) -> Iterator[DatasetFinding]:
    """Yield which nodes of one source others' rollouts hit, and which none of their own does."""
    sample = survey.sample.of(chunk[0].problem.data_source)
    problems = [(one.problem.problem_id, one.patterns) for one in chunk]
    unrelated = match_unrelated(problems, sample, settings.threads)
    for one, hits in zip(chunk, unrelated, strict=True):
        if len(hits) >= MIN_UNRELATED:
            for node, rate in zip(one.nodes, hit_rates(hits).tolist(), strict=True):
                if rate > settings.max_unrelated:
                    values = 100 * rate, len(hits), 100 * settings.max_unrelated
                    yield one.finding(node.node_id, Code.UNRELATED_MATCH, *values)
        own = survey.own.get(one.problem.problem_id)
        if own is not None and own.rollouts >= settings.min_rollouts:
            for node, times in zip(one.nodes, own.hits, strict=True):
                if not times:
                    yield one.finding(node.node_id, Code.NEVER_MATCHED, own.rollouts)


# Makes the progress of one stage: what is done, and what is counted.
Progress: TypeAlias = Callable[[str, str], AbstractContextManager[Callable[[int], None]]]


def validate_dataset(
    dataset: str | os.PathLike[str],
    rollouts: Sequence[str | os.PathLike[str]] = (),
    settings: ValidationSettings = ValidationSettings(),
    *,
    tell: Callable[[DatasetFinding], None] = lambda finding: None,
    progress: Progress = lambda what, unit: nullcontext(lambda done: None),
) -> ValidationReport:
    """Look a dataset over.

    Args:
        rollouts: files of rollouts of its problems, for what only these can show.
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
    found: Callable[[DatasetFinding], None],
    advance_to: Callable[[int], None],
) -> None:
    examined = _examined(dataset, report.rows, found, settings)
    done = 0
    while chunk := list(islice(examined, _CHUNK_MATCHED)):
        for one, fresh in chunk:
            report.nodes += len(one.nodes)
            for remark in check_problem(one, fresh):
                found(one.finding(*remark))
        for finding in check_matches([one for one, _ in chunk], settings.threads):
            found(finding)
        done += len(chunk)
        advance_to(done)


def _examined(
    dataset: str | os.PathLike[str],
    rows: RowCounts,
    found: Callable[[DatasetFinding], None],
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


def _check_with_rollouts(
    dataset: str | os.PathLike[str],
    rollouts: Sequence[str | os.PathLike[str]],
    report: ValidationReport,
    settings: ValidationSettings,
    found: Callable[[DatasetFinding], None],
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
            for chunk in chunks_by_source(_with_nodes(dataset, index)):
                for finding in check_rollouts(chunk, survey, settings):
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
            message = Code.CHEAP_ATTACK.message.format(
                one.attack.value,
                100 * one.ncr,
                one.data_source or "problems without a source",
                100 * one.ncr_wrong,
            )
            found(DatasetFinding(Code.CHEAP_ATTACK, message, 0))


def _with_nodes(
    dataset: str | os.PathLike[str], index: DatasetIndex
) -> Iterator[tuple[str, Examined]]:
    """Yield the problems with nodes, with the index's derived forms, and their sources."""
    for line, problem in checked_problems(dataset, RowCounts(), lambda finding: None):
        entry = index.entry(problem.problem_id)
        assert entry is not None, "the index is of this dataset"
        if entry.num_nodes:
            yield problem.data_source, Examined(line, problem, entry.nodes)
