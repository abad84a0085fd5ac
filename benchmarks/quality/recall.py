"""Recall of the read nodes by solutions of a model that had no part in their wordings.

The read nodes of AIME 2024 name the rollouts that reach them in substance (``supported_by``).  A
model at a time is left out: of a node's wordings only those stay that another model's solutions
show, or that none shows.  Recall is the share of pairs of a node and a solution of that model that
the matcher finds.  Final nodes do not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.markdown import share, table
from benchmarks.quality.data import AIME_STRONG, read_nodes, read_rollouts
from consensusbench.evaluation.scored import Bools
from consensuspr.core import Matcher, match_batch
from consensuspr.core.patterns import Channel
from consensuspr.data import Problem, Row

# How wordings are found: each adds to what comes before.
LEVELS = ("patterns alone", "and statements", "and equations")


@dataclass(slots=True)
class Counts:
    """Hits and pairs of a node and a solution; (3,) hits by :data:`LEVELS`."""

    pairs: int = 0
    hits: np.ndarray = field(default_factory=lambda: np.zeros(len(LEVELS)))

    def add(self, found: Bools) -> None:
        """Count pairs: (wordings, pairs, 3) of hits."""
        self.pairs += found.shape[1]
        self.hits += found.any(axis=0).sum(axis=0)

    def rates(self) -> list[float]:
        """Return hits over pairs, by level."""
        return [float(hits) / self.pairs for hits in self.hits]


def total(counts: Iterable[Counts]) -> Counts:
    """Return the sum of counts."""
    found = [*counts]
    return Counts(sum(one.pairs for one in found), np.sum([one.hits for one in found], axis=0))


def hits_of(problem: Problem, wordings: Sequence[str], texts: Sequence[str]) -> Bools:
    """Return (wordings, texts, 3) hits by :data:`LEVELS`."""
    matcher = Matcher([[one] for one in wordings], expand=True, given=problem.problem)
    every = match_batch([matcher] * len(texts), texts)
    plain = match_batch([matcher] * len(texts), texts, statements=False)
    channels = np.array([every.channels(at) for at in range(len(texts))]).reshape(len(texts), -1)
    patterns = np.array([plain.matched(at) for at in range(len(texts))]).reshape(channels.shape)
    without_equations = patterns | ((channels > 0) & (channels != Channel.EQUATION))
    return np.stack([patterns, without_equations, channels > 0], axis=-1).transpose(1, 0, 2)


def measure(
    problems: Sequence[Problem], rollouts: Sequence[Row]
) -> tuple[dict[str, Counts], Counts]:
    """Return recall by the model that is left out, and chance: rollouts of other problems."""
    recall: dict[str, Counts] = defaultdict(Counts)
    chance = Counts()
    texts = [row["response"] for row in rollouts]
    owners = np.array([row["problem_id"] for row in rollouts])
    models = np.array([row["model"] for row in rollouts])
    ids = np.array([row["rollout_id"] for row in rollouts])
    for problem in problems:
        inner = [node for node in problem.nodes if not node.is_final]
        wordings = [(at, text) for at, node in enumerate(inner) for text in node.expressions]
        found = hits_of(problem, [text for _, text in wordings], texts)
        node_of = np.array([at for at, _ in wordings])
        for at, node in enumerate(inner):
            of_node = found[node_of == at]
            chance.add(of_node[:, owners != problem.problem_id])
            supports = np.isin(ids, node.extra["supported_by"]) & (owners == problem.problem_id)
            shown = of_node[:, :, -1] & supports
            for model in np.unique(models[supports]):
                kept = shown[:, models != model].any(axis=1) | ~shown.any(axis=1)
                recall[model].add(of_node[kept][:, supports & (models == model)])
    return dict(recall), chance


def recall_table(shared: Path) -> str:
    """Return a row for each model, and one for chance."""
    recall, chance = measure(read_nodes(shared), read_rollouts(shared, AIME_STRONG))
    every = total(recall.values())
    rows = [
        ["recall", f"{every.pairs:,}", *map(share, every.rates())],
        ["chance", f"{chance.pairs:,}", *(f"{rate:.2%}" for rate in chance.rates())],
    ]
    return table(["", "pairs", *LEVELS], rows, 1)
