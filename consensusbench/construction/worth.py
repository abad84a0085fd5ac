"""The worth of a build's nodes on its own rollouts, right and wrong ones.

A **weight** for each node of a problem that has both: ``max(0, rate among the right - rate among
the wrong)``.  It is stored, and counts where a request asks for ``ncr=weighted``.

And how well NCR **separates** the two within a problem: without the nodes that state the final
answer, guarded by the stored budget; as a baseline, length alone.  The nodes were made of these
rollouts, so that the figure flatters; ``consensusbench evaluate`` on rollouts of other models does
not.

Each problem's metadata record what **attacks** earn of its nodes, and what wrong rollouts earn on
average (``consensuspr doctor`` reads them).  Rollouts whose answer is undecided count as neither.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from consensusbench.construction.budgets import with_equations
from consensusbench.construction.store import DistinctRollout, Inputs
from consensusbench.evaluation.metrics import MIN_PROBLEMS, auroc
from consensusbench.evaluation.scored import Bools, Floats
from consensusbench.extraction.statements import forms_beyond
from consensusbench.quality.attacks import short_attacks
from consensusbench.quality.probes import CheapAttack, cheap_attacks
from consensuspr.console import count_of
from consensuspr.core import BatchResult, Matcher, match_batch
from consensuspr.data import Problem, Row
from consensuspr.scoring.derive import is_outdated
from consensuspr.scoring.guard import GuardCounts, counted, factors_of, figures_of, length_of
from consensuspr.scoring.matchers import matcher_of

# Of a weight or a mean NCR, in files; there are fewer rollouts than it takes for more.
DECIMALS = 4
# Key of the wrong rollouts among the attacks.
WRONG = "wrong"
_SCORES = ("ncr", "ncr_raw", "length")


class Judge:
    """Gives nodes their weights, from the rollouts of their problem.

    Attributes:
        weighted: problems that got weights.
    """

    def __init__(self, inputs: Inputs) -> None:
        self.weighted = 0
        # Of each problem with right and wrong rollouts: the AUROC of NCR without final nodes,
        # guarded and unguarded, and of length alone.
        self._separation: list[tuple[float, float, float]] = []
        # By data source, and then by attack: the NCR earned of each problem.
        self._earned: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._inputs = inputs

    def right_of(self, problem: Problem) -> list[DistinctRollout]:
        """Return the right rollouts of a problem."""
        rollouts = self._inputs.rollouts_of_id(problem.problem_id)
        return [rollout for rollout in rollouts if rollout.label]

    def separation(self) -> Row:
        """Return the number of problems that were judged, and the means over them."""
        count = len(self._separation)
        means = np.mean(self._separation, axis=0).tolist() if count else [None] * len(_SCORES)
        return {"problems": count, **dict(zip(_SCORES, means, strict=True))}

    def sentence(self) -> str:
        """Return the separation as a sentence."""
        found = self.separation()
        if not found["problems"]:
            return "no problem has both right and wrong rollouts, so nodes get no weights"
        ncr, raw, length = (f"{found[name]:.3f}" for name in _SCORES)
        unguarded = "" if ncr == raw else f" ({raw} without the guard)"
        little = "; so few say little" if found["problems"] < MIN_PROBLEMS else ""
        return (
            f"AUROC within problems, without final nodes: NCR {ncr}{unguarded}, response length "
            f"{length} ({count_of(found['problems'], 'problem')}; on the rollouts that the nodes "
            f"were built from{little})"
        )

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

        A stored budget gets its limit on equations.  A problem without right rollouts stays as it
        is; one without wrong ones gets no weights.
        """
        labelled = self._inputs.rollouts_of_id(problem.problem_id)
        rollouts = [rollout for rollout in labelled if rollout.label]
        num_right = len(rollouts)
        rollouts += [rollout for rollout in labelled if rollout.label is False]
        if not num_right or not problem.nodes:
            return problem
        outdated = is_outdated(problem)
        # As they are served: where no forms of this version are stored, a server makes them.
        served = [
            replace(node, derived=forms_beyond(node.expressions))
            if outdated or node.derived is None
            else node
            for node in problem.nodes
        ]
        matcher = matcher_of(served, problem.problem)
        hits: list[Bools] = []
        counts: list[GuardCounts] = []
        lengths: list[int] = []
        chars: list[int] = []
        for texts in self._inputs.responses(rollouts):
            found = match_batch([matcher] * len(texts), texts, threads=1)
            hits += [found.matched(at) for at in range(len(texts))]
            counts += counted(found)
            lengths += map(length_of, texts)
            chars += map(len, texts)
        if problem.budget is not None:
            most = max(count.equations for count in counts[:num_right])
            budget = with_equations(problem.budget, most, len(problem.nodes))
            problem = replace(problem, budget=budget)
        if num_right == len(rollouts):
            return problem
        reached = np.array(hits)
        guard = np.array(
            [
                figures_of(count, problem.budget, len(problem.nodes), length).factor
                for count, length in zip(counts, lengths, strict=True)
            ]
            if problem.budget is not None
            else np.ones(len(rollouts))
        )
        right = np.arange(len(rollouts)) < num_right
        inner = reached[:, [not node.is_final for node in problem.nodes]]
        if inner.shape[1]:
            raw = inner.mean(axis=1)
            scores = (raw * guard, raw, np.array(chars))
            ncr, ncr_raw, length = (auroc(score, right) for score in scores)
            self._separation.append((ncr, ncr_raw, length))
        wrong = float((reached.mean(axis=1) * guard)[~right].mean())
        construction = {
            **problem.metadata.get("construction", {}),
            "earned": self._earns(problem, matcher, wrong),
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
        for name, ncr in earned.items():
            self._earned[problem.data_source][name].append(ncr)
        return {name: round(ncr, DECIMALS) for name, ncr in earned.items()}


def _guard(problem: Problem, found: BatchResult, texts: Sequence[str]) -> Floats:
    """Return the factors of the stored budget for texts matched for a problem, 1 without one."""
    if problem.budget is None:
        return np.ones(len(texts))
    count = len(texts)
    nodes = [len(problem.nodes)] * count
    return np.array(factors_of(counted(found), [problem.budget] * count, nodes, texts))
