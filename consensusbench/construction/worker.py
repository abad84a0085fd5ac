"""What is done with one problem, wherever it is done: extract and refine.

A pure function of its task and plan, so that every engine and every number of workers gives the
same result, and a problem that was lost with its process can be done again.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from typing import BinaryIO

from consensusbench.construction.types import (
    CLOCK_FACTOR,
    DEFAULT_TIME_LIMIT_S,
    Failure,
    Refiner,
    Result,
    Task,
)
from consensusbench.extraction.types import Candidate, Dropped, Extraction, Extractor
from consensuspr.data import Node
from consensuspr.errors import ConsensusPRError

# A median place, to a thousandth of a solution; more digits would be noise in the file.
POSITION_DECIMALS = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done with every task of a build.

    Attributes:
        extractor: stage 2; None where all tasks carry their extraction.
        refiner: stage 3; None where the build ends with stage 2.
        time_limit_s: seconds of processor time that one problem may take.
    """

    extractor: Extractor | None
    refiner: Refiner | None
    time_limit_s: float = DEFAULT_TIME_LIMIT_S


def run_task(plan: Plan, task: Task) -> Result:
    """Do the work on one problem; an error of a stage becomes a failure."""
    extraction, extract_s, refine_s = task.extraction, 0.0, 0.0
    try:
        start = time.perf_counter()
        if extraction is None:
            assert plan.extractor is not None, "a task without extraction needs an extractor"
            extraction = plan.extractor.extract(task.group.problem, task.rollouts)
            extract_s = time.perf_counter() - start
        if plan.refiner is None:
            return Result(extraction, extract_s=extract_s)
        start = time.perf_counter()
        nodes, dropped = _refined(plan.refiner, task, extraction)
        refine_s = time.perf_counter() - start
    except Exception as error:  # of one problem: which one, the sentence of the build says
        if os.environ.get("CONSENSUSPR_TRACEBACK", "0") not in ("", "0"):
            traceback.print_exc()
        known = isinstance(error, ConsensusPRError)
        detail = str(error) if known else f"{type(error).__name__}: {error}"
        return Result(extraction, failure=Failure("failed", detail), extract_s=extract_s)
    return Result(extraction, nodes, dropped, None, extract_s, refine_s)


def _refined(
    refiner: Refiner, task: Task, extraction: Extraction
) -> tuple[tuple[Node, ...], tuple[Dropped, ...]]:
    # Without what stage 2 dropped: the audit has it from there.
    candidates = Extraction(extraction.candidates)
    refined = refiner.refine(task.group.problem, candidates, len(task.group.sampled))
    nodes = tuple(
        node_of(candidate, number) for number, candidate in enumerate(refined.candidates, start=1)
    )
    return nodes, refined.dropped


def node_of(candidate: Candidate, number: int) -> Node:
    """Return a candidate as the n-th node of its problem.

    Its derived forms are those that the stages left, also where that is none: a server derives
    for nodes without the key only.
    """
    return Node(
        node_id=f"n{number}",
        label=candidate.label,
        type=candidate.type,
        expressions=candidate.expressions,
        derived=candidate.derived,
        support=candidate.support,
        is_final=candidate.is_final,
        extra={
            "num_models": candidate.num_models,
            "position": round(candidate.position, POSITION_DECIMALS),
        },
    )


# MERGED A process that does the work of one problem after another.
#
# Started as ``python -m consensusbench.construction.worker`` and talked to in pickles: a
# :class:`~consensusbench.construction.worker.Plan` first, answered by the reason why it cannot be
# used or None, then a task for each result.  It ends when its input does.
#
# A problem that takes too long ends the process itself, by a timer of the system that also
# reaches code which never returns to Python; what it cannot end is nothing.


def main() -> None:
    """Serve tasks until there are no more."""
    # An interrupt of the terminal reaches the whole group; the parent ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tasks = os.fdopen(os.dup(0), "rb")
    results = os.fdopen(os.dup(1), "wb")
    # What an extractor prints must not get between the pickles.
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        _serve(tasks, results)
    except (BrokenPipeError, EOFError):  # the parent is gone
        os._exit(0)


def _serve(tasks: BinaryIO, results: BinaryIO) -> None:

    try:
        plan: Plan = pickle.load(tasks)
    except EOFError:
        return
    except Exception as error:
        _send(results, f"{type(error).__name__}: {error}")
        return
    _send(results, None)
    while True:
        try:
            task = pickle.load(tasks)
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_PROF, plan.time_limit_s)
        signal.setitimer(signal.ITIMER_REAL, CLOCK_FACTOR * plan.time_limit_s)
        result = run_task(plan, task)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(results, result)


def _send(results: BinaryIO, value: object) -> None:
    pickle.dump(value, results, protocol=pickle.HIGHEST_PROTOCOL)
    results.flush()


if __name__ == "__main__":
    main()
    sys.exit()
