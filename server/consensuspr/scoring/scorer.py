"""The scorer: one batch of rollouts in, one score each out.

Joins node matching, the answer check (:mod:`consensuspr.scoring.answers`) and the reward.  It is
all that the server and the in-process client share, so that both give the same numbers.  It holds
no training state: equal arguments give equal scores.

**Status.** Where several apply, the first of these is told::

    INTERNAL, OVERSIZE, UNKNOWN_PROBLEM, INVALID_NODES, NO_NODES, NO_GROUND_TRUTH,
    ANSWER_UNDECIDED, OK

=================  ======================  ==================  =============================
status             acc                     ncr                 reward
=================  ======================  ==================  =============================
OK                 yes                     yes                 yes
ANSWER_UNDECIDED   0, counted as wrong     yes                 yes; None with MASK
... for load       None                    yes                 curriculum stage 1
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

**Busy machines.** An answer that is open shortly before the caller's deadline is no wrong answer:
it has no acc, and the method ``load``.  One whose processes were killed from outside, twice, is
INTERNAL.

**Matching** goes in portions, for two bounds: a portion holds about a megabyte of text for each
thread (so that a deadline is looked at every few milliseconds), and the matchers in use at
once stay below a fixed size, however large those are that a request brings along.  From nodes
that arrive with a rollout nothing is derived, since deriving has no place on the path of a
request.  The same nodes sent again, as for all rollouts of a group, hit
the cache by their content.

**NCR** is the share of nodes that were reached (equation 1 of the paper), times the guard's factor
(:mod:`consensuspr.scoring.guard`).  What decides it is part of the reward: ``guard``,
``statements`` (a true statement reaches a node, not its expressions alone), ``final_nodes`` and
``ncr=weighted``.  The last counts weights in the place of nodes; a problem of which a node has
none, or all have 0, counts nodes.  ``code`` sets when a statement in program code counts, as in the
core.  The defaults deviate from the paper by guard and statements.

**Unanswered.** With ``unanswered="zero"`` the NCR of a response is 0 unless it marks a final answer
that the answer rule accepts (:func:`~consensuspr.scoring.answers.has_marked_answer`).  The answer
may be wrong or undecided, and no ground truth is needed.  ``ncr_raw`` and ``guard`` do not change.
In the curriculum's first stage it has no effect: NCR and reward are the paper's.

**Thinking models.** With ``after_think`` only what follows the last ``</think>`` is scored
(:func:`~consensuspr.scoring.types.scored_from`): the nodes, the guard's counts and its length, and
the final answer.  Spans are positions in the whole response, TPN has all of its tokens, and the
limit on its size is that of the whole.

Not covered here: limits on the size of a batch, concurrency and queues, which belong to
the server.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from consensuspr.core import NORMAL_FORM_VERSION, Matcher, match_batch, normalize
from consensuspr.data import Node
from consensuspr.data.schema import MAX_BUDGET_LENGTH, MAX_WEIGHT, is_weight
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
from consensuspr.scoring.dataset_index import DatasetIndex, Entry, MatcherCache
from consensuspr.scoring.guard import GuardBudget, GuardFigures
from consensuspr.scoring.rewards import NcrKind, RewardSpec
from consensuspr.scoring.types import (
    CHANNELS,
    DEFAULT_DATASET,
    DEFAULT_LIMITS,
    LOAD_METHODS,
    MAX_UINT32,
    SCORING_VERSION,
    AnswerRule,
    Explanation,
    Identity,
    InlineNode,
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

# Of each node, in the code points of a response.
Spans: TypeAlias = tuple[tuple[int, int] | None, ...]

DEFAULT_OPTIONS = ScoreOptions()

# How long before the deadline the wait for answers ends, so that one that stays open does not make
# the scores of a whole batch late.
REPLY_S = 1.0

PORTION_BYTES = 1 << 20  # of text, for each thread
MAX_THREADS_COUNTED = 16
MATCHER_BYTES = 16 << 20
# A defect that hits every rollout of a batch of thousands says the same thousands of times.
MAX_TRACEBACKS = 5

# Of a response whose spans or explanation are asked for; a larger one is OVERSIZE.  To tell where
# in it a hit is takes fifteen times its bytes.
MAX_EXPLAINED_BYTES = 2 << 20
_NOT_CHECKED = frozenset((Status.OVERSIZE, Status.UNKNOWN_PROBLEM, Status.INTERNAL))
_WITHOUT_REWARD = _NOT_CHECKED | {Status.INVALID_NODES}
_KILLED_TWICE = (
    "the answer could not be checked: processes that compared it were killed from outside, twice"
    " (out of memory?)"
)
_DONE = {OnUndecided.COUNT_WRONG: "counts as wrong", OnUndecided.MASK: "masks the reward"}


_log = logging.getLogger(__name__)


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
        if threads < 0:
            raise InputError(f"threads must be 0 or more, got {threads}")
        self.serve(datasets)
        self.limits = limits
        self._verifier = verifier
        self._threads = threads

    def serve(self, datasets: Mapping[str, DatasetIndex]) -> None:
        """Score with these datasets from now on; calls under way end on those they began with.

        Raises:
            InputError: there is none.
        """
        if not datasets:
            raise InputError("a scorer needs at least one dataset")
        # Another mapping, never another content of this one: who looks twice holds on to it.
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
        """Score a batch; arguments and errors are those of :meth:`score`, which makes objects.

        ``chosen`` is what :meth:`dataset` returned for the request that the batch is a piece of.
        """
        batch, identity = self._checked(
            rollouts, options, deadline, chosen or self.dataset(options)
        )
        return _combine(batch, options), identity

    def _checked(
        self,
        rollouts: Sequence[Rollout],
        options: ScoreOptions,
        deadline: float | None,
        chosen: Chosen,
    ) -> tuple[_Batch, Identity]:
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
            answer_rule=_answer_rule(options, index),
            server_version=VERSION,
            scoring_version=SCORING_VERSION,
        )
        batch = _Batch(rollouts, self.limits, deadline, options.reward.after_think)
        _match_nodes(batch, index, self._threads, options)
        _check_answers(batch, self._verifier, identity.answer_rule)
        _find_unanswered(batch, options, identity.answer_rule)
        return batch, identity

    def explain(
        self,
        rollout: Rollout,
        options: ScoreOptions = DEFAULT_OPTIONS,
        deadline: float | None = None,
    ) -> Explanation:
        """Score one rollout and tell which expression of which node was found where.

        Arguments and errors are those of :meth:`score`; the score always has spans.
        """
        options = replace(options, include_spans=True)
        chosen = self.dataset(options)
        batch, identity = self._checked([rollout], options, deadline, chosen)
        [score] = _combine(batch, options).scores()
        explanation = _explain_nodes(batch, score, identity, chosen[1])
        if score.ncr is not None and options.reward.guard:
            explanation.guard = _guard_figures(batch)
        return explanation

    def dataset(self, options: ScoreOptions) -> Chosen:
        """Return the dataset that a request means.

        That is the one which it names, else the only one, else the one called ``default``: so
        who names none goes on with what a server began with when another one is added.

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


