"""Whether rollouts and dataset belong together, before a table of zeros and dashes is read.

Nothing is refused here: a dataset may well lack nodes for most problems.  Whoever named the
wrong file learns it from the first line.
"""

from __future__ import annotations

import os

from consensusbench.evaluation.scored_types import ScoredSet


def dataset_warning(scored: ScoredSet, dataset: str | os.PathLike[str]) -> str | None:
    """Return one sentence where fewer than half of the rollouts' problems have nodes.

    Args:
        scored: the rollouts; one that brought nodes of its own counts as having them.
        dataset: its path, to be named.
    """
    total = len(scored.rollouts)
    listed = with_nodes = 0
    for rollout in scored.rollouts:
        facts = scored.facts(rollout)
        listed += facts is not None
        with_nodes += bool(rollout.matched) or (facts is not None and bool(facts.node_ids))
    if not total or 2 * with_nodes >= total:
        return None
    of_all = f"of the {total:,} rollouts' problems" if total > 1 else "of the one rollout's problem"
    path = os.fspath(dataset)
    if with_nodes:
        said = f"only {with_nodes:,} {of_all} have nodes in {path}, {listed:,} are listed there"
    elif listed:
        said = f"none {of_all} has nodes in {path}, {listed:,} are listed there without"
    else:
        said = f"none {of_all} is in {path}"
    return f"{said}: is it the right dataset?"
