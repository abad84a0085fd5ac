"""The scorer: one batch of rollouts in, one score each out.

Joins node matching (:mod:`consensuspr.scoring.matching`), the answer check
(:mod:`consensuspr.scoring.answers`) and the reward.  It is all that the server and the
in-process client share, so that both give the same numbers.  It holds no training state:
equal arguments give equal scores.

**Status.** Where several apply, the first of these is told::

    INTERNAL, OVERSIZE, UNKNOWN_PROBLEM, INVALID_NODES, NO_NODES, NO_GROUND_TRUTH,
    ANSWER_UNDECIDED, OK

=================  ======================  ==================  =============================
status             acc                     ncr                 reward
=================  ======================  ==================  =============================
OK                 yes                     yes                 yes
ANSWER_UNDECIDED   0, counted as wrong     yes                 yes; None with MASK
NO_NODES           if a truth is known     None                outcome, curriculum stage 2
NO_GROUND_TRUTH    None                    yes                 curriculum stage 1
UNKNOWN_PROBLEM    None                    None                None
INVALID_NODES      if a truth is known     None                None
OVERSIZE           None                    None                None
INTERNAL           None                    None                None
=================  ======================  ==================  =============================

A problem is known if the dataset has it, or if the rollout brings nodes or a ground truth.
With neither nodes nor a truth the status is NO_NODES.  An answer that stays undecided
where there are no nodes counts as 0 too, under NO_NODES, and is masked alike; the message
says so.  An undecided answer with MASK has no reward in any stage.

**Failures.** What goes wrong for one rollout is a status on that rollout.  An exception
raises for the call as a whole only where nothing of it can be done: an unknown dataset, a
field of a wrong type, a deadline.  If the batch scan or the batched answer check
raises, the rollouts are tried one by one, and only those that fail are INTERNAL.

**Busy machines.** An answer that only the load of others kept from being checked is checked
again, here and nowhere else, for as long as the caller's deadline allows.

Not covered here: limits on the size of a batch, concurrency and queues, which belong to
the server.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from consensuspr.core import NORMAL_FORM_VERSION, Matcher, normalize
from consensuspr.data import Node
from consensuspr.errors import DeadlineExceeded, InputError, InvalidRequest, UnknownDataset
from consensuspr.scoring.answers import ANSWER_VERSION, AnswerVerifier, Verdict
from consensuspr.scoring.dataset_index import DatasetIndex
from consensuspr.scoring.matching import Batch, compile_inline, inline_as_nodes, match_nodes
from consensuspr.scoring.types import (
    DEFAULT_LIMITS,
    AnswerRule,
    Explanation,
    Identity,
    Limits,
    NodeExplanation,
    OnUndecided,
    Rollout,
    Score,
    ScoreOptions,
    Status,
)
from consensuspr.version import VERSION

DEFAULT_OPTIONS = ScoreOptions()

# How often an answer is checked again that a busy machine left open.  Each time the verifier
# waits for several budgets of an answer, so that no pause is needed in between.
MAX_REPEATS = 5
# So long before the deadline no answer is checked again any more: the scores of a whole batch
# must not come too late for one that stays open.
REPLY_S = 1.0

_NOT_CHECKED = frozenset((Status.OVERSIZE, Status.UNKNOWN_PROBLEM, Status.INTERNAL))
_WITHOUT_REWARD = _NOT_CHECKED | {Status.INVALID_NODES}
_DONE = {OnUndecided.COUNT_WRONG: "counts as wrong", OnUndecided.MASK: "masks the reward"}


class Scorer:
    """Scores batches against named datasets; thread-safe, as all that it holds is.

    Args:
        datasets: by the name that requests use; at least one.
        verifier: checks answers; the caller closes it.
        threads: of one batch scan; 0 for all cores.
        limits: bounds on one rollout.

    Raises:
        InputError: no dataset, or a negative number of threads.
    """

    def __init__(
        self,
        datasets: Mapping[str, DatasetIndex],
        *,
        verifier: AnswerVerifier,
        threads: int = 0,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        if not datasets:
            raise InputError("a scorer needs at least one dataset")
        if threads < 0:
            raise InputError(f"threads must be 0 or more, got {threads}")
        self.datasets = dict(datasets)
        self.limits = limits
        self._verifier = verifier
        self._threads = threads

    def score(
        self,
        rollouts: Sequence[Rollout],
        options: ScoreOptions = DEFAULT_OPTIONS,
        deadline: float | None = None,
    ) -> tuple[list[Score], Identity]:
        """Score a batch.

        Args:
            rollouts: the batch; may be empty.
            options: how.
            deadline: :func:`time.monotonic` value after which no further work begins.

        Returns:
            One score for each rollout, in order, and what a replay needs to repeat them.

        Raises:
            UnknownDataset: there is no dataset of that name.
            InvalidRequest: no dataset is named and there are several.
            InputError: a field of a rollout has a wrong type.
            DeadlineExceeded: the deadline passed; no score is kept.
        """
        name, index = self.dataset(options.dataset)
        identity = Identity(
            dataset=name,
            dataset_digest=index.digest,
            normal_form_version=NORMAL_FORM_VERSION,
            answer_version=ANSWER_VERSION,
            reward=options.reward,
            epoch=options.epoch,
            answer_rule=options.answer_rule or index.answer_rule or AnswerRule.AUTO,
            server_version=VERSION,
        )
        batch = Batch(rollouts, self.limits, deadline)
        match_nodes(batch, index, self._threads, include_spans=options.include_spans)
        _check_answers(batch, self._verifier, identity.answer_rule)
        return _combine(batch, options), identity

    def explain(
        self,
        rollout: Rollout,
        options: ScoreOptions = DEFAULT_OPTIONS,
        deadline: float | None = None,
    ) -> Explanation:
        """Score one rollout and tell which expression of which node was found where.

        Arguments and errors are those of :meth:`score`; the score always has spans.
        """
        [score], identity = self.score([rollout], replace(options, include_spans=True), deadline)
        index = self.datasets[identity.dataset]
        return _explain_nodes(rollout, score, identity, index, self.limits)

    def dataset(self, name: str | None) -> tuple[str, DatasetIndex]:
        """Return the dataset that a request means, with its name.

        Raises:
            UnknownDataset: there is none of that name.
            InvalidRequest: none is named and there are several.
        """
        known = ", ".join(sorted(self.datasets))
        if not name:
            if len(self.datasets) > 1:
                raise InvalidRequest(f"dataset must be named, there are several: {known}")
            return next(iter(self.datasets.items()))
        index = self.datasets.get(name)
        if index is None:
            raise UnknownDataset(f"no dataset is called {name!r}; there is: {known}")
        return name, index


def verify_patiently(
    verifier: AnswerVerifier,
    truths: Sequence[str],
    responses: Sequence[str | bytes],
    rule: AnswerRule | str,
    deadline: float | None = None,
) -> list[Verdict]:
    """Verify answers, those again that a busy machine left undecided.

    Arguments, result and errors are those of :meth:`AnswerVerifier.verify_batch`.
    """
    verdicts = verifier.verify_batch(truths, responses, rule, deadline)
    until = None if deadline is None else deadline - REPLY_S
    for _ in range(MAX_REPEATS):
        left = [at for at, verdict in enumerate(verdicts) if verdict.method == "load"]
        if not left or (until is not None and time.monotonic() >= until):
            break
        again = verifier.verify_batch(
            [truths[at] for at in left], [responses[at] for at in left], rule, until
        )
        for at, verdict in zip(left, again, strict=True):
            if verdict.method != "deadline":
                verdicts[at] = verdict
    return verdicts


def _check_answers(batch: Batch, verifier: AnswerVerifier, rule: AnswerRule) -> None:
    """Check the answer of every rollout whose ground truth is known; sets the verdicts.

    All go to the verifier in one call: it decides nearly all of them in microseconds and
    overlaps the rest in its workers, where portions would wait for each other's budgets.
    """
    batch.check_deadline("the answer check")
    checked = [
        at
        for at, status in enumerate(batch.status)
        if status not in _NOT_CHECKED and batch.truths[at] is not None
    ]
    try:
        _verify(batch, checked, verifier, rule)
    except DeadlineExceeded:
        raise
    except Exception:
        # One of them is to blame: find it, and spare the others.
        for at in checked:
            batch.check_deadline("the answer check")
            try:
                _verify(batch, [at], verifier, rule)
            except DeadlineExceeded:
                raise
            except Exception:
                batch.defect(at, "the answer check")
    batch.check_deadline("the answer check")


def _verify(batch: Batch, checked: list[int], verifier: AnswerVerifier, rule: AnswerRule) -> None:
    if not checked:
        return
    truths = [batch.truths[at] or "" for at in checked]
    responses = [batch.rollouts[at].response for at in checked]
    verdicts = verify_patiently(verifier, truths, responses, rule, batch.deadline)
    if any(verdict.method == "deadline" for verdict in verdicts):
        raise DeadlineExceeded("the deadline passed before all answers were checked")
    for at, verdict in zip(checked, verdicts, strict=True):
        batch.verdicts[at] = verdict


def _combine(batch: Batch, options: ScoreOptions) -> list[Score]:
    """Return the scores of a batch, from what matching and the answer check found.

    NCR (equation 1 of the paper) and TPN (equation 2) are quotients of counts, so that
    equal counts give equal floats.  Unknown values enter the reward as NaN and come out as
    None.
    """
    policy = options.on_undecided
    acc = [_acc(batch, at, policy) for at in range(len(batch))]
    ncr = [
        matched / nodes if nodes and status is not Status.INTERNAL else math.nan
        for matched, nodes, status in zip(
            batch.num_matched, batch.num_nodes, batch.status, strict=True
        )
    ]
    rewards = options.reward.compute(np.array(acc), np.array(ncr), options.epoch).tolist()
    return [_score(batch, at, acc[at], ncr[at], rewards[at], policy) for at in range(len(batch))]


def _acc(batch: Batch, at: int, policy: OnUndecided) -> float:
    verdict = batch.verdicts[at]
    if verdict is None or batch.status[at] is Status.INTERNAL:
        return math.nan
    if verdict.correct is None:
        message = f"the answer stayed undecided ({verdict.method}) and {_DONE[policy]}"
        if batch.status[at] is Status.OK:
            batch.fail(at, Status.ANSWER_UNDECIDED, message)
        else:
            batch.messages[at] += f"; {message}"
    return 1.0 if verdict.correct else 0.0


def _score(
    batch: Batch, at: int, acc: float, ncr: float, reward: float, policy: OnUndecided
) -> Score:
    status = batch.status[at]
    if status is Status.INTERNAL:
        return Score(status, message=batch.messages[at])
    verdict = batch.verdicts[at]
    undecided = verdict is not None and verdict.correct is None
    unknown = math.isnan(reward) or status in _WITHOUT_REWARD
    masked = undecided and policy is OnUndecided.MASK
    matched = batch.num_matched[at]
    tokens = batch.tokens[at]
    return Score(
        status=status,
        reward=None if unknown or masked else reward,
        acc=None if math.isnan(acc) else acc,
        ncr=None if math.isnan(ncr) else ncr,
        num_nodes=batch.num_nodes[at],
        num_matched=matched,
        matched=batch.matched[at],
        tpn=tokens / matched if tokens and matched else None,
        spans=batch.spans[at],
        message=batch.messages[at],
        answer=None if verdict is None else verdict.answer,
        answer_method="" if verdict is None else verdict.method,
    )


def _explain_nodes(
    rollout: Rollout, score: Score, identity: Identity, index: DatasetIndex, limits: Limits
) -> Explanation:
    """Return the explanation of a rollout that has been scored."""
    if score.status in (Status.OVERSIZE, Status.INTERNAL):
        return Explanation(score, (), "", identity)
    normal_form = normalize(rollout.response)
    if score.ncr is None:
        return Explanation(score, (), normal_form, identity)
    nodes, matcher = _nodes_of(rollout, index, limits)
    explained = tuple(
        NodeExplanation(
            node_id=node.node_id,
            label=node.label,
            matched=hit is not None,
            is_final=node.is_final,
            span=None if hit is None else (hit.start, hit.end),
            expression="" if hit is None else hit.expression,
            expressions=node.expressions,
        )
        for node, hit in zip(nodes, matcher.hits(rollout.response), strict=True)
    )
    return Explanation(score, explained, normal_form, identity)


def _nodes_of(
    rollout: Rollout, index: DatasetIndex, limits: Limits
) -> tuple[tuple[Node, ...], Matcher]:
    """Return the nodes that the score was made with, and their matcher."""
    if rollout.nodes is not None:
        matcher = compile_inline(rollout.nodes, limits, index.cache)
        return inline_as_nodes(rollout.nodes), matcher
    entry = index.entry(rollout.problem_id)
    assert entry is not None  # a rollout without nodes of its own has an NCR only so
    return entry.nodes, entry.matcher
