"""A bounded sample of rollouts by source that does not depend on their order.

The rollouts whose content hashes smallest are kept, so that the same rollouts in other files,
or in another order, give the same sample and the same findings.
"""

from __future__ import annotations

import hashlib
import heapq
from dataclasses import dataclass, field
from statistics import median
from typing import Final

# One response counts with its beginning: an outlier must not fill the sample alone.
MAX_CHARS_EACH: Final = 1 << 17


@dataclass(frozen=True, slots=True)
class Stranger:
    """A sampled rollout, which is a stranger to every problem but its own."""

    problem_id: str
    text: str


@dataclass(slots=True)
class RolloutSample:
    """At most so many rollouts a source, and at most so many characters.

    Attributes:
        per_source: rollouts kept of one source.
        max_chars: characters kept of one source; at least one rollout stays.
    """

    per_source: int = 256
    max_chars: int = 2 << 20
    # By source: (negated hash, rollout), the largest hash on top, and the characters held.
    _kept: dict[str, list[tuple[int, Stranger]]] = field(default_factory=dict)
    _chars: dict[str, int] = field(default_factory=dict)
    # By source: the smallest negated hash that may still come in.  What hashes larger than a
    # rollout that had to go must stay out even where it is short enough, or order would matter.
    _least: dict[str, int] = field(default_factory=dict)

    def add(self, source: str, problem_id: str, response: str) -> None:
        """Offer a rollout."""
        rank = -_hash(problem_id, response)
        heap = self._kept.setdefault(source, [])
        if rank < self._least.get(source, rank) or any(rank == kept for kept, _ in heap):
            return  # the same text for the same problem tells nothing new
        text = response[:MAX_CHARS_EACH]
        heapq.heappush(heap, (rank, Stranger(problem_id, text)))
        chars = self._chars.get(source, 0) + len(text)
        while len(heap) > self.per_source or (chars > self.max_chars and len(heap) > 1):
            gone, stranger = heapq.heappop(heap)
            chars -= len(stranger.text)
            self._least[source] = gone + 1
        self._chars[source] = chars

    def strangers(self, source: str) -> list[Stranger]:
        """Return the sample of a source, in the order of its hashes."""
        return [one for _, one in sorted(self._kept.get(source, ()), key=lambda kept: -kept[0])]

    def typical_chars(self, source: str) -> int | None:
        """Return the median length of the sample of a source; None without one."""
        lengths = [len(one.text) for _, one in self._kept.get(source, ())]
        return round(median(lengths)) if lengths else None


def _hash(problem_id: str, response: str) -> int:
    digest = hashlib.blake2b(digest_size=8)
    digest.update(problem_id.encode("utf-8", "surrogatepass") + b"\0")
    digest.update(response.encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest())
