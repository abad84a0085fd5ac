"""Nodes of many problems looked for in rollouts of others: the level of chance.

Every node is looked for in every sampled rollout of its source but those of its own problem.
The nodes of many problems go into one automaton, so that a text is read once for a thousand
nodes and not once for each problem: a set of 17,000 problems takes seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from consensusbench.probes.sample import Stranger
from consensuspr.core import Matcher, match_batch

# Of one automaton: beyond this it leaves the cache and each text takes longer.
POOL_NODES = 1024

Patterns = Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class StrangerHits:
    """What rollouts of other problems hit of one problem's nodes.

    Attributes:
        hits: (strangers, nodes) True where a node was found.
    """

    hits: npt.NDArray[np.bool_]

    @property
    def num_strangers(self) -> int:
        """Rollouts of other problems that were looked at."""
        return len(self.hits)

    @property
    def rates(self) -> list[float]:
        """For each node the share of strangers that hit it; 0 where there are none."""
        return [float(rate) for rate in self.hits.sum(axis=0) / max(len(self.hits), 1)]


def match_strangers(
    problems: Sequence[tuple[str, Patterns]], strangers: Sequence[Stranger], threads: int = 0
) -> list[StrangerHits]:
    """Look for the nodes of problems of one source in the sampled rollouts of that source.

    Args:
        problems: (id, for each node what it is matched by).
        strangers: the sample; rollouts of a problem itself are left out for it.
        threads: of the scan, 0 for all cores.

    Returns:
        For each problem its hits, in order.
    """
    owners = np.array([one.problem_id for one in strangers], dtype=object)
    texts = [one.text for one in strangers]
    results: list[StrangerHits] = []
    for pool in _pools(problems):
        matcher = Matcher([node for _, patterns in pool for node in patterns])
        matched = match_batch([matcher] * len(texts), texts, threads=threads)
        hits = np.array([matched.matched(row) for row in range(len(texts))], dtype=np.bool_)
        hits = hits.reshape(len(texts), matcher.num_nodes)
        start = 0
        for problem_id, patterns in pool:
            own = hits[:, start : start + len(patterns)]
            results.append(StrangerHits(own[owners != problem_id]))
            start += len(patterns)
    return results


def _pools(problems: Sequence[tuple[str, Patterns]]) -> list[list[tuple[str, Patterns]]]:
    pools: list[list[tuple[str, Patterns]]] = []
    size = POOL_NODES
    for problem in problems:
        if size + len(problem[1]) > POOL_NODES:
            pools.append([])
            size = 0
        pools[-1].append(problem)
        size += len(problem[1])
    return pools
