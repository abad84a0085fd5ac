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
from typing import Final, NamedTuple, TypeAlias

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
from consensuspr.scoring.dataset_index import DatasetIndex, Entry
from consensuspr.scoring.guard import GuardBudget
from consensuspr.scoring.matchers import (
    InvalidNodesError,
    check_budget,
    check_nodes,
    compile_nodes,
)
from consensuspr.scoring.responses import scored_from
from consensuspr.scoring.rewards import NcrKind, RewardSpec, Unanswered
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
    "the answer could not be checked: the process that compared it was killed from outside twice"
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
        return batch.columns(), batch.identity

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
        return self._scored([rollout], options, deadline, self.dataset(options)).explanation()

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
                raise InvalidRequest(f"dataset is required, because there are several: {known}")
            raise UnknownDataset(f"no dataset is called {_shown(name)}; known datasets: {known}")
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
        batch = _Batch(rollouts, chosen, options, self.limits, deadline, self._threads)
        batch.match()
        batch.check_answers(self._verifier)
        batch.find_unanswered()
        return batch


# The attribute of a node that says what it adds to NCR.
_STORED: Final = {NcrKind.WEIGHTED: "weight", NcrKind.POSITION: "position"}


class _Nodes(NamedTuple):
    """What a rollout is matched with: the k nodes of its problem."""

    matcher: Matcher
    budget: GuardBudget | None  # of the guard; None for the default
    read: Callable[[], Sequence[Node]]  # returns the nodes
    counted: npt.NDArray[np.bool_] | None = None  # (k,) those that count; None for all alike
    weights: npt.NDArray[np.float64] | None = None  # (k,) in NCR, 0 if not counted; None likewise

    def for_reward(self, reward: RewardSpec) -> _Nodes:
        """Return them with what each adds, if the reward does not count all the same."""
        name = _STORED.get(NcrKind(reward.ncr))
        if reward.final_nodes and name is None:
            return self
        nodes = self.read()
        counted = np.array([reward.final_nodes or not node.is_final for node in nodes])
        weights = counted.astype(np.float64)
        stored = [] if name is None else [getattr(node, name) for node in nodes]
        if stored and None not in stored and (weights * stored).any():
            weights = weights * stored
        return self._replace(counted=counted, weights=weights)

    def shares(self, count: int) -> tuple[float, ...]:
        """Return what each of so many nodes adds to NCR."""
        if self.weights is None:
            return (1 / count,) * count
        return tuple((self.weights / (self.weights.sum() or 1.0)).tolist())


class _Task(NamedTuple):
    """The ground truth and the nodes of a rollout; a message if its status is not OK."""

    truth: str | None
    nodes: _Nodes | None
    status: Status = Status.OK
    message: str = ""


