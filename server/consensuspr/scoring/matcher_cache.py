"""A cache of compiled matchers, bounded in bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from consensuspr.core import Matcher

DEFAULT_MAX_BYTES = 256 << 20
# What an entry costs beside its matcher: key, slots of the dict, the Python object.
_ENTRY_BYTES = 512


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counters since the cache was made, and its contents now."""

    hits: int
    misses: int
    evictions: int
    entries: int
    nbytes: int


class MatcherCache:
    """A thread-safe least-recently-used cache of matchers; datasets of a process may share one.

    A matcher takes up to a millisecond to compile and some ten kilobytes to keep, and a training
    step returns to few problems.  So a million problems need no more memory than a thousand.
    A matcher larger than the bound is returned and not kept.
    """

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        """Make an empty cache; a bound of 0 keeps nothing."""
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, Matcher] = OrderedDict()
        self._nbytes = self._hits = self._misses = self._evictions = 0

    def get(self, key: Hashable, compile_matcher: Callable[[], Matcher]) -> Matcher:
        """Return the matcher of a key, compiling it if it is not kept.

        Compiling happens outside the lock: two threads that miss together compile twice, which
        costs less than all others waiting behind one.
        """
        with self._lock:
            matcher = self._kept.get(key)
            if matcher is not None:
                self._kept.move_to_end(key)
                self._hits += 1
                return matcher
            self._misses += 1
        matcher = compile_matcher()
        cost = matcher.nbytes + _ENTRY_BYTES
        with self._lock:
            if key not in self._kept and cost <= self.max_bytes:
                self._kept[key] = matcher
                self._nbytes += cost
                while self._nbytes > self.max_bytes:
                    self._drop(next(iter(self._kept)))
                    self._evictions += 1
        return matcher

    def stats(self) -> CacheStats:
        """Return the counters as of now."""
        with self._lock:
            return CacheStats(
                self._hits, self._misses, self._evictions, len(self._kept), self._nbytes
            )

    def forget(self, digest: str) -> None:
        """Drop the matchers of a dataset that is served no more."""
        with self._lock:
            for key in [*self._kept]:
                if isinstance(key, tuple) and key[0] == digest:
                    self._drop(key)

    def clear(self) -> None:
        """Drop all matchers."""
        with self._lock:
            self._kept.clear()
            self._nbytes = 0

    def _drop(self, key: Hashable) -> None:
        self._nbytes -= self._kept.pop(key).nbytes + _ENTRY_BYTES
