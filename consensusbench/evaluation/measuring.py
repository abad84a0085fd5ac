"""All figures of one group of rollouts.

Headline figures are means over rollouts, as the paper's (equations 1 and 2, averaged).  Where
problems have unequal numbers of rollouts, the mean over problems of each problem's mean stands
beside them (``by_problem``, and pass@1 for Acc); with equal numbers the two are the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consensusbench.evaluation.columns import Columns, Floats, Ints, ncr_of, statuses_of, tpn_of
from consensusbench.evaluation.consistency import Consistency, consistency_of
from consensusbench.evaluation.estimates import (
    Estimate,
    mean_estimate,
    median_estimate,
    problem_mean_estimate,
    ratio_estimate,
)
from consensusbench.evaluation.pass_at_k import PassAtK, pass_at_k_estimate


@dataclass(frozen=True, slots=True)
class Settings:
    """How figures are made.

    Attributes:
        ks: of pass@k, ascending and distinct.
        confidence: of the intervals, in (0, 1).
        seed: of resampling.
    """

    ks: tuple[int, ...] = (1,)
    confidence: float = 0.95
    seed: int = 0


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """What follows from node hits: over all nodes, or over those that are not final.

    Attributes:
        ncr: mean over rollouts of equation 1.
        ncr_by_problem: mean over problems of the problem's mean.
        tpn: mean over rollouts of equation 2.
        tpn_pooled: all tokens over all matched nodes; rollouts without a match count with
            their tokens, which the mean cannot do.
        tpn_median: median over rollouts of equation 2.
        num_without_match: rollouts whose nodes were looked for and none found; no TPN.
        consistency: NCR against Acc.
    """

    ncr: Estimate
    ncr_by_problem: Estimate
    tpn: Estimate
    tpn_pooled: Estimate
    tpn_median: Estimate
    num_without_match: int
    consistency: Consistency

    def to_json(self) -> dict[str, object]:
        """Return the figures ready for ``json.dumps``."""
        return {
            "ncr": self.ncr.to_json(),
            "ncr_by_problem": self.ncr_by_problem.to_json(),
            "tpn": self.tpn.to_json(),
            "tpn_pooled": self.tpn_pooled.to_json(),
            "tpn_median": self.tpn_median.to_json(),
            "num_without_match": self.num_without_match,
            "consistency": self.consistency.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Group:
    """All figures of one group of rollouts.

    Attributes:
        key: what its rollouts share, label by dimension; empty for all rollouts.
        num_rollouts, num_problems: its size.
        statuses: rollouts by status.
        num_undecided: answers that the check came to no verdict on; they count as wrong.
        num_undecided_by_load: of these, the ones that a calmer machine would decide.
        acc: mean over rollouts whose answer could be judged.
        pass_at: by k, ascending.
        nodes: over all nodes.
        nodes_without_final: over the nodes that do not state the final answer.
        tokens, chars: length of a response, mean over rollouts.
    """

    key: dict[str, str]
    num_rollouts: int
    num_problems: int
    statuses: dict[str, int]
    num_undecided: int
    num_undecided_by_load: int
    acc: Estimate
    pass_at: tuple[PassAtK, ...]
    nodes: NodeFigures
    nodes_without_final: NodeFigures
    tokens: Estimate
    chars: Estimate

    @property
    def has_populations(self) -> bool:
        """Whether Acc and NCR are over other rollouts than all: some have one and not the other."""
        return {self.acc.count, self.nodes.ncr.count} != {self.num_rollouts}

    @property
    def acc_if_undecided_were_right(self) -> float | None:
        """Acc if every undecided answer were right: how much the count as wrong may cost."""
        if self.acc.value is None:
            return None
        return self.acc.value + self.num_undecided / self.acc.count

    def to_json(self) -> dict[str, object]:
        """Return the figures ready for ``json.dumps``."""
        return {
            "key": self.key,
            "num_rollouts": self.num_rollouts,
            "num_problems": self.num_problems,
            "statuses": self.statuses,
            "num_undecided": self.num_undecided,
            "num_undecided_by_load": self.num_undecided_by_load,
            "acc": self.acc.to_json(),
            "acc_if_undecided_were_right": self.acc_if_undecided_were_right,
            "pass_at": {str(one.k): one.to_json() for one in self.pass_at},
            "nodes": self.nodes.to_json(),
            "nodes_without_final": self.nodes_without_final.to_json(),
            "tokens": self.tokens.to_json(),
            "chars": self.chars.to_json(),
        }


def measure(
    columns: Columns, problem_ids: tuple[str, ...], key: dict[str, str], settings: Settings
) -> Group:
    """Return all figures of some rollouts.

    Args:
        columns: the rollouts, at least one.
        problem_ids: name of each problem number.
        key: what they share.
        settings: how figures are made.
    """
    problem, confidence = columns.problem, settings.confidence
    return Group(
        key=key,
        num_rollouts=len(columns),
        num_problems=len(np.unique(problem)),
        statuses=statuses_of(columns),
        num_undecided=int(columns.undecided.sum()),
        num_undecided_by_load=int(columns.undecided_by_load.sum()),
        acc=mean_estimate(columns.acc, problem, confidence, lies="in [0, 1]"),
        pass_at=tuple(
            pass_at_k_estimate(columns.acc, problem, k, confidence, problem_ids)
            for k in settings.ks
        ),
        nodes=_node_figures(columns, columns.nodes, columns.hits, settings),
        nodes_without_final=_node_figures(
            columns, columns.nodes_without_final, columns.hits_without_final, settings
        ),
        tokens=mean_estimate(columns.tokens, problem, confidence, lies="from 0"),
        chars=mean_estimate(columns.chars.astype(np.float64), problem, confidence, lies="from 0"),
    )


def _node_figures(columns: Columns, nodes: Ints, hits: Ints, settings: Settings) -> NodeFigures:
    problem, confidence = columns.problem, settings.confidence
    ncr, tpn = ncr_of(hits, nodes), tpn_of(columns.tokens, hits)
    return NodeFigures(
        ncr=mean_estimate(ncr, problem, confidence, lies="in [0, 1]"),
        ncr_by_problem=problem_mean_estimate(ncr, problem, confidence, lies="in [0, 1]"),
        tpn=mean_estimate(tpn, problem, confidence, lies="from 0"),
        tpn_pooled=_pooled_tpn(columns.tokens, nodes, hits, problem, confidence),
        tpn_median=median_estimate(tpn, problem, confidence),
        num_without_match=int(((nodes > 0) & (hits == 0)).sum()),
        consistency=consistency_of(ncr, columns.acc, problem, confidence, settings.seed),
    )


def _pooled_tpn(
    tokens: Floats, nodes: Ints, hits: Ints, problem: Ints, confidence: float
) -> Estimate:
    counted = ~np.isnan(tokens) & (nodes > 0)
    return ratio_estimate(
        tokens[counted],
        hits[counted].astype(np.float64),
        problem[counted],
        confidence,
        lies="from 0",
    )
