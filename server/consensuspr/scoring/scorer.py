"""The scorer: one batch of rollouts in, one score each out.

Joins node matching, the answer check (:mod:`consensuspr.scoring.answers`) and the reward.  The
server and the in-process client share it, so that both give the same numbers.  It holds no training
state: equal arguments give equal scores.

**Status.** Of several that apply, the first of these counts: INTERNAL, OVERSIZE, UNKNOWN_PROBLEM,
INVALID_NODES, NO_NODES, NO_GROUND_TRUTH, ANSWER_UNDECIDED, OK.  A problem is known if the dataset
has it, or if the rollout brings nodes or a ground truth.  An undecided answer with MASK has no
reward; without, it counts as 0, also if there are no nodes.

**Failures.** A failure of one rollout is a status of that rollout.  An exception for the whole call
means that nothing can be scored: an unknown dataset, a field of a wrong type, a deadline.  If the
batch scan or the batched answer check raises, the rollouts are tried one by one, and only those
that fail are INTERNAL.  An answer that is open shortly before the deadline has no acc and the
method ``load``.  An answer whose processes were killed from outside, twice, is INTERNAL.

**Matching** goes in portions of about a megabyte of text for each thread, so that a deadline is
checked every few milliseconds and the matchers in use stay below a fixed size.

**Thinking models.** With ``after_think`` only what follows the last ``</think>`` is scored.  Spans
are positions in the whole response; TPN and the limit on its size are of the whole response.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from consensuspr.core import NORMAL_FORM_VERSION, Matcher, match_batch, normalize
from consensuspr.data import Node
from consensuspr.errors import (
    DatasetMismatch,
    DeadlineExceeded,
    InputError,
    InvalidRequest,
    UnknownDataset,
)
from consensuspr.scoring import guard
from consensuspr.scoring.answers import (
    ANSWER_VERSION,
    AnswerVerifier,
    Verdict,
    has_marked_answer,
)
from consensuspr.scoring.dataset_index import DatasetIndex
from consensuspr.scoring.guard import GuardBudget, GuardFigures
from consensuspr.scoring.inline_nodes import (
    InvalidNodesError,
    check_budget,
    check_nodes,
    compile_nodes,
)
from consensuspr.scoring.rewards import NcrKind, RewardSpec
from consensuspr.scoring.types import (
    CHANNELS,
    DEFAULT_DATASET,
    DEFAULT_LIMITS,
    LOAD_METHODS,
    SCORING_VERSION,
    AnswerRule,
    Explanation,
    Identity,
    Limits,
    NodeExplanation,
    OnUndecided,
    Rollout,
    Score,
    ScoreColumns,
    ScoreOptions,
    Status,
    checked_tokens,
    exceeds,
    scored_from,
)
from consensuspr.version import VERSION

# A dataset with the name that it has at the server.
Chosen: TypeAlias = tuple[str, DatasetIndex]

DEFAULT_OPTIONS = ScoreOptions()

# How long before the deadline the wait for answers ends, so that an open one delays no batch.
REPLY_S = 1.0
PORTION_BYTES = 1 << 20  # of text, for each thread
MAX_THREADS_COUNTED = 16
MATCHER_BYTES = 16 << 20
# A defect that hits every rollout of a batch logs the same traceback thousands of times.
MAX_TRACEBACKS = 5
# Of a response whose spans or explanation are asked for, which take fifteen times its bytes.
MAX_EXPLAINED_BYTES = 2 << 20

_NOT_CHECKED = frozenset((Status.OVERSIZE, Status.UNKNOWN_PROBLEM, Status.INTERNAL))
_WITHOUT_REWARD = _NOT_CHECKED | {Status.INVALID_NODES}
_KILLED_TWICE = (
    "the answer could not be checked: processes that compared it were killed from outside, twice"
    " (out of memory?)"
)
_DONE = {OnUndecided.COUNT_WRONG: "counts as wrong", OnUndecided.MASK: "masks the reward"}
_MATCHING, _ANSWERS = "the node matching", "the answer check"

_log = logging.getLogger(__name__)


class Scorer:
    """Scores batches against named datasets; thread-safe.

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
        if threads < 0:
            raise InputError(f"threads must be 0 or more, got {threads}")
        self.serve(datasets)
        self.limits = limits
        self._verifier = verifier
        self._threads = threads

    def serve(self, datasets: Mapping[str, DatasetIndex]) -> None:
        """Score with these datasets from now on; calls under way keep those they began with.

        Raises:
            InputError: there is none.
        """
        if not datasets:
            raise InputError("a scorer needs at least one dataset")
        self.datasets: Mapping[str, DatasetIndex] = dict(datasets)

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
            InvalidRequest: no dataset is named and it is not clear which is meant, or weights
                are asked for that the dataset has not.
            DatasetMismatch: the dataset has another digest than the expected one.
            InputError: a field of a rollout has a wrong type.
            DeadlineExceeded: the deadline passed; no score is kept.
        """
        columns, identity = self.score_columns(rollouts, options, deadline)
        return columns.scores(), identity

    def score_columns(
        self,
        rollouts: Sequence[Rollout],
        options: ScoreOptions = DEFAULT_OPTIONS,
        deadline: float | None = None,
        chosen: Chosen | None = None,
    ) -> tuple[ScoreColumns, Identity]:
        """Score a batch into columns; arguments and errors are those of :meth:`score`.

        ``chosen`` is what :meth:`dataset` returned for the request that the batch is a piece of.
        """
        batch = self._scored(rollouts, options, deadline, chosen or self.dataset(options))
        return _combine(batch), batch.identity

    def explain(
        self,
        rollout: Rollout,
        options: ScoreOptions = DEFAULT_OPTIONS,
        deadline: float | None = None,
    ) -> Explanation:
        """Score one rollout and return which expression of which node was found where.

        Arguments and errors are those of :meth:`score`; the score always has spans.
        """
        options = replace(options, include_spans=True)
        batch = self._scored([rollout], options, deadline, self.dataset(options))
        [score] = _combine(batch).scores()
        nodes = None if score.ncr is None else _Matching(batch, self._threads).nodes_of(rollout)
        return _explain(batch, score, nodes)

    def dataset(self, options: ScoreOptions) -> Chosen:
        """Return the dataset that a request means: the named, the only, or the one ``default``.

        Raises:
            UnknownDataset: there is none of that name.
            InvalidRequest: none is named and it is not clear which is meant.
            DatasetMismatch: it has another digest than the expected one.
        """
        datasets = self.datasets
        name = options.dataset
        if not name:
            name = DEFAULT_DATASET if len(datasets) > 1 else next(iter(datasets))
        index = datasets.get(name)
        if index is None:
            known = ", ".join(sorted(datasets))
            if not options.dataset:
                raise InvalidRequest(f"dataset must be named, there are several: {known}")
            raise UnknownDataset(f"no dataset is called {_shown(name)}; there is: {known}")
        if options.expect_digest not in (None, index.digest):
            raise DatasetMismatch.of(name, index.digest, options.expect_digest)
        return name, index

    def _scored(
        self,
        rollouts: Sequence[Rollout],
        options: ScoreOptions,
        deadline: float | None,
        chosen: Chosen,
    ) -> _Batch:
        """Return a batch that is matched and whose answers are checked."""
        name, index = chosen
        _check_weights(rollouts, options.reward, name, index)
        identity = Identity(
            dataset=name,
            dataset_digest=index.digest,
            normal_form_version=NORMAL_FORM_VERSION,
            answer_version=ANSWER_VERSION,
            reward=options.reward,
            epoch=options.epoch,
            answer_rule=options.answer_rule or index.answer_rule or AnswerRule.AUTO,
            server_version=VERSION,
            scoring_version=SCORING_VERSION,
        )
        batch = _Batch(rollouts, index, identity, options, self.limits, deadline)
        _Matching(batch, self._threads).run()
        _check_answers(batch, self._verifier)
        _find_unanswered(batch)
        return batch


class _Batch:
    """Rollouts and, position by position, what is known of them so far.

    Lists, because the scan, the answer check and the rewards take and return columns.

    Attributes:
        texts: the scored part of each response.
        status: OK until something is found.
        messages: one sentence by position, for each whose status is not OK.
        tokens: checked token counts, None where not given.
        truths: the ground truth that applies, None if unknown or not to be checked.
        num_nodes, num_matched: of the nodes that count.
        shares: NCR by position, if not every node adds the same.
        channels, spans: of all nodes of the problem.
        node_shares: what each of them adds to NCR, if spans were asked for.
        num_values, num_numbers: counts of the guard.
        budgets: of the guard by position, if it is not the default.
        verdicts: of the answers that were checked.
        unanswered: positions of responses that reach nodes but have an NCR of 0, because they
            mark no final answer.
    """

    def __init__(
        self,
        rollouts: Sequence[Rollout],
        index: DatasetIndex,
        identity: Identity,
        options: ScoreOptions,
        limits: Limits,
        deadline: float | None,
    ) -> None:
        count = len(rollouts)
        self.rollouts = rollouts
        self.index = index
        self.identity = identity
        self.options = options
        self.reward = options.reward
        self.limits = limits
        self.deadline = deadline
        self.tokens = [checked_tokens(rollout, at) for at, rollout in enumerate(rollouts)]
        self.texts = [rollout.response for rollout in rollouts]
        if self.reward.after_think:
            self.texts = [text[scored_from(text) :] for text in self.texts]
        self.status = [Status.OK] * count
        self.messages: dict[int, str] = {}
        self.truths: list[str | None] = [None] * count
        self.num_nodes = [0] * count
        self.num_matched = [0] * count
        self.shares: dict[int, float] = {}
        self.num_values = [0] * count
        self.num_numbers = [0] * count
        self.budgets: dict[int, GuardBudget] = {}
        self.channels = [b""] * count
        self.spans: dict[int, tuple[tuple[int, int] | None, ...]] = {}
        self.node_shares: dict[int, tuple[float, ...]] = {}
        self.verdicts: list[Verdict | None] = [None] * count
        self.unanswered: list[int] = []
        self._defects = 0

    def fail(self, at: int, status: Status, message: str) -> None:
        """Set the status of one rollout."""
        self.status[at] = status
        self.messages[at] = message

    def defect(self, at: int, stage: str) -> None:
        """Set INTERNAL for one rollout; call it while the exception is handled."""
        self._defects += 1
        if self._defects <= MAX_TRACEBACKS:
            rollout = self.rollouts[at]
            _log.exception(
                "%s failed for rollout %s of problem %s",
                stage, _shown(rollout.rollout_id or ""), _shown(rollout.problem_id),
            )  # fmt: skip
        self.fail(at, Status.INTERNAL, f"{stage} failed by a defect; the log has the details")

    def together(self, positions: list[int], work: Callable[[list[int]], None], stage: str) -> None:
        """Do work for all positions at once; if that fails, one by one to spare the others."""
        self.check_deadline(stage)
        try:
            work(positions)
        except DeadlineExceeded:
            raise
        except Exception:
            for at in positions:
                self.check_deadline(stage)
                try:
                    work([at])
                except DeadlineExceeded:
                    raise
                except Exception:
                    self.defect(at, stage)

    def check_deadline(self, stage: str) -> None:
        """Raise DeadlineExceeded if the deadline has passed."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise self.late(stage)

    def late(self, stage: str) -> DeadlineExceeded:
        """Return the error of a deadline that has passed."""
        count = len(self.rollouts)
        return DeadlineExceeded(
            f"the deadline passed before {stage} of a batch of {count} was done"
        )