class _Batch:
    """Rollouts and, position by position, what became of them so far.

    Columns rather than an object for each rollout: the scan, the answer check and the rewards
    take and give columns, and a batch holds thousands of rollouts.  Lists rather than arrays:
    a request holds a hundred, and between two of them a core forgets what numpy is made of.

    Attributes:
        rollouts: the batch.
        texts: what is scored of their responses.
        limits: bounds on one rollout.
        deadline: :func:`time.monotonic` value, None where there is none.
        status: OK until something is found.
        messages: one sentence by position, for each whose status is not OK.
        tokens: checked token counts, None where not given.
        truths: the ground truth that applies, None where unknown or not to be checked.
        num_nodes, num_matched: of the nodes that count.
        shares: NCR by position, where not every node adds the same.
        channels, spans: of all nodes of the problem, where they were matched.
        node_shares: what each of them adds to NCR, where spans were asked for.
        num_values, num_numbers: what the guard counts.
        budgets: what the guard allows of them by position, where it is not the default.
        verdicts: of the answers that were checked.
        unanswered: positions of responses that reach nodes but have an NCR of 0, because they
            mark no final answer.
    """

    def __init__(
        self,
        rollouts: Sequence[Rollout],
        limits: Limits,
        deadline: float | None,
        after_think: bool = False,
    ) -> None:
        """Start with nothing known; a field of a wrong type raises InputError."""
        count = len(rollouts)
        self.rollouts = rollouts
        self.limits = limits
        self.deadline = deadline
        self.tokens = [checked_tokens(rollout, at) for at, rollout in enumerate(rollouts)]
        self.texts = [rollout.response for rollout in rollouts]
        if after_think:
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
        self.spans: dict[int, Spans] = {}
        self.node_shares: dict[int, tuple[float, ...]] = {}
        self.verdicts: list[Verdict | None] = [None] * count
        self.unanswered: list[int] = []
        self._defects = 0

    def __len__(self) -> int:
        """Return the number of rollouts."""
        return len(self.rollouts)

    def spans_in(self, at: int, matcher: Matcher, reward: RewardSpec) -> Spans:
        """Return where in a response the nodes were hit."""
        text = self.texts[at]
        before = guard.characters(self.rollouts[at].response) - guard.characters(text)
        return tuple(
            [
                span and (span[0] + before, span[1] + before)
                for span in matcher.spans(
                    text, statements=reward.statements, counts=reward.guard, code=reward.code
                )
            ]
        )

    def fail(self, at: int, status: Status, message: str) -> None:
        """Set the status of one rollout."""
        self.status[at] = status
        self.messages[at] = message

    def defect(self, at: int, what: str) -> None:
        """Set INTERNAL for one rollout; to be called while the exception is handled."""
        self._defects += 1
        if self._defects <= MAX_TRACEBACKS:
            rollout = self.rollouts[at]
            _log.exception(
                "%s failed for rollout %s of problem %s",
                what, _shown(rollout.rollout_id or ""), _shown(rollout.problem_id),
            )  # fmt: skip
        self.fail(at, Status.INTERNAL, f"{what} failed by a defect; the log has the details")

    def check_deadline(self, work: str) -> None:
        """Raise DeadlineExceeded if the deadline has passed; ``work`` says before what."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise self.late(work)

    def late(self, work: str) -> DeadlineExceeded:
        """Return what to raise where the deadline has passed."""
        return DeadlineExceeded(
            f"the deadline passed before {work} of a batch of {len(self)} was done"
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
        counted: (k,) bool, the nodes that count; None for all, each the same.
        weights: (k,) float64, what they add to NCR, 0 where they do not count; None likewise.
    """

    matcher: Matcher
    budget: GuardBudget | None
    counted: npt.NDArray[np.bool_] | None = None
    weights: npt.NDArray[np.float64] | None = None

    @classmethod
    def of(
        cls,
        matcher: Matcher,
        budget: GuardBudget | None,
        nodes: Callable[[], Sequence[Node]],
        reward: RewardSpec,
    ) -> _Nodes:
        """Return what a reward makes of nodes, which are read only where it asks for them."""
        weighted = reward.ncr == NcrKind.WEIGHTED
        if reward.final_nodes and not weighted:
            return cls(matcher, budget)
        read = nodes()
        counted = np.array([reward.final_nodes or not node.is_final for node in read])
        plain = counted.astype(np.float64)
        stored = [node.weight for node in read if node.weight is not None]
        if weighted and len(stored) == len(read) and (plain * stored).any():
            return cls(matcher, budget, counted, plain * stored)
        return cls(matcher, budget, counted, plain)

    def shares(self, count: int) -> tuple[float, ...]:
        """Return what each of so many nodes adds to NCR, where one counts at all."""
        if self.weights is None:
            return (1 / count,) * count
        return tuple((self.weights / (self.weights.sum() or 1.0)).tolist())


