"""What ``validate`` finds: codes, their severities and messages.

An *error* makes scores wrong or a node worthless.  A *warning* makes a reward cheaper or noisier
than it looks.  A *note* matters to a reader of the figures.  ``docs/build-datasets.md`` says what
to do about each.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final, Self

from consensusbench.extraction.refine import RefineSettings
from consensuspr.data import Row

# The bounds that construction keeps to by default.
MIN_NODES: Final = RefineSettings().min_nodes
MAX_NODES: Final = RefineSettings().max_nodes
LOW_SUPPORT: Final = 2
# A bare number of fewer digits hits every twentieth solution of another GSM8K problem.
DISTINCTIVE_DIGITS: Final = 3


class Severity(StrEnum):
    """How bad a finding is, the worst first."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


_E, _W, _N = Severity


class Code(StrEnum):
    """A kind of finding, with its severity and its message for ``str.format``."""

    severity: Severity
    message: str

    def __new__(cls, value: str, severity: Severity, message: str) -> Self:
        """Return a code with its severity and its message."""
        code = str.__new__(cls, value)
        code._value_ = value
        code.severity = severity
        code.message = message
        return code

    SCHEMA = "schema", _E, "{}"
    UNMATCHABLE_NODE = "unmatchable_node", _E, "never matches: {} is empty in normal form"
    SINGLE_CHARACTER = "single_character", _E, "{} is one character, found in nearly every response"
    DUPLICATE_NODES = "duplicate_nodes", _E, "states the same as node {!r}: make one of the two"
    FALSE_EQUALITY = "false_equality", _E, "{} is false: correct or drop it"
    EMPTY_EXPRESSION = "empty_expression", _W, "{} is empty in normal form and never matches"
    BARE_VALUE = (
        "bare_value",
        _W,
        f"{{}} is a value of fewer than {DISTINCTIVE_DIGITS} digits: use the equation of it",
    )
    IMPLIED_NODE = "implied_node", _W, "is hit by every expression of node {!r}"
    ECHO = "echo", _W, "is in the problem's own text"
    ENUMERABLE = "enumerable", _W, "is hit by printing {}: use the equation of its value"
    UNRELATED_MATCH = (
        "unrelated_match",
        _W,
        "is hit by {:.1f} % of {} rollouts of other problems, the limit is {:.1f} %",
    )
    NEVER_MATCHED = "never_matched", _W, "is hit by none of {} rollouts of its problem"
    UNMARKED_FINAL = "unmarked_final", _W, "states {} and is not marked: set is_final"
    INLINE_LIMIT = (
        "inline_limit",
        _W,
        "has {:,} {}; nodes sent with a request may have {:,}",
    )
    CHEAP_ATTACK = "cheap_attack", _W, "{}"
    PARTIAL_WEIGHTS = (
        "partial_weights",
        _W,
        "has weights for {} of {} nodes, so ncr=weighted counts its nodes alike",
    )
    ZERO_WEIGHTS = "zero_weights", _N, "has weight 0 for all nodes but final ones"
    NO_NODES = "no_nodes", _W, "has no nodes and gives no process reward"
    NO_GROUND_TRUTH = "no_ground_truth", _W, "has no ground_truth: no answer can be checked"
    COLLISION = "collision", _N, "is hit by {!r} of node {!r}, but not by all its expressions"
    ROUNDED_EQUALITY = "rounded_equality", _N, "{} is rounded: add the exact value"
    NO_FINAL_NODE = "no_final_node", _N, "has no node that states the final answer"
    SEVERAL_FINAL_NODES = (
        "several_final_nodes",
        _N,
        "has {} nodes that state the final answer ({:.80})",
    )
    FINAL_NOT_ANSWER = "final_not_answer", _N, "is marked as final and does not state {}"
    NODE_COUNT = (
        "node_count",
        _N,
        f"has {{}}, not {MIN_NODES} to {MAX_NODES}; one hit moves its NCR by {{:.2f}}",
    )
    LOW_SUPPORT = "low_support", _N, f"has support {{}}, below {LOW_SUPPORT}"
    DERIVED_ABSENT = (
        "derived_absent",
        _N,
        "stores no derived forms, {} are made at each load: run consensuspr derive once",
    )
    DERIVED_DIFFER = (
        "derived_differ",
        _N,
        "stores {} derived forms and lacks {}: run consensuspr derive --again",
    )
    NO_PROBLEM_TEXT = "no_problem_text", _N, "has no text: echo is not checked, no export"


@dataclass(frozen=True, slots=True)
class DatasetFinding:
    """One finding; line 0 stands for the dataset, no node_id for the problem as a whole."""

    code: Code
    message: str
    line: int
    problem_id: str | None = None
    node_id: str | None = None

    def to_row(self) -> Row:
        """Return the finding as a row of ``validate --output``."""
        row: Row = {"severity": self.code.severity.value} | asdict(self)
        return row | {"code": self.code.value}