def _check_weights(
    rollouts: Sequence[Rollout], reward: RewardSpec, name: str, index: DatasetIndex
) -> None:
    if (
        reward.ncr == NcrKind.WEIGHTED
        and not index.info.num_weighted
        and any(rollout.nodes is None for rollout in rollouts)
    ):
        raise InvalidRequest(
            f"dataset {name!r} has no problem with a weight for each node, which ncr='weighted' "
            "needs; `consensusbench build ROLLOUTS --budgets DATASET --output FILE` adds them"
        )


class _Nodes(NamedTuple):
    """What a rollout is matched with.

    Attributes:
        matcher: of all nodes of the problem, of which there are k.
        budget: of the guard; None for the default.
        read: returns the nodes.
        counted: (k,) bool, the nodes that count; None for all, each the same.
        weights: (k,) float64, their shares of NCR, 0 if they do not count; None likewise.
    """

    matcher: Matcher
    budget: GuardBudget | None
    read: Callable[[], Sequence[Node]]
    counted: npt.NDArray[np.bool_] | None = None
    weights: npt.NDArray[np.float64] | None = None

    def for_reward(self, reward: RewardSpec) -> _Nodes:
        """Return them with what each adds, if the reward does not count all the same."""
        weighted = reward.ncr == NcrKind.WEIGHTED
        if reward.final_nodes and not weighted:
            return self
        nodes = self.read()
        counted = np.array([reward.final_nodes or not node.is_final for node in nodes])
        plain = counted.astype(np.float64)
        stored = [node.weight for node in nodes if node.weight is not None]
        if weighted and len(stored) == len(nodes) and (plain * stored).any():
            return self._replace(counted=counted, weights=plain * stored)
        return self._replace(counted=counted, weights=plain)

    def shares(self, count: int) -> tuple[float, ...]:
        """Return what each of so many nodes adds to NCR."""
        if self.weights is None:
            return (1 / count,) * count
        return tuple((self.weights / (self.weights.sum() or 1.0)).tolist())