class _Batch:
    """Rollouts and, position by position, what is known of them so far.

    Lists, because the scan, the answer check and the rewards take and return columns.
    """

    def __init__(
        self,
        rollouts: Sequence[Rollout],
        chosen: Chosen,
        options: ScoreOptions,
        limits: Limits,
        deadline: float | None,
        threads: int,
    ) -> None:
        count = len(rollouts)
        name, index = chosen
        self.rollouts = rollouts
        self.index = index
        self.options = options
        self.reward = options.reward
        self.limits = limits
        self.deadline = deadline
        self.threads = threads
        self.identity = Identity(
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
        self.tokens = [checked_tokens(rollout, at) for at, rollout in enumerate(rollouts)]
        self._check_weights()
        self.texts = [rollout.response for rollout in rollouts]  # the scored parts
        if self.reward.after_think:
            self.texts = [text[scored_from(text) :] for text in self.texts]
        self.status = [Status.OK] * count
        self.messages: dict[int, str] = {}  # for each status that is not OK
        self.truths: list[str | None] = [None] * count  # ground truths that apply
        self.verdicts: list[Verdict | None] = [None] * count
        # Of the nodes that count.
        self.num_nodes, self.num_matched = [0] * count, [0] * count
        self.shares: dict[int, float] = {}  # NCR, if not every node adds the same
        # Responses that reach nodes but have an NCR of 0, because they mark no final answer.
        self.unanswered: list[int] = []
        # Of all nodes; spans and what each node adds to NCR only if spans are asked for.
        self.channels = [b""] * count
        self.spans: dict[int, tuple[tuple[int, int] | None, ...]] = {}
        self.node_shares: dict[int, tuple[float, ...]] = {}
        # Of the guard; no budget is the default one.
        self.counts = [guard.GuardCounts(0, 0, 0)] * count
        self.budgets: list[GuardBudget | None] = [None] * count
        # Of rollouts without nodes of their own, by problem and by the ground truth they bring.
        self._tasks: dict[tuple[str, str | None], _Task] = {}
        self._held_bytes = 0  # by matchers in use
        self._defects = 0

    def _check_weights(self) -> None:
        name, info = _STORED.get(NcrKind(self.reward.ncr)), self.index.info
        if name is None or all(rollout.nodes is not None for rollout in self.rollouts):
            return
        if not (info.num_weighted if name == "weight" else info.num_positioned):
            raise InvalidRequest(
                f"dataset {self.identity.dataset!r} has no problem with a {name} for each node, "
                f"which ncr={str(self.reward.ncr)!r} needs; `consensusbench build ROLLOUTS "
                "--budgets DATASET --output FILE` adds weights, a new build positions"
            )

    # --- failures

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
        self.fail(
            at, Status.INTERNAL, f"{stage} failed with an internal error; the log has the traceback"
        )

    def together(self, positions: list[int], work: Callable[[list[int]], None], stage: str) -> None:
        """Do work for all positions at once; if that fails, one by one to spare the others."""
        self.check_deadline(stage)
        try:
            work(positions)
        except DeadlineExceeded:
            raise
        except Exception:
            if len(positions) == 1:
                self.defect(positions[0], stage)
            else:
                for at in positions:
                    self.together([at], work, stage)

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

    # --- matching

    def match(self) -> None:
        """Match every rollout that has nodes; sets status, ground truth and node columns."""
        self.check_deadline(_MATCHING)
        threads = min(self.threads or os.cpu_count() or 1, MAX_THREADS_COUNTED)
        limit, purpose = self.limits.max_response_bytes, ""
        if self.options.include_spans and limit > MAX_EXPLAINED_BYTES:
            limit, purpose = MAX_EXPLAINED_BYTES, " with spans"
        portion: dict[int, _Nodes] = {}
        text_bytes = 0
        for at, rollout in enumerate(self.rollouts):
            size = exceeds(rollout.response, limit)
            if size is not None:
                message = f"the response has {size} bytes; the limit{purpose} is {limit}"
                self.fail(at, Status.OVERSIZE, message)
                continue
            try:
                task = self._task(rollout)
            except DeadlineExceeded:
                raise
            except Exception:
                self.defect(at, "compiling the nodes")
                continue
            self.truths[at] = task.truth
            if task.message:
                self.fail(at, task.status, task.message)
            if task.nodes is not None:
                portion[at] = task.nodes
                text_bytes += len(self.texts[at])
            if text_bytes >= PORTION_BYTES * threads or self._held_bytes >= MATCHER_BYTES:
                self._match(portion)
                portion, text_bytes = {}, 0
        self._match(portion)

    def _task(self, rollout: Rollout) -> _Task:
        """Return the nodes and the ground truth of a rollout."""
        if rollout.nodes is not None:
            return self._new_task(rollout)
        key = rollout.problem_id, rollout.ground_truth
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = self._new_task(rollout)
        return task

    def _new_task(self, rollout: Rollout) -> _Task:
        entry = self.index.entry(rollout.problem_id)
        truth = rollout.ground_truth
        if not truth or truth.isspace():
            truth = None if entry is None else entry.ground_truth
        try:
            nodes = self._nodes_of(rollout, entry)
        except InvalidNodesError as fault:
            return _Task(truth, None, Status.INVALID_NODES, str(fault))
        problem = f"problem {_shown(rollout.problem_id)}"
        if nodes is not None and nodes.counted is not None and not nodes.counted.any():
            message = f"{problem} has final nodes only, which do not count (final_nodes=False)"
            return _Task(truth, None, Status.NO_NODES, message)
        if nodes is not None and truth is None:
            return _Task(truth, nodes, Status.NO_GROUND_TRUTH, f"{problem} has no ground truth")
        if nodes is not None:
            return _Task(truth, nodes)
        if entry is not None:
            # An empty list takes precedence over the nodes of the dataset.
            found = "has no nodes" if rollout.nodes is None else "came with an empty list of nodes"
            message = f"{problem} {found}" + " and no ground truth" * (truth is None)
            return _Task(truth, None, Status.NO_NODES, message)
        if truth is not None:
            message = f"{problem} is not in the dataset and came without nodes"
            return _Task(truth, None, Status.NO_NODES, message)
        return _Task(None, None, Status.UNKNOWN_PROBLEM, f"{problem} is not in the dataset")

    def _nodes_of(self, rollout: Rollout, entry: Entry | None) -> _Nodes | None:
        """Return the nodes that apply, None if there are none."""
        if rollout.nodes is not None:
            if not len(rollout.nodes):
                return None
            check_budget(rollout.budget)
            inline = check_nodes(rollout.nodes, self.limits)
            matcher = compile_nodes(inline, self.index.cache)
            nodes = _Nodes(matcher, rollout.budget, lambda: inline)
        elif entry is None or not entry.num_nodes:
            return None
        else:
            nodes = _Nodes(entry.matcher, entry.budget, lambda: entry.nodes)
        self._held_bytes += nodes.matcher.nbytes
        # Compiling takes up to a millisecond.
        self.check_deadline(_MATCHING)
        return nodes.for_reward(self.reward)

    def _match(self, portion: Mapping[int, _Nodes]) -> None:
        """Match a portion of the batch."""
        if portion:
            self.together([*portion], lambda at: self._match_at(at, portion), _MATCHING)
        if self._held_bytes >= MATCHER_BYTES:
            self._tasks.clear()
            self._held_bytes = 0

    def _match_at(self, positions: list[int], portion: Mapping[int, _Nodes]) -> None:
        reward = self.reward
        nodes = [portion[at] for at in positions]
        try:
            result = match_batch(
                [found.matcher for found in nodes],
                [self.texts[at] for at in positions],
                threads=self.threads,
                statements=reward.statements,
                counts=reward.guard,
                deadline=self.deadline,
                code=reward.code,
            )
        except TimeoutError:
            raise self.late(_MATCHING) from None
        rows = zip(positions, nodes, result.rows(), result.num_matched.tolist(), strict=True)
        for at, matched, channels, num_matched in rows:
            self.channels[at] = channels
            self.num_nodes[at] = len(channels)
            self.num_matched[at] = num_matched
            self.budgets[at] = matched.budget
            if matched.counted is not None:
                self._count(at, matched)
            if self.options.include_spans:
                self.check_deadline(_MATCHING)
                self.spans[at] = self._spans(at, matched.matcher)
                self.node_shares[at] = matched.shares(len(channels))
        if reward.guard:
            for at, counts in zip(positions, guard.counted(result), strict=True):
                self.counts[at] = counts

    def _count(self, at: int, nodes: _Nodes) -> None:
        """Count nodes anew, of which not all count or not all for the same."""
        assert nodes.counted is not None and nodes.weights is not None
        reached = np.frombuffer(self.channels[at], dtype=np.uint8) != 0
        self.num_nodes[at] = int(nodes.counted.sum())
        self.num_matched[at] = int((nodes.counted & reached).sum())
        # Not sum(), which adds in another order: rewards stay equal to those of earlier releases.
        earned, all_weights = np.add.reduceat([nodes.weights * reached, nodes.weights], [0], axis=1)
        self.shares[at] = float((earned / all_weights)[0])

    def _spans(self, at: int, matcher: Matcher) -> tuple[tuple[int, int] | None, ...]:
        """Return where in the whole response the nodes were hit."""
        text, reward = self.texts[at], self.reward
        before = guard.characters(self.rollouts[at].response) - guard.characters(text)
        spans = matcher.spans(
            text, statements=reward.statements, counts=reward.guard, code=reward.code
        )
        return tuple([span and (span[0] + before, span[1] + before) for span in spans])

    # --- answers

    def check_answers(self, verifier: AnswerVerifier) -> None:
        """Check the answer of every rollout whose ground truth is known; sets the verdicts.

        All go to the verifier in one call, so that the slow ones are waited for together.
        """

        def verify(positions: list[int]) -> None:
            until = self.deadline
            if until is not None:
                until -= min(REPLY_S, (until - time.monotonic()) / 2)
            verdicts = verifier.verify_batch(
                [self.truths[at] or "" for at in positions],
                [self.texts[at] for at in positions],
                self.identity.answer_rule,
                until,
            )
            for at, verdict in zip(positions, verdicts, strict=True):
                self.verdicts[at] = verdict

        checked = [
            at
            for at, status in enumerate(self.status)
            # An enumeration's hash is a function of Python's: the usual one is not looked up.
            if (status is Status.OK or status not in _NOT_CHECKED) and self.truths[at] is not None
        ]
        if checked:
            self.together(checked, verify, _ANSWERS)
        self.check_deadline(_ANSWERS)

    def find_unanswered(self) -> None:
        """Note the responses whose NCR is 0 because they mark no final answer."""
        if not self.reward.zeroes_unanswered(self.options.epoch):
            return
        for at, matched in enumerate(self.num_matched):
            if matched:  # else NCR is 0 or unknown
                try:
                    if not has_marked_answer(self.texts[at], self.identity.answer_rule):
                        self.unanswered.append(at)
                except Exception:
                    self.defect(at, "the search for a final answer")

    # --- results

    def columns(self) -> ScoreColumns:
        """Return the scores, from what matching and the answer check found.

        NCR (equation 1 of the paper) and TPN (equation 2) are quotients of counts, so that equal
        counts give equal floats.  An unknown value is NaN, in the reward too.
        """
        verdicts = self.verdicts
        acc = [math.nan if found is None else 1.0 if found.correct else 0.0 for found in verdicts]
        undecided = self._set_undecided(acc)
        raw, guards = self._ncr()
        ncr = [share * factor for share, factor in zip(raw, guards, strict=True)]
        for at in self.unanswered:
            ncr[at] = 0.0
        rewards: list[float] = self.reward.compute(acc, ncr, self.options.epoch).tolist()
        columns = ScoreColumns(
            status=self.status,
            reward=rewards,
            acc=acc,
            ncr=ncr,
            num_nodes=self.num_nodes,
            num_matched=self.num_matched,
            tpn=[
                tokens / matched if tokens and matched else math.nan
                for tokens, matched in zip(self.tokens, self.num_matched, strict=True)
            ],
            answer=[None if found is None else found.answer for found in verdicts],
            answer_method=["" if found is None else found.method for found in verdicts],
            ncr_raw=raw,
            guard=guards,
            channel_numbers=self.channels,
            messages=self.messages,
            spans=self.spans,
            shares=self.node_shares,
        )
        if self.options.on_undecided is OnUndecided.MASK:
            for at in undecided:
                rewards[at] = math.nan
        for at in self.messages:
            if self.status[at] in _WITHOUT_REWARD:
                rewards[at] = math.nan
            if self.status[at] is Status.INTERNAL:
                columns.forget(at)
        return columns

    def _set_undecided(self, acc: list[float]) -> list[int]:
        """Set status, message and Acc of undecided answers; return their positions."""
        found = []
        for at, verdict in enumerate(self.verdicts):
            if verdict is None or verdict.correct is not None:
                continue
            found.append(at)
            if verdict.method == "killed":
                self.fail(at, Status.INTERNAL, _KILLED_TWICE)
                continue
            done = _DONE[self.options.on_undecided]
            if verdict.method in LOAD_METHODS:
                acc[at], done = math.nan, "acc is unknown"
            message = f"the answer is undecided ({verdict.method}) and {done}"
            if self.status[at] is Status.OK:
                self.fail(at, Status.ANSWER_UNDECIDED, message)
            elif self.status[at] is not Status.INTERNAL:
                self.messages[at] += f"; {message}"
        return found

    def _ncr(self) -> tuple[list[float], list[float]]:
        """Return NCR before the guard and the guard's factors, NaN where unknown."""
        counts = zip(self.num_matched, self.num_nodes, strict=True)
        raw = [matched / nodes if nodes else math.nan for matched, nodes in counts]
        for at, share in self.shares.items():
            raw[at] = share
        factors = [1.0] * len(raw)
        if self.reward.guard:
            nodes = map(len, self.channels)
            factors = guard.factors_of(self.counts, self.budgets, nodes, self.texts)
        # NaN alone differs from itself.
        pairs = zip(raw, factors, strict=True)
        return raw, [factor if share == share else share for share, factor in pairs]

    def explanation(self) -> Explanation:
        """Return the explanation of the one rollout of a batch that was scored with spans."""
        [score] = self.columns().scores()
        [rollout], [text], reward = self.rollouts, self.texts, self.reward
        explanation = Explanation(score, (), "", self.identity, response=rollout.response)
        if score.status in (Status.OVERSIZE, Status.INTERNAL):
            return explanation
        explanation.normal_form = normalize(text)
        nodes = self._task(rollout).nodes
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
            [counts] = self.counts
            explanation.guard = guard.figures_of(
                counts, nodes.budget, len(hits), guard.length_of(text)
            )
        return explanation


def _shown(name: str) -> str:
    """Return an id or a name as a message shows it; a hostile one is cut short."""
    return repr(name if len(name) <= 80 else name[:77] + "...")


def reward_in_training(response: str, score: Score, identity: Identity) -> float | None:
    """Return the reward by the default of ``unanswered`` in training; None: it is the same.

    Training sets the NCR of a response without a marked answer to 0 for some rewards.
    """
    spec = identity.reward
    trained = replace(spec, unanswered=Unanswered.in_training(spec.kind))
    if spec.unanswered == trained.unanswered or score.acc is None or not score.ncr:
        return None
    start = scored_from(response) if spec.after_think else 0
    if has_marked_answer(response[start:], identity.answer_rule):
        return None
    reward = float(trained.compute(score.acc, 0.0, identity.epoch))
    return None if reward == score.reward else reward
