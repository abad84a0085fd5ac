"""From the rows of a dataset to the block of bytes that an index reads.

One pass over the rows, in bounded memory: a problem leaves its packed record, its id and
its counts.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

from consensuspr.core import EXPANSION_VERSION, NORMAL_FORM_VERSION, normalize
from consensuspr.data import Node, Problem, ReadReport
from consensuspr.scoring.index_image import Buffer, Records, build_image
from consensuspr.scoring.index_record import content_digest, pack

_log = logging.getLogger(__name__)

# What a matcher takes off the ends of an expression; nothing left means no pattern.
_SET_ASIDE = " .,;:?"

# Between two log lines of a long load: no benchmark of some thousand problems takes as long.
PROGRESS_S = 10.0
PROGRESS_EVERY = 256  # problems, after which the clock is looked at

Derive: TypeAlias = Literal["missing", "stored", "off"]


@dataclass(slots=True)
class IndexInfo:
    """Counts of a dataset.

    Attributes:
        num_problems: problems in all.
        num_nodes: their consensus nodes.
        num_expressions: expressions as written.
        num_derived: derived forms in use.
        num_without_nodes: problems without a node (NO_NODES).
        num_without_ground_truth: problems without an answer (NO_GROUND_TRUTH).
        num_empty_expressions: expressions with an empty normal form; they never match.
        num_single_digit_expressions: expressions whose normal form is one digit; they are
            matched by almost any response.
        num_unmatchable_nodes: nodes of which every expression is empty; NCR 1 is out of
            reach for their problems.
        num_skipped: bad rows that were passed over.
    """

    num_problems: int = 0
    num_nodes: int = 0
    num_expressions: int = 0
    num_derived: int = 0
    num_without_nodes: int = 0
    num_without_ground_truth: int = 0
    num_empty_expressions: int = 0
    num_single_digit_expressions: int = 0
    num_unmatchable_nodes: int = 0
    num_skipped: int = 0


def build_index(
    path: str,
    problems: Iterable[Problem],
    read: ReadReport,
    derive: Derive,
    progress: Callable[[int], None] | None = None,
) -> Buffer:
    """Return the image of a dataset.

    Args:
        path: the dataset, as log lines name it.
        problems: all of it; ids must not repeat.
        read: of the reading that problems come from; looked at when they have come to an end.
        derive: which derived forms the problems have: all (``"missing"``), the stored ones
            (``"stored"``), or such that shall not be used (``"off"``).
        progress: called with the number of problems packed so far.

    Raises:
        InputError: the temporary directory has no room for a large dataset.
    """
    with contextlib.closing(_Builder(path, derive)) as builder:
        for count, problem in enumerate(problems, start=1):
            builder.add(problem)
            if not count % PROGRESS_EVERY:
                builder.tell_progress()
                if progress is not None:
                    progress(count)
        builder.info.num_skipped = read.skipped
        if progress is not None:
            progress(builder.info.num_problems)
        return builder.finish()


class _Builder:
    """Packs and counts problems one by one; to be closed."""

    def __init__(self, path: str, derive: Derive) -> None:
        self.info = IndexInfo()
        self._path = path
        self._derive = derive
        self._records = Records()
        self._answer_rule: str | None = None
        self._example = ""
        self._started = self._spoke = time.monotonic()

    def close(self) -> None:
        self._records.close()

    def add(self, problem: Problem) -> None:
        nodes = problem.nodes
        if self._derive == "off":
            for node in nodes:
                node.derived = ()
        self._answer_rule = self._answer_rule or problem.answer_rule
        self._records.append(problem.problem_id, pack(problem))
        info = self.info
        info.num_problems += 1
        info.num_nodes += len(nodes)
        info.num_without_nodes += not nodes
        info.num_without_ground_truth += problem.ground_truth is None
        for node in nodes:
            info.num_expressions += len(node.expressions)
            info.num_derived += len(node.derived or ())
            for expression in node.expressions:
                if len(normalize(expression).strip(_SET_ASIDE)) < 2:
                    self._weigh(problem, node)
                    break

    def _weigh(self, problem: Problem, node: Node) -> None:
        """Count expressions of a node that can never match, or that match nearly everything."""
        empty = 0
        for expression in node.expressions:
            form = normalize(expression).strip(_SET_ASIDE)
            if not form:
                empty += 1
                self._note(problem, node, expression, "has an empty normal form")
            elif len(form) == 1 and form.isdigit():
                self.info.num_single_digit_expressions += 1
                self._note(problem, node, expression, "is a single digit in normal form")
        self.info.num_empty_expressions += empty
        self.info.num_unmatchable_nodes += empty == len(node.expressions) and not node.derived

    def _note(self, problem: Problem, node: Node, expression: str, what: str) -> None:
        self._example = self._example or (
            f"{expression[:60]!r} of node {node.node_id!r} of problem {problem.problem_id!r} {what}"
        )

    def tell_progress(self) -> None:
        now = time.monotonic()
        if now - self._spoke < PROGRESS_S:
            return
        self._spoke = now
        seconds = now - self._started
        _log.info(
            "%s: %d problems read so far in %.0f s, %.0f a second",
            self._path, self.info.num_problems, seconds, self.info.num_problems / seconds,
        )  # fmt: skip

    def finish(self) -> Buffer:
        """Return the image, having logged how many expressions are worth little."""
        if self._example:
            _log.warning(
                "%s: %d expressions are empty in normal form and never match, %d are a single "
                "digit and match nearly everything, %d nodes can never be matched; first: %s",
                self._path, self.info.num_empty_expressions,
                self.info.num_single_digit_expressions, self.info.num_unmatchable_nodes,
                self._example,
            )  # fmt: skip
        if self._spoke > self._started:
            _log.info(
                "%s: all %d problems read, putting them in order", self._path,
                self.info.num_problems,
            )  # fmt: skip
        self._records.end()
        order = self._records.order()
        ordered = self._records.records(order)
        header = {
            "digest": content_digest(ordered, NORMAL_FORM_VERSION, self._answer_rule),
            "normal_form_version": NORMAL_FORM_VERSION,
            "expansion_version": EXPANSION_VERSION,
            "answer_rule": self._answer_rule,
            "derive": self._derive,
            "counts": asdict(self.info),
        }
        return build_image(self._records, order, header)
