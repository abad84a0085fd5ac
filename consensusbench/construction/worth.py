"""The worth of a build's nodes on its own rollouts, right and wrong ones.

A **weight** for each node of a problem that has both: ``max(0, rate among the right - rate among
the wrong)``.  It is stored, and counts where a request asks for ``ncr=weighted``.

And how well NCR **separates** the two within a problem: without the nodes that state the final
answer, guarded by the stored budget; as a baseline, length alone.  The nodes were made of these
rollouts, so that the figure flatters; ``consensusbench evaluate`` on rollouts of other models does
not.

What **attacks** earn of the nodes is measured too, against what wrong rollouts earn on average.
Both go into each problem's metadata (``consensuspr doctor`` reads them).

Rollouts whose answer is undecided count as neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from consensusbench.construction.store import DistinctRollout, Inputs
from consensusbench.evaluation.metrics import auroc
from consensusbench.evaluation.scored import Bools, Floats, Ints
from consensusbench.extraction.statements import forms_beyond
from consensusbench.quality.attacks import short_attacks
from consensusbench.quality.probes import CheapAttack, cheap_attacks
from consensuspr.console import count_of
from consensuspr.core import BatchResult, Matcher, match_batch
from consensuspr.data import Problem, Row
from consensuspr.scoring.derive import is_outdated
from consensuspr.scoring.guard import counted, factors_of

# Of a weight or a mean NCR, in files; there are fewer rollouts than it takes for more.
DECIMALS = 4
# What stands beside the attacks in the metadata.
WRONG = "wrong"


@dataclass(slots=True)
class Separation:
    """How NCR separates right from wrong, over the problems that have both and nodes to judge by.

    Attributes:
        problems: how many.
        ncr, ncr_raw, length: sums over problems of the AUROC of NCR without final nodes, guarded
            and unguarded, and of length alone.
    """

    problems: int = 0
    ncr: float = 0.0
    ncr_raw: float = 0.0
    length: float = 0.0

    def add(self, guarded: Floats, raw: Floats, chars: Ints, right: Bools) -> None:
        """Count a problem by the (n,) figures of its rollouts."""
        self.problems += 1
        self.ncr += auroc(guarded, right)
        self.ncr_raw += auroc(raw, right)
        self.length += auroc(chars, right)

    def to_json(self) -> Row:
        """Return the means over problems, None without a problem."""
        sums = {"ncr": self.ncr, "ncr_raw": self.ncr_raw, "length": self.length}
        means = {name: total / self.problems if self.problems else None
                 for name, total in sums.items()}  # fmt: skip
        return {"problems": self.problems, **means}

    def sentence(self) -> str:
        """Return it as a sentence."""
        if not self.problems:
            return "no problem has right and wrong rollouts: nodes get no weights"
        ncr, raw, length = (
            f"{total / self.problems:.3f}" for total in (self.ncr, self.ncr_raw, self.length)
        )
        unguarded = "" if ncr == raw else f" ({raw} without the guard)"
        return (
            f"AUROC within problems without final nodes: {ncr}{unguarded}, of length alone "
            f"{length} (over {count_of(self.problems, 'problem')}; of the rollouts that nodes were "
            "made of)"
        )


class Judge:
    """Gives nodes their weights, from the rollouts of their problem."""

    def __init__(self, inputs: Inputs) -> None:
        self.separation = Separation()
        self.weighted = 0
        # By data source, and then by attack: the NCR earned of each problem.
        self._earned: dict[str, dict[str, list[float]]] = {}
        self._inputs = inputs

    def right_of(self, problem: Problem) -> list[DistinctRollout]:
        """Return the right rollouts of a problem."""
        return [rollout for rollout in self._rollouts_of(problem) if rollout.label]

    def _rollouts_of(self, problem: Problem) -> list[DistinctRollout]:
        number = self._inputs.number_of(problem.problem_id)
        return [] if number is None else self._inputs.rollouts_of(number)

    def cheap(self) -> tuple[CheapAttack, ...]:
        """Return the attacks that earn more of a source than wrong rollouts do on average."""
        return cheap_attacks(
            (attack, source, float(np.mean(ncr)), float(np.mean(earned[WRONG])))
            for source, earned in self._earned.items()
            for attack, ncr in earned.items()
            if attack != WRONG
        )

    def weigh(self, problem: Problem) -> Problem:
        """Return a problem with weights, if it has none, and with what attacks earn of it.

        A problem without right or without wrong rollouts stays as it is.
        """
        of_problem = self._rollouts_of(problem)
        rollouts = [rollout for rollout in of_problem if rollout.label]
        num_right = len(rollouts)
        rollouts += [rollout for rollout in of_problem if rollout.label is False]
        if not 0 < num_right < len(rollouts) or not problem.nodes:
            return problem
        outdated = is_outdated(problem)
        matcher = Matcher(
            [node.expressions for node in problem.nodes],
            # As they are served: where none of this version are stored, a server makes them.
            derived=[
                forms_beyond(node.expressions) if outdated or node.derived is None else node.derived
                for node in problem.nodes
            ],
        )
        hits, guard, chars = [], [], []
        for texts in self._inputs.responses(rollouts):
            found = match_batch([matcher] * len(texts), texts, threads=1)
            hits += [found.matched(at) for at in range(len(texts))]
            guard += _guard(problem, found, texts).tolist()
            chars += [len(text) for text in texts]
        reached = np.array(hits)
        right = np.arange(len(rollouts)) < num_right
        inner = reached[:, [not node.is_final for node in problem.nodes]]
        if inner.shape[1]:
            raw = inner.mean(axis=1)
            self.separation.add(raw * np.array(guard), raw, np.array(chars), right)
        ncr = reached.mean(axis=1) * np.array(guard)
        construction = {
            **problem.metadata.get("construction", {}),
            "earned": self._earns(problem, matcher, float(ncr[~right].mean())),
        }
        problem = replace(problem, metadata={**problem.metadata, "construction": construction})
        if any(node.weight is not None for node in problem.nodes):
            return problem
        weights = reached[right].mean(axis=0) - reached[~right].mean(axis=0)
        self.weighted += 1
        nodes = tuple(
            replace(node, weight=round(max(0.0, weight), DECIMALS))
            for node, weight in zip(problem.nodes, weights.tolist(), strict=True)
        )
        return replace(problem, nodes=nodes)

    def _earns(self, problem: Problem, matcher: Matcher, wrong: float) -> dict[str, float]:
        """Return what wrong rollouts and attacks earn of a problem, and count it."""
        earned = {WRONG: wrong}
        if problem.budget is not None:
            attacks = dict(short_attacks(problem.problem, problem.budget))
            texts = list(attacks.values())
            found = match_batch([matcher] * len(texts), texts, threads=1)
            guard = _guard(problem, found, texts)
            for at, attack in enumerate(attacks):
                earned[attack.value] = float(found.matched(at).mean() * guard[at])
        for name, value in earned.items():
            of_source = self._earned.setdefault(problem.data_source, {})
            of_source.setdefault(name, []).append(value)
        return {name: round(value, DECIMALS) for name, value in earned.items()}


def _guard(problem: Problem, found: BatchResult, texts: Sequence[str]) -> Floats:
    """Return the factors of the stored budget for texts matched for a problem, 1 without one."""
    if problem.budget is None:
        return np.ones(len(texts))
    count = len(texts)
    nodes = [len(problem.nodes)] * count
    return np.array(factors_of(*counted(found), [problem.budget] * count, nodes, texts))
