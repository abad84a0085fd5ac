"""What can be found in a dataset, and how bad each finding is.

An *error* makes scores wrong or a node worthless: it can never be reached, or is reached by
nearly everything.  A *warning* makes a reward cheaper or noisier than it looks.  A *note* is
what a reader of the figures should know.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

from consensuspr.data import Row


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
