"""Node matching of a batch: which nodes apply to each rollout, and which it reaches.

Work goes in portions, for three bounds: a portion holds about a megabyte of text for each
thread (so that a deadline is looked at every few milliseconds), and the matchers in use at
once stay below a fixed size, however large those are that a request brings along.

Nodes that arrive with a rollout are patterns only: nothing is derived from them, since deriving has
no place on the path of a request.  The same nodes sent again, as for all rollouts of a group,
hit the cache by their content.
"""

from __future__ import annotations

import hashlib
import json
import logging
import operator
import os
import time
from collections.abc import Sequence
from typing import NoReturn

from consensuspr.core import Matcher, match_batch
from consensuspr.data import Node
from consensuspr.errors import DeadlineExceeded, InputError
from consensuspr.scoring.answers import Verdict
from consensuspr.scoring.dataset_index import DatasetIndex, Entry, MatcherCache
from consensuspr.scoring.types import InlineNode, Limits, Rollout, Status, exceeds

PORTION_BYTES = 1 << 20  # of text, for each thread
MAX_THREADS_COUNTED = 16
MATCHER_BYTES = 64 << 20
# A defect that hits every rollout of a batch of thousands says the same thousands of times.
MAX_TRACEBACKS = 5

_log = logging.getLogger(__name__)


class Batch:
    """Rollouts and, position by position, what became of them so far.

    Columns rather than an object for each rollout: the scan, the answer check and the rewards
    take and give columns, and a batch holds thousands of rollouts.

    Attributes:
        rollouts: the batch.
        limits: bounds on one rollout.
        deadline: :func:`time.monotonic` value, None where there is none.
        status: OK until something is found.
        messages: one sentence where the status is not OK.
        tokens: checked token counts, None where not given.
        truths: the ground truth that applies, None where unknown or not to be checked.
        num_nodes, num_matched, matched, spans: of the nodes, where they were matched.
        verdicts: of the answers that were checked.
    """

    def __init__(self, rollouts: Sequence[Rollout], limits: Limits, deadline: float | None) -> None:
        """Start with nothing known; a field of a wrong type raises InputError."""
        count = len(rollouts)
        self.rollouts = rollouts
        self.limits = limits
        self.deadline = deadline
        self.tokens = [_checked_tokens(rollout, at) for at, rollout in enumerate(rollouts)]
        self.status = [Status.OK] * count
        self.messages = [""] * count
        self.truths: list[str | None] = [None] * count
        self.num_nodes = [0] * count
        self.num_matched = [0] * count
        self.matched: list[tuple[bool, ...]] = [()] * count
        self.spans: list[tuple[tuple[int, int] | None, ...] | None] = [None] * count
        self.verdicts: list[Verdict | None] = [None] * count
        self._defects = 0

    def __len__(self) -> int:
        """Return the number of rollouts."""
        return len(self.rollouts)

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
                "%s failed for rollout %r of problem %r",
                what, rollout.rollout_id, rollout.problem_id,
            )  # fmt: skip
        self.fail(at, Status.INTERNAL, f"{what} failed by a defect; the log has the details")

    def check_deadline(self, work: str) -> None:
        """Raise DeadlineExceeded if the deadline has passed; ``work`` says before what."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise DeadlineExceeded(
                f"the deadline passed before {work} of {len(self)} rollouts was done"
            )


def _checked_tokens(rollout: Rollout, at: int) -> int | None:
    """Return the token count of a rollout whose fields all have sound types."""
    if not isinstance(rollout.response, (str, bytes)):
        _wrong(at, "response", "str or bytes", rollout.response)
    if not isinstance(rollout.problem_id, str):
        _wrong(at, "problem_id", "str", rollout.problem_id)
    if rollout.ground_truth is not None and not isinstance(rollout.ground_truth, str):
        _wrong(at, "ground_truth", "str or None", rollout.ground_truth)
    if rollout.nodes is not None and not hasattr(rollout.nodes, "__len__"):
        _wrong(at, "nodes", "a sequence or None", rollout.nodes)
    if rollout.num_tokens is None:
        return None
    try:
        tokens = operator.index(rollout.num_tokens)
    except TypeError:
        _wrong(at, "num_tokens", "int or None", rollout.num_tokens)
    return tokens if tokens > 0 else None


def _wrong(at: int, field: str, wanted: str, got: object) -> NoReturn:
    raise InputError(f"rollouts[{at}].{field} must be {wanted}, got {type(got).__name__}")


def match_nodes(batch: Batch, index: DatasetIndex, threads: int, *, include_spans: bool) -> None:
    """Match every rollout that has nodes; sets status, ground truth and node columns."""
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
        """Return the matcher of one rollout, None where its status says why not."""
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
        matcher = self._compiled(rollout, entry)
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

    def _compiled(self, rollout: Rollout, entry: Entry | None) -> Matcher | None:
        """Return the matcher of the nodes that apply, None where there are none."""
        if rollout.nodes is not None:
            if not len(rollout.nodes):
                return None
            matcher = compile_inline(rollout.nodes, self._batch.limits, self._index.cache)
        elif entry is None or not entry.num_nodes:
            return None
        elif rollout.problem_id in self._matchers:
            return self._matchers[rollout.problem_id]
        else:
            matcher = self._matchers[rollout.problem_id] = entry.matcher
        self._held_bytes += matcher.nbytes
        # Compiling takes up to a millisecond.
        self._batch.check_deadline("the node matching")
        return matcher

    def _without_nodes(self, at: int, rollout: Rollout, entry: Entry | None) -> None:
        shown, status = _shown(rollout.problem_id), Status.NO_NODES
        unknown = "" if self._batch.truths[at] is not None else " and no ground truth"
        if entry is None and unknown:
            status, message = Status.UNKNOWN_PROBLEM, f"problem {shown} is not in the dataset"
        elif rollout.nodes is not None:
            message = f"the rollout of problem {shown} came with an empty list of nodes{unknown}"
        elif entry is None:
            message = f"problem {shown} is not in the dataset and came without nodes"
        else:
            message = f"problem {shown} has no nodes{unknown}"
        self._batch.fail(at, status, message)

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


class InvalidNodesError(Exception):
    """Inline nodes break a rule; the text is the sentence for the rollout's message.

    Never leaves the scoring package, where it turns into the status INVALID_NODES.
    """


def compile_inline(
    nodes: Sequence[InlineNode | Sequence[str]], limits: Limits, cache: MatcherCache
) -> Matcher:
    """Return the matcher of inline nodes, or raise InvalidNodesError."""
    patterns = _patterns(nodes, limits)
    # ASCII on purpose: no expression is longer in UTF-8 than in escaped JSON.
    content = json.dumps(patterns, separators=(",", ":")).encode("ascii")
    if len(content) > min(limits.max_expression_bytes, limits.max_inline_bytes):
        _check_sizes(patterns, limits)
    key = hashlib.blake2b(content, digest_size=16).digest()
    return cache.get(key, lambda: Matcher(patterns))


def inline_as_nodes(nodes: Sequence[InlineNode | Sequence[str]]) -> tuple[Node, ...]:
    """Return valid inline nodes in the form of a dataset's."""
    return tuple(
        Node(
            node_id=getattr(node, "node_id", "") or f"n{position}",
            expressions=tuple(node.expressions if isinstance(node, InlineNode) else node),
            derived=tuple(node.derived) if isinstance(node, InlineNode) else (),
        )
        for position, node in enumerate(nodes, start=1)
    )


