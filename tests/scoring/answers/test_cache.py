"""The result cache keeps within its bounds."""

from __future__ import annotations

import threading

from consensuspr.scoring.answers.sandbox import ComparisonKey, ComparisonOutcome
from consensuspr.scoring.answers.verifier import ResultCache


def key(number: int, answer: str = "1") -> ComparisonKey:
    return ComparisonKey(str(number), answer, "", "auto")


def test_a_result_comes_back() -> None:
    cache = ResultCache(4, 1 << 20)
    cache.put(key(1), ComparisonOutcome(True))
    assert cache.get(key(1)) == ComparisonOutcome(True)
    assert cache.get(key(2)) is None
    assert cache.get(key(1)._replace(rule="boxed")) is None


def test_the_least_recently_used_goes_first() -> None:
    cache = ResultCache(2, 1 << 20)
    cache.put(key(1), ComparisonOutcome(True))
    cache.put(key(2), ComparisonOutcome(False))
    cache.get(key(1))
    cache.put(key(3), ComparisonOutcome(None, "budget"))
    assert cache.get(key(2)) is None
    assert cache.get(key(1)) == ComparisonOutcome(True)
    assert len(cache) == 2


def test_bytes_are_bounded_too() -> None:
    cache = ResultCache(1_000_000, 100_000)
    for number in range(1000):
        cache.put(key(number, "x" * 1000), ComparisonOutcome(False))
    assert cache.nbytes <= 100_000
    assert 0 < len(cache) < 100
    cache.put(key(0, "x" * 100_000), ComparisonOutcome(False))
    assert cache.get(key(0, "x" * 100_000)) is None


def test_a_size_of_zero_keeps_nothing() -> None:
    cache = ResultCache(0, 1 << 20)
    cache.put(key(1), ComparisonOutcome(True))
    assert len(cache) == 0


def test_threads_do_not_break_the_books() -> None:
    cache = ResultCache(50, 1 << 20)

    def churn(start: int) -> None:
        for number in range(2000):
            cache.put(key(start + number % 200), ComparisonOutcome(True))
            cache.get(key(number % 200))

    threads = [threading.Thread(target=churn, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cache) <= 50
    for number in range(400):
        cache.put(key(1000 + number), ComparisonOutcome(True))
    single = ResultCache(1, 1 << 20)
    single.put(key(1000), ComparisonOutcome(True))
    assert cache.nbytes == 50 * single.nbytes
