"""Equal forms for nodes that have none stored: at load time, or written into a dataset.

Deriving takes a fraction of a millisecond an expression and never happens on the path of a
request.  Once a set has proven large, the work is spread over processes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from consensuspr.child_processes import ChildContext
from consensuspr.core import EXPANSION_VERSION, NORMAL_FORM_VERSION, derive_forms
from consensuspr.core.expressions import novel_forms
from consensuspr.data import Node, OnError, Problem, ReadReport, Row, open_writer, read_problem_rows

# Of derived forms in a dataset.
FORMS_VERSION: Final = f"{NORMAL_FORM_VERSION}.{EXPANSION_VERSION}"

# Problems whose expressions are derived together, a fraction of a second of work.
CHUNK_PROBLEMS = 512
# Seconds of deriving in this process before children start.
ALONE_S = 1.0
# Children by default at most: each takes some 30 MB and a fifth of a second to start.
MAX_CHILDREN = 16


@dataclass(slots=True)
class DeriveReport:
    """What deriving did."""

    nodes: int = 0  # that had no derived forms stored, or those of another version
    outdated: int = 0  # of these, those of another version
    expressions: int = 0  # distinct ones of these, summed over chunks
    forms: int = 0
    seconds: float = 0.0


def derive_dataset(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    again: bool = False,
    on_error: OnError = "stop",
    processes: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[ReadReport, DeriveReport]:
    """Write a dataset again with derived forms in every node; all else stays as it is.

    Args:
        source: dataset in any format that is read.
        target: output; its suffix decides the format.  May be the source.
        again: derive anew where forms are stored already.
        on_error: what a bad row does, as for :func:`consensuspr.data.read_problems`.
        processes: as for :func:`derive_missing`.
        progress: called with the number of problems written so far.

    Raises:
        DataError: the dataset is bad.
        InputError: the target cannot be written.
    """
    read, derived = ReadReport(), DeriveReport()
    rows = read_problem_rows(source, on_error, read)
    rows = forget_derived(rows) if again else forget_outdated(rows, derived)
    with open_writer(target) as out:
        for count, (problem, row) in enumerate(derive_missing(rows, derived, processes), start=1):
            for node, raw in zip(problem.nodes, row.get("nodes") or (), strict=True):
                raw["derived"] = list(node.derived or ())
            provenance = _provenance(row.get("metadata"))
            if provenance is not None:
                provenance["forms"] = FORMS_VERSION
            out.write(row)
            if progress is not None:
                progress(count)
    return read, derived


def forget_derived(rows: Iterable[tuple[Problem, Row]]) -> Iterator[tuple[Problem, Row]]:
    """Yield the problems as if none had derived forms stored."""
    for problem, row in rows:
        for node in problem.nodes:
            node.derived = None
        yield problem, row


def forget_outdated(
    rows: Iterable[tuple[Problem, Row]], report: DeriveReport
) -> Iterator[tuple[Problem, Row]]:
    """Yield the problems, those whose forms are of another version as if they had none stored."""
    for problem, row in rows:
        if is_outdated(problem):
            for node in problem.nodes:
                report.outdated += node.derived is not None
                node.derived = None
        yield problem, row


def is_outdated(problem: Problem) -> bool:
    """Return whether the forms that a problem stores are of another version.

    Problems that ``consensusbench build`` made have a version.  Forms without one stay.
    """
    provenance = _provenance(problem.metadata)
    return provenance is not None and provenance.get("forms") != FORMS_VERSION


def _provenance(metadata: Any) -> Row | None:
    """Return the versions that made a problem's nodes, from its metadata."""
    found = metadata
    for key in ("construction", "provenance"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) and "normal_form" in found else None


def derive_missing(
    problems: Iterable[tuple[Problem, Row]], report: DeriveReport, processes: int | None = None
) -> Iterator[tuple[Problem, Row]]:
    """Yield the problems in order; nodes without stored derived forms have got theirs.

    Args:
        problems: with their rows, which pass through.
        report: filled on the way.
        processes: at most so many child processes; None for as many as cores, 0 or 1 for none.
    """
    with contextlib.ExitStack() as stack:
        deriver = _Deriver(stack, processes)
        waiting: list[tuple[Problem, Row]] = []
        for problem, row in problems:
            if not waiting and all(node.derived is not None for node in problem.nodes):
                yield problem, row
                continue
            waiting.append((problem, row))
            if len(waiting) == CHUNK_PROBLEMS:
                _fill(waiting, deriver, report)
                yield from waiting
                waiting = []
        _fill(waiting, deriver, report)
        yield from waiting


def _fill(problems: list[tuple[Problem, Row]], deriver: _Deriver, report: DeriveReport) -> None:
    """Give nodes without derived forms theirs."""
    start = time.monotonic()
    bare = [node for problem, _ in problems for node in problem.nodes if node.derived is None]
    wanted = dict.fromkeys(text for node in bare for text in node.expressions)
    forms = dict(zip(wanted, deriver.derive([*wanted]), strict=True))
    for node in bare:
        node.derived = _forms_of(node, forms)
        report.forms += len(node.derived)
    report.nodes += len(bare)
    report.expressions += len(wanted)
    report.seconds += time.monotonic() - start


def _forms_of(node: Node, forms: dict[str, list[str]]) -> tuple[str, ...]:
    """Return the forms of all expressions of a node, without those that add nothing."""
    if len(node.expressions) == 1:  # then each adds something as it is
        return tuple(forms[node.expressions[0]])
    made = dict.fromkeys(form for text in node.expressions for form in forms[text])
    return tuple(novel_forms(node.expressions, made))


class _Deriver:
    """Derives in this process, and after a while in children."""

    def __init__(self, stack: contextlib.ExitStack, processes: int | None) -> None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        self._children = min(cores, MAX_CHILDREN) if processes is None else processes
        self._stack = stack
        self._pool: ProcessPoolExecutor | None = None
        self._alone_s = 0.0

    def derive(self, expressions: list[str]) -> list[list[str]]:
        """Return the derived forms of each expression."""
        if self._children > 1 and self._alone_s >= ALONE_S:
            if self._pool is None:
                context = ChildContext("consensuspr.core")
                pool = ProcessPoolExecutor(self._children, mp_context=context)
                self._pool = self._stack.enter_context(pool)
            return [*self._pool.map(derive_forms, expressions, chunksize=64)]
        start = time.monotonic()
        forms = [derive_forms(text) for text in expressions]
        self._alone_s += time.monotonic() - start
        return forms