class _Task(NamedTuple):
    """The nodes and the ground truth of a rollout; or a status, and the reason."""

    nodes: _Nodes | None
    truth: str | None
    status: Status = Status.OK
    message: str = ""


class _Matching:
    """Matches every rollout that has nodes; sets status, ground truth and node columns."""

    def __init__(self, batch: _Batch, threads: int) -> None:
        self._batch = batch
        self._threads = threads
        counted = min(threads or os.cpu_count() or 1, MAX_THREADS_COUNTED)
        self._portion_bytes = PORTION_BYTES * counted
        self._portion: dict[int, _Nodes] = {}
        self._text_bytes = 0
        # Of rollouts without nodes of their own, by problem and by the ground truth they bring.
        self._known: dict[tuple[str, str | None], _Task] = {}
        self._held_bytes = 0  # by matchers in use

    def run(self) -> None:
        batch = self._batch
        batch.check_deadline(_MATCHING)
        for at, rollout in enumerate(batch.rollouts):
            try:
                nodes = self._nodes_for(at, rollout)
            except InvalidNodesError as fault:
                batch.fail(at, Status.INVALID_NODES, str(fault))
            except DeadlineExceeded:
                raise
            except Exception:
                batch.defect(at, "compiling the nodes")
            else:
                if nodes is not None:
                    self._add(at, nodes)
        self._flush()

    def _nodes_for(self, at: int, rollout: Rollout) -> _Nodes | None:
        """Return the nodes of one rollout, None if it has a status instead."""
        batch = self._batch
        limit, purpose = batch.limits.max_response_bytes, ""
        size = exceeds(rollout.response, limit)
        if size is None and batch.options.include_spans:
            limit, purpose = MAX_EXPLAINED_BYTES, " where spans are asked for"
            size = exceeds(rollout.response, limit)
        if size is not None:
            message = f"the response has {size} bytes; the limit{purpose} is {limit}"
            batch.fail(at, Status.OVERSIZE, message)
            return None
        if rollout.nodes is not None:
            task = self._task(at, rollout)
        else:
            key = rollout.problem_id, rollout.ground_truth
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = self._task(at, rollout)
            task = known
            batch.truths[at] = task.truth
        if task.message:
            batch.fail(at, task.status, task.message)
        return task.nodes

    def _task(self, at: int, rollout: Rollout) -> _Task:
        """Return nodes and truth of a rollout; sets its ground truth."""
        entry = self._batch.index.entry(rollout.problem_id)
        truth = rollout.ground_truth
        if not truth or truth.isspace():
            truth = None if entry is None else entry.ground_truth
        # Before nodes that may be invalid: the answer is checked all the same.
        self._batch.truths[at] = truth
        nodes = self.nodes_of(rollout)
        shown, unknown = _shown(rollout.problem_id), " and no ground truth" * (truth is None)
        status, message = Status.NO_NODES, ""
        if nodes is not None:
            if nodes.counted is not None and not nodes.counted.any():
                message = f"problem {shown} has no nodes but final ones, which do not count"
                nodes = None
            elif truth is None:
                status, message = Status.NO_GROUND_TRUTH, f"problem {shown} has no ground truth"
            else:
                status = Status.OK
        elif entry is None and unknown:
            status, message = Status.UNKNOWN_PROBLEM, f"problem {shown} is not in the dataset"
        elif rollout.nodes is not None:
            message = f"the rollout of problem {shown} came with an empty list of nodes{unknown}"
        elif entry is None:
            message = f"problem {shown} is not in the dataset and came without nodes"
        else:
            message = f"problem {shown} has no nodes{unknown}"
        return _Task(nodes, truth, status, message)

    def nodes_of(self, rollout: Rollout) -> _Nodes | None:
        """Return the nodes that apply, None if there are none."""
        batch = self._batch
        entry = batch.index.entry(rollout.problem_id)
        if rollout.nodes is not None:
            if not len(rollout.nodes):
                return None
            check_budget(rollout.budget)
            inline = check_nodes(rollout.nodes, batch.limits)
            matcher = compile_nodes(inline, batch.index.cache)
            nodes = _Nodes(matcher, rollout.budget, lambda: inline)
        elif entry is None or not entry.num_nodes:
            return None
        else:
            nodes = _Nodes(entry.matcher, entry.budget, lambda: entry.nodes)
        self._held_bytes += nodes.matcher.nbytes
        # Compiling takes up to a millisecond.
        batch.check_deadline(_MATCHING)
        return nodes.for_reward(batch.reward)

    def _add(self, at: int, nodes: _Nodes) -> None:
        """Take a rollout into the portion, and match the portion when it is full."""
        self._portion[at] = nodes
        self._text_bytes += len(self._batch.texts[at])
        if self._text_bytes >= self._portion_bytes or self._held_bytes >= MATCHER_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Match the portion."""
        if self._portion:
            self._batch.together([*self._portion], self._match, _MATCHING)
        if self._held_bytes >= MATCHER_BYTES:
            self._known.clear()
            self._held_bytes = 0
        self._portion, self._text_bytes = {}, 0

    def _match(self, positions: list[int]) -> None:
        batch, reward = self._batch, self._batch.reward
        nodes = [self._portion[at] for at in positions]
        try:
            result = match_batch(
                [found.matcher for found in nodes],
                [batch.texts[at] for at in positions],
                threads=self._threads,
                statements=reward.statements,
                counts=reward.guard,
                deadline=batch.deadline,
                code=reward.code,
            )
        except TimeoutError:
            raise batch.late(_MATCHING) from None
        rows = zip(positions, nodes, result.rows(), result.num_matched.tolist(), strict=True)
        for at, matched, channels, num_matched in rows:
            batch.channels[at] = channels
            batch.num_nodes[at] = len(channels)
            batch.num_matched[at] = num_matched
            if matched.budget is not None:
                batch.budgets[at] = matched.budget
            if matched.counted is not None:
                self._choose(at, matched)
            if batch.options.include_spans:
                batch.check_deadline(_MATCHING)
                batch.spans[at] = _spans(batch, at, matched.matcher)
                batch.node_shares[at] = matched.shares(len(channels))
        if reward.guard:
            values, numbers = guard.counted(result)
            counts = zip(positions, values.tolist(), numbers.tolist(), strict=True)
            for at, num_values, num_numbers in counts:
                batch.num_values[at], batch.num_numbers[at] = num_values, num_numbers

    def _choose(self, at: int, nodes: _Nodes) -> None:
        """Count nodes anew, of which not all count or not all for the same."""
        assert nodes.counted is not None and nodes.weights is not None
        batch = self._batch
        reached = np.frombuffer(batch.channels[at], dtype=np.uint8) != 0
        batch.num_nodes[at] = int(nodes.counted.sum())
        batch.num_matched[at] = int((nodes.counted & reached).sum())
        # Not sum(), which adds in another order: rewards stay equal to those of earlier releases.
        earned, all_weights = np.add.reduceat([nodes.weights * reached, nodes.weights], [0], axis=1)
        batch.shares[at] = float((earned / all_weights)[0])


def _spans(batch: _Batch, at: int, matcher: Matcher) -> tuple[tuple[int, int] | None, ...]:
    """Return where in the whole response the nodes were hit."""
    text, reward = batch.texts[at], batch.reward
    before = guard.characters(batch.rollouts[at].response) - guard.characters(text)
    spans = matcher.spans(text, statements=reward.statements, counts=reward.guard, code=reward.code)
    return tuple([span and (span[0] + before, span[1] + before) for span in spans])


def _shown(name: str) -> str:
    """Return an id or a name as a message shows it; a hostile one is cut short."""
    return repr(name if len(name) <= 80 else name[:77] + "...")


def _check_answers(batch: _Batch, verifier: AnswerVerifier) -> None:
    """Check the answer of every rollout whose ground truth is known; sets the verdicts.

    All go to the verifier in one call, so that the slow ones are waited for together.
    """

    def verify(positions: list[int]) -> None:
        until = batch.deadline
        if until is not None:
            until -= min(REPLY_S, (until - time.monotonic()) / 2)
        verdicts = verifier.verify_batch(
            [batch.truths[at] or "" for at in positions],
            [batch.texts[at] for at in positions],
            batch.identity.answer_rule,
            until,
        )
        for at, verdict in zip(positions, verdicts, strict=True):
            batch.verdicts[at] = verdict

    checked = [
        at
        for at, status in enumerate(batch.status)
        # An enumeration's hash is a function of Python's: the usual one is not looked up.
        if (status is Status.OK or status not in _NOT_CHECKED) and batch.truths[at] is not None
    ]
    if checked:
        batch.together(checked, verify, _ANSWERS)
    batch.check_deadline(_ANSWERS)


def _find_unanswered(batch: _Batch) -> None:
    """Note the responses whose NCR is 0 because they mark no final answer."""
    if not batch.reward.zeroes_unanswered(batch.options.epoch):
        return
    for at, matched in enumerate(batch.num_matched):
        if matched:  # else NCR is 0 or unknown
            try:
                if not has_marked_answer(batch.texts[at], batch.identity.answer_rule):
                    batch.unanswered.append(at)
            except Exception:
                batch.defect(at, "the search for a final answer")


def _combine(batch: _Batch) -> ScoreColumns:
    """Return the scores of a batch, from what matching and the answer check found.

    NCR (equation 1 of the paper) and TPN (equation 2) are quotients of counts, so that equal counts
    give equal floats.  An unknown value is NaN, in the reward too.
    """
    options = batch.options
    undecided = _set_undecided(batch)
    verdicts = batch.verdicts
    acc = [math.nan if found is None else 1.0 if found.correct else 0.0 for found in verdicts]
    for at in undecided:
        verdict = batch.verdicts[at]
        if verdict is not None and verdict.method in LOAD_METHODS:
            acc[at] = math.nan
    raw, guards = _ncr(batch)
    ncr = [share * factor for share, factor in zip(raw, guards, strict=True)]
    for at in batch.unanswered:
        ncr[at] = 0.0
    rewards: list[float] = batch.reward.compute(acc, ncr, options.epoch).tolist()
    columns = ScoreColumns(
        status=batch.status,
        reward=rewards,
        acc=acc,
        ncr=ncr,
        num_nodes=batch.num_nodes,
        num_matched=batch.num_matched,
        tpn=[
            tokens / matched if tokens and matched else math.nan
            for tokens, matched in zip(batch.tokens, batch.num_matched, strict=True)
        ],
        answer=[None if found is None else found.answer for found in verdicts],
        answer_method=["" if found is None else found.method for found in verdicts],
        ncr_raw=raw,
        guard=guards,
        channel_numbers=batch.channels,
        messages=batch.messages,
        spans=batch.spans,
        shares=batch.node_shares,
    )
    if options.on_undecided is OnUndecided.MASK:
        for at in undecided:
            rewards[at] = math.nan
    for at in batch.messages:
        if batch.status[at] in _WITHOUT_REWARD:
            rewards[at] = math.nan
        if batch.status[at] is Status.INTERNAL:
            columns.forget(at)
    return columns


def _set_undecided(batch: _Batch) -> list[int]:
    """Set status and message of undecided answers; return their positions."""
    found = []
    for at, verdict in enumerate(batch.verdicts):
        if verdict is None or verdict.correct is not None:
            continue
        found.append(at)
        if verdict.method == "killed":
            batch.fail(at, Status.INTERNAL, _KILLED_TWICE)
            continue
        load = verdict.method in LOAD_METHODS
        done = "is not known" if load else _DONE[batch.options.on_undecided]
        message = f"the answer stayed undecided ({verdict.method}) and {done}"
        if batch.status[at] is Status.OK:
            batch.fail(at, Status.ANSWER_UNDECIDED, message)
        elif batch.status[at] is not Status.INTERNAL:
            batch.messages[at] += f"; {message}"
    return found


def _ncr(batch: _Batch) -> tuple[list[float], list[float]]:
    """Return NCR before the guard and the guard's factors, NaN where unknown."""
    counts = zip(batch.num_matched, batch.num_nodes, strict=True)
    raw = [matched / nodes if nodes else math.nan for matched, nodes in counts]
    for at, share in batch.shares.items():
        raw[at] = share
    factors = [1.0] * len(raw)
    if batch.reward.guard:
        factors = guard.factors_of(
            batch.num_values,
            batch.num_numbers,
            [batch.budgets.get(at) for at in range(len(raw))],
            [len(channels) for channels in batch.channels],
            batch.texts,
        ).tolist()
    # NaN alone differs from itself.
    pairs = zip(raw, factors, strict=True)
    return raw, [factor if share == share else share for share, factor in pairs]