class _Task(NamedTuple):
    """What is to be done for a rollout: its nodes and its truth; or a status, and the reason."""

    nodes: _Nodes | None
    truth: str | None
    status: Status = Status.OK
    message: str = ""


def _match_nodes(batch: _Batch, index: DatasetIndex, threads: int, options: ScoreOptions) -> None:
    """Match every rollout that has nodes; sets status, ground truth and node columns."""
    batch.check_deadline("the node matching")
    work = _Matching(batch, index, threads, options)
    for at, rollout in enumerate(batch.rollouts):
        try:
            nodes = work.nodes_for(at, rollout)
        except _InvalidNodesError as fault:
            batch.fail(at, Status.INVALID_NODES, str(fault))
        except DeadlineExceeded:
            raise
        except Exception:
            batch.defect(at, "compiling the nodes")
        else:
            if nodes is not None:
                work.add(at, nodes, batch.texts[at])
    work.flush()


class _Matching:
    """The portion being collected, and what was looked up so far."""

    def __init__(
        self, batch: _Batch, index: DatasetIndex, threads: int, options: ScoreOptions
    ) -> None:
        self._batch = batch
        self._index = index
        self._threads = threads
        self._reward = options.reward
        self._include_spans = options.include_spans
        counted = min(threads or os.cpu_count() or 1, MAX_THREADS_COUNTED)
        self._portion_bytes = PORTION_BYTES * counted
        # Of rollouts without nodes of their own, by problem and by the ground truth they bring.
        self._known: dict[tuple[str, str | None], _Task] = {}
        self._held_bytes = 0
        self._start_portion()

    def nodes_for(self, at: int, rollout: Rollout) -> _Nodes | None:
        """Return the nodes of one rollout, None where its status says why not."""
        batch = self._batch
        limit, purpose = batch.limits.max_response_bytes, ""
        size = exceeds(rollout.response, limit)
        if size is None and self._include_spans:
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

    def add(self, at: int, nodes: _Nodes, text: str | bytes) -> None:
        """Take a rollout into the portion, and match the portion when it is full."""
        self._positions.append(at)
        self._portion_nodes.append(nodes)
        self._texts.append(text)
        self._text_bytes += len(text)
        if self._text_bytes >= self._portion_bytes or self._held_bytes >= MATCHER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Match the portion."""
        if self._positions:
            self._batch.check_deadline("the node matching")
            self._match_portion()
        if self._held_bytes >= MATCHER_BYTES:
            self._known.clear()
            self._held_bytes = 0
        self._start_portion()

    def _start_portion(self) -> None:
        self._positions: list[int] = []
        self._portion_nodes: list[_Nodes] = []
        self._texts: list[str | bytes] = []
        self._text_bytes = 0

    def _task(self, at: int, rollout: Rollout) -> _Task:
        """Return what is to be done for a rollout; sets its ground truth."""
        entry = self._index.entry(rollout.problem_id)
        truth = rollout.ground_truth
        if not truth or truth.isspace():
            truth = None if entry is None else entry.ground_truth
        # Before nodes that may be invalid: the answer is checked all the same.
        self._batch.truths[at] = truth
        nodes = self._compiled(rollout, entry)
        if nodes is None:
            return self._without_nodes(rollout, entry, truth)
        shown = _shown(rollout.problem_id)
        if nodes.counted is not None and not nodes.counted.any():
            message = f"problem {shown} has no nodes but final ones, which do not count"
            return _Task(None, truth, Status.NO_NODES, message)
        if truth is None:
            message = f"problem {shown} has no ground truth"
            return _Task(nodes, None, Status.NO_GROUND_TRUTH, message)
        return _Task(nodes, truth)

    def _compiled(self, rollout: Rollout, entry: Entry | None) -> _Nodes | None:
        """Return the nodes that apply, None where there are none."""
        reward, given = self._reward, rollout.nodes
        if given is not None:
            if not len(given):
                return None
            _check_budget(rollout.budget)
            matcher = _compile_inline(given, self._batch.limits, self._index.cache)
            nodes = _Nodes.of(matcher, rollout.budget, lambda: _inline_as_nodes(given), reward)
        elif entry is None or not entry.num_nodes:
            return None
        else:
            matcher = entry.matcher
            nodes = _Nodes.of(matcher, entry.budget, lambda: entry.nodes, reward)
        self._held_bytes += matcher.nbytes
        # Compiling takes up to a millisecond.
        self._batch.check_deadline("the node matching")
        return nodes

    def _without_nodes(self, rollout: Rollout, entry: Entry | None, truth: str | None) -> _Task:
        shown, status = _shown(rollout.problem_id), Status.NO_NODES
        unknown = "" if truth is not None else " and no ground truth"
        if entry is None and unknown:
            status, message = Status.UNKNOWN_PROBLEM, f"problem {shown} is not in the dataset"
        elif rollout.nodes is not None:
            message = f"the rollout of problem {shown} came with an empty list of nodes{unknown}"
        elif entry is None:
            message = f"problem {shown} is not in the dataset and came without nodes"
        else:
            message = f"problem {shown} has no nodes{unknown}"
        return _Task(None, truth, status, message)

    def _match_portion(self) -> None:
        try:
            self._match(self._positions, self._portion_nodes, self._texts)
        except DeadlineExceeded:
            raise
        except Exception:
            # One of them is to blame: find it, and spare the others.
            for at, nodes, text in zip(
                self._positions, self._portion_nodes, self._texts, strict=True
            ):
                self._batch.check_deadline("the node matching")
                try:
                    self._match([at], [nodes], [text])
                except DeadlineExceeded:
                    raise
                except Exception:
                    self._batch.defect(at, "matching")

    def _match(self, positions: list[int], nodes: list[_Nodes], texts: list[str | bytes]) -> None:
        batch = self._batch
        matchers = [one.matcher for one in nodes]
        reward = self._reward
        try:
            result = match_batch(
                matchers,
                texts,
                threads=self._threads,
                statements=reward.statements,
                counts=reward.guard,
                deadline=batch.deadline,
                code=reward.code,
            )
        except TimeoutError:
            raise batch.late("the node matching") from None
        found = zip(positions, nodes, result.rows(), result.num_matched.tolist(), strict=True)
        for at, one, channels, num_matched in found:
            batch.channels[at] = channels
            batch.num_nodes[at] = len(channels)
            batch.num_matched[at] = num_matched
            if one.budget is not None:
                batch.budgets[at] = one.budget
            if self._include_spans:
                batch.check_deadline("the node matching")
                batch.spans[at] = batch.spans_in(at, one.matcher, reward)
                batch.node_shares[at] = one.shares(len(channels))
        if reward.guard:
            values, numbers = guard.counted(result)
            counts = zip(positions, values.tolist(), numbers.tolist(), strict=True)
            for at, num_values, num_numbers in counts:
                batch.num_values[at], batch.num_numbers[at] = num_values, num_numbers
        # A reward asks for a choice of nodes or for none, of all rollouts alike.
        chosen = [one.counted for one in nodes if one.counted is not None]
        weights = [one.weights for one in nodes if one.weights is not None]
        if chosen:
            self._choose(positions, np.concatenate(chosen), np.concatenate(weights))

    def _choose(
        self,
        positions: list[int],
        counted: npt.NDArray[np.bool_],
        weights: npt.NDArray[np.float64],
    ) -> None:
        """Count nodes anew, of which not all count or not all for the same."""
        batch = self._batch
        channels = [batch.channels[at] for at in positions]
        reached = np.frombuffer(b"".join(channels), dtype=np.uint8) != 0
        starts = np.cumsum([0, *map(len, channels[:-1])])
        num_nodes = np.add.reduceat(counted, starts, dtype=np.int64).tolist()
        num_matched = np.add.reduceat(counted & reached, starts, dtype=np.int64).tolist()
        earned = np.add.reduceat(weights * reached, starts)
        shares = (earned / np.add.reduceat(weights, starts)).tolist()
        for row, at in enumerate(positions):
            batch.num_nodes[at], batch.num_matched[at] = num_nodes[row], num_matched[row]
            batch.shares[at] = shares[row]


def _shown(name: str) -> str:
    """Return an id or a name as a message shows it; a hostile one is cut short."""
    return repr(name if len(name) <= 80 else name[:77] + "...")


class _InvalidNodesError(Exception):
    """Inline nodes break a rule; the text is the sentence for the rollout's message.

    Never leaves the scoring package, where it turns into the status INVALID_NODES.
    """


def _compile_inline(
    nodes: Sequence[InlineNode | Sequence[str]], limits: Limits, cache: MatcherCache
) -> Matcher:
    """Return the matcher of inline nodes, or raise _InvalidNodesError."""
    texts = _inline_texts(nodes, limits)
    # ASCII on purpose: no expression is longer in UTF-8 than in escaped JSON.
    content = json.dumps(texts, separators=(",", ":")).encode("ascii")
    if len(content) > min(limits.max_expression_bytes, limits.max_inline_bytes):
        _check_sizes([written + derived for written, derived in texts], limits)

    def compile_matcher() -> Matcher:
        expressions, derived = zip(*texts, strict=True)
        return Matcher(expressions, derived=derived)

    return cache.get(hashlib.blake2b(content, digest_size=16).digest(), compile_matcher)


def _check_budget(budget: object) -> None:
    """Raise _InvalidNodesError unless it is none, or a sound budget."""
    if budget is None:
        return
    if not isinstance(budget, GuardBudget):
        raise _InvalidNodesError(f"the budget is a {type(budget).__name__}, not a GuardBudget")
    for name, value in budget._asdict().items():
        least, most = (0, MAX_BUDGET_LENGTH) if name == "length" else (1, MAX_UINT32)
        if type(value) is not int or not least <= value <= most:
            raise _InvalidNodesError(
                f"the budget's {name} must be a whole number from {least} to {most}, got {value!r}"
            )


def _inline_as_nodes(nodes: Sequence[InlineNode | Sequence[str]]) -> tuple[Node, ...]:
    """Return valid inline nodes in the form of a dataset's."""
    return tuple(
        Node(
            node_id=getattr(node, "node_id", "") or f"n{position}",
            expressions=tuple(node.expressions if isinstance(node, InlineNode) else node),
            derived=tuple(node.derived) if isinstance(node, InlineNode) else (),
            is_final=isinstance(node, InlineNode) and bool(node.is_final),
            weight=node.weight if isinstance(node, InlineNode) else None,
        )
        for position, node in enumerate(nodes, start=1)
    )


