"""Equal forms for nodes that have none stored: at load time, or written into a dataset.

Deriving takes a fraction of a millisecond an expression and never happens on the path of a
request.  Once a set has proven large, the work is spread over processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
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
    with open_writer(target) as out:
        for count, (problem, row) in enumerate(derive_missing(rows, derived, processes, again), 1):
            for node, raw in zip(problem.nodes, row.get("nodes") or (), strict=True):
                raw["derived"] = list(node.derived or ())
            provenance = _provenance(row.get("metadata"))
            if provenance is not None:
                provenance["forms"] = FORMS_VERSION
            out.write(row)
            if progress is not None:
                progress(count)
    return read, derived


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
    problems: Iterable[tuple[Problem, Row]],
    report: DeriveReport,
    processes: int | None = None,
    again: bool = False,
) -> Iterator[tuple[Problem, Row]]:
    """Yield the problems in order, with derived forms for nodes that have none of this version.

    Args:
        problems: with their rows, which pass through.
        report: filled on the way.
        processes: at most so many child processes; None for as many as cores, 0 or 1 for none.
        again: derive anew where forms are stored already.
    """
    with ExitStack() as stack:
        derive = _deriver(stack, processes)
        waiting: list[tuple[Problem, Row]] = []
        for problem, row in problems:
            if again or is_outdated(problem):
                for node in problem.nodes:
                    report.outdated += not again and node.derived is not None
                    node.derived = None
            if not waiting and all(node.derived is not None for node in problem.nodes):
                yield problem, row
                continue
            waiting.append((problem, row))
            if len(waiting) == CHUNK_PROBLEMS:
                _fill(waiting, derive, report)
                yield from waiting
                waiting = []
        _fill(waiting, derive, report)
        yield from waiting


def _fill(problems: list[tuple[Problem, Row]], derive: _Derive, report: DeriveReport) -> None:
    """Give nodes without derived forms theirs."""
    start = time.monotonic()
    bare = [node for problem, _ in problems for node in problem.nodes if node.derived is None]
    wanted = dict.fromkeys(text for node in bare for text in node.expressions)
    forms = dict(zip(wanted, derive([*wanted]), strict=True))
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


# Returns the derived forms of each expression.
_Derive = Callable[[list[str]], list[list[str]]]


def _deriver(stack: ExitStack, processes: int | None) -> _Derive:
    """Return a function that derives in this process, and after a while in children."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    children = min(cores, MAX_CHILDREN) if processes is None else processes
    pool: ProcessPoolExecutor | None = None
    alone_s = 0.0

    def derive(expressions: list[str]) -> list[list[str]]:
        nonlocal pool, alone_s
        if children > 1 and alone_s >= ALONE_S:
            if pool is None:
                context = ChildContext("consensuspr.core")
                pool = stack.enter_context(ProcessPoolExecutor(children, mp_context=context))
            return [*pool.map(derive_forms, expressions, chunksize=64)]
        start = time.monotonic()
        forms = [derive_forms(text) for text in expressions]
        alone_s += time.monotonic() - start
        return forms

    return derive
