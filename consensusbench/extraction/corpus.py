"""Which equations other problems state, so that those that any solution may hold are no nodes.

An equation is *general* if solutions of several other problems state it, such as ``x+y=180``.  It
is *rare* if none does, whatever the names in it are; then it may reach its node with other names.
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

# Of all problems, how many are read, how many right rollouts of each, and of each the last
# characters: what a long one concludes stands at its end.
MAX_PROBLEMS = 2000
ROLLOUTS_PER_PROBLEM = 2
MAX_CHARS = 32_768
# So many other problems must be there before an equation counts as rare.
MIN_PROBLEMS = 20
# An equation that so many other problems state is general.
MIN_GENERAL = 4


def equation_of(text: str) -> Fact | None:
    """Return what an expression says as an equation, a congruence or the like, None for nothing.

    Arithmetic without names is none of it: it is compared as a statement.
    """
    if expression_keys(text):
        return None
    facts = facts_of_node(*read_expression_facts(text))
    return facts[0] if len(facts) == 1 else None


def keys_in(text: str) -> set[int]:
    """Return the keys of all that a text says, those of equations with any names included."""
    found: set[int] = set()
    for run in read_expression_facts(text)[1]:
        for fact in run.facts:
            found.update(fact.keys, filter(None, [fact.renamed]))
    return found


def order_of(problem_id: str) -> int:
    """Return a number that stands for a problem, and the place in which it is read."""
    digest = hashlib.blake2b(problem_id.encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "big")


@dataclass(frozen=True, slots=True)
class Corpus:
    """The keys of equations that solutions of problems state.

    Attributes:
        keys: (n,) in ascending order, each once for every problem.
        problems: (n,) the problem of each, by :func:`order_of`.
        num_problems: distinct ones.
    """

    keys: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    problems: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    num_problems: int = 0

    @classmethod
    def of(cls, texts: Iterable[tuple[str, str]]) -> Corpus:
        """Return the corpus of (problem id, text); the texts of a problem need not be together.

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
        """Return how many other problems state an equation, by its key."""
        wanted = np.uint64(key)
        first, last = (int(np.searchsorted(self.keys, wanted, side)) for side in ("left", "right"))
        return int((self.problems[first:last] != np.uint64(order_of(problem_id))).sum())

    def is_general(self, fact: Fact, problem_id: str) -> bool:
        """Tell whether an equation stands in the solutions of many other problems."""
        return any(self.num_others(key, problem_id) >= MIN_GENERAL for key in fact.keys)

    def is_rare(self, fact: Fact, problem_id: str) -> bool:
        """Tell whether no other problem states an equation, whatever its names are."""
        if self.num_problems <= MIN_PROBLEMS or not fact.renamed:
            return False
        return not self.num_others(fact.renamed, problem_id)