def _inline_texts(
    nodes: Sequence[InlineNode | Sequence[str]], limits: Limits
) -> list[tuple[list[str], list[str]]]:
    if len(nodes) > limits.max_inline_nodes:
        raise _InvalidNodesError(
            f"{len(nodes)} inline nodes were sent; the limit is {limits.max_inline_nodes}"
        )
    return [_texts(node, f"inline node {at}", limits) for at, node in enumerate(nodes)]


def _texts(
    node: InlineNode | Sequence[str], which: str, limits: Limits
) -> tuple[list[str], list[str]]:
    """Return the expressions and the derived forms of one node."""
    written, derived = (
        (node.expressions, node.derived) if isinstance(node, InlineNode) else (node, ())
    )
    # A string is a sequence of strings too: its letters, as which nobody means it.
    if isinstance(written, (str, bytes)) or not hasattr(written, "__len__"):
        raise _InvalidNodesError(f"{which} is no list of expressions")
    if not len(written):
        raise _InvalidNodesError(f"{which} has no expressions")
    count = len(written) + len(derived)
    if count > limits.max_expressions_per_node:
        limit = limits.max_expressions_per_node
        raise _InvalidNodesError(f"{which} has {count} expressions; the limit is {limit}")
    texts = [*written], [*derived]
    for text in chain(*texts):
        if not isinstance(text, str):
            raise _InvalidNodesError(
                f"{which} has a value of type {type(text).__name__} among its expressions"
            )
    weight = node.weight if isinstance(node, InlineNode) else None
    if weight is not None and not is_weight(weight):
        raise _InvalidNodesError(
            f"{which} has the weight {weight!r}, which is no number from 0 to {MAX_WEIGHT:g}"
        )
    return texts


