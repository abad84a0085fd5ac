"""Equal forms for nodes that have none stored: at load time, or written into a dataset.

Deriving takes a fraction of a millisecond an expression (``derive_pool.py`` helps with
large sets) and never happens on the path of a request.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from consensuspr.core import normalize
from consensuspr.data import Node, OnError, Problem, ReadReport, Row, open_writer, read_problem_rows
from consensuspr.scoring.derive_pool import DerivePool

# Problems whose expressions are derived together: some thousand expressions, a fraction of a
# second of work, which is enough to share with children.  All that is read of them is in memory.
CHUNK_PROBLEMS = 512


@dataclass(slots=True)
class DeriveReport:
    """What deriving did.

    Attributes:
        nodes: nodes that had no derived forms stored and were derived from.
        expressions: distinct expressions of these, summed over chunks.
        forms: derived forms that they got.
        seconds: time that deriving took.
    """

    nodes: int = 0
    expressions: int = 0
    forms: int = 0
    seconds: float = 0.0


def derive_missing(
    problems: Iterable[tuple[Problem, Row]], report: DeriveReport, processes: int | None = None
) -> Iterator[tuple[Problem, Row]]:
    """Yield the problems in order, nodes without stored derived forms having got theirs.

    Args:
        problems: with their rows, which pass through.
        report: filled on the way.
        processes: at most so many child processes; None for as many as cores, 0 or 1 to derive
            in this process.
    """
    with DerivePool(processes) as pool:
        waiting: list[tuple[Problem, Row]] = []
        for problem, row in problems:
            if not waiting and all(node.derived is not None for node in problem.nodes):
                # The usual case: a problem that waits for others is one more object that the
                # garbage collector looks at, again and again.
                yield problem, row
                continue
            waiting.append((problem, row))
            if len(waiting) == CHUNK_PROBLEMS:
                _fill(waiting, pool, report)
                yield from waiting
                waiting = []
        _fill(waiting, pool, report)
        yield from waiting


def _fill(problems: list[tuple[Problem, Row]], pool: DerivePool, report: DeriveReport) -> None:
    """Give nodes without derived forms theirs."""
    start = time.monotonic()
    bare = [node for problem, _ in problems for node in problem.nodes if node.derived is None]
    wanted = dict.fromkeys(text for node in bare for text in node.expressions)
    forms = pool.derive(list(wanted))
    for node in bare:
        node.derived = _forms_of(node, forms)
        report.forms += len(node.derived)
    report.nodes += len(bare)
    report.expressions += len(wanted)
    report.seconds += time.monotonic() - start


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
        for count, (problem, row) in enumerate(
            derive_missing(forget_derived(rows) if again else rows, derived, processes), start=1
        ):
            for node, raw in zip(problem.nodes, row.get("nodes") or (), strict=True):
                raw["derived"] = list(node.derived or ())
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


def _forms_of(node: Node, forms: dict[str, list[str]]) -> tuple[str, ...]:
    """Return the forms of all expressions of a node, without those equal in normal form."""
    if len(node.expressions) == 1:  # then they differ from it and from each other as they are
        return tuple(forms[node.expressions[0]])
    seen = {normalize(text) for text in node.expressions}
    kept = []
    for form in dict.fromkeys(form for text in node.expressions for form in forms[text]):
        normal = normalize(form)
        if normal not in seen:
            seen.add(normal)
            kept.append(form)
    return tuple(kept)
