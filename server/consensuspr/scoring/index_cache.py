"""Compiled matchers, kept while they are in use and within bounds of bytes and number.

A matcher takes up to a millisecond to compile and some ten kilobytes to keep, and a
training step returns to few problems: the cache follows the working set, so that a million
problems need no more memory than a thousand.  Datasets of one process may share one cache.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from consensuspr.core import Matcher

DEFAULT_MAX_BYTES = 256 << 20
DEFAULT_MAX_ENTRIES = 65_536

# What an entry costs beside its matcher: key, slots of the dict, the Python object.
_ENTRY_BYTES = 512


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counters since the cache was made, and what it holds now."""

    hits: int
    misses: int
    evictions: int
    entries: int
    nbytes: int


class MatcherCache:
    """A thread-safe least-recently-used cache of matchers.

    Bounds hold for what the cache keeps; a matcher in use outlives its eviction.  A matcher
    larger than the bound is handed out and not kept.
    """

    def __init__(
        self, max_bytes: int = DEFAULT_MAX_BYTES, max_entries: int = DEFAULT_MAX_ENTRIES
    ) -> None:
        """Make an empty cache; a bound of 0 keeps nothing."""
        self.max_bytes = max_bytes
        self.max_entries = max_entries
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, Matcher] = OrderedDict()
        self._nbytes = 0
        self._hits = 0
        self._misses = 0
        self._evictions = 0

    def get(self, key: Hashable, compile_matcher: Callable[[], Matcher]) -> Matcher:
        """Return the matcher of a key, compiling it where it is not kept.

        Compiling happens outside the lock: two threads that miss together compile twice,
        which costs less than all others waiting behind one.
        """
        with self._lock:
            matcher = self._kept.get(key)
            if matcher is not None:
                self._kept.move_to_end(key)
                self._hits += 1
                return matcher
            self._misses += 1
        matcher = compile_matcher()
        with self._lock:
            if key not in self._kept:
                self._keep(key, matcher)
        return matcher

    def stats(self) -> CacheStats:
        """Return the counters as of now."""
        with self._lock:
            return CacheStats(
                self._hits, self._misses, self._evictions, len(self._kept), self._nbytes
            )

    def clear(self) -> None:
        """Drop all matchers."""
        with self._lock:
            self._kept.clear()
            self._nbytes = 0

    def _keep(self, key: Hashable, matcher: Matcher) -> None:
        cost = matcher.nbytes + _ENTRY_BYTES
        if cost > self.max_bytes or self.max_entries < 1:
            return
        self._kept[key] = matcher
        self._nbytes += cost
        while self._nbytes > self.max_bytes or len(self._kept) > self.max_entries:
            _, dropped = self._kept.popitem(last=False)
            self._nbytes -= dropped.nbytes + _ENTRY_BYTES
            self._evictions += 1