def _check_sizes(patterns: list[list[str]], limits: Limits) -> None:
    sizes = [[len(text.encode("utf-8", "surrogatepass")) for text in texts] for texts in patterns]
    for position, size in enumerate(map(max, sizes)):
        if size > limits.max_expression_bytes:
            raise _InvalidNodesError(
                f"inline node {position} has an expression of {size} bytes; "
                f"the limit is {limits.max_expression_bytes}"
            )
    total = sum(map(sum, sizes))
    if total > limits.max_inline_bytes:
        raise _InvalidNodesError(
            f"the inline nodes hold {total} bytes of expressions; "
            f"the limit is {limits.max_inline_bytes}"
        )


def _check_answers(batch: _Batch, verifier: AnswerVerifier, rule: AnswerRule) -> None:
    """Check the answer of every rollout whose ground truth is known; sets the verdicts.

    All go to the verifier in one call: it decides nearly all of them in microseconds and
    overlaps the rest in its workers, where portions would wait for each other's budgets.
    """
    batch.check_deadline("the answer check")
    checked = [
        at
        for at, status in enumerate(batch.status)
        # An enumeration's hash is a function of Python's: the usual one is not looked up.
        if (status is Status.OK or status not in _NOT_CHECKED) and batch.truths[at] is not None
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


def _verify(batch: _Batch, checked: list[int], verifier: AnswerVerifier, rule: AnswerRule) -> None:
    if not checked:
        return
    truths = [batch.truths[at] or "" for at in checked]
    responses = [batch.texts[at] for at in checked]
    until = batch.deadline
    if until is not None:
        until -= min(REPLY_S, (until - time.monotonic()) / 2)
    verdicts = verifier.verify_batch(truths, responses, rule, until)
    for at, verdict in zip(checked, verdicts, strict=True):
        batch.verdicts[at] = verdict


def _answer_rule(options: ScoreOptions, index: DatasetIndex) -> AnswerRule:
    return options.answer_rule or index.answer_rule or AnswerRule.AUTO


def _find_unanswered(batch: _Batch, options: ScoreOptions, rule: AnswerRule) -> None:
    """Note the responses whose NCR is 0 because they mark no final answer."""
    if not options.reward.zeroes_unanswered(options.epoch):
        return
    for at, matched in enumerate(batch.num_matched):
        if matched:  # else NCR is 0 or unknown
            try:
                if not has_marked_answer(batch.texts[at], rule):
                    batch.unanswered.append(at)
            except Exception:
                batch.defect(at, "the search for a final answer")


def _combine(batch: _Batch, options: ScoreOptions) -> ScoreColumns:
    """Return the scores of a batch, from what matching and the answer check found.

    NCR (equation 1 of the paper) and TPN (equation 2) are quotients of counts, so that
    equal counts give equal floats.  What is unknown is NaN, in the reward too.
    """
    undecided = _tell_undecided(batch, options.on_undecided)
    acc = [math.nan if one is None else 1.0 if one.correct else 0.0 for one in batch.verdicts]
    for at in undecided:
        verdict = batch.verdicts[at]
        if verdict is not None and verdict.method in LOAD_METHODS:
            acc[at] = math.nan
    raw, guards = _ncr(batch, options.reward)
    ncr = [share * factor for share, factor in zip(raw, guards, strict=True)]
    for at in batch.unanswered:
        ncr[at] = 0.0
    rewards: list[float] = options.reward.compute(acc, ncr, options.epoch).tolist()
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
        answer=[None if one is None else one.answer for one in batch.verdicts],
        answer_method=["" if one is None else one.method for one in batch.verdicts],
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


def _tell_undecided(batch: _Batch, policy: OnUndecided) -> list[int]:
    """Set status and message where an answer stayed undecided; return the positions."""
    found = []
    for at, verdict in enumerate(batch.verdicts):
        if verdict is None or verdict.correct is not None:
            continue
        found.append(at)
        if verdict.method == "killed":
            batch.fail(at, Status.INTERNAL, _KILLED_TWICE)
            continue
        done = "is not known" if verdict.method in LOAD_METHODS else _DONE[policy]
        message = f"the answer stayed undecided ({verdict.method}) and {done}"
        if batch.status[at] is Status.OK:
            batch.fail(at, Status.ANSWER_UNDECIDED, message)
        elif batch.status[at] is not Status.INTERNAL:
            batch.messages[at] += f"; {message}"
    return found


def _ncr(batch: _Batch, reward: RewardSpec) -> tuple[list[float], list[float]]:
    """Return NCR before the guard and the guard's factors, NaN where unknown."""
    counts = zip(batch.num_matched, batch.num_nodes, strict=True)
    raw = [matched / nodes if nodes else math.nan for matched, nodes in counts]
    for at, share in batch.shares.items():
        raw[at] = share
    guards = _guards(batch) if reward.guard else [1.0] * len(batch)
    # NaN alone differs from itself.
    pairs = zip(raw, guards, strict=True)
    return raw, [factor if share == share else share for share, factor in pairs]


def _guards(batch: _Batch) -> list[float]:
    """Return the guard's factors."""
    factors: list[float] = guard.factors_of(
        batch.num_values,
        batch.num_numbers,
        [batch.budgets.get(at) for at in range(len(batch))],
        [len(channels) for channels in batch.channels],
        batch.texts,
    ).tolist()
    return factors


def _guard_figures(batch: _Batch) -> GuardFigures:
    """Return the guard's arithmetic for the one rollout of a batch."""
    [num_values], [num_numbers] = batch.num_values, batch.num_numbers
    [channels], [text] = batch.channels, batch.texts
    columns = guard.allowed([batch.budgets.get(0)], [len(channels)], [guard.length_of(text)])
    [statements], [numbers] = (column.tolist() for column in columns)
    return GuardFigures(num_values, statements, num_numbers, numbers)


def _explain_nodes(
    batch: _Batch, score: Score, identity: Identity, index: DatasetIndex
) -> Explanation:
    """Return the explanation of the one rollout of a batch that has been scored, with spans."""
    if score.status in (Status.OVERSIZE, Status.INTERNAL):
        return Explanation(score, (), "", identity)
    [rollout], [text] = batch.rollouts, batch.texts
    normal_form = normalize(text)
    if score.ncr is None or score.spans is None:
        return Explanation(score, (), normal_form, identity)
    reward = identity.reward
    nodes, matcher = _nodes_of(rollout, index, batch.limits)
    hits = matcher.hits(text, statements=reward.statements, counts=reward.guard, code=reward.code)
    explained = tuple(
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
        for node, hit, span in zip(nodes, hits, score.spans, strict=True)
    )
    return Explanation(score, explained, normal_form, identity)


def _nodes_of(
    rollout: Rollout, index: DatasetIndex, limits: Limits
) -> tuple[tuple[Node, ...], Matcher]:
    """Return the nodes that the score was made with, and their matcher."""
    if rollout.nodes is not None:
        matcher = _compile_inline(rollout.nodes, limits, index.cache)
        return _inline_as_nodes(rollout.nodes), matcher
    entry = index.entry(rollout.problem_id)
    assert entry is not None  # a rollout without nodes of its own has an NCR only so
    return entry.nodes, entry.matcher
