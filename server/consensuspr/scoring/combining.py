"""Acc, NCR, TPN and the reward of a batch, from what matching and the answer check found."""

from __future__ import annotations

import math

import numpy as np

from consensuspr.scoring.batch import Batch
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import OnUndecided, Score, Status

_WITHOUT_REWARD = frozenset(
    (Status.INVALID_NODES, Status.UNKNOWN_PROBLEM, Status.OVERSIZE, Status.INTERNAL)
)


def combine(batch: Batch, reward: RewardSpec, epoch: int, policy: OnUndecided) -> list[Score]:
    """Return the scores of a batch.

    NCR (equation 1 of the paper) and TPN (equation 2) are quotients of counts, so that
    equal counts give equal floats.  Unknown values enter the reward as NaN and come out as
    None.
    """
    acc = [_acc(batch, at, policy) for at in range(len(batch))]
    ncr = [
        matched / nodes if nodes and status is not Status.INTERNAL else math.nan
        for matched, nodes, status in zip(
            batch.num_matched, batch.num_nodes, batch.status, strict=True
        )
    ]
    rewards = reward.compute(np.array(acc), np.array(ncr), epoch).tolist()
    return [_score(batch, at, acc[at], ncr[at], rewards[at], policy) for at in range(len(batch))]


def _acc(batch: Batch, at: int, policy: OnUndecided) -> float:
    verdict = batch.verdicts[at]
    if verdict is None or batch.status[at] is Status.INTERNAL:
        return math.nan
    if verdict.correct is None:
        _note_undecided(batch, at, verdict.method, policy)
        return 0.0
    return 1.0 if verdict.correct else 0.0


def _note_undecided(batch: Batch, at: int, limit: str, policy: OnUndecided) -> None:
    done = "counts as wrong" if policy is OnUndecided.COUNT_WRONG else "masks the reward"
    message = f"the answer stayed undecided ({limit}) and {done}"
    if batch.status[at] is Status.OK:
        batch.fail(at, Status.ANSWER_UNDECIDED, message)
    else:
        batch.messages[at] += f"; {message}"


def _score(
    batch: Batch, at: int, acc: float, ncr: float, reward: float, policy: OnUndecided
) -> Score:
    status = batch.status[at]
    verdict = batch.verdicts[at]
    if status is Status.INTERNAL:
        return Score(status, message=batch.messages[at])
    undecided = verdict is not None and verdict.correct is None
    unknown = math.isnan(reward) or status in _WITHOUT_REWARD
    masked = undecided and policy is OnUndecided.MASK
    matched = batch.num_matched[at]
    tokens = batch.tokens[at]
    return Score(
        status=status,
        reward=None if unknown or masked else reward,
        acc=None if acc != acc else acc,
        ncr=None if ncr != ncr else ncr,
        num_nodes=batch.num_nodes[at],
        num_matched=matched,
        matched=batch.matched[at],
        tpn=tokens / matched if tokens and matched else None,
        spans=batch.spans[at],
        message=batch.messages[at],
        answer=None if verdict is None else verdict.answer,
        answer_method="" if verdict is None else verdict.method,
    )