def _explain(batch: _Batch, score: Score, nodes: _Nodes | None) -> Explanation:
    """Return the explanation of the one rollout of a batch that has been scored, with spans."""
    if score.status in (Status.OVERSIZE, Status.INTERNAL):
        return Explanation(score, (), "", batch.identity)
    [text], reward = batch.texts, batch.reward
    explanation = Explanation(score, (), normalize(text), batch.identity)
    if nodes is None or score.spans is None:
        return explanation
    hits = nodes.matcher.hits(
        text, statements=reward.statements, counts=reward.guard, code=reward.code
    )
    explanation.nodes = tuple(
        NodeExplanation(
            node_id=node.node_id,
            label=node.label,
            matched=hit is not None,
            is_final=node.is_final,
            span=span,
            expression="" if hit is None else hit.expression,
            expressions=node.expressions,
            channel="" if hit is None else CHANNELS[hit.channel],
            counts=reward.final_nodes or not node.is_final,
        )
        for node, hit, span in zip(nodes.read(), hits, score.spans, strict=True)
    )
    if reward.guard:
        count, length = len(batch.channels[0]), guard.length_of(text)
        columns = guard.allowed([nodes.budget], [count], [length])
        [statements], [numbers] = (column.tolist() for column in columns)
        [stated], [written] = batch.num_values, batch.num_numbers
        explanation.guard = GuardFigures(stated, statements, written, numbers)
    return explanation
