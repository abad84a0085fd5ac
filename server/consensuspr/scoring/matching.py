"""Node matching of a batch: which nodes apply to each rollout, and which it reaches.

Work goes in portions, for three bounds: a portion holds about a megabyte of text for each
thread (so that a deadline is looked at every few milliseconds), and the matchers in use at
once stay below a fixed size, however large those are that a request brings along.
"""

from __future__ import annotations

import os

from consensuspr.core import Matcher, match_batch
from consensuspr.errors import DeadlineExceeded
from consensuspr.scoring.batch import Batch
from consensuspr.scoring.index import DatasetIndex, Entry
from consensuspr.scoring.inline_nodes import InvalidNodesError, compile_inline
from consensuspr.scoring.limits import exceeds
from consensuspr.scoring.types import Rollout, Status

PORTION_BYTES = 1 << 20  # of text, for each thread
MAX_THREADS_COUNTED = 16
MATCHER_BYTES = 64 << 20


def match_nodes(batch: Batch, index: DatasetIndex, threads: int, *, include_spans: bool) -> None:
    """Match every rollout that has nodes; sets status, ground truth and node columns.

    Raises:
        DeadlineExceeded: the batch's deadline passed.
    """
    batch.check_deadline("the node matching")
    work = _Matching(batch, index, threads, include_spans)
    for at, rollout in enumerate(batch.rollouts):
        try:
            matcher = work.matcher_for(at, rollout)
        except InvalidNodesError as fault:
            batch.fail(at, Status.INVALID_NODES, str(fault))
        except DeadlineExceeded:
            raise
        except Exception:
            batch.defect(at, "compiling the nodes")
        else:
            if matcher is not None:
                work.add(at, matcher, rollout.response)
    work.flush()


class _Matching:
    """The portion being collected, and what was looked up so far."""

    def __init__(
        self, batch: Batch, index: DatasetIndex, threads: int, include_spans: bool
    ) -> None:
        self._batch = batch
        self._index = index
        self._threads = threads
        self._include_spans = include_spans
        counted = min(threads or os.cpu_count() or 1, MAX_THREADS_COUNTED)
        self._portion_bytes = PORTION_BYTES * counted
        self._entries: dict[str, Entry | None] = {}
        self._matchers: dict[str, Matcher] = {}
        self._held_bytes = 0
        self._start_portion()

    def matcher_for(self, at: int, rollout: Rollout) -> Matcher | None:
        """Return the matcher of one rollout, None where its status says why not.

        Raises:
            InvalidNodesError: the rollout's inline nodes break a rule.
        """
        batch = self._batch
        size = exceeds(rollout.response, batch.limits.max_response_bytes)
        if size is not None:
            limit = batch.limits.max_response_bytes
            message = f"the response has {size} bytes; the limit is {limit}"
            batch.fail(at, Status.OVERSIZE, message)
            return None
        problem_id = rollout.problem_id
        try:
            entry = self._entries[problem_id]
        except KeyError:
            entry = self._entries[problem_id] = self._index.entry(problem_id)
        truth = rollout.ground_truth
        if not truth or truth.isspace():
            truth = None if entry is None else entry.ground_truth
        batch.truths[at] = truth
        if rollout.nodes is not None:
            matcher = self._inline(rollout) if len(rollout.nodes) else None
        else:
            matcher = self._stored(problem_id, entry)
        if matcher is None:
            self._without_nodes(at, rollout, entry)
        elif truth is None:
            message = f"problem {_shown(problem_id)} has no ground truth"
            batch.fail(at, Status.NO_GROUND_TRUTH, message)
        return matcher

    def add(self, at: int, matcher: Matcher, text: str | bytes) -> None:
        """Take a rollout into the portion, and match the portion when it is full."""
        self._positions.append(at)
        self._portion_matchers.append(matcher)
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
            self._matchers.clear()
            self._held_bytes = 0
        self._start_portion()

    def _start_portion(self) -> None:
        self._positions: list[int] = []
        self._portion_matchers: list[Matcher] = []
        self._texts: list[str | bytes] = []
        self._text_bytes = 0

    def _inline(self, rollout: Rollout) -> Matcher:
        assert rollout.nodes is not None
        matcher = compile_inline(rollout.nodes, self._batch.limits, self._index.cache)
        self._hold(matcher)
        return matcher

    def _stored(self, problem_id: str, entry: Entry | None) -> Matcher | None:
        if entry is None or not entry.num_nodes:
            return None
        matcher = self._matchers.get(problem_id)
        if matcher is None:
            matcher = self._matchers[problem_id] = entry.matcher
            self._hold(matcher)
        return matcher

    def _hold(self, matcher: Matcher) -> None:
        """Count a matcher, and look at the clock: compiling takes up to a millisecond."""
        self._held_bytes += matcher.nbytes
        self._batch.check_deadline("the node matching")

    def _without_nodes(self, at: int, rollout: Rollout, entry: Entry | None) -> None:
        batch = self._batch
        shown = _shown(rollout.problem_id)
        unknown = "" if batch.truths[at] is not None else " and no ground truth"
        if entry is None and unknown:
            message = f"problem {shown} is not in the dataset"
            batch.fail(at, Status.UNKNOWN_PROBLEM, message)
        elif rollout.nodes is not None:
            message = f"the rollout of problem {shown} came with an empty list of nodes{unknown}"
            batch.fail(at, Status.NO_NODES, message)
        elif entry is None:
            message = f"problem {shown} is not in the dataset and came without nodes"
            batch.fail(at, Status.NO_NODES, message)
        else:
            batch.fail(at, Status.NO_NODES, f"problem {shown} has no nodes{unknown}")

    def _match_portion(self) -> None:
        try:
            self._match(self._positions, self._portion_matchers, self._texts)
        except Exception:
            # One of them is to blame: find it, and spare the others.
            for at, matcher, text in zip(
                self._positions, self._portion_matchers, self._texts, strict=True
            ):
                self._batch.check_deadline("the node matching")
                try:
                    self._match([at], [matcher], [text])
                except Exception:
                    self._batch.defect(at, "matching")

    def _match(
        self, positions: list[int], matchers: list[Matcher], texts: list[str | bytes]
    ) -> None:
        batch = self._batch
        result = match_batch(matchers, texts, threads=self._threads)
        counts = result.num_matched.tolist()
        for row, at in enumerate(positions):
            matched = tuple(result.matched(row).tolist())
            batch.matched[at] = matched
            batch.num_nodes[at] = len(matched)
            batch.num_matched[at] = counts[row]
            if self._include_spans:
                batch.spans[at] = tuple(matchers[row].spans(texts[row]))


def _shown(problem_id: str) -> str:
    """Return an id as a message shows it; a hostile one is cut short."""
    return repr(problem_id if len(problem_id) <= 80 else problem_id[:77] + "...")
