"""Count which equations the solutions of other problems state.

An equation is *general* if solutions of several other problems state it, such as ``x+y=180``;
then it is not a node.  It is *rare* if no other problem states it with any names; then it
may reach its node with other names.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from consensuspr.core import expression_keys, read_expression_facts
from consensuspr.core.algebra import Fact, facts_of_node

# Problems that are read, right rollouts of each, and of each text its last characters: what a
# long solution concludes stands at its end.
MAX_PROBLEMS = 2000
ROLLOUTS_PER_PROBLEM = 2
MAX_CHARS = 32_768
# An equation can be rare only if the corpus has more problems than this.
MIN_PROBLEMS = 20
# Other problems that state a general equation, at least.
MIN_GENERAL = 4


def equation_of(text: str) -> Fact | None:
    """Return the equation, congruence, list or inequality that an expression states, or None.

    Returns None for arithmetic without names too, which is compared as a statement.
    """
    if expression_keys(text):
        return None
    facts = facts_of_node(*read_expression_facts(text))
    return facts[0] if len(facts) == 1 else None


def keys_in(text: str) -> set[int]:
    """Return the keys of all equations of a text, with their own and with any names."""
    found: set[int] = set()
    for run in read_expression_facts(text)[1]:
        for fact in run.facts:
            found.update(fact.keys, filter(None, [fact.renamed]))
    return found


def order_of(problem_id: str) -> int:
    """Return a number of 64 bits for a problem, by which problems are sorted."""
    digest = hashlib.blake2b(problem_id.encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "big")


@dataclass(frozen=True, slots=True)
class Corpus:
    """The keys of equations that solutions of problems state.

    Attributes:
        keys: (n,) keys in ascending order, each once for each problem that states it.
        problems: (n,) problem of each key, as :func:`order_of` returns it.
        num_problems: number of distinct problems.
    """

    keys: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    problems: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    num_problems: int = 0

    @classmethod
    def of(cls, texts: Iterable[tuple[str, str]]) -> Corpus:
        """Return the corpus of pairs (problem id, text), in any order.

        Of more than :data:`MAX_PROBLEMS` problems the first by :func:`order_of` are read, and of a
        text the last :data:`MAX_CHARS` characters.  A key takes 8 bytes until all are read.
        """
        found: dict[int, array[int]] = {}
        limit = 1 << 64
        for problem_id, text in texts:
            own = order_of(problem_id)
            if own >= limit:
                continue
            found.setdefault(own, array("Q")).extend(keys_in(text[-MAX_CHARS:]))
            if len(found) > MAX_PROBLEMS:
                limit = max(found)
                del found[limit]
        owners = sorted(found)
        distinct = [np.unique(np.frombuffer(found.pop(own), np.uint64)) for own in owners]
        keys = np.concatenate([np.zeros(0, np.uint64), *distinct])
        problems = np.repeat(np.array(owners, np.uint64), [len(each) for each in distinct])
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], problems[order], len(owners))

    def num_others(self, key: int, problem_id: str) -> int:
        """Return how many other problems state the equation of a key."""
        wanted = np.uint64(key)
        first, last = (int(np.searchsorted(self.keys, wanted, side)) for side in ("left", "right"))
        return int((self.problems[first:last] != np.uint64(order_of(problem_id))).sum())

    def is_general(self, fact: Fact, problem_id: str) -> bool:
        """Return whether the solutions of many other problems state an equation."""
        return any(self.num_others(key, problem_id) >= MIN_GENERAL for key in fact.keys)

    def is_rare(self, fact: Fact, problem_id: str) -> bool:
        """Return whether no other problem states an equation with any names."""
        if self.num_problems <= MIN_PROBLEMS or not fact.renamed:
            return False
        return not self.num_others(fact.renamed, problem_id)
