"""A bounded cache of comparison results, for answers that a worker was asked about.

Rollouts of one group repeat their answers, right and wrong, and a later epoch repeats them
again.  Thread-safe; bounded by entries and by bytes, because a policy under training chooses
the keys.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple


class Key(NamedTuple):
    """All that a comparison depends on.

    Attributes:
        ground_truth: the ground truth as it is compared.
        answer: the extracted answer.
        context: clipped end of the response where math-verify extracts once more, else "".
        rule: the rule that extracted.
    """

    ground_truth: str
    answer: str
    context: str
    rule: str


class Outcome(NamedTuple):
    """What became of a comparison.

    Attributes:
        equal: the verdict; None where a limit was met.
        limit: the limit that was met, "" where there is a verdict.
        final: asking again would end the same way, for the input itself is the cause.
    """

    equal: bool | None
    limit: str = ""
    final: bool = True


# An entry's own cost beside its characters: tuple, strings, links.
_ENTRY_BYTES = 600


class ResultCache:
    """Least recently used results.

    Args:
        max_entries: most entries kept; 0 keeps nothing.
        max_bytes: most bytes kept, by an estimate from above.
    """

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._results: OrderedDict[Key, Outcome] = OrderedDict()
        self._nbytes = 0
        self._lock = threading.Lock()

    def get(self, key: Key) -> Outcome | None:
        """Return the result of ``key``, None where it is not known."""
        with self._lock:
            outcome = self._results.get(key)
            if outcome is not None:
                self._results.move_to_end(key)
            return outcome

    def put(self, key: Key, outcome: Outcome) -> None:
        """Keep a result, dropping the least recently used ones beyond the bounds."""
        size = _size(key)
        if self._max_entries == 0 or size > self._max_bytes:
            return
        with self._lock:
            if key not in self._results:
                self._nbytes += size
            self._results[key] = outcome
            self._results.move_to_end(key)
            while len(self._results) > self._max_entries or self._nbytes > self._max_bytes:
                oldest, _ = self._results.popitem(last=False)
                self._nbytes -= _size(oldest)

    @property
    def nbytes(self) -> int:
        """Estimated bytes kept."""
        return self._nbytes

    def __len__(self) -> int:
        return len(self._results)


def _size(key: Key) -> int:
    # Four bytes a character is the widest that CPython stores.
    return _ENTRY_BYTES + 4 * sum(map(len, key))
