"""Matchers are kept while they are used, within bounds."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest

from consensuspr.core import Matcher
from consensuspr.scoring import MatcherCache


@dataclass
class Sized:
    """A matcher as the cache sees it."""

    nbytes: int


def sized(nbytes: int) -> Any:
    """Return a function that compiles what the cache takes for a matcher of a size."""
    return lambda: Sized(nbytes)


def fill(cache: MatcherCache, *sizes: int) -> None:
    for key, size in enumerate(sizes):
        cache.get(key, sized(size))


def kept(cache: MatcherCache, keys: range) -> list[int]:
    """Return which keys are kept, without keeping others."""
    return [key for key in keys if key in cache._kept]


def test_a_matcher_is_compiled_once() -> None:
    cache = MatcherCache()
    made = [cache.get("key", lambda: Matcher([["x=5"]])) for _ in range(3)]
    assert made[0] is made[1] is made[2]
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.entries) == (2, 1, 1)
    assert stats.nbytes >= made[0].nbytes


def test_the_number_of_entries_is_bounded_and_the_oldest_goes() -> None:
    cache = MatcherCache(max_entries=3)
    fill(cache, 10, 10, 10)
    cache.get(0, lambda: pytest.fail("0 is kept"))
    cache.get(3, sized(10))
    assert kept(cache, range(4)) == [0, 2, 3]
    assert cache.stats().evictions == 1


@pytest.mark.parametrize("sizes", [[3000] * 50, list(range(100, 5000, 90)), [9000, 1, 9000, 1]])
def test_bytes_are_bounded_at_all_times(sizes: list[int]) -> None:
    cache = MatcherCache(max_bytes=10_000)
    for count in range(1, len(sizes) + 1):
        fill(cache, *sizes[:count])
        stats = cache.stats()
        assert stats.nbytes <= 10_000
        assert stats.nbytes >= sum(sizes[key] for key in kept(cache, range(count)))


def test_what_is_larger_than_the_bound_is_handed_out_and_not_kept() -> None:
    cache = MatcherCache(max_bytes=10_000)
    fill(cache, 100)
    assert cache.get("big", sized(20_000)).nbytes == 20_000
    assert (cache.stats().entries, cache.stats().evictions) == (1, 0)


@pytest.mark.parametrize("bounds", [{"max_bytes": 0}, {"max_entries": 0}])
def test_a_bound_of_0_keeps_nothing(bounds: dict[str, int]) -> None:
    cache = MatcherCache(**bounds)
    fill(cache, 1, 1)
    assert cache.stats().entries == 0


def test_clearing_forgets_matchers_and_their_bytes() -> None:
    cache = MatcherCache()
    fill(cache, 5, 5)
    cache.clear()
    assert (cache.stats().entries, cache.stats().nbytes) == (0, 0)


def test_a_compile_that_fails_leaves_no_trace() -> None:
    cache = MatcherCache()

    def fail() -> Any:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        cache.get("key", fail)
    assert cache.stats().entries == 0
    assert cache.get("key", lambda: Matcher([["x"]])).num_nodes == 1


def test_threads_share_one_matcher_and_the_books_stay_right() -> None:
    cache = MatcherCache(max_entries=8)
    start = threading.Barrier(8)
    wrong: list[str] = []

    def work(seed: int) -> None:
        start.wait()
        for step in range(400):
            key = (seed * 7 + step * step) % 12
            found = cache.get(key, sized(key))
            if found.nbytes != key:
                wrong.append(f"{key} gave {found.nbytes}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = cache.stats()
    assert wrong == []
    assert stats.hits + stats.misses == 8 * 400
    assert stats.entries == len(kept(cache, range(12))) <= 8
    cache.clear()
    assert cache.stats().nbytes == 0
