"""What can be said of one problem and its nodes without matching anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from consensusbench.extraction.final import states_answer
from consensusbench.inspection.findings import Code
from consensusbench.inspection.node_checks import Remark
from consensusbench.refinement.settings import RefineSettings
from consensuspr.data import Node, Problem
from consensuspr.scoring.limits import DEFAULT_LIMITS, Limits

# The bounds that construction keeps to unless it is told otherwise.
MIN_NODES: Final = RefineSettings().min_nodes
MAX_NODES: Final = RefineSettings().max_nodes


def check_problem(problem: Problem, nodes: Sequence[Node]) -> Iterator[Remark]:
    """Yield what is wrong with a problem as a whole.

    Args:
        problem: as the dataset has it.
        nodes: its nodes with the derived forms in use.
    """
    if not nodes:
        yield (
            Code.NO_NODES,
            "has no nodes and gives no process reward; build its nodes or leave it out",
        )
    if problem.ground_truth is None:
        yield Code.NO_GROUND_TRUTH, "has no ground_truth, so that no answer can be checked; add it"
    if not problem.problem.strip():
        yield (
            Code.NO_PROBLEM_TEXT,
            "has no text: whether its nodes restate it cannot be checked, and it cannot be "
            "exported; add it",
        )
    if nodes and not MIN_NODES <= len(nodes) <= MAX_NODES:
        yield (
            Code.NODE_COUNT,
            f"has {len(nodes)} node{'s' * (len(nodes) > 1)}, construction keeps {MIN_NODES} to "
            f"{MAX_NODES}: one hit moves its NCR by {1 / len(nodes):.2f}",
        )
    yield from _check_limits(nodes, DEFAULT_LIMITS)


def check_final(problem: Problem, nodes: Sequence[Node]) -> Iterator[tuple[str | None, Remark]]:
    """Yield node id (None: the problem) and remark on which nodes state the final answer."""
    finals = [node.node_id for node in nodes if node.is_final]
    unmarked = 0
    for node in nodes if problem.ground_truth is not None else ():
        states = any(states_answer(text, problem.ground_truth) for text in node.expressions)
        if states == node.is_final:
            continue
        answer = f"the ground truth {problem.ground_truth!r:.60}"
        unmarked += states
        if states:
            code = Code.UNMARKED_FINAL
            said = f"states {answer} and is not marked: set is_final, or figures without "
            said += "final-answer nodes leak the answer"
        else:
            code = Code.FINAL_NOT_ANSWER
            said = f"is marked as the final answer and does not say {answer}: look whether it does"
        yield node.node_id, (code, said)
    if nodes and not finals and not unmarked:
        yield (
            None,
            (
                Code.NO_FINAL_NODE,
                "has no node that states the final answer; its NCR is the same with and without",
            ),
        )
    if len(finals) > 1:
        yield (
            None,
            (
                Code.SEVERAL_FINAL_NODES,
                f"has {len(finals)} nodes that state the final answer ({', '.join(finals)[:80]}): "
                "the answer counts so many times; keep the most specific one if that is not meant",
            ),
        )


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
            yield (
                Code.INLINE_LIMIT,
                f"has {value:,} {what}, nodes sent with a request may have {limit:,}; serve the "
                "dataset instead of exporting with --inline-nodes",
            )
            return
