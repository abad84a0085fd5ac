"""Matchers: a cache bounded in bytes, and those of nodes that arrive with a rollout."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Final

from consensuspr.core import Matcher
from consensuspr.data import Node
from consensuspr.data.schema import MAX_BUDGET, MAX_BUDGET_LENGTH, MAX_WEIGHT, is_weight
from consensuspr.scoring.guard import GuardBudget
from consensuspr.scoring.types import InlineNode, Limits

DEFAULT_MAX_BYTES = 256 << 20
# What an entry costs beside its matcher: key, slots of the dict, the Python object.
_ENTRY_BYTES = 512


class MatcherCache:
    """A thread-safe least-recently-used cache of matchers; datasets of a process may share one.

    A matcher takes up to a millisecond to compile and some ten kilobytes to keep, and a training
    step returns to few problems.  So a million problems need no more memory than a thousand.
    A matcher larger than the bound is returned and not kept; a bound of 0 keeps none.
    """

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self.nbytes = self.hits = self.misses = 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, Matcher] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of matchers that are kept."""
        return len(self._kept)

    def get(self, key: Hashable, compile_matcher: Callable[[], Matcher]) -> Matcher:
        """Return the matcher of a key, compiling it if it is not kept.

        Compiling happens outside the lock: two threads that miss together compile twice, which
        costs less than all others waiting behind one.
        """
        with self._lock:
            matcher = self._kept.get(key)
            if matcher is not None:
                self._kept.move_to_end(key)
                self.hits += 1
                return matcher
            self.misses += 1
        matcher = compile_matcher()
        cost = matcher.nbytes + _ENTRY_BYTES
        with self._lock:
            if key not in self._kept and cost <= self.max_bytes:
                self._kept[key] = matcher
                self.nbytes += cost
                while self.nbytes > self.max_bytes:
                    self._drop(next(iter(self._kept)))
        return matcher

    def forget(self, digest: str) -> None:
        """Drop the matchers of a dataset that is served no more."""
        with self._lock:
            for key in [*self._kept]:
                if isinstance(key, tuple) and key[0] == digest:
                    self._drop(key)

    def _drop(self, key: Hashable) -> None:
        self.nbytes -= self._kept.pop(key).nbytes + _ENTRY_BYTES


class InvalidNodesError(Exception):
    """Inline nodes break a rule; the rollout gets status INVALID_NODES and this message."""


def check_nodes(given: Sequence[InlineNode | Sequence[str]], limits: Limits) -> tuple[Node, ...]:
    """Return inline nodes in the form of a dataset's.

    Raises:
        InvalidNodesError: they break a rule or exceed a limit.
    """
    if len(given) > limits.max_inline_nodes:
        raise InvalidNodesError(
            f"{len(given)} inline nodes were sent; the limit is {limits.max_inline_nodes}"
        )
    nodes = tuple(_checked(node, at, limits) for at, node in enumerate(given))
    texts = (text for node in nodes for text in (*node.expressions, *(node.derived or ())))
    total = sum(map(_size, texts))
    if total > limits.max_inline_bytes:
        raise InvalidNodesError(
            f"the inline nodes have {total} bytes of expressions; "
            f"the limit is {limits.max_inline_bytes}"
        )
    return nodes


def _checked(given: InlineNode | Sequence[str], at: int, limits: Limits) -> Node:
    node = given if isinstance(given, InlineNode) else InlineNode(given)
    written, fault = node.expressions, ""
    # A string is a sequence of strings too.
    if isinstance(written, (str, bytes)) or not hasattr(written, "__len__"):
        raise InvalidNodesError(f"inline node {at} is not a list of expressions")
    texts = (*written, *node.derived)
    wrong = [type(text).__name__ for text in texts if not isinstance(text, str)]
    if not len(written):
        fault = "no expressions"
    elif len(texts) > (limit := limits.max_expressions_per_node):
        fault = f"{len(texts)} expressions; the limit is {limit}"
    elif wrong:
        fault = f"a value of type {wrong[0]} among its expressions"
    elif (size := max(map(_size, texts))) > (limit := limits.max_expression_bytes):
        fault = f"an expression of {size} bytes; the limit is {limit}"
    elif node.weight is not None and not is_weight(node.weight):
        fault = f"the weight {node.weight!r}, which is not a number from 0 to {MAX_WEIGHT:g}"
    if fault:
        raise InvalidNodesError(f"inline node {at} has {fault}")
    return Node(
        node_id=node.node_id or f"n{at + 1}",
        expressions=tuple(written),
        derived=tuple(node.derived),
        is_final=bool(node.is_final),
        weight=node.weight,
    )


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


_BUDGET_LIMITS: Final = {
    "statements": (1, MAX_BUDGET),
    "numbers": (1, MAX_BUDGET),
    "length": (0, MAX_BUDGET_LENGTH),
    "equations": (0, MAX_BUDGET_LENGTH),
}


def check_budget(budget: object) -> None:
    """Check the guard's budget of a rollout with inline nodes.

    Raises:
        InvalidNodesError: it is neither None nor a valid budget.
    """
    if budget is None:
        return
    if not isinstance(budget, GuardBudget):
        raise InvalidNodesError(f"the budget is a {type(budget).__name__}, not a GuardBudget")
    for name, value in budget._asdict().items():
        least, most = _BUDGET_LIMITS[name]
        if type(value) is not int or not least <= value <= most:
            raise InvalidNodesError(
                f"the budget's {name} must be a whole number from {least} to {most}, got {value!r}"
            )


def matcher_of(nodes: Sequence[Node], given: str = "") -> Matcher:
    """Return the matcher of nodes with the derived forms that they have.

    Args:
        given: text of the problem, whose own equations reach no node.
    """
    return Matcher(
        [node.expressions for node in nodes],
        derived=[node.derived or () for node in nodes],
        given=given,
        rare=[text for node in nodes for text in node.rare],
    )


def compile_nodes(nodes: Sequence[Node], cache: MatcherCache) -> Matcher:
    """Return the matcher of checked nodes; equal expressions share one."""
    texts = [(node.expressions, node.derived) for node in nodes]
    # ASCII: a lone surrogate has no UTF-8.
    content = json.dumps(texts, separators=(",", ":")).encode("ascii")
    key = hashlib.blake2b(content, digest_size=16).digest()
    return cache.get(key, lambda: matcher_of(nodes))
