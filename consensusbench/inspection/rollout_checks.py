"""What rollouts say about nodes: hit by rollouts of other problems, or by none of their own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from consensusbench.inspection.findings import Code, Finding
from consensusbench.inspection.match_checks import Examined
from consensusbench.probes.strangers import match_strangers
from consensusbench.probes.survey import RolloutSurvey

CHUNK_PROBLEMS: Final = 512
# Fewer strangers do not tell a rate of some per cent from an accident.
MIN_STRANGERS: Final = 20


def check_rollouts(
    problems: Iterable[Examined],
    survey: RolloutSurvey,
    *,
    max_unrelated: float,
    min_rollouts: int,
    threads: int,
) -> Iterator[tuple[int, list[Finding]]]:
    """Yield how many problems of a chunk are done, and what was found.

    Args:
        problems: of the dataset, derived forms in use.
        survey: of the rollouts.
        max_unrelated: share of other problems' rollouts that a node may hit.
        min_rollouts: of its own problem, from which on a node that none hits is told.
        threads: of the scan, 0 for all cores.
    """
    waiting: dict[str, list[Examined]] = defaultdict(list)
    for one in problems:
        source = one.problem.data_source
        waiting[source].append(one)
        if len(waiting[source]) == CHUNK_PROBLEMS:
            chunk = waiting.pop(source)
            yield len(chunk), list(_check(chunk, survey, max_unrelated, min_rollouts, threads))
    for chunk in waiting.values():
        yield len(chunk), list(_check(chunk, survey, max_unrelated, min_rollouts, threads))


def _check(
    chunk: Sequence[Examined],
    survey: RolloutSurvey,
    max_unrelated: float,
    min_rollouts: int,
    threads: int,
) -> Iterator[Finding]:
    strangers = survey.sample.strangers(chunk[0].problem.data_source)
    problems = [(one.problem.problem_id, one.patterns) for one in chunk]
    for one, found in zip(chunk, match_strangers(problems, strangers, threads), strict=True):
        if found.num_strangers >= MIN_STRANGERS:
            for node, rate in zip(one.nodes, found.rates, strict=True):
                if rate > max_unrelated:
                    yield _finding(
                        one,
                        node.node_id,
                        Code.UNRELATED_MATCH,
                        f"is hit by {100 * rate:.1f} % of {found.num_strangers} rollouts of other "
                        f"problems, the limit is {100 * max_unrelated:.1f} %: make it more "
                        "specific or drop it",
                    )
        own = survey.own.get(one.problem.problem_id)
        if own is not None and own.rollouts >= min_rollouts:
            for node, hits in zip(one.nodes, own.hits, strict=True):
                if not hits:
                    yield _finding(
                        one,
                        node.node_id,
                        Code.NEVER_MATCHED,
                        f"is hit by none of {own.rollouts} rollouts of its problem: add the "
                        "wordings that rollouts use, or drop it",
                    )


def _finding(one: Examined, node_id: str, code: Code, message: str) -> Finding:
    return Finding(code, message, one.line, one.problem.problem_id, node_id)
