"""What is done with one problem, extract and refine, and the process that does it.

A pure function of task and stages, so that every engine and every number of workers gives the
same outcome, and a problem that was lost with its process can be done again.

The process is ``python -m consensusbench.construction.worker`` and is talked to in pickles:
:class:`Stages` first, answered by the reason why they cannot be used or None, then an outcome for
each task.  It ends when its input does.  A problem that takes too long ends the process itself,
by a timer of the system that also reaches code which never returns to Python; what it cannot end
is nothing.
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
    Excluded,
    Outcome,
    ProblemTask,
    Stage,
)
from consensusbench.extraction.types import Candidate, Extraction, Extractor, Refiner
from consensuspr.data import Node
from consensuspr.errors import ConsensusPRError

# A median place, to a thousandth of a solution; more digits would be noise in the file.
POSITION_DECIMALS = 3


@dataclass(frozen=True, slots=True)
class Stages:
    """What is done with every task of a build.

    Attributes:
        extractor: None where all tasks carry their extraction.
        refiner: None where the build ends with stage 2.
        time_limit_s: seconds of processor time that one problem may take.
    """

    extractor: Extractor | None
    refiner: Refiner | None
    time_limit_s: float = DEFAULT_TIME_LIMIT_S


def run_task(stages: Stages, task: ProblemTask) -> Outcome:
    """Do the work on one problem; an error of a stage becomes a failure."""
    extraction, extract_s = task.extraction, 0.0
    start = time.perf_counter()
    try:
        if extraction is None:
            assert stages.extractor is not None, "a task without extraction needs an extractor"
            extraction = stages.extractor.extract(task.chosen.problem, task.rollouts)
            extract_s = time.perf_counter() - start
        if stages.refiner is None:
            return Outcome(task.chosen, extraction, extract_s=extract_s)
        start = time.perf_counter()
        # Without what stage 2 dropped: the audit has it from there.
        refined = stages.refiner.refine(
            task.chosen.problem, Extraction(extraction.candidates), len(task.chosen.sampled)
        )
        nodes = tuple(node_of(one, number) for number, one in enumerate(refined.candidates, 1))
    except Exception as error:  # of one problem: which one, the sentence of the build says
        if os.environ.get("CONSENSUSPR_TRACEBACK", "0") not in ("", "0"):
            traceback.print_exc()
        known = isinstance(error, ConsensusPRError)
        detail = str(error) if known else f"{type(error).__name__}: {error}"
        stage: Stage = "extract" if extraction is None else "refine"
        failure = Excluded(task.chosen.problem, "failed", detail, stage)
        return Outcome(task.chosen, extraction, failure=failure, extract_s=extract_s)
    refine_s = time.perf_counter() - start
    return Outcome(task.chosen, extraction, nodes, refined.dropped, None, extract_s, refine_s)


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
        stages: Stages = pickle.load(tasks)
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
        signal.setitimer(signal.ITIMER_PROF, stages.time_limit_s)
        signal.setitimer(signal.ITIMER_REAL, CLOCK_FACTOR * stages.time_limit_s)
        outcome = run_task(stages, task)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(results, outcome)


def _send(results: BinaryIO, value: object) -> None:
    pickle.dump(value, results, protocol=pickle.HIGHEST_PROTOCOL)
    results.flush()


if __name__ == "__main__":
    main()
    sys.exit()