def _patterns(nodes: Sequence[InlineNode | Sequence[str]], limits: Limits) -> list[list[str]]:
    if len(nodes) > limits.max_inline_nodes:
        raise InvalidNodesError(
            f"{len(nodes)} inline nodes were sent; the limit is {limits.max_inline_nodes}"
        )
    return [_texts(node, f"inline node {at}", limits) for at, node in enumerate(nodes)]


def _texts(node: InlineNode | Sequence[str], which: str, limits: Limits) -> list[str]:
    """Return what one node is matched by: expressions, then derived forms."""
    written, derived = (
        (node.expressions, node.derived) if isinstance(node, InlineNode) else (node, ())
    )
    # A string is a sequence of strings too: its letters, as which nobody means it.
    if isinstance(written, (str, bytes)) or not hasattr(written, "__len__"):
        raise InvalidNodesError(f"{which} is no list of expressions")
    if not len(written):
        raise InvalidNodesError(f"{which} has no expressions")
    count = len(written) + len(derived)
    if count > limits.max_expressions_per_node:
        limit = limits.max_expressions_per_node
        raise InvalidNodesError(f"{which} has {count} expressions; the limit is {limit}")
    texts = [*written, *derived]
    for text in texts:
        if not isinstance(text, str):
            raise InvalidNodesError(f"{which} has a {type(text).__name__} among its expressions")
    return texts


def _check_sizes(patterns: list[list[str]], limits: Limits) -> None:
    sizes = [[len(text.encode("utf-8", "surrogatepass")) for text in texts] for texts in patterns]
    for position, size in enumerate(map(max, sizes)):
        if size > limits.max_expression_bytes:
            raise InvalidNodesError(
                f"inline node {position} has an expression of {size} bytes; "
                f"the limit is {limits.max_expression_bytes}"
            )
    total = sum(map(sum, sizes))
    if total > limits.max_inline_bytes:
        raise InvalidNodesError(
            f"the inline nodes hold {total} bytes of expressions; "
            f"the limit is {limits.max_inline_bytes}"
        )
