"""What is done with one problem, wherever it is done: extract and refine.

A pure function of its task and plan, so that every engine and every number of workers gives the
same result, and a problem that was lost with its process can be done again.
"""

from __future__ import annotations

import os
import time
import traceback
from dataclasses import dataclass

from consensusbench.construction.refiner import Refiner
from consensusbench.construction.time_limit import DEFAULT_TIME_LIMIT_S
from consensusbench.construction.values import Failure, Result, Task
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
